// SPDX-License-Identifier: Apache-2.0
// Direct plans within a budget, by hand: halves that change places, whose excess in S stages is counted on fingers; and
// which routing is chosen of a few. cost/direct_stages.cpp walks every element of many.
#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include <reshard/cost/choose_routing.hpp>
#include <reshard/cost/direct_stages.hpp>
#include <reshard/space/listed_holding.hpp>

#include "../support/refused.hpp"

using namespace reshard;

namespace {

using shards = std::vector<shard>;
shard row_of(rank_t rank, const char* name, index_t begin, index_t end, index_t all, const char* state = "param") {
  return {rank, name, std::string(state) == "param" ? bf16 : fp32, {all}, {begin}, {end - begin}, state};
}
/// Halves of eight elements change places between devices 0 and 1; device 2 keeps four of its own.
auto swapped(const cluster& on = {}) {
  return layout_switch(shards{row_of(0, "w", 0, 4, 8), row_of(1, "w", 4, 8, 8), row_of(2, "k", 0, 4, 4)},
                       shards{row_of(0, "w", 4, 8, 8), row_of(1, "w", 0, 4, 8), row_of(2, "k", 0, 4, 4)},
                       placement{.on = on});
}

}  // namespace

TEST_CASE("what a device exceeds: all of the other half at once, or a part of it") {
  const auto change = swapped();
  const direct_memory first(change, 0, sources::release), third(change, 2, sources::release),
      kept(change, 0, sources::keep);
  for (const auto& one : std::vector<std::pair<index_t, bytes_t>>{{1, 8}, {2, 4}, {3, 4}, {4, 2}, {8, 2}, {4096, 2}}) {
    CAPTURE(one.first);
    CHECK(first.excess(one.first) == one.second);
    CHECK(first.within(one.second, one.first) == one.second);
    CHECK(first.within(one.second + 1, one.first) == one.second);
    CHECK(!first.within(one.second - 1, one.first));
    CHECK(third.excess(one.first) == 0);
    CHECK(third.within(0, one.first) == 0);
    CHECK(kept.excess(one.first) == 0);
    CHECK(kept.within(0, one.first) == 0);
    CHECK(direct_excess(change, {0, 3}, one.first) == one.second);
    CHECK(direct_excess(change, {1, 3}, one.first) == one.second);
    CHECK(direct_excess(change, {0, 1}, one.first) == one.second);
    CHECK(direct_excess(change, {2, 3}, one.first) == 0);
    CHECK(direct_excess(change, {0, 3}, one.first, sources::keep) == 0);
  }
  CHECK(direct_excess(change, {1, 1}, 1) == 0);
}

TEST_CASE("the least power of two that keeps a budget, and the least budget that one does") {
  const auto change = swapped();
  const auto found = [&](bytes_t budget, interval devices = {0, 3}) { return direct_stages(change, devices, budget); };
  CHECK((found(8).stages == 1 && found(8).excess == 8 && found(8).kept));
  CHECK((found(7).stages == 2 && found(7).excess == 4 && found(7).kept));
  CHECK((found(4).stages == 2 && found(4).excess == 4));
  CHECK((found(3).stages == 4 && found(3).excess == 2));
  CHECK((found(2).stages == 4 && found(2).excess == 2 && found(2).kept));
  CHECK_FALSE(found(1).kept);
  CHECK((found(1, {2, 3}).kept && found(1, {2, 3}).stages == 1));
  CHECK((found(3, {1, 3}).stages == 4 && found(3, {1, 2}).stages == 4));
  CHECK(direct_stages(change, {0, 3}, 1, sources::keep).stages == 1);
  CHECK(least_direct_budget(change, {0, 3}) == 2);
  CHECK(least_direct_budget(change, {1, 2}) == 2);
  CHECK(least_direct_budget(change, {2, 3}) == 1);
  CHECK(least_direct_budget(change, {0, 0}) == 1);
  CHECK(least_direct_budget(change, {0, 3}, sources::keep) == 1);
  CHECK(testing::refused([&] { static_cast<void>(found(0)); }) ==
        "reshard: a budget of 0 bytes; it must be at least 1");
}

TEST_CASE("streams of two widths from two devices: a first slot takes a part of each") {
  // device 0 gets 4 elements of 2 bytes from device 1, and 8 of two moments of 4 from device 2; it gives away 6 of 2
  shards before = {row_of(0, "w", 0, 6, 6), row_of(1, "v", 0, 4, 4)},
         after = {row_of(0, "v", 0, 4, 4), row_of(1, "w", 0, 6, 6)};
  for (const char* state : {"exp_avg", "exp_avg_sq"})
    before.push_back(row_of(2, "m", 0, 8, 8, state)), after.push_back(row_of(0, "m", 0, 8, 8, state));
  const layout_switch change(before, after);
  const direct_memory first(change, 0, sources::release), second(change, 1, sources::release);
  CHECK(first.excess(1) == 12 + 8 + 64 - 72);
  CHECK(first.excess(2) == 6);  // 84 - 6 in the second slot
  CHECK(first.excess(4) == 4);  // 12 - 8 + 72 in the last
  CHECK(second.excess(1) == 8 + 12 - 12);
  CHECK(second.excess(2) == 4 + 12 - 12);
  CHECK(first.within(12, 1) == 12);
  CHECK(!first.within(11, 1));
  CHECK(direct_stages(change, {0, 3}, 11).stages == 2);
}

TEST_CASE("what is lost and left out is there from the first slot on, and retained rows stay") {
  const layout_switch change(shards{row_of(0, "w", 0, 4, 8), row_of(1, "w", 4, 8, 8), row_of(0, "g", 0, 3, 3)},
                             shards{row_of(0, "w", 0, 4, 8), row_of(0, "w", 4, 8, 8), row_of(1, "g", 0, 3, 3)},
                             placement{.to = device_map({0, 2}), .lost = {1}, .lost_elements = when_lost::leave_out});
  const direct_memory memory(change, 0, sources::release);
  CHECK(memory.excess(1) == 8 + 8 + 6 - 16);
  CHECK(memory.excess(3) == 6);
  CHECK(memory.within(6, 3) == 6);
  CHECK(!memory.within(5, 3));
}

TEST_CASE("after stages are doubled each device is looked at anew, also those before") {
  // device 0 exceeds by 6 in any number of stages; devices 1 and 2 by 8 in one, and by 4 in two
  const layout_switch change(shards{row_of(0, "w", 0, 4, 8), row_of(1, "w", 4, 8, 8), row_of(0, "g", 0, 3, 3),
                                    row_of(2, "v", 0, 4, 8), row_of(3, "v", 4, 8, 8)},
                             shards{row_of(0, "w", 0, 4, 8), row_of(0, "w", 4, 8, 8), row_of(1, "g", 0, 3, 3),
                                    row_of(2, "v", 4, 8, 8), row_of(3, "v", 0, 4, 8)},
                             placement{.from = device_map({0, 4, 1, 2}),
                                       .to = device_map({0, 3, 1, 2}),
                                       .lost = {4},
                                       .lost_elements = when_lost::leave_out});
  const stages_found found = direct_stages(change, {0, 5}, 7), most = direct_stages(change, {0, 5}, 8);
  CHECK((found.kept && found.stages == 2 && found.excess == 6));
  CHECK((most.kept && most.stages == 1 && most.excess == 8));
  CHECK_FALSE(direct_stages(change, {0, 5}, 5).kept);
  const stages_found nobody = direct_stages(change, {1, 1}, 1);
  CHECK((nobody.kept && nobody.stages == 1 && nobody.excess == 0));
}

TEST_CASE("a first slot has the first part of what comes, of several tensors together") {
  const layout_switch change(shards{row_of(0, "w", 0, 20, 20), row_of(1, "v", 0, 3, 3)},
                             shards{row_of(1, "w", 0, 20, 20), row_of(0, "v", 0, 3, 3)});
  const direct_memory one(change, 0, sources::release);
  CHECK(one.excess(2) == 2);  // one of three elements comes in the first stage
  CHECK(one.within(2, 2) == 2);
  CHECK(!one.within(1, 2));
  const layout_switch more(shards{row_of(0, "w", 0, 20, 20), row_of(1, "u", 0, 2, 2), row_of(1, "v", 0, 3, 3)},
                           shards{row_of(1, "w", 0, 20, 20), row_of(0, "u", 0, 2, 2), row_of(0, "v", 0, 3, 3)});
  const direct_memory both(more, 0, sources::release);
  CHECK(both.excess(1) == 10);
  CHECK(!both.within(9, 1));
}

TEST_CASE("the direct way in named stages, in as many as a budget wants, or in one") {
  const auto change = swapped();
  const auto chosen = [&](std::optional<index_t> stages, bytes_t budget, sources after_use = sources::release) {
    return choose_routing(change,
                          {.when = relay_when::never, .stages = stages, .budget = budget, .after_use = after_use});
  };
  const routing_choice free = chosen({}, 0), named = chosen(3, 0), fits = chosen({}, 7), tight = chosen({}, 1),
                       both = chosen(3, 4), above = chosen(3, 3);
  CHECK((free.how == routing{} && free.kept && free.excess == 0 && free.phases == 1 && !free.seconds));
  CHECK((named.how.stages == 3 && named.how.how == relay::never && named.kept && named.excess == 0));
  CHECK((fits.how.stages == 2 && fits.kept && fits.excess == 4 && fits.least_budget == 0));
  CHECK((!tight.kept && tight.how.stages == 1 && tight.excess == 8 && tight.least_budget == 2));
  CHECK((both.kept && both.how.stages == 3 && both.excess == 4));
  CHECK((!above.kept && above.how.stages == 3 && above.excess == 4 && above.least_budget == 4));
  CHECK((chosen({}, 1, sources::keep).kept && chosen(5, 1, sources::keep).excess == 0));
}

TEST_CASE("a choice takes what was found for a budget; of two ways the faster, then the one of fewer stages") {
  routing_choice one;
  CHECK((one.kept && one.phases == 1 && one.how == routing{} && one.least_budget == 0));
  one.take({.stages = 4, .excess = 7, .kept = false, .least_budget = 9});
  CHECK((one.how.stages == 4 && one.excess == 7 && !one.kept && one.least_budget == 9));
  const auto way = [](std::optional<double> seconds, index_t stages) {
    return routing_choice{.how = {relay::always, 1, stages}, .seconds = seconds};
  };
  CHECK(better_routing(way(1, 8), way(2, 1)));
  CHECK_FALSE(better_routing(way(2, 1), way(1, 8)));
  CHECK(better_routing(way(1, 4), way(1, 8)));
  CHECK_FALSE(better_routing(way(1, 8), way(1, 8)));
  CHECK_FALSE(better_routing(way(1, 8), way(1, 4)));
  CHECK_FALSE(better_routing(way({}, 1), way(2, 8)));
  CHECK_FALSE(better_routing(way(1, 1), way({}, 8)));
  CHECK_FALSE(better_routing(way({}, 1), way({}, 8)));
  CHECK(relay_is_better({}, 5.0));
  CHECK(relay_is_better({}, {}));
  CHECK(relay_is_better(2.0, 1.0));
  CHECK_FALSE(relay_is_better(1.0, 2.0));
  CHECK_FALSE(relay_is_better(1.0, 1.0));
  CHECK_FALSE(relay_is_better(1.0, {}));
}

TEST_CASE("relay where it is wanted or faster, in as many chains and stages as take the fewest seconds") {
  // one device's tensor goes to both devices of a second node: over two NICs, each half of it, instead of twice
  const cluster on{
      .gpus = 2, .each = {.nvlink_GBps = 1e-3, .nic_GBps = 1e-6, .copy_GBps = 1}, .message_us = 1, .stage_us = 2};
  const layout_switch change(shards{row_of(0, "w", 0, 40, 40)},
                             shards{row_of(0, "w", 0, 40, 40), row_of(1, "w", 0, 40, 40)},
                             placement{.to = device_map({2, 3}), .on = on});
  const std::optional<double> direct = direct_seconds(change, 1);
  REQUIRE(direct.has_value());
  CHECK(*direct == doctest::Approx(160e-3 + 2e-6 + 2e-6));  // twice 80 bytes over one NIC of 1000 bytes a second
  CHECK(*direct_seconds(change, 2) == doctest::Approx(160e-3 + 4e-6 + 4e-6));
  routing_choice never = choose_routing(change, {.when = relay_when::never});
  const routing_choice always = choose_routing(change, {.when = relay_when::always, .stages = 1}),
                       faster = choose_routing(change, {.stages = 1});
  CHECK((never.how == routing{} && never.seconds == direct && never.streams.streams().empty()));
  CHECK(always.how == routing{relay::always, 1, 1});
  CHECK(always.phases == 3);
  CHECK(faster.how == always.how);
  REQUIRE(faster.seconds.has_value());
  CHECK(*faster.seconds == *always.seconds);
  // the halves take 0.08 seconds out of the one NIC of device 0; then 40 bytes pass an NVLink of 10^6 bytes a second
  CHECK(*faster.seconds == doctest::Approx(80e-3 + 40e-6 + 3 * 2e-6 + 3e-6).epsilon(1e-6));
}
