// SPDX-License-Identifier: Apache-2.0
// A world's shards in one value: how many ranks it has.
#include <doctest/doctest.h>

#include <vector>

#include <reshard/space/shard_list.hpp>

#include "../support/refused.hpp"

using namespace reshard;

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
