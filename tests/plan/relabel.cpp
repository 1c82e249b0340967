// SPDX-License-Identifier: Apache-2.0
// Relabelling against every permutation that the contract admits, on random switches and clusters; and by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/relabel.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/space/listed_holding.hpp>

#include "../oracle/random_layouts.hpp"
#include "../oracle/relabelling.hpp"
#include "../support/any_tensors.hpp"
#include "../support/dice.hpp"
#include "../support/expand.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"
#include "../support/whole_on.hpp"

using namespace reshard;
using testing::dice, testing::to_model;

namespace {

struct census {
  std::map<std::string, int> count;
  bool see(const char* feature, bool there = true) {
    count[feature] += there ? 1 : 0;
    return there;
  }
  void print() const {
    for (const auto& [feature, times] : count) std::printf("%s %d; ", feature.c_str(), times);
    std::printf("\n");
  }
};

bool near(double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(b) + 1e-15; }

/// A switch, where it sits, its cluster twice, and what the oracle knows of it.
struct asked {
  oracle::switch_case c;
  std::set<long> lost, part;
  cluster on;
  oracle::link_cluster judge;

  asked(oracle::generator& generator, dice& random, census& seen) : c(generator.next_switch()) {
    if (seen.see("gaps between devices", random.below(3) == 0))
      for (std::vector<long>* side : {&c.from_devices, &c.to_devices})
        for (long& device : *side) device += device / 3;
    if (random.below(5) == 0)
      for (long& device : c.to_devices) device += 16;
    if (random.below(3) == 0) std::rotate(c.to_devices.begin(), c.to_devices.begin() + 1, c.to_devices.end());
    const auto in = [](const std::vector<long>& list, long d) {
      return std::find(list.begin(), list.end(), d) != list.end();
    };
    for (long device : c.from_devices)
      if (!in(c.to_devices, device) && random.below(10) == 0) lost.insert(device);
    for (const std::vector<long>* side : {&c.from_devices, &c.to_devices})
      for (long device : *side)
        if (lost.count(device) == 0) part.insert(device);
    seen.see("lost devices", !lost.empty());
    seen.see("worlds apart",
             std::none_of(c.to_devices.begin(), c.to_devices.end(), [&](long d) { return in(c.from_devices, d); }));
    seen.see("tied embeddings", c.m.tied && (c.from.pp > 1) != (c.to.pp > 1));
    make_cluster(random, seen);
  }
  rank_t devices() const {
    return std::max(*std::max_element(c.from_devices.begin(), c.from_devices.end()),
                    *std::max_element(c.to_devices.begin(), c.to_devices.end())) +
           1;
  }
  void make_cluster(dice& random, census& seen) {
    const long gpus = random.within(1, 4);
    const bool shape = seen.see("no speeds", random.below(4) == 0), uneven = random.coin();
    on.gpus = judge.gpus = gpus;
    seen.see("nodes of one GPU", gpus == 1);
    for (long nodes = ceil_divide(devices(), gpus); nodes > 0;) {
      node_kind kind{.count = random.within(1, nodes)};
      if (!shape) {
        kind.nics = uneven ? random.within(1, gpus) : 0;
        kind.nvlink_GBps = kind.copy_GBps = 1;
        kind.nic_GBps = static_cast<double>(random.within(1, uneven ? 50 : 2)) * 1e-5;
      }
      on.nodes.push_back(kind);
      for (long i = 0; i < kind.count; ++i)
        judge.nodes.push_back({kind.nics == 0 ? gpus : kind.nics, 1, shape ? 1e-9 : kind.nic_GBps, 1, -1});
      nodes -= kind.count;
    }
    if (shape) on.nodes.clear();
    seen.see("uneven NICs", !shape && uneven && on.nodes.size() > 1);
    std::map<long, std::set<long>> of_node;
    for (long d : c.to_devices) of_node[d / gpus].insert(d % gpus);
    seen.see("nodes that lack devices", std::any_of(of_node.begin(), of_node.end(), [&](const auto& node) {
               return node.second != of_node.begin()->second;
             }));
    seen.see("several nodes", of_node.size() > 1);
    seen.see("nodes that only FROM has",
             std::any_of(part.begin(), part.end(), [&](long d) { return of_node.count(d / gpus) == 0; }));
  }
  auto change() const {
    const auto map_of = [](const std::vector<long>& list) {
      return device_map(std::vector<rank_t>(list.begin(), list.end()));
    };
    return layout_switch(space(to_model(c.m), parse_degrees(c.from_text)),
                         space(to_model(c.m), parse_degrees(c.to_text)),
                         {.from = map_of(c.from_devices),
                          .to = map_of(c.to_devices),
                          .on = on,
                          .devices = devices(),
                          .lost = {lost.begin(), lost.end()},
                          .lost_elements = when_lost::leave_out});
  }
  oracle::relabel_question question() const {
    const oracle::whereabouts where(c.m, c.from, c.to, c.from_devices, c.to_devices,
                                    {std::begin(oracle::all_states), std::end(oracle::all_states)}, lost);
    return {judge, where, c.to_devices, part};
  }
  std::size_t nodes() const {
    std::set<long> of_to;
    for (long d : c.to_devices) of_to.insert(d / judge.gpus);
    return of_to.size();
  }
  /// By the larger of tp and etp.
  std::vector<long> groups() const {
    std::vector<long> group_of;
    std::map<std::vector<long>, long> known;
    for (long rank = 0; rank < oracle::length(c.to_devices); ++rank) {
      const oracle::coordinates at = oracle::coordinates_of(c.to, rank);
      const std::vector<long> rest =
          c.to.etp > c.to.tp ? std::vector{at.ep, at.edp, at.pp} : std::vector{at.cp, at.dp, at.pp};
      group_of.push_back(known.try_emplace(rest, oracle::length(known)).first->second);
    }
    return group_of;
  }
};

std::vector<long> devices_of(const device_map& map) {
  std::vector<long> devices;
  for (rank_t r = 0; r < map.ranks(); ++r) devices.push_back(map.device_of(r));
  return devices;
}

/// What is said of a proposal, as the oracle counts it.
void check_figures(const relabelling& found, const oracle::relabel_question& all, bool speeds) {
  const std::vector<long> to = devices_of(found.to);
  const oracle::relabelled was = all.judge(all.to_devices), is = all.judge(to);
  CHECK(all.same_devices(to));
  CHECK(near(found.given.node_seconds, was.seconds));
  CHECK(near(found.proposed.node_seconds, is.seconds));
  CHECK(found.given.retained == was.retained);
  CHECK(found.proposed.retained == is.retained);
  CHECK(found.relabelled == (to != all.to_devices));
  if (found.relabelled) CHECK((is.retained > was.retained || (speeds && is.seconds < was.seconds * (1 - 1e-9))));
}

/// By nodes: the least seconds, and with them the most bytes, of all permutations.
void check_nodes(const asked& question, const oracle::relabel_question& all, census& seen) {
  const auto change = question.change();
  const bool speeds = question.on.has_speeds();
  const relabelling found = relabel(change);
  check_figures(found, all, speeds);
  CHECK(all.keeps_nodes_and_rails(devices_of(found.to)));
  oracle::best_relabelled best, of_all;
  all.each_of_nodes_and_numbers([&](const std::vector<long>& devices) { best.see(all.judge(devices)); });
  if (all.to_devices.size() <= 6) {  // the same permutations, found by the contract's conditions alone
    all.each_order([&](const std::vector<long>& devices) {
      if (all.keeps_nodes_and_rails(devices)) of_all.see(all.judge(devices));
    });
    CHECK(of_all.seen == best.seen);
    CHECK(near(of_all.best.seconds, best.best.seconds));
    CHECK(of_all.best.retained == best.best.retained);
    seen.see("all orders looked at");
  }
  const oracle::relabelled was = all.judge(all.to_devices);
  if (speeds || best.best.retained > was.retained) {
    CHECK(near(found.proposed.node_seconds, best.best.seconds));
    CHECK(found.proposed.retained == best.best.retained);
  } else {
    CHECK(!found.relabelled);
  }
  seen.see("four to six nodes", question.nodes() >= 4);
  seen.see("relabelled by nodes", found.relabelled);
  seen.see("fewer seconds by nodes", found.proposed.node_seconds < found.given.node_seconds * (1 - 1e-9));
  seen.see("nothing to save", !found.relabelled);
}

/// By groups: no worse than by nodes, and how often the best of all.
void check_groups(const asked& question, const oracle::relabel_question& all, census& seen) {
  const auto change = question.change();
  const relabelling found = relabel(change, relabel_by::groups), by_nodes = relabel(change);
  check_figures(found, all, question.on.has_speeds());
  CHECK(all.keeps_groups(devices_of(found.to), question.groups()));
  CHECK(found.proposed.node_seconds <= by_nodes.proposed.node_seconds * (1 + 1e-12));
  if (near(found.proposed.node_seconds, by_nodes.proposed.node_seconds))
    CHECK(found.proposed.retained >= by_nodes.proposed.retained);
  seen.see("better by groups", found.proposed.node_seconds < by_nodes.proposed.node_seconds * (1 - 1e-9) ||
                                   found.proposed.retained > by_nodes.proposed.retained);
  if (all.to_devices.size() > 6 || !question.on.has_speeds()) return;
  oracle::best_relabelled best;
  const std::vector<long> group_of = question.groups();
  all.each_order([&](const std::vector<long>& devices) {
    if (all.keeps_groups(devices, group_of)) best.see(all.judge(devices));
  });
  CHECK(found.proposed.node_seconds >= best.best.seconds * (1 - 1e-12));
  const bool fast = near(found.proposed.node_seconds, best.best.seconds);
  seen.see("groups of six ranks at most");
  seen.see("groups: the least seconds", fast);
  seen.see("groups: and the most bytes", fast && found.proposed.retained == best.best.retained);
}

void check_random(int count, census& seen) {
  oracle::generator generator(testing::seed() + 70);
  dice random(71);
  for (int n = 0; n < count; ++n) {
    const asked question(generator, random, seen);
    if (seen.see("left out: more than six nodes", question.nodes() > 6)) continue;
    const std::string description = question.c.describe();
    CAPTURE(description);
    const oracle::relabel_question all = question.question();
    check_nodes(question, all, seen);
    check_groups(question, all, seen);
  }
}

constexpr cluster links{.gpus = 2, .each = {.nvlink_GBps = 1, .nic_GBps = 1e-5, .copy_GBps = 1}};

/// One tensor of 24 elements; rank r of both sides has rows r.
std::vector<shard> rows(rank_t ranks) {
  std::vector<shard> shards;
  for (rank_t r = 0; r < ranks; ++r)
    shards.push_back({r, "w", dtype::bf16, {8, 3}, {r * 8 / ranks, 0}, {8 / ranks, 3}});
  return shards;
}
}  // namespace

TEST_CASE("by hand: a block goes where its bytes are, and its ranks to their places") {
  // TO's ranks sit on the other node and the other GPU
  const layout_switch crossed(rows(4), rows(4), {.to = device_map(std::vector<rank_t>{3, 2, 1, 0}), .on = links});
  const relabelling found = relabel(crossed);
  CHECK(found.relabelled);
  CHECK(devices_of(found.to) == std::vector<long>{0, 1, 2, 3});
  CHECK(found.given == relabel_figures{24 / 2e4, 0});
  CHECK(found.proposed == relabel_figures{0, 48});
  // rails survive: both nodes would have to turn, and only one wants to
  const layout_switch one_turned(rows(4), rows(4), {.to = device_map(std::vector<rank_t>{1, 0, 2, 3}), .on = links});
  CHECK(!relabel(one_turned).relabelled);
  CHECK(relabel(one_turned).given == relabel_figures{0, 24});
}

TEST_CASE("without speeds only bytes can be saved; with them the block that needs most goes where NICs are") {
  // TO sits apart; its ranks 0 and 1 have six rows of eight, on a node of one NIC
  std::vector<shard> uneven;
  const index_t begins[] = {0, 3, 6, 7, 8};
  for (rank_t r = 0; r < 4; ++r)
    uneven.push_back({r, "w", dtype::bf16, {8, 3}, {begins[r], 0}, {begins[r + 1] - begins[r], 3}});
  const auto on = [&](const cluster& c) {
    return relabel(layout_switch(rows(2), uneven, {.to = device_map(std::vector<rank_t>{4, 5, 6, 7}), .on = c}));
  };
  CHECK(!on(nodes_of(2)).relabelled);
  cluster one_nic = links;
  one_nic.nodes = {links.each, links.each, links.each, links.each};
  one_nic.nodes[2].nics = 1;
  const relabelling found = on(one_nic);
  CHECK(devices_of(found.to) == std::vector<long>{6, 7, 4, 5});
  CHECK(found.given == relabel_figures{36 / 1e4, 0});
  CHECK(found.proposed == relabel_figures{48 / 2e4, 0});  // what FROM gives out counts, too
}

TEST_CASE("thirty ranks that sit on other nodes and numbers come back; there are too many orders to try them all") {
  constexpr rank_t nodes = 3, gpus = 10, ranks = nodes * gpus;
  std::vector<shard> own;
  for (rank_t r = 0; r < ranks; ++r) own.push_back({r, "w", dtype::bf16, {ranks, 3}, {r, 0}, {1, 3}});
  std::vector<rank_t> turned;
  for (rank_t r = 0; r < ranks; ++r) turned.push_back((r / gpus + 1) % nodes * gpus + (r % gpus * 3 + 1) % gpus);
  cluster on = links;
  on.gpus = gpus;
  const relabelling found = relabel(layout_switch(own, own, {.to = device_map(turned), .on = on}));
  CHECK(found.given.retained == 0);
  CHECK(found.proposed.retained == ranks * 3 * 2);
  CHECK(found.to.device_of(17) == 17);
}

TEST_CASE("at 1,024 ranks groups that swap nodes spare the busiest one more than whole nodes do") {
  const layout_switch change(
      space(models::qwen3_235b_a22b, parse_degrees("tp=8,pp=16,dp=8,ep=8,zero=1,split=account")),
      space(models::qwen3_235b_a22b, parse_degrees("tp=4,pp=8,dp=32,ep=16,zero=1,split=account")),
      {.on = clusters::a800});
  const relabelling by_nodes = relabel(change), by_groups = relabel(change, relabel_by::groups);
  CHECK(by_nodes.proposed.node_seconds < 0.9 * by_nodes.given.node_seconds);
  CHECK(by_groups.proposed.node_seconds < 0.9 * by_nodes.proposed.node_seconds);
}

TEST_CASE("a list of shards has no tensor-parallel groups") {
  const layout_switch change(rows(4), rows(4), {.on = links});
  CHECK(testing::refused([&] { (void)relabel(change, relabel_by::groups); }) ==
        "reshard: relabel: a TO without a layout has no tensor-parallel groups; relabel by nodes");
}

TEST_CASE("what is saved: nothing where neither seconds nor bytes are, or where only the new seat is refused") {
  CHECK(saves_of(true, 5, 2.0, 1.5).relabelled);
  CHECK(saves_of(true, 5, 2.0, 1.5).bytes == 5);
  CHECK(saves_of(true, 5, 2.0, 1.5).seconds == 0.5);
  CHECK(saves_of(true, 5, 1.5, 2.0).seconds == -0.5);
  CHECK(saves_of(true, -5, 2.0, 1.5).relabelled);
  CHECK(!saves_of(true, 0, 2.0, 2.0).relabelled);
  CHECK(!saves_of(true, 0, 2.0, 2.0 - 1e-12).relabelled);
  CHECK(!saves_of(true, -5, 1.5, 2.0).relabelled);
  CHECK(!saves_of(true, 5, 2.0, {}).relabelled);
  CHECK(!saves_of(false, 5, 2.0, 1.5).relabelled);
  CHECK(saves_of(false, 5, 2.0, 1.5).bytes == 0);
  CHECK(saves_of(true, 0, {}, 1.5).relabelled);
  CHECK(!saves_of(true, 0, {}, 1.5).seconds);
}

TEST_CASE("forty random switches, for the mutants") {
  census seen;
  check_random(testing::few() ? 20 : 40, seen);
  // a search, which may miss: of 218 it missed one
  CHECK_DRAWN(seen.count["groups: the least seconds"] == seen.count["groups of six ranks at most"]);
  CHECK_DRAWN(seen.count["groups: and the most bytes"] == seen.count["groups of six ranks at most"]);
}

TEST_CASE("random switches against every permutation" * doctest::test_suite("many")) {
  census seen;
  check_random(testing::tries(testing::thrown(300)), seen);
  seen.print();
  for (const char* feature :
       {"gaps between devices", "lost devices", "worlds apart", "tied embeddings", "no speeds", "nodes of one GPU",
        "uneven NICs", "nodes that lack devices", "several nodes", "four to six nodes", "nodes that only FROM has",
        "relabelled by nodes", "fewer seconds by nodes", "nothing to save", "all orders looked at",
        "better by groups"}) {
    CAPTURE(feature);
    if (!testing::few()) CHECK_DRAWN(seen.count[feature] >= 10);
  }
}

namespace {
/// The question of any tensors in the oracle's terms, from their rows.
oracle::relabel_question question_of(const testing::any_tensors& given) {
  const testing::any_world& world = given.world;
  oracle::link_cluster judge{world.on.gpus, {}, 0, 0};
  const index_t nodes =
      ceil_divide(std::max(device_map(world.from).devices(), device_map(world.to).devices()), world.on.gpus);
  for (index_t y = 0; y < nodes; ++y) {
    const node_kind& kind = world.on.kind_of(y);
    judge.nodes.push_back(
        {kind.nics == 0 ? world.on.gpus : kind.nics, 1, world.on.has_speeds() ? kind.nic_GBps : 1e-9, 1, -1});
  }
  const oracle::whereabouts nobody({}, {}, {}, {}, {}, {}, {});
  oracle::relabel_question all(judge, nobody, {world.to.begin(), world.to.end()},
                               {world.part.begin(), world.part.end()});
  for (const testing::any_tensors::row& row : given.rows) {
    if (row.had.empty() || row.needs.empty()) continue;
    std::set<long> ranks;
    for (const rank_t d : row.needs) ranks.insert(std::find(world.to.begin(), world.to.end(), d) - world.to.begin());
    all.bytes[{std::set<long>(row.had.begin(), row.had.end()), ranks}] += row.bytes;
  }
  return all;
}
}  // namespace

TEST_CASE("any tensors on any devices: by nodes the least seconds, and then the most bytes, of all orders") {
  dice random(72);
  int relabelled = 0, faster = 0, kept = 0, shapes = 0, odd = 0;
  for (int n = 0; n < 160; ++n) {
    testing::any_tensors given(random, true);
    if (std::ssize(given.world.to) > 6) continue;
    if (random.below(4) == 0) given.world.on = nodes_of(given.world.on.gpus), ++shapes;
    const bool speeds = given.world.on.has_speeds();
    const oracle::relabel_question all = question_of(given);
    const relabelling found = relabel(given.change());
    check_figures(found, all, speeds);
    CHECK(all.keeps_nodes_and_rails(devices_of(found.to)));
    const oracle::relabelled was = all.judge(all.to_devices);
    oracle::best_relabelled best;
    all.each_order([&](const std::vector<long>& devices) {
      if (all.keeps_nodes_and_rails(devices)) best.see(all.judge(devices));
    });
    if (speeds || best.best.retained > was.retained) {
      CHECK(near(found.proposed.node_seconds, best.best.seconds));
      CHECK(found.proposed.retained == best.best.retained);
    } else {
      CHECK(!found.relabelled);
    }
    relabelled += found.relabelled ? 1 : 0;
    faster += found.proposed.node_seconds < found.given.node_seconds * (1 - 1e-9) ? 1 : 0;
    kept += found.proposed.retained > found.given.retained ? 1 : 0;
    odd += best.seen > 1 && best.seen < 24 ? 1 : 0;
  }
  std::printf("%d relabelled, %d faster, %d keep more; %d shapes, %d of few orders\n", relabelled, faster, kept, shapes,
              odd);
  for (const int met : {relabelled, faster, kept, shapes, odd}) CHECK_DRAWN(met > 8);
}

TEST_CASE("seconds that are equal but for rounding are one: then more bytes stay") {
  // Node 0 has three NICs, node 1 one as fast as they together, but for rounding. TO's first rank needs what node 2
  // has, wherever it sits; its second what device 0 has.
  cluster on{.gpus = 3, .each = {.nvlink_GBps = 1, .nic_GBps = 1, .copy_GBps = 1}};
  int rounded = 0;
  for (int n = 1; n <= 40; ++n) {
    on.nodes = {on.each, on.each, on.each};
    on.nodes[0].nic_GBps = 1e-5 * n / 7;
    on.nodes[1].nic_GBps = 3 * on.nodes[0].nic_GBps;
    on.nodes[0].nics = 3, on.nodes[1].nics = 1;
    const std::vector<shard> before = {{0, "b", dtype::bf16, {1, 3}, {0, 0}, {1, 3}},
                                       {1, "a", dtype::bf16, {40, 3}, {0, 0}, {40, 3}}};
    const std::vector<shard> after = {{0, "a", dtype::bf16, {40, 3}, {0, 0}, {40, 3}},
                                      {1, "b", dtype::bf16, {1, 3}, {0, 0}, {1, 3}}};
    // on node 0 all its devices take part, so that its NICs count
    std::vector<shard> idle = before;
    idle.push_back({2, "c", dtype::bf16, {1, 3}, {0, 0}, {1, 3}}),
        idle.push_back({3, "c", dtype::bf16, {1, 3}, {0, 0}, {1, 3}});
    const relabelling found = relabel(layout_switch(
        idle, after,
        {.from = device_map(std::vector<rank_t>{0, 6, 1, 2}), .to = device_map(std::vector<rank_t>{0, 3}), .on = on}));
    CAPTURE(n);
    rounded += found.given.node_seconds < found.proposed.node_seconds ? 1 : 0;
    CHECK(found.relabelled);
    CHECK(devices_of(found.to) == std::vector<long>{3, 0});
    CHECK(found.proposed.retained == 6);
  }
  std::printf("%d times the other is less by rounding\n", rounded);
  CHECK(rounded > 0);
  detail::group_choice best{{0, 1}, 1.0, 10};
  keep_better(best, {{1, 0}, 1.0 - 1e-12, 5});
  CHECK(best.retained == 10);
  keep_better(best, {{1, 0}, 1.0 + 1e-12, 11});
  CHECK(best.retained == 11);
  keep_better(best, {{0, 1}, 0.5, 1});
  CHECK(best.retained == 1);
}

TEST_CASE("without speeds groups that would save nothing leave it to nodes, which may") {
  // by groups less must pass the busiest node's NICs, which is no saving without speeds, and fewer bytes would stay
  const model m = make_transformer(
      {.name = "m", .layers = 6, .hidden = 20, .heads = 4, .groups = 4, .head_dim = 4, .ffn = 32, .vocabulary = 24});
  int saved = 0;
  for (const index_t gpus : {2, 3, 4}) {
    CAPTURE(gpus);
    const layout_switch change(space(m, parse_degrees("vpp=2,split=account,pp=2,zero=1,cp=2")),
                               space(m, parse_degrees("cp=2,tp=4,zero=1")),
                               {.to = device_map(std::vector<rank_t>{7, 1, 4, 5, 2, 6, 3, 0}), .on = nodes_of(gpus)});
    const relabelling by_nodes = relabel(change), by_groups = relabel(change, relabel_by::groups);
    CHECK((by_groups.relabelled || !by_nodes.relabelled));
    CHECK(by_groups.proposed.retained >= by_nodes.proposed.retained);
    saved += by_nodes.relabelled ? 1 : 0;
  }
  CHECK(saved > 0);
}
