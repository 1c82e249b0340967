// SPDX-License-Identifier: Apache-2.0
// Floors by hand: which bytes must pass a node's NICs and a device's NVLink, each once.
#include <doctest/doctest.h>

#include <vector>

#include <reshard/cost/floor_seconds.hpp>
#include <reshard/plan/layout_switch.hpp>
#include <reshard/space/listed_holding.hpp>

#include "../support/whole_on.hpp"

using namespace reshard;

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
