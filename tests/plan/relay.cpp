// SPDX-License-Identifier: Apache-2.0
// Relay: plans replayed element by element; each byte enters a node once; both ends and the whole list alike; rails.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/relay.hpp>
#include <reshard/plan/volume.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/relayed_elements.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice;

namespace {

model dense() {
  return make_transformer(
      {.name = "dense", .layers = 2, .hidden = 8, .heads = 4, .groups = 2, .head_dim = 2, .ffn = 8, .vocabulary = 16});
}
model experts() {
  return make_transformer({.name = "experts",
                           .layers = 2,
                           .hidden = 4,
                           .heads = 2,
                           .groups = 2,
                           .head_dim = 2,
                           .ffn = 4,
                           .vocabulary = 8,
                           .experts = 4,
                           .expert_ffn = 2});
}
constexpr const char* dense_layouts[] = {"",
                                         "dp=2",
                                         "dp=5",
                                         "tp=2",
                                         "tp=2,dp=2",
                                         "pp=2,dp=3",
                                         "tp=4,dp=2",
                                         "dp=8",
                                         "zero=1,dp=4",
                                         "tp=2,dp=3,zero=1",
                                         "pp=2,dp=4,zero=1",
                                         "pp=2,tp=2,dp=3",
                                         "dp=12",
                                         "cp=2,dp=3,zero=1"};
constexpr const char* expert_layouts[] = {
    "",     "dp=4,ep=4", "dp=4,ep=2", "tp=2,dp=4,ep=4,etp=1,zero=1", "pp=2,dp=2,ep=2", "dp=8,ep=4,zero=1",
    "dp=6", "tp=2,dp=2"};

/// Distinct devices of a world that is somewhat larger, in order or not.
device_map some_devices(dice& random, rank_t ranks, rank_t first) {
  std::vector<rank_t> devices(static_cast<std::size_t>(ranks + random.below(4)));
  std::iota(devices.begin(), devices.end(), first);
  if (random.below(3) == 0)
    for (std::size_t i = devices.size(); i > 1; --i)
      std::swap(devices[i - 1], devices[static_cast<std::size_t>(random.below(static_cast<index_t>(i)))]);
  else
    while (static_cast<rank_t>(devices.size()) > ranks)
      devices.erase(devices.begin() + static_cast<std::ptrdiff_t>(random.below(static_cast<index_t>(devices.size()))));
  devices.resize(static_cast<std::size_t>(ranks));
  return device_map(devices);
}

cluster some_nodes(dice& random) {
  cluster on = nodes_of(random.within(1, 4));
  on.each.nics = random.below(2) == 0 ? 0 : random.within(1, on.gpus);
  if (random.below(3) == 0) {
    on.nodes = {on.each, on.each, on.each};
    on.nodes[0].count = random.within(1, 2);
    on.nodes[1].nics = random.within(1, on.gpus);
    on.nodes[2].count = 40;
  }
  return on;
}

}  // namespace

TEST_CASE("element by element: nothing arrives twice, too early or nowhere; a byte enters a node once") {
  dice random(11);
  std::map<std::string, int> met;
  const int cases = testing::thrown(300);
  for (int n = 0; n < cases; ++n) {
    const bool moe = random.below(3) == 0;
    const model m = moe ? experts() : dense();
    const auto layout = [&] {
      return moe ? expert_layouts[random.below(std::size(expert_layouts))]
                 : dense_layouts[random.below(std::size(dense_layouts))];
    };
    const std::string a = layout(), b = layout();
    const space from(m, parse_degrees(a)), to(m, parse_degrees(b));
    placement placed;
    placed.from = some_devices(random, from.ranks(), random.below(3));
    const index_t apart = random.below(3);
    placed.to = some_devices(random, to.ranks(), apart == 0 ? placed.from.devices() : random.below(3));
    placed.on = some_nodes(random);
    if (random.below(3) == 0) placed.states = parameter_states;
    const bool lost = apart == 0 && from.ranks() > 2 && random.below(4) == 0;
    if (lost)
      placed.lost = {placed.from.device_of(random.below(from.ranks()))}, placed.lost_elements = when_lost::leave_out;
    const layout_switch change(from, to, placed);
    const routing how{relay::always, random.within(1, 3), random.within(1, 5)};
    if (lost && lost_bytes(change) > 0) continue;  // needed, and comes from nobody
    testing::relayed_elements all(change, how);
    const testing::relayed_counts counts = all.replay();
    CAPTURE(a);
    CAPTURE(b);
    CAPTURE(how.chains);
    CAPTURE(how.stages);
    CAPTURE(placed.on.gpus);
    CAPTURE(n);
    CHECK(counts.faults == 0);
    met["with lost devices"] += lost ? 1 : 0;
    CHECK(counts.into_nodes == counts.least_into_nodes);
    CHECK(counts.phases == phases_of(change, how));
    ++met["switches"];
    met["with passed elements"] += counts.passed > 0 ? 1 : 0;
    met["with chains"] += counts.phases > 3 ? 1 : 0;
    met["with several nodes"] += change.node_devices() > 0 && change.devices() > change.node_devices() ? 1 : 0;
    met["of experts"] += moe ? 1 : 0;
    met["with uneven nodes"] += placed.on.nodes.empty() ? 0 : 1;
    met["apart"] += apart == 0 ? 1 : 0;
    met["across rails"] += counts.across_rails > 0 ? 1 : 0;
  }
  for (const auto& [what, times] : met) std::printf("%d %s\n", times, what.c_str());
  CHECK(met["with chains"] > cases / 20);
  CHECK(met["with passed elements"] > cases / 4);
}
