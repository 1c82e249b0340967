// SPDX-License-Identifier: Apache-2.0
// The formula by hand: which ports a stream loads, what a slot costs, parts of streams that are shorter than stages.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <reshard/cost/detail/switch_seconds.hpp>
#include <reshard/cost/floor_seconds.hpp>
#include <reshard/cost/slot_traffic.hpp>
#include <reshard/parallelism/config.hpp>
#include <reshard/parallelism/parse_degrees.hpp>

#include "../support/any_links.hpp"
#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tiny.hpp"

using namespace reshard;
using testing::any_world, testing::dice, testing::in_words, testing::links_in_words, testing::port_in_words;
using testing::refused, testing::slot_in_words, testing::traffic_in_words;

namespace {
constexpr bytes_t gb = 1'000'000'000;

/// Two nodes of four GPUs and two NICs; NVLink 100 GB/s, NICs 10 GB/s, copies 1000 GB/s.
constexpr cluster links(double spine = no_limit) {
  return {.gpus = 4, .each = {.nics = 2, .nvlink_GBps = 100, .nic_GBps = 10, .copy_GBps = 1000, .spine_GBps = spine}};
}
port_table ports_of(const cluster& on) {
  const space eight(testing::tiny(1), parse_degrees("dp=8"));
  return port_table(layout_switch(eight, eight, {.on = on}));
}
bool near(double a, double b) { return std::abs(a - b) <= 1e-13; }
}  // namespace

TEST_CASE("any cluster, any two of its devices: the ports between them, by the contract's words") {
  dice random(11);
  int across = 0, apart = 0, shared = 0, gaps = 0, lost = 0;
  for (int n = 0; n < 60; ++n) {
    const any_world world(random, false);
    const port_table on(world.change());
    const links_in_words words(world.on);
    REQUIRE(on.seats().size() == world.part.size());
    lost += world.lost.empty() ? 0 : 1;
    gaps += world.part.back() + 1 > std::ssize(world.part) ? 1 : 0;
    std::map<port_in_words, std::pair<rank_t, double>> all;  // of those that take part: the lowest, and how fast
    for (std::size_t i = 0; i < world.part.size(); ++i) {
      const rank_t d = world.part[i];
      const node_kind& kind = words.node(d);
      CHECK(on.seats()[i].device == d);
      CHECK(on.seat_of(d) == i);
      CHECK(on.of(d).node == words.node_of(d));
      CHECK(on.of(d).nic == words.nic_of(d));
      CHECK(on.of(d).kind == kind);
      CHECK(on.ports()[on.copy_engine(d)] == port{port_kind::copy, d, kind.copy_GBps * 1e9});
      for (const char* way : {"nic_out", "nic_in"}) all.try_emplace(words.nic(way, d), d, kind.nic_GBps);
      for (const char* way : {"nvlink_out", "nvlink_in"}) all.try_emplace({way, d, 0}, d, kind.nvlink_GBps);
      all.try_emplace({"copy", d, 0}, d, kind.copy_GBps);
      if (kind.spine_GBps != no_limit)
        for (const char* way : {"spine_out", "spine_in"}) all.try_emplace(words.spine(way, d), d, kind.spine_GBps);
      CHECK(on.seats()[on.of(d).nic_seat].device == all[words.nic("nic_in", d)].first);
      CHECK(words.node_of(on.seats()[on.of(d).node_seat].device) == words.node_of(d));
      CHECK((on.of(d).node_seat == 0 || words.node_of(world.part[on.of(d).node_seat - 1]) != words.node_of(d)));
      shared += on.of(d).nic_seat != i ? 1 : 0;
    }
    std::map<port_in_words, std::pair<rank_t, double>> told;
    for (std::size_t p = 0; p < on.ports().size(); ++p)
      if (const port& one = on.ports()[p]; one.bytes_per_second > 0 || all.contains(in_words(one, words)))
        if (one != port{}) told[in_words(one, words)] = {one.device, one.bytes_per_second / 1e9};
    REQUIRE(told.size() == all.size());
    for (const auto& [name, of] : all) {
      CHECK(told[name].first == of.first);
      CHECK(told[name].second == doctest::Approx(of.second));
    }
    for (const rank_t src : world.part)
      for (const rank_t dst : world.part) {
        CHECK(on.one_node(src, dst) == (words.node_of(src) == words.node_of(dst)));
        CHECK(on.crosses_rails(src, dst) == words.across(src, dst));
        CHECK(on.apart(src, dst) == words.apart(src, dst));
        if (src == dst) continue;
        std::map<port_in_words, double> passed;
        std::size_t ports = 0;
        on.each_port(src, dst, [&](std::size_t p) {
          passed[in_words(on.ports()[p], words)] = on.ports()[p].bytes_per_second, ++ports;
        });
        CHECK(passed == words.between(src, dst));
        CHECK(ports == passed.size());
        across += words.across(src, dst) ? 1 : 0, apart += words.apart(src, dst) ? 1 : 0;
      }
  }
  std::printf("%d across rails, %d of them apart; %d share a NIC; %d with gaps, %d with lost devices\n", across, apart,
              shared, gaps, lost);
  for (const int met : {across - apart, apart, shared, gaps, lost}) CHECK_DRAWN(met > 10);
}

TEST_CASE("what crosses rails that do not meet is refused by the first that does") {
  dice random(12);
  int refused_ones = 0, later = 0;
  for (int n = 0; n < 160; ++n) {
    const any_world world(random, false);
    const port_table on(world.change());
    const links_in_words words(world.on);
    std::vector<sized_stream> streams;
    for (index_t i = random.below(6); i >= 0; --i) streams.push_back({world.any(random), world.any(random), 1, 1});
    const auto first =
        std::find_if(streams.begin(), streams.end(), [&](const sized_stream& s) { return words.apart(s.src, s.dst); });
    const bool none = first == streams.end();
    CHECK(refused([&] { require_rails_meet(on, streams); }) ==
          (none ? "accepted"
                : "reshard: simulate: device " + std::to_string(first->src) + " sends to device " +
                      std::to_string(first->dst) +
                      " over NICs of different numbers, which do not meet where spine_GBps is 0"));
    refused_ones += none ? 0 : 1;
    later += !none && first != streams.begin() ? 1 : 0;
  }
  CHECK_DRAWN(refused_ones > 10);
  CHECK_DRAWN(refused_ones < 150);
  CHECK_DRAWN(later > 3);
}

namespace {
/// Elements of part k of S equal ones, of so many, by counting: the i-th is in the part that (i + 1) S / elements ends
/// in.
index_t counted_part(index_t elements, index_t k, index_t stages) {
  index_t found = 0;
  for (index_t i = 1; i <= elements; ++i) {
    index_t part = 0;
    while ((part + 1) * elements < i * stages) ++part;
    found += part == k ? 1 : 0;
  }
  return found;
}
/// Streams as plans give them: those of a pair side by side, retained ones among them.
std::vector<sized_stream> any_streams(dice& random, const any_world& world, index_t most, index_t stages) {
  std::map<std::pair<rank_t, rank_t>, std::vector<sized_stream>> pairs;
  const auto elements = [&] {  // every other time without a rest
    const index_t high = random.coin() ? most : 12;
    return random.coin() ? random.within(1, high) : stages * random.within(1, ceil_divide(high, stages));
  };
  const auto width = [&] { return random.coin() ? random.within(1, 4) : random.within(1, 200); };
  for (index_t i = random.within(1, 8); i > 0; --i) {
    const std::pair<rank_t, rank_t> pair(world.any(random), random.below(4) == 0 ? world.part[0] : world.any(random));
    for (index_t roles = random.within(1, 2); roles > 0; --roles)
      pairs[pair].push_back({pair.first, pair.second, elements(), width()});
  }
  std::vector<sized_stream> all;
  for (const auto& [pair, streams] : pairs) all.insert(all.end(), streams.begin(), streams.end());
  return all;
}
/// A slot, with `amount(stream)` bytes of each.
template <typename Amount>
slot_in_words slot_of(const links_in_words& words, const std::vector<sized_stream>& streams, Amount&& amount) {
  slot_in_words slot;
  for (const sized_stream& s : streams) {
    const double bytes = amount(s);
    slot.copies(words, s.src, bytes);
    if (s.src == s.dst) continue;
    slot.copies(words, s.dst, bytes);
    slot.passes(words, s.src, s.dst, bytes);
  }
  return slot;
}
}  // namespace

TEST_CASE("any streams in any number of stages: the formula, slot by slot and port by port") {
  dice random(13);
  int exact = 0, even = 0, short_ones = 0, waits = 0;
  constexpr index_t largest[] = {12, 4000, 60'000};
  for (int n = 0; n < 200; ++n) {
    const any_world world(random, true);
    const port_table on(world.change());
    const links_in_words words(world.on);
    const index_t stages = random.within(1, 9);
    const std::vector<sized_stream> streams = any_streams(random, world, largest[random.below(3)], stages);
    const bool small = std::all_of(streams.begin(), streams.end(), [](const auto& s) { return s.elements <= 12; });
    for (const sized_stream& s : streams)
      for (index_t k = 0; k < stages && small; ++k) CHECK(s.in_stage(k, stages) == counted_part(s.elements, k, stages));
    switch_seconds wanted;  // streams of at least S elements even; then as they are
    double as_they_are = 0;
    index_t messages = 0;
    for (index_t k = 0; k < stages; ++k) {
      const auto part = [&](const sized_stream& s) { return static_cast<double>(s.in_stage(k, stages) * s.width); };
      slot_in_words slot = slot_of(words, streams, part);
      traffic_in_words moved;
      for (const sized_stream& s : streams)
        if (part(s) > 0 && s.src != s.dst)
          slot.messages.insert({s.src, s.dst, 0}), moved[{s.src, s.dst, 0}] += s.in_stage(k, stages) * s.width;
      as_they_are += slot.longest();
      messages += slot.most_messages();
      wanted.ports +=
          slot_of(words, streams, [&](const sized_stream& s) {
            return s.elements < stages ? part(s) : static_cast<double>(s.bytes()) / static_cast<double>(stages);
          }).longest();
      const slot_traffic traffic = traffic_of_slot(on, streams, k, stages);
      CHECK(traffic.seconds == doctest::Approx(slot.longest() + 1e-6 * world.on.stage_us +
                                               1e-6 * world.on.message_us * static_cast<double>(slot.most_messages())));
      for (const rank_t d : world.part) check_traffic(traffic.devices[on.seat_of(d)], words, d, moved);
    }
    wanted.messages = 1e-6 * world.on.message_us * static_cast<double>(messages);
    wanted.slots = 1e-6 * world.on.stage_us * static_cast<double>(stages);
    const double rounded = slot_of(words, streams, [&](const sized_stream& s) {
                             return s.elements % stages == 0 ? 0.0 : static_cast<double>(s.width);
                           }).longest();
    const bool counted = static_cast<double>(stages) * rounded > 2e-4 * wanted.total();
    const switch_seconds found = seconds_of(on, streams, stages);
    CHECK(found.ports == doctest::Approx(counted ? as_they_are : wanted.ports).epsilon(1e-11));
    CHECK(found.messages == doctest::Approx(wanted.messages).epsilon(1e-11));
    CHECK(found.slots == doctest::Approx(wanted.slots).epsilon(1e-11));
    const slot_in_words whole =
        slot_of(words, streams, [](const sized_stream& s) { return static_cast<double>(s.bytes()); });
    CHECK(found.busiest.seconds == doctest::Approx(whole.longest()).epsilon(1e-11));
    const port busiest{found.busiest.kind, found.busiest.device, 0};
    CHECK(whole.seconds.at(in_words(busiest, words)) == doctest::Approx(whole.longest()).epsilon(1e-11));
    ++(counted ? exact : even);
    short_ones += std::any_of(streams.begin(), streams.end(), [&](const auto& s) { return s.elements < stages; });
    waits += messages > 0 && world.on.message_us > 0 ? 1 : 0;
  }
  std::printf("%d counted as they are, %d as even parts; %d with short streams, %d with messages\n", exact, even,
              short_ones, waits);
  for (const int met : {exact, even, short_ones, waits}) CHECK_DRAWN(met > 15);
}

TEST_CASE("inside a node NVLink, between nodes the NICs, across rails both spines; and the copy engine twice") {
  const port_table on = ports_of(links(5));
  const auto busy = [&](rank_t src, rank_t dst) { return seconds_of(on, {{src, dst, gb, 1}}, 1); };
  const switch_seconds inside = busy(0, 3), between = busy(1, 4), across = busy(1, 7), kept = busy(2, 2);
  CHECK(near(inside.ports, 0.01));
  CHECK(inside.busiest.kind == port_kind::nvlink_out);
  CHECK(near(between.ports, 0.1));
  CHECK(between.busiest.kind == port_kind::nic_out);
  CHECK(between.busiest.device == 0);  // the lowest that uses NIC 0
  CHECK(near(across.ports, 0.2));
  CHECK(across.busiest.kind == port_kind::spine_out);
  CHECK(across.busiest.device == 0);
  CHECK(near(kept.ports, 0.002));
  CHECK(kept.busiest.kind == port_kind::copy);
  CHECK(kept.busiest.device == 2);
  CHECK(kept.messages == 0);
  CHECK(near(inside.messages, 10e-6));
  CHECK(near(inside.slots, 50e-6));
  CHECK(near(inside.total(), 0.01006));
  CHECK(near(seconds_of(ports_of(links()), {{1, 7, gb, 1}}, 1).ports, 0.1));  // no limit between rails
  CHECK(on.crosses_rails(1, 7));
  CHECK(!on.crosses_rails(1, 5));
}

TEST_CASE("at compile time as at run time") {
  constexpr auto seconds_and_floor = [](bool floor) {
    const model m = make_transformer(
        {.name = "m", .layers = 1, .hidden = 8, .heads = 2, .groups = 2, .head_dim = 4, .ffn = 8, .vocabulary = 8});
    const space two(m, config{dp{2}}), eight(m, config{dp{8}});
    placement placed;
    placed.on = links();
    const layout_switch change(two, eight, placed);
    const port_table on(change);
    if (floor) return floor_seconds(floor_bytes_of(change, on), on);
    return seconds_of(on, {{0, 4, 3, 2}, {1, 5, 4, 2}}, 2).total();
  };
  static_assert(seconds_and_floor(false) > 0 && seconds_and_floor(true) > 0);
  CHECK(near(seconds_and_floor(false), 2 * (60e-6 + 7e-10)));
}

TEST_CASE("a single byte takes its time at a port") {
  const switch_seconds found = seconds_of(ports_of(links()), {{0, 4, 1, 1}}, 1);
  CHECK(found.ports == doctest::Approx(1e-10).epsilon(1e-9));
  CHECK(found.busiest.kind == port_kind::nic_out);
}

TEST_CASE("devices that share a NIC share its speed; the two directions do not") {
  const port_table on = ports_of(links());
  CHECK(near(seconds_of(on, {{0, 4, gb, 1}, {1, 5, gb, 1}}, 1).ports, 0.2));  // NIC 0 of both
  CHECK(near(seconds_of(on, {{0, 4, gb, 1}, {2, 6, gb, 1}}, 1).ports, 0.1));  // NICs 0 and 1
  CHECK(near(seconds_of(on, {{0, 4, gb, 1}, {4, 0, gb, 1}}, 1).ports, 0.1));  // out and in
  CHECK(near(seconds_of(on, {{0, 4, gb, 1}, {0, 1, gb, 1}}, 1).ports, 0.1));  // NVLink beside the NIC
  CHECK(near(seconds_of(on, {{0, 4, gb, 1}, {0, 4, gb, 4}}, 1).ports, 0.5));  // two roles of one pair
  CHECK(near(seconds_of(on, {{0, 4, gb, 1}, {0, 4, gb, 4}}, 1).messages, 10e-6));
}

TEST_CASE("messages: the most that a device sends or receives, not both") {
  const port_table on = ports_of(links());
  std::vector<sized_stream> streams{{0, 1, 1, 1}, {0, 2, 1, 1}, {0, 3, 1, 1}, {4, 0, 1, 1}, {5, 0, 1, 1}};
  CHECK(near(seconds_of(on, streams, 1).messages, 30e-6));
  streams.insert(streams.end(), {{6, 0, 1, 1}, {7, 0, 1, 1}});
  CHECK(near(seconds_of(on, streams, 1).messages, 40e-6));
}

TEST_CASE("stages: parts of streams as they are, and messages where a part is not empty") {
  const port_table on = ports_of(links());
  const sized_stream two{0, 4, 2, 1}, many{1, 5, 3 * gb, 1};
  CHECK(two.in_stage(0, 3) == 0);
  CHECK(two.in_stage(1, 3) == 1);
  CHECK(two.in_stage(2, 3) == 1);
  CHECK(near(seconds_of(on, {two}, 3).messages, 20e-6));
  CHECK(near(seconds_of(on, {two}, 3).slots, 150e-6));  // also a slot without transfers
  CHECK(near(seconds_of(on, {many}, 3).messages, 30e-6));
  CHECK(near(seconds_of(on, {many}, 3).ports, 0.3));
  // one message of a pair in a slot, whichever of its streams have a part
  CHECK(near(seconds_of(on, {two, {0, 4, 1, 1}}, 3).messages, 20e-6));
  CHECK(near(seconds_of(on, {two, {0, 4, 3, 1}}, 3).messages, 30e-6));
  CHECK(near(seconds_of(on, {two, {0, 5, 1, 1}}, 3).messages, 30e-6));  // 2 in the last slot
  CHECK(near(seconds_of(on, {}, 4).total(), 200e-6));
  CHECK(seconds_of(on, {}, 4).busiest.seconds == 0);
}

TEST_CASE("where rounding of parts matters it is counted: the largest part of every slot") {
  cluster free = links();
  free.message_us = free.stage_us = 0;
  // 10 and 11 elements in 8 slots: 1 1 1 2 1 1 1 2 and 1 1 2 1 1 2 1 2
  const std::vector<sized_stream> streams{{0, 4, 10, gb}, {2, 6, 11, gb}};
  CHECK(near(seconds_of(ports_of(free), streams, 8).ports, 1.2));
  CHECK(near(seconds_of(ports_of(free), streams, 1).ports, 1.1));
  // the same with long messages: counted as eighths, within 0.02 %
  cluster slow = links();
  slow.message_us = 1e9;
  CHECK(near(seconds_of(ports_of(slow), streams, 8).ports, 1.1));
  // 60,003 and 61,602 single bytes in 8 slots may differ by a byte a slot, which is little; 8 wide ones have no rest
  const std::vector<sized_stream> wide{{0, 4, 8, 200 * gb}, {0, 4, 60'003, gb}, {2, 6, 61'602, gb}};
  CHECK(seconds_of(ports_of(free), wide, 8).ports == doctest::Approx(6160.3).epsilon(1e-9));
  const std::vector<sized_stream> rest{{0, 4, 9, 200 * gb}, {0, 4, 60'003, gb}, {2, 6, 61'602, gb}};
  // that is 7,700 in every slot, one more in the third, fourth and sixth, and 201 in the last
  CHECK(seconds_of(ports_of(free), rest, 8).ports == doctest::Approx(6180.4).epsilon(1e-9));
}

TEST_CASE("only devices on which a living rank sits take part") {
  const space two(testing::tiny(1), parse_degrees("dp=2"));
  const layout_switch change(two, two, {.from = device_map({1, 6}), .to = device_map({6, 7}), .on = links()});
  const port_table on(change);
  REQUIRE(on.seats().size() == 3);
  CHECK(on.seats()[1].device == 6);
  CHECK(on.of(7).nic == 1);
  CHECK(on.of(7).nic_seat == 1);
  CHECK(on.of(1).nic_seat == 0);
  CHECK(seconds_of(on, {{1, 7, gb, 1}}, 1).busiest.device == 1);
}

TEST_CASE("what is refused") {
  const space two(testing::tiny(1), parse_degrees("dp=2"));
  CHECK(refused([&] { port_table(layout_switch(two, two, {.on = nodes_of(2)})); }) ==
        "reshard: simulate: the cluster has no speeds; a name or a file has, a shape has none");
  CHECK(refused([&] {
          (void)seconds_of(ports_of(links(0)), {{1, 7, gb, 1}}, 1);
        }) ==
        "reshard: simulate: device 1 sends to device 7 over NICs of different numbers, which do not meet where "
        "spine_GBps is 0");
  CHECK(refused([&] { (void)seconds_of(ports_of(links(0)), {{1, 5, gb, 1}}, 1); }) == "accepted");
  CHECK(refused([&] { (void)seconds_of(ports_of(links()), {}, 0); }) ==
        "reshard: simulate: 0 stages; there is at least 1");
}
