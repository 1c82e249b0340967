// SPDX-License-Identifier: Apache-2.0
// Live bytes and messages with relay: what is told of streams is what their staged pieces come to, one by one.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <reshard/cost/switch_bytes.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/relay.hpp>
#include <reshard/schedule/relayed_memory.hpp>

#include "../support/dice.hpp"
#include "../support/tiny.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice;

namespace {
constexpr const char* layouts[] = {"dp=2", "tp=2,dp=2,zero=1",      "pp=2,dp=3",   "tp=4,dp=2",
                                   "dp=8", "pp=2,tp=2,zero=1,dp=2", "dp=3,zero=1", ""};

index_t messages_of(const std::vector<staged_piece>& list) {
  std::set<std::tuple<rank_t, rank_t, index_t, int>> distinct;
  for (const staged_piece& p : list) distinct.insert({p.src, p.dst, p.stage, p.phase});
  return static_cast<index_t>(distinct.size());
}
/// Parameters of two replicas on a node of two go to others, on nodes of two.
computed_switch on_pairs(const char* layout, const std::vector<rank_t>& devices) {
  return layout_switch(space(testing::tiny(2), parse_degrees("dp=2")), space(testing::tiny(2), parse_degrees(layout)),
                       {.to = device_map(devices), .on = nodes_of(2), .states = parameter_states});
}
}  // namespace

TEST_CASE("streams tell the live bytes and messages that staged pieces come to, slot by slot") {
  dice random(5);
  int passing = 0, leaving = 0, short_ones = 0;
  const int tried = testing::tries(60);
  for (int n = 0; n < tried; ++n) {
    const model m = testing::tiny(2);
    const space from(m, parse_degrees(layouts[random.below(std::size(layouts))])),
        to(m, parse_degrees(layouts[random.below(std::size(layouts))]));
    placement placed;
    placed.on = nodes_of(random.within(1, 4));
    const layout_switch change(from, to, placed);
    const routing how{relay::always, random.within(1, 2), random.coin() ? random.within(1, 9) : 700};
    const index_t phases = phases_of(change, how), slots = how.stages + phases - 1;
    for (rank_t device = 0; device < change.devices(); ++device) {
      const plan p = make_plan(change, device, how);
      const staged_plan cut = stage_plan(p, change, how.stages);
      const bytes_t before = held_bytes(change.from(), change.from_rank(device), change.states());
      for (const sources after_use : {sources::release, sources::keep}) {
        const std::vector<bytes_t> live = relayed_memory(p, before, after_use).live(how.stages, slots);
        CHECK(live == live_bytes(before, cut.receives, cut.sends, p.retains, slots, 0, after_use));
        if (after_use == sources::release) leaving += live.back() < live.front() ? 1 : 0;
      }
      CHECK(relayed_messages(p.receives, how.stages) == messages_of(cut.receives));
      CHECK(relayed_messages(p.sends, how.stages) == messages_of(cut.sends));
      bytes_t passed = 0;
      for (const staged_piece& s : cut.receives) passed += s.why == purpose::passed_on ? s.bytes() : 0;
      CHECK(relayed_memory(p, before, sources::release).passed() == passed);
      passing += passed > 0 ? 1 : 0;
      short_ones += how.stages == 700 && relayed_messages(p.sends, 700) % 700 != 0 ? 1 : 0;
    }
  }
  std::printf("%d devices pass on, %d have less at the end, %d have streams of fewer elements than stages\n", passing,
              leaving, short_ones);
  CHECK_DRAWN(passing > tried / 2);
  CHECK_DRAWN(leaving > tried / 6);
  if (tried == 60) CHECK_DRAWN(short_ones > 3);
}

TEST_CASE("what was there goes after the last phase in which it is sent, what is passed on after its own last") {
  using bytes = std::vector<bytes_t>;
  const stream_flow source{1, 7, 10, 2, 0, 2, purpose::delivered, false},
      kept{1, 8, 10, 3, 0, 1, purpose::delivered, true};
  const relayed_memory released(100, 60, 5, {}, {source, kept}, sources::release);
  CHECK(released.live(1, 4) == bytes{85, 85, 85, 65});  // 60 and 5 stay, 20 are there until phase 2
  CHECK(released.live(2, 5) == bytes{85, 85, 85, 75, 65});
  CHECK(released.unread() == 20);  // of 100: 60 retained, 20 sent
  CHECK(relayed_memory(100, 60, 5, {}, {source, kept}, sources::keep).live(1, 4) == bytes{105, 105, 105, 105});
  const stream_flow comes{1, 7, 10, 4, 1, 1, purpose::passed_on, false},
      goes{1, 7, 10, 4, 2, 4, purpose::passed_on, false};
  const relayed_memory passing(0, 0, 0, {comes}, {goes}, sources::release);
  CHECK(passing.live(1, 6) == bytes{0, 40, 40, 40, 40, 0});
  CHECK(passing.live(3, 8) == bytes{0, 12, 24, 40, 40, 28, 16, 0});
  CHECK(passing.passed() == 40);
  CHECK(passing.unread() == 0);
  CHECK(passing.peak(3, 8, 0) == 40);
  CHECK(passing.peak(3, 8, 41) == 41);
}

TEST_CASE("figures with relay: what is passed on is apart, and counts as sent and received") {
  const computed_switch change = on_pairs("dp=4", {2, 4, 5, 6});
  const routing how{relay::always, 1, 3};
  figure_collector whole(change, how, phases_of(change, how), figures_of::whole_switch);
  bytes_t sent = 0, received = 0, passed = 0;
  for (rank_t device = 0; device < change.devices(); ++device) {
    const plan p = make_plan(change, device, how);
    whole.add(p);
    sent += total_bytes(p.sends), received += total_bytes(p.receives);
    for (const transfer& t : p.receives) passed += t.why == purpose::passed_on ? t.bytes() : 0;
  }
  const switch_figures& f = whole.figures();
  const bytes_t held = held_bytes(change.from(), 0, parameter_states);
  CHECK(sent == received);
  CHECK(f.moved + f.relayed == received);
  CHECK(f.relayed == passed);
  CHECK(f.moved == f.least);
  CHECK(f.moved == 4 * held);
  CHECK(f.inter_node == 3 * held);  // nodes 1, 2 and 3, each once
  CHECK(f.cross_rail > 0);          // device 2 takes part alone on its node
  CHECK(f.slots() == 3 + f.phases - 1);
}

TEST_CASE(
    "figures with relay: where devices of a node lack other parts, what passes them is no part of what is moved") {
  const computed_switch change = on_pairs("tp=2,dp=2", {2, 3, 4, 5});
  const routing how{relay::always, 1, 3};
  figure_collector whole(change, how, phases_of(change, how), figures_of::whole_switch);
  bytes_t needed = 0;
  for (rank_t device = 0; device < change.devices(); ++device) whole.add(make_plan(change, device, how));
  for (rank_t rank = 0; rank < 4; ++rank) needed += held_bytes(change.to(), rank, parameter_states);
  const switch_figures& f = whole.figures();
  CHECK(f.relayed > 0);
  CHECK(f.moved == needed);
  CHECK(f.inter_node == 2 * held_bytes(change.from(), 0, parameter_states));  // into nodes 1 and 2, each byte once
  CHECK(f.cross_rail == 0);
}
