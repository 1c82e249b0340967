// SPDX-License-Identifier: Apache-2.0
// Clusters: which node and NIC a device has, how many devices there are, and what is no cluster.
#include <doctest/doctest.h>

#include <limits>
#include <string>

#include <reshard/plan/cluster.hpp>

#include "../support/any_links.hpp"
#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using testing::refused;

namespace {
constexpr cluster fast(index_t gpus) {
  return {.gpus = gpus, .each = {.nvlink_GBps = 160, .nic_GBps = 25, .copy_GBps = 1300}};
}
}  // namespace

TEST_CASE("a device is a GPU of a node and uses the NIC floor(g nics / gpus); computed at compile time too") {
  static_assert(clusters::a800.node_of(7) == 0 && clusters::a800.node_of(8) == 1 && clusters::a800.nic_of(13) == 5);
  static_assert(clusters::gb200.node_of(71) == 0 && clusters::gb200.node_of(72) == 1);
  static_assert(clusters::a800.one_node(0, 7) && !clusters::a800.one_node(7, 8));
  static_assert(clusters::a800.crosses_rails(0, 9) && !clusters::a800.crosses_rails(1, 9));
  static_assert(!clusters::a800.crosses_rails(0, 1));  // inside a node no NIC is used
  static_assert(clusters::h100.has_speeds() && !nodes_of(8).has_speeds());

  cluster uneven = fast(8);
  uneven.nodes = {{.count = 2}, {.count = 1, .nics = 4}, {.count = 3, .nics = 3}};
  CHECK(uneven.node_count() == 6);
  CHECK(uneven.devices() == 48);
  const index_t of_four[] = {0, 0, 1, 1, 2, 2, 3, 3}, of_three[] = {0, 0, 0, 1, 1, 1, 2, 2};
  for (index_t g = 0; g < 8; ++g) {
    CHECK(uneven.nic_of(8 + g) == g);
    CHECK(uneven.nic_of(16 + g) == of_four[g]);
    CHECK(uneven.nic_of(24 + g) == of_three[g]);
    CHECK(uneven.nic_of(40 + g) == of_three[g]);
  }
  CHECK(uneven.crosses_rails(10, 18));   // 2 of 8 and 1 of 4
  CHECK(!uneven.crosses_rails(17, 24));  // both 0
}

TEST_CASE("one node has all devices where nothing is said, each with a NIC") {
  constexpr cluster one;
  CHECK(one.node_of(1000) == 0);
  CHECK(one.nic_of(1000) == 1000);
  CHECK(!one.crosses_rails(3, 1000));
  CHECK(one.for_devices(5) == one);
  CHECK(refused([&] { require_cluster(one, 1000); }) == "accepted");
}

TEST_CASE("a cluster that lists no nodes has as many as are needed; one that does has those") {
  CHECK(clusters::a800.for_devices(1).devices() == 8);
  CHECK(clusters::a800.for_devices(8).node_count() == 1);
  CHECK(clusters::a800.for_devices(9).node_count() == 2);
  CHECK(clusters::a800.for_devices(9).kind_of(1).nic_GBps == 25);
  CHECK(clusters::a800.for_devices(0).node_count() == 1);
  CHECK(clusters::a800.devices() == 0);
  cluster two = fast(4);
  two.nodes = {two.each, two.each};
  CHECK(two.for_devices(100) == two);
}

TEST_CASE("names are those of the contract, with its speeds") {
  struct wanted {
    std::string_view name;
    index_t gpus;
    double nvlink, nic, copy;
  };
  const wanted all[] = {
      {"a800", 8, 160, 25, 1300}, {"h100", 8, 370, 49, 2600}, {"h200", 8, 370, 49, 4300}, {"gb200", 72, 720, 49, 7000}};
  REQUIRE(std::size(all_named_clusters) == std::size(all));
  for (std::size_t i = 0; i < std::size(all); ++i) {
    const cluster& on = *all_named_clusters[i].value;
    CHECK(all_named_clusters[i].name == all[i].name);
    CHECK(on.gpus == all[i].gpus);
    CHECK(on.each.nvlink_GBps == all[i].nvlink);
    CHECK(on.each.nic_GBps == all[i].nic);
    CHECK(on.each.copy_GBps == all[i].copy);
    CHECK(on.each.spine_GBps == no_limit);
    CHECK(on.each.nics == 0);
    CHECK(on.message_us == 10);
    CHECK(on.stage_us == 50);
    CHECK(refused([&] { require_cluster(on, 1000); }) == "accepted");
  }
}

TEST_CASE("what is no cluster is refused") {
  const auto sentence = [](auto&& change, rank_t named = 0) {
    cluster on = fast(8);
    change(on);
    return refused([&] { require_cluster(on, named); });
  };
  CHECK(sentence([](cluster&) {}) == "accepted");
  CHECK(sentence([](cluster& on) { on.gpus = -1; }) == "reshard: cluster: a node of -1 devices");
  CHECK(sentence([](cluster& on) { on.each.nics = 9; }) ==
        "reshard: cluster: a node of 8 GPUs has 9 NICs; it has 1 to 8");
  CHECK(sentence([](cluster& on) { on.each.nics = -1; }) ==
        "reshard: cluster: a node of 8 GPUs has -1 NICs; it has 1 to 8");
  CHECK(sentence([](cluster& on) { on.each.nics = 8; }) == "accepted");
  CHECK(sentence([](cluster& on) { on.each.nvlink_GBps = 0; }) ==
        "reshard: cluster: nvlink_GBps is 0; a speed is above 0, from 1e-9 to 1e9 GB/s");
  CHECK(sentence([](cluster& on) { on.each.nic_GBps = -25; }) ==
        "reshard: cluster: nic_GBps is -25; a speed is above 0, from 1e-9 to 1e9 GB/s");
  CHECK(sentence([](cluster& on) {
          on.each.copy_GBps = std::numeric_limits<double>::quiet_NaN();
        }).starts_with("reshard: cluster: copy_GBps is "));
  CHECK(sentence([](cluster& on) { on.each.spine_GBps = -1; }).starts_with("reshard: cluster: spine_GBps is -1"));
  for (const double spine : {0.0, 1e-9, 200.0, no_limit})
    CHECK(sentence([&](cluster& on) { on.each.spine_GBps = spine; }) == "accepted");
  CHECK(sentence([](cluster& on) { on.message_us = -1; }) ==
        "reshard: cluster: message_us is -1; a time is 0 to 1e12 microseconds");
  CHECK(sentence([](cluster& on) { on.stage_us = no_limit; }).starts_with("reshard: cluster: stage_us is inf"));
  CHECK(sentence([](cluster& on) { on.message_us = on.stage_us = 0; }) == "accepted");
  CHECK(sentence([](cluster& on) { on.nodes = {{.count = 0}}; }) ==
        "reshard: cluster: 0 nodes of a kind; there is at least 1");
  // speeds for all nodes or none
  CHECK(sentence([](cluster& on) { on.nodes = {on.each, {}}; }).starts_with("reshard: cluster: nvlink_GBps is 0"));
  CHECK(sentence([](cluster& on) { on.nodes = {{}, {}}; }) == "accepted");
  CHECK(sentence([](cluster& on) { on.nodes = {on.each, on.each}; }, 16) == "accepted");
  CHECK(sentence(
            [](cluster& on) {
              on.nodes = {on.each, on.each};
            },
            22) == "reshard: cluster: 2 nodes of 8 have 16 devices, but device 21 is named");
}

TEST_CASE(
    "any cluster: the node, the NIC and the rails of every device, counted up; past its last node that is its kind") {
  testing::dice random(14);
  for (int n = 0; n < 60; ++n) {
    const cluster on = testing::any_cluster(random, random.within(1, 20));
    const testing::links_in_words words(on);
    CHECK(on.node_count() == std::ssize(words.nodes));
    CHECK(on.devices() == std::ssize(words.nodes) * on.gpus);
    CHECK(on.has_speeds());
    CHECK(on.for_devices(3) == on);
    CHECK(refused([&] { require_cluster(on, on.devices()); }) == "accepted");
    for (rank_t a = 0; a < on.devices(); ++a) {
      CHECK(on.node_of(a) == words.node_of(a));
      CHECK(on.nic_of(a) == words.nic_of(a));
      CHECK(on.kind_of(on.node_of(a)).nic_GBps == words.node(a).nic_GBps);
      for (rank_t b = 0; b < on.devices(); ++b) {
        CHECK(on.one_node(a, b) == (words.node_of(a) == words.node_of(b)));
        CHECK(on.crosses_rails(a, b) == words.across(a, b));
      }
    }
    CHECK(on.kind_of(on.node_count()) == on.nodes.back());
    CHECK(on.kind_of(on.node_count() + 7) == on.nodes.back());
  }
  CHECK(clusters::h100.kind_of(1000) == clusters::h100.each);
}

TEST_CASE("each speed from 1e-9 to 1e9, a spine also 0, each time from 0 to 1e12; of nodes listed as well") {
  const double least = 1e-9, most = 1e9, below = 0.99e-9, above = 1.01e9;
  for (double node_kind::*speed :
       {&node_kind::nvlink_GBps, &node_kind::nic_GBps, &node_kind::copy_GBps, &node_kind::spine_GBps})
    for (const double value : {least, most, below, above, 0.0, -1.0, std::numeric_limits<double>::quiet_NaN()})
      for (const bool listed : {false, true}) {
        cluster on = fast(8);
        if (listed) on.nodes = {on.each, on.each};
        node_kind& kind = listed ? on.nodes[1] : on.each;  // g++ 12 gives ( ? : ).*speed a copy
        kind.*speed = value;
        const bool spine = speed == &node_kind::spine_GBps;
        const std::string sentence = refused([&] { require_cluster(on, 1); });
        CHECK((sentence == "accepted") == (value == least || value == most || (spine && value == 0)));
      }
  for (double cluster::*time : {&cluster::message_us, &cluster::stage_us})
    for (const double value : {0.0, 1e12, -1e-9, 1.01e12}) {
      cluster on = fast(8);
      on.*time = value;
      CHECK((refused([&] { require_cluster(on, 1); }) == "accepted") == (value == 0 || value == 1e12));
    }
}

TEST_CASE("one speed alone is no shape, more NICs than GPUs are none of any node, and one device more is too many") {
  for (double node_kind::*speed : {&node_kind::nvlink_GBps, &node_kind::nic_GBps, &node_kind::copy_GBps}) {
    cluster on = nodes_of(8);
    on.each.*speed = 5;
    CHECK(refused([&] { require_cluster(on, 1); }).find(" is 0; a speed is above 0") != std::string::npos);
  }
  cluster on = fast(8);
  on.nodes = {on.each, on.each, on.each};
  on.nodes[2].nics = 9;
  CHECK(refused([&] { require_cluster(on, 1); }) == "reshard: cluster: a node of 8 GPUs has 9 NICs; it has 1 to 8");
  on.nodes[2].nics = 1, on.nodes[1].count = -1;
  CHECK(refused([&] { require_cluster(on, 1); }) == "reshard: cluster: -1 nodes of a kind; there is at least 1");
  on.nodes[1].count = 1;
  CHECK(refused([&] { require_cluster(on, 24); }) == "accepted");
  CHECK(refused([&] { require_cluster(on, 25); }) ==
        "reshard: cluster: 3 nodes of 8 have 24 devices, but device 24 is named");
  on.nodes[1].count = std::numeric_limits<index_t>::max();
  CHECK(refused([&] { require_cluster(on, 1); }).find("does not fit 64 bits") != std::string::npos);
  cluster listed = nodes_of(8);  // of a cluster that lists its nodes `each` is none
  listed.nodes = {fast(8).each};
  listed.each.nics = 9, listed.each.nvlink_GBps = -1;
  CHECK(refused([&] { require_cluster(listed, 8); }) == "accepted");
  cluster shared;  // all devices on one node: nothing of it is looked at
  shared.each.nics = 3, shared.message_us = -1;
  CHECK(refused([&] { require_cluster(shared, 1000); }) == "accepted");
}
