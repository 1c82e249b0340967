// SPDX-License-Identifier: Apache-2.0
// What `reshard simulate` prints: whole texts of figures that were made up, line by line; which rows each kind of plan
// has; ports and links in words. (report/switch_text.cpp has figures that all differ, over relay and over two kinds of
// nodes.)
#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <reshard/report/simulation_text.hpp>

#include "../support/tiny.hpp"

using namespace reshard;

using namespace reshard::io;

namespace {
const computed_switch tiny_change = testing::tiny_switch(2, "tp=2,dp=2", "tp=4");

/// On nodes of four devices, without a spine.
const cluster of_four{.gpus = 4, .each = {.nics = 2, .nvlink_GBps = 160, .nic_GBps = 12.5, .copy_GBps = 1300}};
const layout_switch told_change(tiny_change.from(), tiny_change.to(), {.on = of_four});

simulation told_simulation() {
  simulation s;
  s.seconds = {.ports = 0.5, .messages = 0.25, .slots = 0.25, .busiest = {port_kind::spine_out, 2, 0.5}};
  s.floor_seconds = 0.25, s.direct_seconds = 0.75;
  s.dynatrain = {.naive = 4, .synchronous = 3, .asynchronous = 2};
  return s;
}
switch_figures told_figures() {
  switch_figures f;
  f.moved = f.least = 3 << 20, f.retained = 1 << 20, f.peak = 5 << 20, f.peak_excess = 1 << 19, f.messages = 12;
  return f;
}
bool has_line(const std::string& text, std::string_view begins) {
  return text.starts_with(begins) || text.find("\n" + std::string(begins)) != std::string::npos;
}
}  // namespace

TEST_CASE("a direct plan in one stage: seconds beside the floor and the policy, where they go, and bytes") {
  CHECK(simulation_text(told_change, told_simulation(), told_figures(), 0) ==
        "tiny from tp=2,dp=2 (4 ranks)\n"
        "to tp=4 (4 ranks)\n"
        "on 1 node of 4 devices\n"
        "NVLink 160 GB/s, 2 NICs of 12.5 GB/s, copies 1300 GB/s\n"
        "\n"
        "  simulated, not measured    seconds  x floor\n"
        "  this plan                  1.000 s     4.00  direct, in one stage\n"
        "  floor                    250.00 ms     1.00  no schedule is faster\n"
        "  DynaTrain, asynchronous    2.000 s     8.00  everything at once\n"
        "  DynaTrain, synchronous     3.000 s    12.00  pairs take turns\n"
        "  DynaTrain, naive           4.000 s    16.00  a message per tensor\n"
        "\n"
        "  where they go    seconds\n"
        "  ports          500.00 ms  busiest: the spine out of device 2\n"
        "  messages       250.00 ms  12 in all\n"
        "  slots          250.00 ms  1\n"
        "\n"
        "  bytes\n"
        "  moves          3.00 MiB  the least possible\n"
        "  between nodes       0 B\n"
        "  across rails        0 B  between NICs of different numbers\n"
        "  keeps          1.00 MiB  already where it is needed\n"
        "  peak           5.00 MiB  of any device, at most 512.00 KiB above\n");
}

TEST_CASE(
    "the direct plan is told beside any other, and rows of relay, budget and kept sources where they say anything") {
  const simulation s = told_simulation();
  switch_figures staged = told_figures(), relayed = told_figures(), kept = told_figures();
  staged.how = {relay::never, 1, 3}, staged.least = 1 << 20;
  relayed.how = {relay::always, 1, 1}, relayed.phases = 2;
  kept.after_use = sources::keep;
  const std::string direct = simulation_text(told_change, s, told_figures(), 0),
                    in_stages = simulation_text(told_change, s, staged, 6 << 20),
                    over_relay = simulation_text(told_change, s, relayed, 0),
                    with_sources = simulation_text(told_change, s, kept, 0);
  CHECK(in_stages.find("1.000 s     4.00  direct, in stages\n") != std::string::npos);
  CHECK(in_stages.find("  direct plan, one stage   750.00 ms     3.00  without a budget\n") != std::string::npos);
  CHECK(in_stages.find("  slots          250.00 ms  3\n") != std::string::npos);
  CHECK(in_stages.find("  moves          3.00 MiB\n") != std::string::npos);  // more than the least
  CHECK(in_stages.ends_with("  budget         6.00 MiB  kept\n"));
  CHECK(over_relay.find("1.000 s     4.00  relay, in 1 stage of 2 phases\n") != std::string::npos);
  CHECK(over_relay.find("  direct plan, one stage   750.00 ms     3.00  without relay\n") != std::string::npos);
  CHECK(over_relay.find("  relays              0 B  received only to be passed on\n") != std::string::npos);
  CHECK(over_relay.find("  slots          250.00 ms  2\n") != std::string::npos);
  CHECK(with_sources.find("  sources            stay  FROM's bytes are counted in the peak\n") != std::string::npos);
  for (const std::string_view row : {"  direct plan", "  relays", "  sources", "  budget"}) {
    CHECK_FALSE(has_line(direct, row));
    CHECK(has_line(in_stages, row) == (row == "  direct plan" || row == "  budget"));
    CHECK(has_line(over_relay, row) == (row == "  direct plan" || row == "  relays"));
    CHECK(has_line(with_sources, row) == (row == "  sources"));
  }
}

TEST_CASE("what has no seconds is a dash: crossing rails that do not meet; times a floor of nothing; no busiest port") {
  simulation s = told_simulation();
  s.dynatrain.naive.reset(), s.dynatrain.synchronous.reset(), s.seconds.busiest.seconds = 0;
  const std::string apart = simulation_text(told_change, s, told_figures(), 0);
  CHECK(apart.find("  DynaTrain, synchronous           -        -  crosses rails that do not meet\n") !=
        std::string::npos);
  CHECK(apart.find("  DynaTrain, naive                 -        -  crosses") != std::string::npos);
  CHECK(apart.find("busiest") == std::string::npos);
  s.floor_seconds = 0;
  CHECK(simulation_text(told_change, s, told_figures(), 0).find("1.000 s        -  direct, in one stage\n") !=
        std::string::npos);
}

TEST_CASE("what relabelling saves stands below the heading, where it was asked for") {
  const std::string text =
      simulation_text(told_change, told_simulation(), told_figures(), 0, relabel_saves{false, 0, 0});
  CHECK(text.find("devices\nrelabelling saves nothing: TO sits where it was\nNVLink 160") != std::string::npos);
}

TEST_CASE("each port in words, speeds in the fewest digits, and a line in 80 columns for each kind of node") {
  const std::pair<port_kind, const char*> told[] = {
      {port_kind::nic_out, "the NIC out"},     {port_kind::nic_in, "the NIC in"},
      {port_kind::nvlink_out, "NVLink out"},   {port_kind::nvlink_in, "NVLink in"},
      {port_kind::spine_out, "the spine out"}, {port_kind::spine_in, "the spine in"},
      {port_kind::copy, "the copy engine"}};
  for (const auto& [kind, words] : told) CHECK(io::detail::port_text(kind) == words);
  CHECK(io::detail::speed_text(25) == "25 GB/s");
  CHECK(io::detail::speed_text(0.125) == "0.125 GB/s");
  CHECK(io::detail::links_text(cluster()).empty());
  cluster two{.gpus = 8, .nodes = {{.count = 1, .nvlink_GBps = 160, .nic_GBps = 25, .copy_GBps = 1300}}};
  CHECK(io::detail::links_text(two) == "NVLink 160 GB/s, 8 NICs of 25 GB/s, copies 1300 GB/s\n");
  two.nodes.push_back(
      {.count = 12345, .nics = 4, .nvlink_GBps = 370.25, .nic_GBps = 49.5, .copy_GBps = 2600, .spine_GBps = 7});
  CHECK(io::detail::links_text(two) ==
        "1 node: NVLink 160 GB/s, 8 NICs of 25 GB/s, copies 1300 GB/s\n"
        "12,345 nodes: NVLink 370.25 GB/s, 4 NICs of 49.5 GB/s, between rails 7 GB/s,\n"
        "    copies 2600 GB/s\n");
}
