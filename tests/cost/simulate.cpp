// SPDX-License-Identifier: Apache-2.0
// Simulated seconds against the oracle, on random switches and clusters: recomputed from the transfers of every stage,
// floors and the baseline policy from every byte on every device.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <reshard/cost/simulate.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/schedule/detail/stage_transfers.hpp>
#include <reshard/space/listed_holding.hpp>

#include "../oracle/link_time.hpp"
#include "../oracle/random_layouts.hpp"
#include "../support/dice.hpp"
#include "../support/expand.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"
#include "../support/whole_on.hpp"

using namespace reshard;
using testing::dice, testing::to_model;

namespace {

/// How often each feature occurred; the last line of a case says so.
struct census {
  std::map<std::string, int> count;
  void see(const char* feature, bool there = true) { count[feature] += there ? 1 : 0; }
  void print() const {
    for (const auto& [feature, times] : count) std::printf("%s %d; ", feature.c_str(), times);
    std::printf("\n");
  }
};

/// Both descriptions of one random cluster.
struct clusters_alike {
  cluster library;
  oracle::link_cluster judge;
};

clusters_alike random_cluster(dice& random, rank_t devices, census& seen) {
  const auto speed = [&] { return static_cast<double>(random.within(1, 400)) * 1e-5; };  // models are tiny
  clusters_alike both;
  const long gpus = random.within(1, 4);
  const bool free_time = random.below(6) == 0;
  both.library = {.gpus = gpus, .message_us = free_time ? 0.0 : 10.0, .stage_us = free_time ? 0.0 : 50.0};
  both.judge = {gpus, {}, both.library.message_us, both.library.stage_us};
  const bool limited = random.coin(), uneven = random.coin();
  for (long nodes = ceil_divide(devices, gpus) + random.below(2); nodes > 0;) {
    node_kind kind{.count = random.within(1, nodes),
                   .nics = uneven ? random.within(0, gpus) : 0,
                   .nvlink_GBps = speed(),
                   .nic_GBps = speed(),
                   .copy_GBps = speed() * 20};
    if (limited) kind.spine_GBps = random.coin() ? 0 : speed() / 4;
    seen.see("spines that do not meet", kind.spine_GBps == 0);
    both.library.nodes.push_back(kind);
    const double spine = kind.spine_GBps == no_limit ? -1 : kind.spine_GBps;
    for (long i = 0; i < kind.count; ++i)
      both.judge.nodes.push_back(
          {kind.nics == 0 ? gpus : kind.nics, kind.nvlink_GBps, kind.nic_GBps, kind.copy_GBps, spine});
    nodes -= kind.count;
  }
  seen.see("nodes of one GPU", gpus == 1);
  seen.see("fewer NICs than GPUs", uneven && gpus > 1);
  seen.see("nodes that differ", both.library.nodes.size() > 1);
  seen.see("limited spines", limited);
  seen.see("no time a message and stage", free_time);
  return both;
}

/// A switch with gaps between its devices and some of them lost, now and then.
struct random_switch {
  oracle::switch_case c;
  std::set<long> lost, part;

  random_switch(oracle::generator& generator, dice& random, census& seen) : c(generator.next_switch()) {
    if (random.below(3) == 0) {
      seen.see("gaps between devices");
      for (std::vector<long>* side : {&c.from_devices, &c.to_devices})
        for (long& device : *side) device += device / 2;
    }
    if (random.below(5) == 0)
      for (long& device : c.to_devices) device += 32;
    for (long device : c.from_devices) {
      const bool free = std::find(c.to_devices.begin(), c.to_devices.end(), device) == c.to_devices.end();
      if (free && random.below(8) == 0) lost.insert(device);
    }
    seen.see("lost devices", !lost.empty());
    for (const std::vector<long>* side : {&c.from_devices, &c.to_devices})
      for (long device : *side)
        if (lost.count(device) == 0) part.insert(device);
    const auto on_both = [&](long d) {
      return std::find(c.from_devices.begin(), c.from_devices.end(), d) != c.from_devices.end();
    };
    const auto common = std::count_if(c.to_devices.begin(), c.to_devices.end(), on_both);
    seen.see("worlds apart", common == 0);
    seen.see("worlds that overlap", common > 0 && c.from_devices != c.to_devices);
  }
  rank_t devices() const {
    return std::max(*std::max_element(c.from_devices.begin(), c.from_devices.end()),
                    *std::max_element(c.to_devices.begin(), c.to_devices.end())) +
           1;
  }
};

device_map map_of(const std::vector<long>& devices) {
  return device_map(std::vector<rank_t>(devices.begin(), devices.end()));
}

/// What the transfers of all stages say, as `plan --transfers` lists them; a state's own.
std::vector<oracle::move> moves_of(const computed_switch& change, index_t stages) {
  std::vector<oracle::move> moves;
  for (rank_t device = 0; device < change.devices(); ++device) {
    const plan p = make_plan(change, device);
    for (const std::vector<transfer>* list : {&p.receives, &p.retains})
      for (const staged_piece& piece : stage_transfers(*list, change, stages))
        moves.push_back({piece.src, piece.dst, piece.bytes(), piece.stage});
  }
  return moves;
}

bool near(double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(b) + 1e-15; }
/// As two honest programs agree; parts of streams may be counted as equal.
bool agrees(double a, double b) { return std::abs(a - b) <= 1e-3 * std::abs(b); }

void check_policy(const baseline_seconds& found, const oracle::policy_seconds& wanted) {
  CHECK(found.naive.has_value() == wanted.possible);
  CHECK(found.synchronous.has_value() == wanted.possible);
  CHECK(found.asynchronous.has_value() == wanted.possible);
  if (!wanted.possible) return;
  CHECK(near(found.naive.value_or(-1), wanted.naive));
  CHECK(near(found.synchronous.value_or(-1), wanted.synchronous));
  CHECK(near(found.asynchronous.value_or(-1), wanted.asynchronous));
}

void check_busiest(const switch_seconds& found, const oracle::link_seconds& wanted, const oracle::link_cluster& judge,
                   const std::set<long>& part) {
  double most = 0;
  for (const auto& [port, seconds] : wanted.of_port) most = std::max(most, seconds);
  CHECK(near(found.busiest.seconds, most));
  if (most == 0) return;
  const std::string kind(port_names[static_cast<std::size_t>(found.busiest.kind)]);
  const long device = found.busiest.device, node = judge.node_of(device);
  const bool of_nic = kind.starts_with("nic"), of_node = kind.starts_with("spine");
  const auto port = wanted.of_port.find({kind, node, of_nic ? judge.nic_of(device) : of_node ? 0 : device});
  REQUIRE(port != wanted.of_port.end());
  CHECK(near(port->second, most));
  for (long d : part)  // the lowest that uses it
    if (judge.node_of(d) == node && (of_node || (of_nic && judge.nic_of(d) == judge.nic_of(device)))) {
      CHECK(d == device);
      break;
    }
}

void check_random_switches(int count, census& seen) {
  oracle::generator generator(testing::seed() + 50);
  dice random(51);
  for (int n = 0; n < count; ++n) {
    const random_switch asked(generator, random, seen);
    const clusters_alike on = random_cluster(random, asked.devices(), seen);
    const std::string description = asked.c.describe();
    CAPTURE(description);
    const layout_switch change(space(to_model(asked.c.m), parse_degrees(asked.c.from_text)),
                               space(to_model(asked.c.m), parse_degrees(asked.c.to_text)),
                               {.from = map_of(asked.c.from_devices),
                                .to = map_of(asked.c.to_devices),
                                .on = on.library,
                                .devices = asked.devices(),
                                .lost = {asked.lost.begin(), asked.lost.end()},
                                .lost_elements = when_lost::leave_out});
    const index_t many = testing::few() ? 256 : 4096;
    const index_t stages = random.below(3) == 0 ? random.within(many / 2, many) : random.within(1, 6);
    CAPTURE(stages);
    const oracle::whereabouts where(asked.c.m, asked.c.from, asked.c.to, asked.c.from_devices, asked.c.to_devices,
                                    {std::begin(oracle::all_states), std::end(oracle::all_states)}, asked.lost);
    const std::vector<oracle::move> moves = moves_of(change, stages);
    simulator all(change);
    for (rank_t device = 0; device < change.devices(); ++device) all.add(make_plan(change, device));
    const bool possible = std::none_of(moves.begin(), moves.end(), [&](const oracle::move& m) {
      return m.src != m.dst && on.judge.impossible(m.src, m.dst);
    });
    const double floor = floor_seconds(floor_bytes_of(change, all.on()), all.on());
    CHECK(near(floor, floor_of(on.judge, where, asked.part)));
    check_policy(seconds_of(all.on(), baseline_plan_of(change)), policy_of(on.judge, where, asked.part));
    seen.see(possible ? "possible" : "refused: rails do not meet");
    CHECK((testing::refused([&] { (void)all.in_stages(stages); }) == "accepted") == possible);
    if (!possible) continue;

    const simulation found = all.in_stages(stages);
    const oracle::link_seconds wanted = seconds_of_moves(on.judge, moves, stages);
    CHECK(agrees(found.seconds.total(), wanted.total()));
    CHECK(std::abs(found.seconds.ports - wanted.ports) <= 1e-3 * wanted.total());
    CHECK(near(found.seconds.messages, wanted.messages));
    CHECK(near(found.seconds.slots, wanted.slots));
    check_busiest(found.seconds, wanted, on.judge, asked.part);
    CHECK(near(found.direct_seconds.value_or(-1), seconds_of_moves(on.judge, moves_of(change, 1), 1).total()));
    CHECK(found.floor_seconds <= found.seconds.ports * (1 + 1e-12));
    CHECK(found.seconds.total() >= found.direct_seconds.value_or(0) * (1 - 1e-3));  // one stage is the fastest
    if (found.dynatrain.asynchronous) CHECK(found.floor_seconds <= *found.dynatrain.asynchronous);
    seen.see("several stages", stages > 1);
    const std::vector<sized_stream>& streams = all.streams();
    seen.see("streams shorter than stages",
             std::any_of(streams.begin(), streams.end(), [&](const sized_stream& s) { return s.elements < stages; }));
    seen.see(
        std::string(port_names[static_cast<std::size_t>(found.seconds.busiest.kind)]).append(" is busiest").c_str());
  }
}
}  // namespace

TEST_CASE("lists of shards as well as layouts; what is created is brought by nobody") {
  const std::vector<shard> before = testing::whole_on(2, "w", {6, 4}), after = testing::whole_on(4, "w", {6, 4});
  const cluster on{.gpus = 2, .each = {.nvlink_GBps = 1e-3, .nic_GBps = 1e-4, .copy_GBps = 1}};
  const simulation found = simulate(layout_switch(before, after, {.on = on}));
  CHECK(found.floor_seconds == doctest::Approx(24 * 2 / 2e5));  // devices 2 and 3 fetch it once together
  CHECK(found.seconds.ports == doctest::Approx(24 * 2 / 1e5));  // each fetches all of it
  CHECK(found.dynatrain.naive.value_or(0) == doctest::Approx(2 * (10e-6 + 48 / 1e5) + 50e-6));  // from device 0

  const model padded = make_transformer(
      {.name = "m", .layers = 1, .hidden = 8, .heads = 2, .groups = 2, .head_dim = 4, .ffn = 8, .vocabulary = 10});
  const auto floor_with = [&](const char* to) {
    return simulate(layout_switch(space(padded, parse_degrees("")), space(padded, parse_degrees(to)),
                                  {.to = device_map(std::vector<rank_t>{2}), .on = on}));
  };
  CHECK(floor_with("pad=512").floor_seconds == floor_with("").floor_seconds);
  CHECK(floor_with("pad=512").dynatrain.synchronous == floor_with("").dynatrain.synchronous);
}

TEST_CASE("forty random switches, for the mutants") {
  census seen;
  check_random_switches(testing::few() ? 4 : 40, seen);  // where few are tried, the next case tries the same again
}

TEST_CASE("random switches on random clusters: seconds, floors and the policy" * doctest::test_suite("many")) {
  census seen;
  check_random_switches(testing::tries(testing::thrown(240)), seen);
  seen.print();
  for (const char* feature :
       {"spines that do not meet", "nodes of one GPU", "fewer NICs than GPUs", "nodes that differ", "limited spines",
        "no time a message and stage", "gaps between devices", "lost devices", "worlds apart", "worlds that overlap",
        "refused: rails do not meet", "several stages", "streams shorter than stages"}) {
    CAPTURE(feature);
    if (!testing::few()) CHECK_DRAWN(seen.count[feature] >= 20);
  }
}

TEST_CASE("seconds are not told below their floor by rounding") {
  // one NIC takes all of it, in however many stages, and nothing else takes time
  const std::vector<shard> before = testing::whole_on(1, "w", {4096, 3}), after = testing::whole_on(1, "w", {4096, 3});
  cluster on{.gpus = 1, .each = {.nvlink_GBps = 1, .nic_GBps = 1e-4 / 7, .copy_GBps = 1}};
  on.message_us = on.stage_us = 0;
  const layout_switch change(before, after, {.to = device_map(std::vector<rank_t>{1}), .on = on});
  const port_table ports(change);
  const double floor = floor_seconds(floor_bytes_of(change, ports), ports);
  int above = 0;
  for (index_t stages = 1; stages <= 200; ++stages) {
    const simulation found = simulate(change, stages);
    CAPTURE(stages);
    above += floor > found.seconds.total() ? 1 : 0;
    CHECK(found.floor_seconds <= found.seconds.total());
    CHECK(found.floor_seconds <= found.direct_seconds.value_or(0));
    CHECK(found.floor_seconds == doctest::Approx(floor).epsilon(1e-9));
  }
  std::printf("%d sums are below the floor by rounding\n", above);
  CHECK(above > 0);
}
