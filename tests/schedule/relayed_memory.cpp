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

namespace {
/// Streams of one device with relay, thrown by dice: each comes in a phase or was there; is delivered, passed on,
/// retained, or lost sight of; and is sent to some others in later phases.
struct any_flows {
  struct stream {
    index_t elements;
    bool there, delivered, retained;
    int comes;
    std::vector<std::pair<rank_t, int>> sent;  // to whom, in which phase
  };
  static constexpr bytes_t width = 4;
  index_t stages, phases = 6;
  std::vector<stream> streams;
  plan all;
  std::vector<staged_piece> received, sent;
  bytes_t before = 0;

  explicit any_flows(dice& random) : stages(random.within(1, 7)) {
    index_t column = 0;
    for (index_t left = random.within(1, 6); left > 0; --left) {
      stream s{random.within(1, 12), random.coin(), random.coin(), false, static_cast<int>(random.below(3)), {}};
      s.retained = s.there && random.coin();
      const int first = s.there ? 0 : s.comes + 1;
      for (rank_t peer = 2; peer < 2 + random.below(4); ++peer)
        s.sent.emplace_back(peer, first + static_cast<int>(random.below(3)));
      if (!s.there && s.sent.empty()) s.delivered = true;
      add(s, column, random.coin());
      column += s.elements;
      streams.push_back(s);
    }
  }
  /// What is held in a slot, by the words: all of its stages' parts, one by one.
  bytes_t held_in(index_t slot, sources after_use) const {
    bytes_t held = 0;
    for (const stream& s : streams)
      for (index_t k = 0; k < stages; ++k) {
        const bytes_t part = even_part({0, s.elements}, k, stages).size() * width;
        index_t last = -1;
        for (const auto& [peer, phase] : s.sent) last = std::max(last, k + phase);
        const bool stays = s.there ? s.retained || after_use == sources::keep : s.delivered;
        const bool came = s.there || slot >= k + s.comes;
        if (came && (stays || slot <= last)) held += part;
      }
    return held;
  }

 private:
  void add(const stream& s, index_t column, bool in_two) {
    const std::uint64_t number = static_cast<std::uint64_t>(std::ssize(streams)) * 2 + 1;
    const auto hop = [&](rank_t src, rank_t dst, int phase, bool delivered, interval columns) {
      return transfer{src,
                      dst,
                      only(1),
                      0,
                      {{{0, 1}, {0, 1}, {0, 1}, {0, 1}, columns}},
                      phase,
                      delivered ? purpose::delivered : purpose::passed_on,
                      number};
    };
    const interval whole{column, column + s.elements};
    const index_t middle = in_two ? column + s.elements / 2 : whole.end;  // boxes of one stream
    for (const interval& box : {interval{column, middle}, interval{middle, whole.end}}) {
      if (box.empty()) continue;
      if (!s.there) all.receives.push_back(hop(1, 0, s.comes, s.delivered, box));
      for (const auto& [peer, phase] : s.sent) all.sends.push_back(hop(0, peer, phase, true, box));
    }
    if (s.there) before += s.elements * width;
    if (s.retained) all.retains.push_back({0, 0, only(1), 0, {{{0, 1}, {0, 1}, {0, 1}, {0, 1}, whole}}});
    for (index_t k = 0; k < stages; ++k) {
      const interval part = translate(even_part({0, s.elements}, k, stages), column);
      if (part.empty()) continue;
      const auto piece = [&](rank_t src, rank_t dst, int phase, bool delivered) {
        return staged_piece{.stage = k,
                            .src = src,
                            .dst = dst,
                            .states = only(1),
                            .where = {{{0, 1}, {0, 1}, part}},
                            .phase = phase,
                            .why = delivered ? purpose::delivered : purpose::passed_on,
                            .stream = number};
      };
      if (!s.there) received.push_back(piece(1, 0, s.comes, s.delivered));
      for (const auto& [peer, phase] : s.sent) sent.push_back(piece(0, peer, phase, true));
    }
  }
};
}  // namespace

TEST_CASE(
    "any streams through a device: live bytes by streams and by staged pieces, part by part; messages; the peak") {
  dice random(8);
  int passing = 0, unread = 0, kept = 0, short_ones = 0;
  for (int n = 0; n < 400; ++n) {
    const any_flows device(random);
    const index_t slots = device.stages + device.phases - 1;
    for (const sources after_use : {sources::release, sources::keep}) {
      std::vector<bytes_t> wanted;
      for (index_t t = 0; t < slots; ++t) wanted.push_back(device.held_in(t, after_use));
      const relayed_memory told(device.all, device.before, after_use);
      CHECK(told.live(device.stages, slots) == wanted);
      CHECK(live_bytes(device.before, device.received, device.sent, device.all.retains, slots, 0, after_use) == wanted);
      bytes_t passed = 0, nobodys = 0;
      for (const any_flows::stream& s : device.streams) {
        passed += !s.there && !s.delivered ? s.elements * any_flows::width : 0;
        nobodys += s.there && !s.retained && s.sent.empty() ? s.elements * any_flows::width : 0;
      }
      CHECK(told.passed() == passed);
      CHECK(told.unread() == nobodys);
      const bytes_t after = random.below(200);
      CHECK(told.peak(device.stages, slots, after) ==
            std::max({device.before, after, *std::max_element(wanted.begin(), wanted.end())}));
      passing += passed > 0 ? 1 : 0, unread += nobodys > 0 ? 1 : 0;
    }
    const auto by_peer = [](const transfer& a, const transfer& b) { return precedes(a, b); };
    plan sorted = device.all;
    std::sort(sorted.sends.begin(), sorted.sends.end(), by_peer);
    std::sort(sorted.receives.begin(), sorted.receives.end(), by_peer);
    CHECK(relayed_messages(sorted.sends, device.stages) == messages_of(device.sent));
    CHECK(relayed_messages(sorted.receives, device.stages) == messages_of(device.received));
    for (const any_flows::stream& s : device.streams)
      kept += s.retained && !s.sent.empty() ? 1 : 0, short_ones += s.elements < device.stages ? 1 : 0;
  }
  std::printf("%d pass on, %d hold what nobody reads; %d streams sent and retained, %d shorter than stages\n", passing,
              unread, kept, short_ones);
  for (const int met : {passing, unread, kept, short_ones}) CHECK_DRAWN(met > 50);
}
