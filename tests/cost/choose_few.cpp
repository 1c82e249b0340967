// SPDX-License-Identifier: Apache-2.0
// Which routing is chosen of a few rows, by hand: memory with relay within a budget, what stays, rails that do not
// meet, and relay where it is not faster. cost/choose_routing.cpp looks at every way of many.
#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <reshard/cost/choose_routing.hpp>
#include <reshard/space/listed_holding.hpp>

#include "../support/refused.hpp"

using namespace reshard;

namespace {

using shards = std::vector<shard>;
shard row_of(rank_t rank, const char* name, index_t begin, index_t end, index_t all) {
  return {rank, name, bf16, {all}, {begin}, {end - begin}};
}
/// Device 0's four rows go to devices 3 and 4, two of them through device 2, which keeps eight bytes of its own.
auto passing(const cluster& on) {
  return layout_switch(
      shards{{0, "w", bf16, {4, 4}, {0, 0}, {4, 4}}, row_of(1, "x", 0, 4, 4)},
      shards{row_of(0, "x", 0, 4, 4), {1, "w", bf16, {4, 4}, {0, 0}, {4, 4}}, {2, "w", bf16, {4, 4}, {0, 0}, {4, 4}}},
      placement{.from = device_map({0, 2}), .to = device_map({2, 3, 4}), .on = on});
}

}  // namespace

TEST_CASE("with relay a budget wants as many stages as keep it: what is passed on is there for two slots") {
  const auto change = passing(nodes_of(2));
  const auto chosen = [&](bytes_t budget, std::optional<index_t> stages = {}, sources after_use = sources::release) {
    return choose_routing(change,
                          {.when = relay_when::always, .stages = stages, .budget = budget, .after_use = after_use});
  };
  // sixteen bytes in one stage or two, eight elements in more
  for (const auto& one :
       std::vector<std::pair<bytes_t, index_t>>{{16, 1}, {15, 4}, {8, 4}, {7, 8}, {4, 8}, {3, 16}, {2, 16}}) {
    CAPTURE(one.first);
    const routing_choice found = chosen(one.first);
    CHECK(found.kept);
    CHECK(found.how == routing{relay::always, 1, one.second});
    CHECK(found.excess == (one.second == 16 ? 2 : one.second == 1 ? 16 : 32 / one.second));
    CHECK(found.phases == 3);
    CHECK(!found.seconds);
  }
  const routing_choice named = chosen(16, 2), free = chosen(0, 3), one = chosen(0);
  CHECK((named.kept && named.how == routing{relay::always, 1, 2} && named.excess == 16));
  CHECK((free.kept && free.how == routing{relay::always, 1, 3} && free.excess == 0));
  CHECK(one.how == routing{relay::always, 1, 1});
  // what is not kept in any number of stages, or not in those that are named; kept sources are beside it
  const routing_choice none = chosen(1), above = chosen(15, 2), beside = chosen(16, 2, sources::keep),
                       above_too = chosen(15, 2, sources::keep);
  CHECK((!none.kept && none.how == routing{relay::always, 1, 1} && none.excess == 16 && none.least_budget == 2));
  CHECK((!above.kept && above.how == routing{relay::always, 1, 2} && above.excess == 16 && above.least_budget == 16));
  CHECK((beside.kept && beside.excess == 16));
  CHECK((!above_too.kept && above_too.least_budget == 16));
}

TEST_CASE("what stays is a stream from a device to itself, on every device") {
  const layout_switch change(shards{row_of(0, "w", 0, 4, 8), row_of(1, "w", 4, 8, 8), row_of(2, "k", 0, 5, 5)},
                             shards{row_of(0, "w", 0, 4, 8), row_of(1, "w", 4, 8, 8), row_of(2, "k", 0, 5, 5)},
                             placement{});
  relayed_streams streams = retained_streams_of(change);
  REQUIRE(streams.streams().size() == 3);
  for (rank_t d = 0; d < 3; ++d)
    CHECK(streams.streams()[static_cast<std::size_t>(d)].sized == sized_stream{d, d, d == 2 ? 5 : 4, 2});
  relayed_streams all = relayed_streams_of(change, 1);
  CHECK(all.streams().size() == 3);
}

TEST_CASE("where rails do not meet the direct way has no seconds, and relay that crosses them too is refused") {
  const cluster on{.gpus = 2,
                   .each = {.nvlink_GBps = 1e-3, .nic_GBps = 1e-6, .copy_GBps = 1, .spine_GBps = 0},
                   .message_us = 1,
                   .stage_us = 2};
  const layout_switch change(shards{row_of(0, "w", 0, 40, 40), row_of(1, "x", 0, 4, 4)},
                             shards{row_of(0, "x", 0, 4, 4), row_of(1, "w", 0, 40, 40)},
                             placement{.from = device_map({0, 2}), .to = device_map({2, 3}), .on = on});
  CHECK(!direct_seconds(change, 1).has_value());
  CHECK(testing::refused([&] { static_cast<void>(choose_routing(change)); }) ==
        "reshard: simulate: device 0 sends to device 3 over NICs of different numbers, which do not meet where "
        "spine_GBps is 0");
  cluster meet = on;
  meet.each.spine_GBps = no_limit;
  const layout_switch one(shards{row_of(0, "w", 0, 40, 40)}, shards{row_of(0, "w", 0, 40, 40)},
                          placement{.to = device_map(std::vector<rank_t>{3}), .on = meet});
  const routing_choice direct = choose_routing(one), always = choose_routing(one, {.when = relay_when::always});
  CHECK(direct.how == routing{});
  CHECK(*direct.seconds == doctest::Approx(80e-3 + 3e-6));
  CHECK(always.how.how == relay::always);
  CHECK(*always.seconds >= *direct.seconds * (1 - 1e-9));
}
