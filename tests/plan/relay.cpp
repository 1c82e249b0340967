// SPDX-License-Identifier: Apache-2.0
// Relay: plans replayed element by element; each byte enters a node once; both ends and the whole list alike; rails.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/relay.hpp>
#include <reshard/plan/volume.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/relayed_elements.hpp"
#include "../support/tiny.hpp"
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
  CHECK_DRAWN(met["with chains"] > cases / 20);
  CHECK_DRAWN(met["with passed elements"] > cases / 4);
}

namespace {
/// Bytes by node and NIC, each direction, over all hops; and what hops between nodes come to.
struct nic_loads {
  std::map<std::pair<index_t, index_t>, bytes_t> in, out;
  std::map<rank_t, bytes_t> nvlink_out;
  bytes_t delivered = 0, across = 0, between = 0;

  template <Holding From, Holding To>
  nic_loads(const layout_switch<From, To>& change, index_t chains) {
    const cluster& on = change.on();
    each_relayed(change, chains, [&](const transfer& t) {
      if (t.why == purpose::delivered) delivered += t.bytes();
      if (on.one_node(t.src, t.dst)) {
        nvlink_out[t.src] += t.bytes();
        return;
      }
      between += t.bytes();
      across += on.crosses_rails(t.src, t.dst) ? t.bytes() : 0;
      in[{on.node_of(t.dst), on.nic_of(t.dst)}] += t.bytes();
      out[{on.node_of(t.src), on.nic_of(t.src)}] += t.bytes();
    });
  }
  /// The busiest NIC of a node over the mean of its NICs, of nodes that pass a gigabyte or more.
  static double uneven(const std::map<std::pair<index_t, index_t>, bytes_t>& loads) {
    std::map<index_t, std::tuple<bytes_t, bytes_t, index_t>> nodes;  // sum, most, NICs
    for (const auto& [nic, bytes] : loads) {
      auto& [sum, most, nics] = nodes[nic.first];
      sum += bytes, most = greatest(most, bytes), ++nics;
    }
    double worst = 1;
    for (const auto& [node, load] : nodes)
      if (const auto& [sum, most, nics] = load; sum >= 1'000'000'000)
        worst = std::max(worst, static_cast<double>(most) * static_cast<double>(nics) / static_cast<double>(sum));
    return worst;
  }
};

computed_switch row(const model& m, const char* from, const char* to, const cluster& on, device_map to_devices = {}) {
  return layout_switch(space(m, parse_degrees(from)), space(m, parse_degrees(to)), {.to = to_devices, .on = on});
}
device_map devices_from(rank_t first, rank_t count) {
  std::vector<rank_t> devices(static_cast<std::size_t>(count));
  std::iota(devices.begin(), devices.end(), first);
  return device_map(devices);
}
}  // namespace

TEST_CASE("every NIC of a node passes the same, and rails are kept where nodes are alike") {
  cluster uneven = clusters::a800;
  uneven.nodes = {uneven.each, uneven.each, uneven.each, uneven.each};
  uneven.nodes[0].count = 3, uneven.nodes[2].count = 8, uneven.nodes[3].count = 4;
  uneven.nodes[1].nics = 7, uneven.nodes[3].nics = 4;
  const char* seventy = "tp=4,pp=8,dp=2,zero=1";
  struct one {
    computed_switch change;
    bool alike;
  };
  const one rows[] = {
      {row(models::llama2_7b, "tp=2,pp=2,dp=2,zero=1", "tp=4,pp=4,zero=1", clusters::a800), true},
      {row(models::llama2_13b, "tp=4,pp=4,dp=2,zero=1", "tp=4,pp=2,dp=3,zero=1", clusters::a800), true},
      {row(models::llama2_70b, seventy, "tp=8,pp=16,zero=1", clusters::a800), true},
      {row(models::llama2_70b, seventy, "tp=8,pp=16,zero=1", uneven), false},
      {row(models::qwen3_235b_a22b, "tp=4,pp=8,dp=4,ep=16,zero=1,split=account", "tp=8,pp=16,ep=8,zero=1,split=account",
           clusters::a800),
       true},
      {row(models::qwen3_30b_a3b, "tp=2,pp=3,dp=2,ep=2,zero=1", "tp=4,pp=4,ep=4,dp=1,zero=1", clusters::a800), false}};
  for (const one& r : rows) {
    const nic_loads loads(r.change, 1);
    CHECK(nic_loads::uneven(loads.in) <= 1.05);
    CHECK(nic_loads::uneven(loads.out) <= 1.05);
    CHECK(loads.delivered == moved_bytes(r.change));
    if (r.alike) CHECK(loads.across == 0);
    CHECK(loads.between > 0);
  }
}

TEST_CASE("a holder node serves F nodes, each of which passes it on to one; phases are the longest way") {
  const bytes_t whole = models::llama2_7b.parameters() * 2;
  const auto change = [&](rank_t to_first, rank_t replicas) {
    return layout_switch(space(models::llama2_7b, parse_degrees("tp=4")),
                         space(models::llama2_7b, parse_degrees("tp=4,dp=" + std::to_string(replicas))),
                         {.to = devices_from(to_first, 4 * replicas), .on = nodes_of(4), .states = parameter_states});
  };
  for (const rank_t first : {0, 4}) {  // the holder node among the others, or apart
    const index_t needing = first == 0 ? 7 : 8;
    for (const index_t chains : {1, 2, 3, 7, 20}) {
      const computed_switch one = change(first, 8);
      const nic_loads loads(one, chains);
      std::map<index_t, bytes_t> out, in;
      for (const auto& [nic, bytes] : loads.out) out[nic.first] += bytes;
      for (const auto& [nic, bytes] : loads.in) in[nic.first] += bytes;
      const bytes_t held = held_bytes(one.from(), 0, parameter_states) * 4;  // norms are on all of them
      CHECK(held > whole);
      CHECK(in.size() == static_cast<std::size_t>(needing));
      for (const auto& [node, bytes] : in) CHECK(bytes == whole);  // each byte once, also those of norms
      for (const auto& [node, bytes] : out) CHECK(bytes == (node == 0 ? std::min(chains, needing) : 1) * whole);
      CHECK(phases_of(one, {relay::always, chains, 1}) == 3 + (needing - 1) / chains);
    }
  }
  CHECK_REFUSED((void)make_plan(change(4, 2), 0, {relay::always, 0, 1}),
                "relay: 0 chains of each node; there is at least 1");
}

TEST_CASE("a chain is as long as a phase can say, and no longer") {
  const rank_t copies = most_phases + 3;  // on the devices behind the holder's, a node each
  const std::vector<shard> source{{0, "w", bf16, {4}, {0}, {4}}};
  std::vector<shard> wanted;
  for (rank_t r = 0; r < copies; ++r) wanted.push_back({r, "w", bf16, {4}, {0}, {4}});
  const layout_switch change(source, wanted, {.to = devices_from(1, copies), .on = nodes_of(1)});
  const routing chain{relay::always, 1, 1};
  CHECK(make_plan(change, 32765, chain).receives.at(0).phase == 32765);
  CHECK(make_plan(change, 32766, chain).receives.at(0).phase == 32766);
  for (const rank_t device : {32767, 32770})  // who passes it on to the next, and the last
    CHECK(testing::refused([&] { (void)make_plan(change, device, chain); }) ==
          "reshard: relay: a byte would pass " + std::to_string(device == 32767 ? 32768 : 32770) +
              " devices one after the other; at most 32767, so that more chains are needed");
}

TEST_CASE("what holders hand to the carriers of their node is shared among them") {
  const layout_switch change(
      space(models::llama2_7b, parse_degrees("dp=2")), space(models::llama2_7b, parse_degrees("tp=8")),
      {.from = device_map({2, 5}), .to = devices_from(8, 8), .on = nodes_of(8), .states = parameter_states});
  // devices 2 and 5 alone take part on their node: no others carry
  const nic_loads two(change, 1);
  CHECK(two.in.size() == 8);
  CHECK(two.nvlink_out.count(2) == 0);
  const layout_switch more(space(models::llama2_7b, parse_degrees("dp=2")),
                           space(models::llama2_7b, parse_degrees("dp=14")),
                           {.from = device_map({2, 5}),
                            .to = device_map({0, 1, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}),
                            .on = nodes_of(8),
                            .states = parameter_states});
  const nic_loads all(more, 1);
  CHECK(static_cast<double>(all.nvlink_out.at(2)) ==
        doctest::Approx(static_cast<double>(all.nvlink_out.at(5))).epsilon(0.01));
  CHECK(nic_loads::uneven(all.out) <= 1.05);
}

TEST_CASE("lists of shards are relayed as layouts are") {
  dice random(12);
  int chained = 0, passed = 0;
  for (int n = 0; n < 60; ++n) {
    const auto side = [&](rank_t ranks, index_t parts) {
      std::vector<shard> list;
      for (const char* name : {"a", "b"}) {
        std::vector<index_t> cuts{0, 24};
        for (index_t i = 1; i < parts; ++i) cuts.push_back(random.below(25));
        std::sort(cuts.begin(), cuts.end());
        for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
          if (cuts[i] == cuts[i + 1]) continue;
          const rank_t sure = random.below(ranks);
          for (rank_t r = 0; r < ranks; ++r)
            if (r == sure || random.below(3) == 0)
              list.push_back({r, name, bf16, {24, 3}, {cuts[i], 0}, {cuts[i + 1] - cuts[i], 3}});
        }
      }
      return list;
    };
    const rank_t senders = random.within(1, 6), receivers = random.within(1, 12);
    std::vector<shard> from = side(senders, random.within(1, 4)), to = side(receivers, random.within(1, 4));
    const auto ranks_of = [](const std::vector<shard>& list) {
      rank_t most = 0;
      for (const shard& s : list) most = greatest(most, s.rank);
      return most + 1;
    };
    placement placed;
    placed.on = some_nodes(random);
    placed.to = some_devices(random, ranks_of(to), random.below(2) * ranks_of(from));
    const layout_switch change(from, to, placed);
    const routing how{relay::always, random.within(1, 2), random.within(1, 6)};
    const testing::relayed_counts counts = testing::relayed_elements(change, how).replay();
    CAPTURE(n);
    CHECK(counts.faults == 0);
    CHECK(counts.into_nodes == counts.least_into_nodes);
    chained += counts.phases > 3 ? 1 : 0, passed += counts.passed > 0 ? 1 : 0;
  }
  std::printf("lists: %d with chains, %d with passed elements\n", chained, passed);
  CHECK_DRAWN(chained > 3);
  CHECK_DRAWN(passed > 10);
}

TEST_CASE("where nodes differ, a NIC keeps as much of its own number as it can carry") {
  const layout_switch change(space(models::llama2_7b, parse_degrees("tp=8")),
                             space(models::llama2_7b, parse_degrees("tp=4")),
                             {.to = devices_from(8, 4), .on = nodes_of(8), .states = parameter_states});
  const nic_loads loads(change, 1);
  CHECK(loads.between > 0);
  // eight NICs of an eighth to four of a quarter: an eighth each on its own rail
  CHECK(static_cast<double>(loads.across) <= 0.51 * static_cast<double>(loads.between));
  CHECK(nic_loads::uneven(loads.in) <= 1.05);
  CHECK(nic_loads::uneven(loads.out) <= 1.05);
}

TEST_CASE("what holders of a node have for devices of that node alone goes at once, from each of them a part") {
  const layout_switch change(space(testing::tiny(2), parse_degrees("dp=2")),
                             space(testing::tiny(2), parse_degrees("dp=3")),
                             {.on = nodes_of(4), .states = parameter_states});
  bytes_t sent = 0, least_sent = std::numeric_limits<bytes_t>::max();
  for (rank_t device = 0; device < 3; ++device) {
    const plan p = make_plan(change, device, {relay::always, 1, 1});
    for (const transfer& t : p.sends) CHECK((t.phase == 0 && t.dst == 2 && t.why == purpose::delivered));
    sent += total_bytes(p.sends);
    if (device < 2) least_sent = std::min(least_sent, total_bytes(p.sends));
  }
  CHECK(sent == held_bytes(change.to(), 2, change.states()));
  CHECK(least_sent > sent / 3);  // of two holders each about a half
}
