// SPDX-License-Identifier: Apache-2.0
// Seconds of a switch with relay: a few streams of two nodes slot by slot by hand, and any streams on any cluster
// against the formula, every port and message of every slot counted up.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <reshard/cost/detail/relayed_seconds.hpp>

#include "../support/any_links.hpp"
#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/relayed_slot.hpp"

using namespace reshard;
using testing::any_world, testing::slot_of, testing::dice, testing::links_in_words, testing::slot_in_words,
    testing::traffic_in_words;

namespace {

constexpr state_set master = adam.named("master");  // 4 bytes

transfer hop(int phase, rank_t src, rank_t dst, index_t elements, std::uint64_t stream = 1,
             purpose why = purpose::delivered) {
  transfer t{.src = src, .dst = dst, .states = master, .where = {{{0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, elements}}}};
  t.phase = phase, t.stream = src == dst ? 0 : stream, t.why = why;
  return t;
}
relayed_streams of(const std::vector<transfer>& hops) {
  relayed_streams streams;
  for (const transfer& t : hops) streams.add(t);
  return streams;
}

/// Two nodes of two GPUs and NICs: bytes a second by NVLink 1000, by a NIC 100, over a spine 50, by a copy engine 4000.
cluster two_nodes() {
  return {.gpus = 2,
          .each = {.nvlink_GBps = 1e-6, .nic_GBps = 1e-7, .copy_GBps = 4e-6, .spine_GBps = 5e-8},
          .message_us = 3000,
          .stage_us = 7000};
}
const port_table& table() {
  static const port_table made(testing::seated({0, 1, 2, 3}, {0, 1, 2, 3}, two_nodes(), {}, {}));
  return made;
}

/// Seconds of ports in milliseconds, messages and slots as how many they are, and the port of all slots.
struct told_seconds {
  double ports_ms, messages, slots;
  port_kind kind = port_kind::nic_out;
  rank_t device = 0;
  double busiest_ms = 0;
};
void check(const std::vector<transfer>& hops, index_t stages, const told_seconds& wanted) {
  CAPTURE(stages);
  relayed_streams streams = of(hops);
  const switch_seconds told = relayed_seconds(table(), streams).of_stages(stages);
  CHECK(told.ports * 1e3 == doctest::Approx(wanted.ports_ms).epsilon(1e-11));
  CHECK(told.messages == doctest::Approx(wanted.messages * 3e-3).epsilon(1e-11));
  CHECK(told.slots == doctest::Approx(wanted.slots * 7e-3).epsilon(1e-11));
  CHECK(told.busiest.kind == wanted.kind);
  CHECK(told.busiest.device == wanted.device);
  CHECK(told.busiest.seconds * 1e3 == doctest::Approx(wanted.busiest_ms).epsilon(1e-11));
}

}  // namespace

TEST_CASE("one phase by hand: inside a node, along a rail, across rails, and what is kept") {
  // 24 bytes: NVLink 24 ms, NIC 240 ms, spine 480 ms; each end copies 2 x 24 / 4000: 12 ms
  check({hop(0, 0, 1, 6)}, 1, {24, 1, 1, port_kind::nvlink_out, 0, 24});
  check({hop(0, 0, 1, 6)}, 3, {24, 3, 3, port_kind::nvlink_out, 0, 24});
  check({hop(0, 0, 2, 6)}, 3, {240, 3, 3, port_kind::nic_out, 0, 240});
  check({hop(0, 1, 2, 6)}, 3, {480, 3, 3, port_kind::spine_out, 0, 480});
  check({hop(0, 0, 0, 6)}, 3, {12, 0, 3, port_kind::copy, 0, 12});
  check({hop(0, 3, 3, 60), hop(0, 2, 3, 6)}, 2, {132, 2, 2, port_kind::copy, 3, 132});
  check({hop(0, 3, 3, 60), hop(0, 3, 2, 6)}, 2, {132, 2, 2, port_kind::copy, 3, 132});
  check({hop(0, 3, 3, 60), hop(0, 2, 3, 6, 1, purpose::passed_on)}, 2, {120, 2, 2, port_kind::copy, 3, 120});
  check({}, 4, {0, 0, 4});
}

TEST_CASE("several streams of a hop are one message; the busiest device's sent or received ones count") {
  check({hop(0, 0, 1, 6, 1), hop(0, 0, 1, 4, 2)}, 2, {40, 2, 2, port_kind::nvlink_out, 0, 40});
  check({hop(0, 0, 1, 6), hop(0, 0, 2, 6), hop(0, 0, 3, 6), hop(0, 1, 2, 6)}, 2,
        {960, 6, 2, port_kind::spine_out, 0, 960});
  check({hop(0, 1, 0, 6), hop(0, 2, 0, 6), hop(0, 3, 2, 6)}, 2, {240, 4, 2, port_kind::nic_out, 2, 240});
  check({hop(0, 0, 1, 6), hop(0, 1, 0, 6), hop(0, 2, 3, 6)}, 2, {24, 2, 2, port_kind::nvlink_out, 0, 24});
}

TEST_CASE("phases by hand: stage k of phase p is in slot k + p") {
  // Slots of S = 2: NIC 120 ms; NIC 120 and NVLink 12; NVLink 12. Device 2 copies what it has from another once.
  check({hop(0, 0, 2, 6), hop(1, 2, 3, 6)}, 2, {252, 3, 3, port_kind::nic_out, 0, 240});
  // One device sends in both phases: twice what it sends in the slot between.
  check({hop(0, 0, 1, 6), hop(1, 0, 1, 6)}, 2, {48, 4, 3, port_kind::nvlink_out, 0, 48});
  // 400 elements kept take 800 ms of copying. Sent in phase 1, what came in phase 0 is not copied out of device 2.
  check({hop(0, 2, 2, 400), hop(0, 0, 2, 400, 1, purpose::passed_on), hop(1, 2, 3, 400)}, 1,
        {16'000 + 1600, 2, 2, port_kind::nic_out, 0, 16'000});
  // A phase without streams, and what comes later.
  check({hop(0, 0, 1, 6), hop(3, 1, 0, 3)}, 2, {36, 4, 5, port_kind::nvlink_out, 0, 24});
}

TEST_CASE("fewer elements than stages: each is in one of them, and no message in the others") {
  // Of 2 elements in 4 stages the second and the fourth have one.
  check({hop(0, 0, 1, 2)}, 4, {8, 2, 4, port_kind::nvlink_out, 0, 8});
  // As many as stages are even: one in each.
  check({hop(0, 0, 1, 4)}, 4, {16, 4, 4, port_kind::nvlink_out, 0, 16});
  // Beside a long stream of the same hop they are part of its messages.
  check({hop(0, 0, 1, 2, 1), hop(0, 0, 1, 8, 2)}, 4, {40, 4, 4, port_kind::nvlink_out, 0, 40});
  // Of as many as stages, beside a short one, there is one in each as well.
  check({hop(0, 0, 1, 2, 1), hop(0, 0, 1, 4, 2)}, 4, {24, 4, 4, port_kind::nvlink_out, 0, 24});
  // Two short ones of a hop are one message where they meet: of 3 elements the last three stages have one.
  check({hop(0, 0, 1, 2, 1), hop(0, 0, 1, 3, 2)}, 4, {20, 3, 4, port_kind::nvlink_out, 0, 20});
  // Of two hops of one device there are two messages where they meet.
  check({hop(0, 0, 1, 2), hop(0, 2, 1, 3)}, 4, {240, 5, 4, port_kind::spine_out, 2, 240});
  // Short ones beside even ones: 24 bytes by NVLink in each of two stages, and 4 more in the second.
  check({hop(0, 0, 1, 12, 1), hop(0, 0, 3, 1, 2), hop(0, 0, 1, 1, 3)}, 2, {24 + 80, 3, 2, port_kind::spine_out, 0, 80});
  // In a later phase they are later.
  check({hop(0, 0, 1, 4), hop(1, 0, 1, 1)}, 2, {8 + 8 + 4, 3, 3, port_kind::nvlink_out, 0, 20});
}

TEST_CASE("where nothing moves no port is busy, whoever has the first; a byte is busy already") {
  const port_table on(testing::seated({1, 2}, {1, 2}, two_nodes(), {}, {}));
  relayed_streams none;
  CHECK(relayed_seconds(on, none).of_stages(1).busiest.device == 0);
  CHECK(relayed_seconds(on, none).of_stages(1).busiest.seconds == 0);
  transfer small = hop(0, 1, 2, 1);
  small.states = parse_state_list("param:fp8:3").only(0);
  relayed_streams byte = of({small});
  CHECK(relayed_seconds(on, byte).of_stages(1).busiest.kind == port_kind::spine_out);
  CHECK(relayed_seconds(on, byte).of_stages(1).ports == doctest::Approx(0.02).epsilon(1e-11));
}

TEST_CASE("messages of all devices: of each hop as many as there are stages in which it has any") {
  const auto messages = [](const std::vector<transfer>& hops, index_t stages) {
    relayed_streams streams = of(hops);
    return relayed_seconds(table(), streams).messages(stages);
  };
  CHECK(messages({}, 3) == 0);
  CHECK(messages({hop(0, 0, 0, 9)}, 3) == 0);
  CHECK(messages({hop(0, 0, 1, 9)}, 3) == 3);
  CHECK(messages({hop(0, 0, 1, 3)}, 3) == 3);
  CHECK(messages({hop(0, 0, 1, 2)}, 3) == 2);
  CHECK(messages({hop(0, 0, 1, 2, 1), hop(0, 0, 1, 9, 2), hop(0, 1, 0, 1), hop(2, 1, 0, 1), hop(0, 2, 2, 9)}, 3) == 5);
  CHECK(messages({hop(0, 0, 1, 2, 1), hop(0, 0, 1, 3, 2), hop(0, 0, 2, 4)}, 6) == 4 + 4);
}

TEST_CASE("stages that there cannot be, and rails that do not meet, are refused; what is enough ends the sum") {
  relayed_streams streams = of({hop(0, 0, 1, 6)});
  const relayed_seconds told(table(), streams);
  CHECK(told.phases() == 1);
  CHECK_REFUSED(told.of_stages(0), "simulate: 0 stages; there is at least 1");
  CHECK_REFUSED(told.of_stages(-1), "simulate: -1 stages; there is at least 1");
  CHECK(told.of_stages(2).total() == doctest::Approx(24e-3 + 2 * 3e-3 + 2 * 7e-3).epsilon(1e-11));
  // not more than enough, so it goes on: once, as then it is more
  CHECK(told.of_stages(2, 2 * table().slot_seconds()).total() == doctest::Approx(29e-3).epsilon(1e-11));
  CHECK(told.of_stages(2, 13e-3).total() == doctest::Approx(14e-3).epsilon(1e-11));
  cluster apart = two_nodes();
  apart.each.spine_GBps = 0;
  const port_table on(testing::seated({0, 1, 2, 3}, {0, 1, 2, 3}, apart, {}, {}));
  relayed_streams along = of({hop(0, 0, 2, 6), hop(1, 2, 3, 6)}), across = of({hop(0, 0, 2, 6), hop(1, 2, 1, 6)});
  CHECK(relayed_seconds(on, along).phases() == 2);
  CHECK_REFUSED(relayed_seconds(on, across), "simulate: device 2 sends to device 1 over NICs of different numbers");
}

TEST_CASE("traffic of a slot by hand: each device's ports, and the slot's seconds") {
  relayed_streams streams =
      of({hop(0, 0, 1, 5, 1), hop(0, 0, 1, 1, 2), hop(0, 1, 2, 6), hop(0, 2, 2, 9), hop(1, 2, 3, 5), hop(1, 1, 3, 2)});
  const auto slot = [&](index_t t) { return traffic_of_slot(table(), streams.streams(), t, 2); };
  const auto milliseconds = [&](index_t t) { return slot(t).seconds * 1e3; };
  // Slot 0: of 5 elements 2, of 1 none, of 6 three, over the spine at 50 bytes a second.
  REQUIRE(slot(0).devices.size() == 4);
  CHECK(slot(0).devices[0].nvlink_out == port_traffic{8, 1, 0});
  CHECK(slot(0).devices[1].nvlink_in == port_traffic{8, 1, 0});
  CHECK(slot(0).devices[1].nic_out == port_traffic{12, 1, 12});
  CHECK(slot(0).devices[2].nic_in == port_traffic{12, 1, 12});
  CHECK(slot(0).devices[2].nvlink_out == port_traffic{});
  CHECK(milliseconds(0) == doctest::Approx(240 + 3 + 7).epsilon(1e-11));
  // Slot 1: of 5 elements 3 and of 1 one in one message; and the first stage of phase 1, along a rail 1 element.
  CHECK(slot(1).devices[0].nvlink_out == port_traffic{16, 1, 0});
  CHECK(slot(1).devices[1].nic_out == port_traffic{12 + 4, 2, 12});
  CHECK(slot(1).devices[2].nvlink_out == port_traffic{8, 1, 0});
  CHECK(slot(1).devices[3].nvlink_in == port_traffic{8, 1, 0});
  CHECK(slot(1).devices[3].nic_in == port_traffic{4, 1, 0});
  CHECK(milliseconds(1) == doctest::Approx(240 + 2 * 3 + 7).epsilon(1e-11));
  // Slot 2: the last of phase 1. The NIC takes 40 ms.
  CHECK(slot(2).devices[0].nvlink_out == port_traffic{});
  CHECK(slot(2).devices[2].nvlink_out == port_traffic{12, 1, 0});
  CHECK(slot(2).devices[1].nic_out == port_traffic{4, 1, 0});
  CHECK(milliseconds(2) == doctest::Approx(40 + 2 * 3 + 7).epsilon(1e-11));
  CHECK(milliseconds(3) == doctest::Approx(7).epsilon(1e-11));
}

TEST_CASE("a number of stages that can have fewer seconds is tried: its least is not set too high") {
  const auto best = [](double message_us, const std::vector<transfer>& hops) {
    cluster on = two_nodes();
    on.gpus = 6, on.message_us = message_us;
    const std::vector<rank_t> all = {0, 1, 2, 3, 4, 5};
    const port_table ports(testing::seated(all, all, on, {}, {}));
    relayed_streams streams = of(hops);
    return relayed_seconds(ports, streams).best_stages(8);
  };
  // 1000 + 16 + 2 x 7 ms in 1 stage, 1000 + 8 + 3 x 7 ms in 2, 1000 + 4 + 5 x 7 ms in 4
  CHECK(best(0, {hop(0, 0, 1, 250), hop(1, 1, 0, 4)}) == 2);
  // Device 2 has three messages in every phase, and in one stage only: of 1, 2 and 4 stages the ports take 1040, 1026
  // and 1024 ms, messages 9, 10 and 12 x 4 ms, slots 3, 4 and 6 x 7 ms.
  std::vector<transfer> hops = {hop(0, 0, 1, 250), hop(1, 1, 0, 7)};
  for (int phase = 0; phase < 3; ++phase)
    for (rank_t dst = 3; dst < 6; ++dst) hops.push_back(hop(phase, 2, dst, 1, 2));
  CHECK(best(4000, hops) == 2);
}

namespace {

/// Hops as they come: nobody checks that a device had what it sends.
std::vector<transfer> any_hops(dice& random, const any_world& world, index_t most) {
  std::vector<transfer> all;
  for (index_t i = random.within(1, 20); i > 0; --i) {
    const rank_t src = world.any(random), dst = world.any(random);
    const int phase = src == dst ? 0 : static_cast<int>(random.below(4));
    const purpose why = src != dst && (dst + phase) % 3 == 0 ? purpose::passed_on : purpose::delivered;
    all.push_back(hop(phase, src, dst, random.within(1, most), static_cast<std::uint64_t>(random.within(1, 3)), why));
  }
  return all;
}
/// A switch of any streams in so many stages, counted up slot by slot.
struct counted {
  switch_seconds sum;
  index_t messages = 0;

  counted(const any_world& world, const std::vector<relayed_stream>& streams, index_t stages) {
    const links_in_words words(world.on);
    const auto even = [&](const relayed_stream& s, index_t k) {
      return static_cast<double>(s.sized.width) *
             (s.sized.elements < stages ? static_cast<double>(s.sized.in_stage(k, stages))
                                        : static_cast<double>(s.sized.elements) / static_cast<double>(stages));
    };
    const int last = streams.empty() ? 0 : streams.back().phase;
    for (index_t t = 0; t < stages + last; ++t) {
      const slot_in_words slot = slot_of(words, streams, t, stages, even);
      sum.ports += slot.longest();
      sum.messages += 1e-6 * world.on.message_us * static_cast<double>(slot.most_messages());
      sum.slots += 1e-6 * world.on.stage_us;
      messages += std::ssize(slot.messages);
    }
  }
};

/// Every slot's traffic and seconds, each part of a stream as it is.
void check_slots(const any_world& world, const port_table& on, const std::vector<relayed_stream>& streams,
                 index_t stages) {
  const links_in_words words(world.on);
  for (index_t t = 0; t < stages + 3; ++t) {
    const slot_in_words slot = slot_of(words, streams, t, stages, [&](const relayed_stream& s, index_t k) {
      return static_cast<double>(s.sized.in_stage(k, stages) * s.sized.width);
    });
    traffic_in_words moved;
    for (const relayed_stream& s : streams)
      if (const index_t k = t - s.phase; k >= 0 && k < stages && s.sized.src != s.sized.dst)
        if (const index_t elements = s.sized.in_stage(k, stages); elements > 0)
          moved[{s.sized.src, s.sized.dst, s.phase}] += elements * s.sized.width;
    const slot_traffic told = traffic_of_slot(on, streams, t, stages);
    const double waits = world.on.message_us * static_cast<double>(slot.most_messages()) + world.on.stage_us;
    CHECK(told.seconds == doctest::Approx(slot.longest() + 1e-6 * waits).epsilon(1e-11));
    for (const rank_t d : world.part) check_traffic(told.devices[on.seat_of(d)], words, d, moved);
  }
}

}  // namespace

TEST_CASE("any streams in any number of stages, and the best of 1, 2, 4 .. stages") {
  dice random(61);
  std::map<index_t, int> chosen;
  int short_ones = 0;
  for (int n = 0; n < 120; ++n) {
    any_world world(random, true);
    if (n % 2 == 0) world.on.message_us *= 1e4, world.on.stage_us *= 1e3;  // of seconds that show
    const port_table on(world.change());
    relayed_streams streams = of(any_hops(random, world, n % 3 == 0 ? 9 : 60));
    const relayed_seconds told(on, streams);
    CHECK(told.phases() == streams.phases());
    const index_t stages = random.within(1, 9), most = random.within(1, 33);
    const counted wanted(world, streams.streams(), stages);
    const switch_seconds found = told.of_stages(stages);
    CHECK(found.ports == doctest::Approx(wanted.sum.ports).epsilon(1e-11));
    CHECK(found.messages == doctest::Approx(wanted.sum.messages).epsilon(1e-11));
    CHECK(found.slots == doctest::Approx(wanted.sum.slots).epsilon(1e-11));
    CHECK(told.messages(stages) == wanted.messages);
    if (n % 4 == 0) check_slots(world, on, streams.streams(), stages);
    std::vector<std::pair<index_t, double>> all;
    for (index_t s = 1; s <= most; s *= 2) all.emplace_back(s, counted(world, streams.streams(), s).sum.total());
    double fewest = all.front().second;
    for (const auto& [s, seconds] : all) fewest = std::min(fewest, seconds);
    const auto best =
        std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.second <= fewest * (1 + 1e-9); });
    CHECK(told.best_stages(most) == best->first);
    ++chosen[best->first];
    for (const relayed_stream& s : streams.streams()) short_ones += s.sized.elements < stages ? 1 : 0;
  }
  CHECK_DRAWN(chosen.size() > 3);
  CHECK_DRAWN(short_ones > 50);
}
