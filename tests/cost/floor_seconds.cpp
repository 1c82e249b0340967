// SPDX-License-Identifier: Apache-2.0
// Floors by hand: which bytes must pass a node's NICs and a device's NVLink, each once.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <reshard/cost/dynatrain_policy.hpp>
#include <reshard/cost/floor_seconds.hpp>
#include <reshard/plan/layout_switch.hpp>
#include <reshard/space/listed_holding.hpp>

#include "../support/any_role.hpp"
#include "../support/any_tensors.hpp"
#include "../support/dice.hpp"
#include "../support/whole_on.hpp"

using namespace reshard;
using testing::any_tensors, testing::dice, testing::links_in_words;

namespace {
constexpr bytes_t all = 48;  // 24 elements of 2 bytes

/// Nodes of four GPUs and two NICs of 10^5 bytes a second.
constexpr cluster links(double nvlink_GBps) {
  return {.gpus = 4, .each = {.nics = 2, .nvlink_GBps = nvlink_GBps, .nic_GBps = 1e-4, .copy_GBps = 1}};
}
/// One tensor, whole on every rank of both sides.
auto whole_tensor(const std::vector<rank_t>& from, const std::vector<rank_t>& to, double nvlink_GBps = 1) {
  return layout_switch(testing::whole_on(static_cast<rank_t>(from.size()), "w", {6, 4}),
                       testing::whole_on(static_cast<rank_t>(to.size()), "w", {6, 4}),
                       {.from = device_map(from), .to = device_map(to), .on = links(nvlink_GBps)});
}
template <typename Switch>
double seconds(const Switch& change) {
  const port_table on(change);
  return floor_seconds(floor_bytes_of(change, on), on);
}
}  // namespace

TEST_CASE("inside a node: what a device lacks, and what it alone held") {
  const auto one = whole_tensor({0}, {0, 1, 3}), several = whole_tensor({0, 2}, {0, 1, 3});
  const floor_bytes of_one = floor_bytes_of(one, port_table(one)),
                    of_two = floor_bytes_of(several, port_table(several));
  REQUIRE(of_one.devices.size() == 3);
  for (std::size_t seat : {1u, 2u}) {
    CHECK(of_one.devices[seat].lacks == all);
    CHECK(of_one.devices[seat].from_node == all);
    CHECK(of_one.devices[seat].to_node == 0);
  }
  CHECK(of_one.devices[0].lacks == 0);
  CHECK(of_one.devices[0].to_node == all);  // once, however many lack it
  CHECK(of_one.nodes[0].in == 0);
  CHECK(of_one.nodes[0].out == 0);
  REQUIRE(of_two.devices.size() == 4);
  for (const device_floor& d : of_two.devices) CHECK(d.to_node == 0);  // either may give it
  CHECK(of_two.devices[1].from_node == all);
  CHECK(seconds(whole_tensor({0}, {0, 1}, 1e-6)) == doctest::Approx(48 / 1e3));
}

TEST_CASE("between nodes: once in, however many ranks need it, and once out, where no other node held it") {
  const auto one = whole_tensor({0, 1}, {0, 4, 5, 8});
  const port_table on(one);
  const floor_bytes floors = floor_bytes_of(one, on);
  const std::size_t first = on.seat_of(0), second = on.seat_of(4), third = on.seat_of(8);
  CHECK(floors.nodes[first].in == 0);
  CHECK(floors.nodes[first].out == all);
  CHECK(floors.nodes[second].in == all);
  CHECK(floors.nodes[third].in == all);
  CHECK(floors.nodes[second].out == 0);
  for (const device_floor& d : floors.devices) CHECK(d.from_node == 0);
  const auto two = whole_tensor({0, 4}, {0, 5, 8});
  const floor_bytes of_two = floor_bytes_of(two, port_table(two));
  for (const node_floor& y : of_two.nodes) CHECK(y.out == 0);
}

TEST_CASE("a node's NICs are those of devices that take part") {
  // all four of both nodes: two NICs
  CHECK(seconds(whole_tensor({0, 1, 2, 3}, {4, 5, 6, 7})) == doctest::Approx(48 / 2e5));
  CHECK(seconds(whole_tensor({0, 1}, {4, 5, 6, 7})) == doctest::Approx(48 / 1e5));  // out over one
  CHECK(seconds(whole_tensor({0, 1, 2, 3}, {4, 5})) == doctest::Approx(48 / 1e5));  // in over one
  CHECK(seconds(whole_tensor({0, 1, 2, 3}, {4, 6}, 1e-4)) == doctest::Approx(48 / 2e5));
  CHECK(seconds(whole_tensor({0, 1, 2, 3}, {4, 6}, 1e-5)) == doctest::Approx(48 / 1.1e5));  // a device: NVLink + NIC
  CHECK(seconds(whole_tensor({0}, {0})) == 0);
}

namespace {
/// The floors by their words, row by row, of nodes and devices by their numbers.
struct counted_floors {
  std::map<index_t, node_floor> nodes;
  std::map<rank_t, device_floor> devices;

  counted_floors(const any_tensors& given, const links_in_words& words) {
    for (const any_tensors::row& row : given.rows) {
      if (row.had.empty()) continue;  // brought by nobody
      std::set<index_t> had, need;
      for (const rank_t d : row.had) had.insert(words.node_of(d));
      for (const rank_t d : row.needs) need.insert(words.node_of(d));
      for (const index_t y : need) {
        if (had.contains(y)) continue;
        nodes[y].in += row.bytes;
      }
      for (const index_t y : had)
        if (had.size() == 1 && std::any_of(need.begin(), need.end(), [&](index_t other) { return other != y; }))
          nodes[y].out += row.bytes;
      bool neighbour_lacks = false;
      for (const rank_t d : row.needs) {
        if (row.had.contains(d)) continue;
        devices[d].lacks += row.bytes;
        if (had == std::set<index_t>{words.node_of(d)}) devices[d].from_node += row.bytes, neighbour_lacks = true;
      }
      if (row.had.size() == 1 && neighbour_lacks) devices[*row.had.begin()].to_node += row.bytes;
    }
  }
};
}  // namespace

TEST_CASE(
    "any tensors on any devices: what must pass each node and device, row by row, and the largest of the floors") {
  dice random(31);
  int in = 0, out = 0, from_node = 0, to_node = 0, lost = 0;
  for (int n = 0; n < 120; ++n) {
    const any_tensors given(random, false);
    const auto change = given.change();
    const port_table on(change);
    const links_in_words words(given.world.on);
    const floor_bytes told = floor_bytes_of(change, on);
    counted_floors wanted(given, words);
    std::map<index_t, std::set<index_t>> nics;
    for (const rank_t d : given.world.part) nics[words.node_of(d)].insert(words.nic_of(d));
    double most = 0;
    for (const rank_t d : given.world.part) {
      const std::size_t i = on.seat_of(d);
      const device_floor &of = wanted.devices[d], &found = told.devices[i];
      CHECK(found.lacks == of.lacks);
      CHECK(found.from_node == of.from_node);
      CHECK(found.to_node == of.to_node);
      const node_floor& y = wanted.nodes[words.node_of(d)];
      const bool lowest = on.of(d).node_seat == i;
      CHECK(told.nodes[i].in == (lowest ? y.in : 0));
      CHECK(told.nodes[i].out == (lowest ? y.out : 0));
      const double nvlink = words.node(d).nvlink_GBps * 1e9, nic = words.node(d).nic_GBps * 1e9;
      const auto count = static_cast<double>(nics[words.node_of(d)].size());
      most = std::max({most, static_cast<double>(std::max(of.from_node, of.to_node)) / nvlink,
                       static_cast<double>(of.lacks) / (nvlink + nic),
                       static_cast<double>(std::max(y.in, y.out)) / (count * nic)});
      in += y.in > 0, out += y.out > 0, from_node += of.from_node > 0, to_node += of.to_node > 0;
    }
    CHECK(floor_seconds(told, on) == doctest::Approx(most).epsilon(1e-12));
    lost += std::any_of(given.rows.begin(), given.rows.end(), [](const auto& row) { return row.had.empty(); });
  }
  std::printf("%d into nodes, %d out of them, %d from neighbours, %d to neighbours, %d with rows lost\n", in, out,
              from_node, to_node, lost);
  for (const int met : {in, out, from_node, to_node}) CHECK_DRAWN(met > 50);
  CHECK_DRAWN(lost > 5);
}

TEST_CASE("each floor alone is the largest where its bytes are the most") {
  const auto change = whole_tensor({0, 1, 2, 3}, {4, 6}, 1e-5);  // node 1: two NICs of 1e5 bytes a second each
  const port_table on(change);
  floor_bytes floors;
  floors.nodes.resize(on.seats().size()), floors.devices.resize(on.seats().size());
  CHECK(floor_seconds(floors, on) == 0);
  const std::size_t node = on.seat_of(4), device = on.seat_of(6);
  for (bytes_t node_floor::*way : {&node_floor::in, &node_floor::out}) {
    floors.nodes[node].*way = 600;
    CHECK(floor_seconds(floors, on) == doctest::Approx(600 / 2e5));
    floors.nodes[node].*way = 0;
  }
  for (bytes_t device_floor::*way : {&device_floor::from_node, &device_floor::to_node}) {
    floors.devices[device].*way = 600;
    CHECK(floor_seconds(floors, on) == doctest::Approx(600 / 1e4));
    floors.devices[device].*way = 0;
  }
  floors.devices[device].lacks = 600;
  CHECK(floor_seconds(floors, on) == doctest::Approx(600 / 1.1e5));
}

TEST_CASE("what a holding would answer for states that its tensors do not have counts in no floor and in no policy") {
  const std::vector<shard> before = testing::whole_on(1, "w", {6, 4}), after = testing::whole_on(3, "w", {6, 4});
  const placement placed{.to = device_map({0, 1, 4}), .on = links(1), .states = adam.named("param")};
  REQUIRE(!placed.states->of(role::statistic).empty());
  const layout_switch change(testing::any_role(shard_list(before)), testing::any_role(shard_list(after)), placed);
  const floor_bytes floors = floor_bytes_of(change, port_table(change));
  REQUIRE(floors.devices.size() == 3);
  CHECK(floors.devices[1].lacks == all);
  CHECK(floors.nodes[2].in == all);
  CHECK(baseline_plan_of(change).messages == std::vector<baseline_message>{{0, 1, all, 1}, {0, 4, all, 1}});
}
