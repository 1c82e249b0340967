// SPDX-License-Identifier: Apache-2.0
// What answers for a layout: a Holding itself, a space computed with the states that are wanted, a list listed.
#include <doctest/doctest.h>

#include <type_traits>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/space/holding_of.hpp>

using namespace reshard;

namespace {
constexpr model tiny = make_transformer(
    {.name = "tiny", .layers = 1, .hidden = 4, .heads = 2, .groups = 2, .head_dim = 2, .ffn = 4, .vocabulary = 8});
}  // namespace

static_assert(Layout<space> && Layout<computed_holding> && Layout<listed_holding>);
static_assert(Layout<shard_list> && Layout<std::vector<shard>>);
static_assert(!Layout<int> && !Layout<model> && !Layout<std::vector<int>> && !Layout<shard>);

TEST_CASE("a Holding answers for itself, and is not copied") {
  computed_holding h(space(tiny, config<dp<2>>{}), parameter_states);
  CHECK(&holding_of(h) == &h);
  CHECK(&holding_of(h, all_states) == &h);
  static_assert(std::is_same_v<decltype(holding_of(h)), computed_holding&>);
  static_assert(std::is_same_v<decltype(holding_of(computed_holding(h))), computed_holding&&>);
}

TEST_CASE("a space is computed, with the states that are wanted") {
  const space s(tiny, config<dp<2>, zero<1>>{});
  CHECK(holding_of(s).states() == all_states);
  CHECK(holding_of(s, parameter_states).states() == parameter_states);
  CHECK(holding_of(s).space().ranks() == 2);
}

TEST_CASE("a list is listed by its own names, a vector as one of the ranks that it names") {
  const std::vector<shard> shards = {{2, "w", bf16, {4}, {0}, {4}}, {0, "b", fp32, {3}, {0}, {3}, "master"}};
  const listed_holding named = holding_of(shards), wider = holding_of(shard_list(shards, 9));
  CHECK(named.ranks() == 3);
  CHECK(wider.ranks() == 9);
  CHECK(named.families() == 2);
  CHECK(named.family_at(0).name == "b");
  CHECK(named.states() == (only(0) | only(1)));
}
