// SPDX-License-Identifier: Apache-2.0
// Shards as a framework writes them: up to five numbers, what an entry is by default, how many ranks a list has.
#include <doctest/doctest.h>

#include <vector>

#include <reshard/space/shard.hpp>

#include "../support/refused.hpp"

using namespace reshard;

TEST_CASE("extents are the numbers that are listed, in order, five at most") {
  static_assert(extents{}.ndim == 0);
  static_assert(extents{7}.ndim == 1 && extents{7}.at[0] == 7 && extents{7}.at[1] == 0);
  constexpr extents five{2, 3, 4, 5, 6};
  static_assert(five.ndim == 5);
  for (int i = 0; i < 5; ++i) CHECK(five.at[i] == i + 2);
  CHECK(testing::refused([] { extents{1, 2, 3, 4, 5}; }) == "accepted");
  CHECK(testing::refused([] { extents{1, 2, 3, 4, 5, 6}; }) ==
        "reshard: a tensor of 6 dimensions; at most 5 are supported");
  CHECK(testing::refused([] { extents{1, 2, 3, 4, 5, 6, 7}; }) ==
        "reshard: a tensor of 7 dimensions; at most 5 are supported");
}

TEST_CASE("extents are equal where number and values are") {
  CHECK(extents{2, 3} == extents{2, 3});
  CHECK_FALSE(extents{2, 3} == extents{3, 2});
  CHECK_FALSE(extents{2} == extents{2, 0});
}

TEST_CASE("a shard is one of rank 0, of bf16 parameters, unless it says otherwise") {
  const shard s;
  CHECK(s.rank == 0);
  CHECK(s.tensor.empty());
  CHECK(s.type == bf16);
  CHECK(s.state == "param");
  CHECK(s.whole == extents{});
}

TEST_CASE("the world of a list is that of the highest rank it names, or as many ranks as are said") {
  std::vector<shard> shards;
  CHECK(shard_list(shards).ranks() == 0);
  for (const rank_t rank : {0, 5, 3}) {
    shards.push_back({rank, "w", bf16, {4}, {0}, {4}});
    CHECK(shard_list(shards).ranks() == (rank == 0 ? 1 : 6));
  }
  CHECK(shard_list(shards, 9).ranks() == 9);
  CHECK(shard_list(shards).shards().size() == 3);
  shards[1].rank = 9'223'372'036'854'775'807;
  CHECK_REFUSED(shard_list(shards), "9223372036854775807 + 1 does not fit 64 bits");
}
