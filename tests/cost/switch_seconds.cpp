// SPDX-License-Identifier: Apache-2.0
// The formula by hand: which ports a stream loads, what a slot costs, parts of streams that are shorter than stages.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include <reshard/cost/detail/switch_seconds.hpp>
#include <reshard/cost/floor_seconds.hpp>
#include <reshard/parallelism/config.hpp>
#include <reshard/parallelism/parse_degrees.hpp>

#include "../support/refused.hpp"
#include "../support/tiny.hpp"

using namespace reshard;
using testing::refused;

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
