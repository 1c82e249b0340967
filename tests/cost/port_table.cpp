// SPDX-License-Identifier: Apache-2.0
// The ports of a cluster by hand: three kinds of nodes, devices that take part and some that do not, which ports each
// pair of devices loads, and how fast they are.
#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include <reshard/cost/detail/port_table.hpp>

#include "../support/refused.hpp"
#include "../support/tiny.hpp"

using namespace reshard;

namespace {

/// Nodes of four: the first has two NICs and a spine, the next two a NIC for each GPU, the last rails that do not meet.
cluster three_kinds() {
  const node_kind first{.count = 1, .nics = 2, .nvlink_GBps = 100, .nic_GBps = 20, .copy_GBps = 1000, .spine_GBps = 30};
  const node_kind next{.count = 2, .nvlink_GBps = 200, .nic_GBps = 25, .copy_GBps = 2000};
  const node_kind last{.count = 1, .nics = 4, .nvlink_GBps = 300, .nic_GBps = 50, .copy_GBps = 3000, .spine_GBps = 0};
  return {.gpus = 4, .nodes = {first, next, last}, .message_us = 3, .stage_us = 70};
}

computed_switch replicas(const std::vector<rank_t>& from, const std::vector<rank_t>& to, const cluster& on,
                         std::vector<rank_t> lost = {}) {
  static const model m = testing::tiny(1);
  const auto side = [](std::size_t n) { return space(m, parse_degrees("dp=" + std::to_string(n))); };
  return {side(from.size()),
          side(to.size()),
          {.from = device_map(from), .to = device_map(to), .on = on, .lost = std::move(lost)}};
}

/// Devices 1 2 3 | 5 6 | 8 | 12 15 take part; 0 and 4 are lost, of others there are none.
const port_table& table() {
  static const port_table made(replicas({0, 2, 5, 4, 8, 15}, {1, 3, 2, 6, 12}, three_kinds(), {0, 4}));
  return made;
}
constexpr rank_t members[] = {1, 2, 3, 5, 6, 8, 12, 15};
constexpr std::size_t seats = std::size(members);

/// The ports that bytes load, as kind and device.
std::string loaded(rank_t src, rank_t dst) {
  std::string text;
  table().each_port(src, dst, [&](std::size_t number) {
    const port& p = table().ports()[number];
    text += (text.empty() ? "" : " ") + std::string(port_names[static_cast<int>(p.kind)]) + std::to_string(p.device);
  });
  return text;
}
/// The speeds of the ports of a kind in GB/s, by seat; 0 where nobody uses it.
std::vector<double> speeds(port_kind kind) {
  std::vector<double> all;
  for (std::size_t i = 0; i < seats; ++i) {
    const port& p = table().ports()[static_cast<std::size_t>(kind) * seats + i];
    if (p.bytes_per_second != 0) {
      CHECK(p.kind == kind);
      CHECK(p.device == members[i]);
    }
    all.push_back(p.bytes_per_second / 1e9);
  }
  return all;
}
using doubles = std::vector<double>;

struct moved {
  rank_t src, dst;
};

}  // namespace

TEST_CASE("seats are those on whom a living rank sits, with the lowest of their NIC and of their node") {
  const std::size_t nic_seats[] = {0, 1, 1, 3, 4, 5, 6, 7}, node_seats[] = {0, 0, 0, 3, 3, 5, 6, 6};
  const index_t nodes[] = {0, 0, 0, 1, 1, 2, 3, 3}, nics[] = {0, 1, 1, 1, 2, 0, 0, 3};
  REQUIRE(table().seats().size() == seats);
  for (std::size_t i = 0; i < seats; ++i) {
    CAPTURE(i);
    const port_table::seat& s = table().seats()[i];
    CHECK(s.device == members[i]);
    CHECK(s.node == nodes[i]);
    CHECK(s.nic == nics[i]);
    CHECK(s.nic_seat == nic_seats[i]);
    CHECK(s.node_seat == node_seats[i]);
    CHECK(s.kind == three_kinds().kind_of(nodes[i]));
    CHECK(table().seat_of(members[i]) == i);
    CHECK(&table().of(members[i]) == &s);
    CHECK(table().ports()[table().copy_engine(members[i])].kind == port_kind::copy);
    CHECK(table().ports()[table().copy_engine(members[i])].device == members[i]);
  }
  CHECK(table().message_seconds() == doctest::Approx(3e-6).epsilon(1e-12));
  CHECK(table().slot_seconds() == doctest::Approx(70e-6).epsilon(1e-12));
}

TEST_CASE("NICs of one number on neighbouring nodes are two") {
  const port_table two(
      replicas({0, 3}, {4, 7}, {.gpus = 4, .each = {.nics = 1, .nvlink_GBps = 1, .nic_GBps = 1, .copy_GBps = 1}}));
  std::vector<std::size_t> nic, node;
  for (const port_table::seat& s : two.seats()) nic.push_back(s.nic_seat), node.push_back(s.node_seat);
  CHECK(nic == std::vector<std::size_t>{0, 0, 2, 2});
  CHECK(node == std::vector<std::size_t>{0, 0, 2, 2});
}

TEST_CASE("a port's speed is that of its node's kind, 0 where no one uses it") {
  CHECK(table().ports().size() == 7 * seats);
  CHECK(speeds(port_kind::nic_out) == doubles{20, 20, 0, 25, 25, 25, 50, 50});
  CHECK(speeds(port_kind::nic_in) == doubles{20, 20, 0, 25, 25, 25, 50, 50});
  CHECK(speeds(port_kind::nvlink_out) == doubles{100, 100, 100, 200, 200, 200, 300, 300});
  CHECK(speeds(port_kind::nvlink_in) == doubles{100, 100, 100, 200, 200, 200, 300, 300});
  CHECK(speeds(port_kind::copy) == doubles{1000, 1000, 1000, 2000, 2000, 2000, 3000, 3000});
  for (const port_kind spine : {port_kind::spine_out, port_kind::spine_in}) {
    CHECK(speeds(spine) == doubles{30, 0, 0, 0, 0, 0, 0, 0});
    // that of the last node is there, and has no speed
    const port& closed = table().ports()[static_cast<std::size_t>(spine) * seats + 6];
    CHECK(closed == port{spine, 12, 0});
    CHECK(table().ports()[static_cast<std::size_t>(spine) * seats + 3] == port{});
  }
}

TEST_CASE("bytes load NVLinks inside a node, NICs between nodes, and spines where rails differ") {
  CHECK(loaded(1, 3) == "nvlink_out1 nvlink_in3");
  CHECK(loaded(15, 12) == "nvlink_out15 nvlink_in12");
  CHECK(loaded(3, 5) == "nic_out2 nic_in5");
  CHECK(loaded(8, 1) == "nic_out8 nic_in1");
  CHECK(loaded(3, 8) == "nic_out2 nic_in8 spine_out1");
  CHECK(loaded(6, 3) == "nic_out6 nic_in2 spine_in1");
  CHECK(loaded(5, 8) == "nic_out5 nic_in8");
  CHECK(loaded(2, 15) == "nic_out2 nic_in15 spine_out1 spine_in12");
}

TEST_CASE("who is on one node, who crosses rails, and whose rails do not meet") {
  CHECK(table().one_node(1, 3));
  CHECK(!table().one_node(3, 5));
  CHECK(!table().crosses_rails(1, 3));
  CHECK(!table().crosses_rails(3, 5));
  CHECK(table().crosses_rails(3, 8));
  CHECK(table().crosses_rails(12, 5));
  CHECK(!table().apart(3, 8));
  CHECK(table().apart(12, 5));
  CHECK(table().apart(5, 12));
  CHECK(!table().apart(8, 12));
  CHECK(!table().apart(12, 15));
}

TEST_CASE("what crosses rails that do not meet is refused by its first transfer, and a cluster without speeds") {
  CHECK(testing::refused([] {
          require_rails_meet(table(), std::vector<moved>{{12, 15}, {8, 12}, {3, 8}, {1, 12}});
        }) == "accepted");
  CHECK_REFUSED(require_rails_meet(table(), std::vector<moved>{{12, 15}, {2, 12}, {5, 12}}),
                "simulate: device 2 sends to device 12 over NICs of different numbers, which do not meet where "
                "spine_GBps is 0");
  CHECK_REFUSED(port_table(replicas({0}, {1}, nodes_of(4))), "simulate: the cluster has no speeds");
}
