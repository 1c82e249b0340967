// SPDX-License-Identifier: Apache-2.0
// Relabelling of up to six ranks against every order of their devices, each judged by every element of a small model;
// what it saves; and by hand. plan/relabel.cpp asks the oracle of larger ones.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/relabel.hpp>
#include <reshard/space/listed_holding.hpp>

#include "../support/any_links.hpp"
#include "../support/dice.hpp"
#include "../support/points.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using testing::any_seats, testing::dice;

namespace {

using seats = std::vector<rank_t>;

const model small = make_transformer(
    {.name = "small", .layers = 2, .hidden = 4, .heads = 2, .groups = 2, .head_dim = 2, .ffn = 4, .vocabulary = 6});

/// What placing costs and keeps, in words of the header: the largest over nodes of max(I, O) / bandwidth, and bytes.
struct figures {
  double seconds = 0;
  bytes_t retained = 0;
};

/// Where both sides of a switch of parameters sit, and each element's devices that had it and ranks that need it.
struct question {
  std::string from_layout, to_layout;
  seats from, to;
  cluster on;
  std::map<std::pair<unsigned, unsigned>, bytes_t> pieces;  // (devices that had it, ranks that need it): a bit for each

  question(std::string from_text, std::string to_text, seats from_seats, seats to_seats, cluster nodes)
      : from_layout(std::move(from_text)), to_layout(std::move(to_text)), from(std::move(from_seats)),
        to(std::move(to_seats)), on(std::move(nodes)) {
    std::map<std::vector<index_t>, std::pair<unsigned, unsigned>> elements;
    const auto note = [&](const std::string& layout, auto&& see) {
      const computed_holding held(space(small, parse_degrees(layout)));
      for (rank_t rank = 0; rank < held.ranks(); ++rank)
        each_held(held, rank, role::parameter, [&](int f, const family_box& b) {
          testing::each_point(b, [&](const index_t(&x)[family_ndim]) {
            see(elements[{f, x[0], x[1], x[2], x[3], x[4]}], rank);
          });
        });
    };
    note(from_layout, [&](auto& who, rank_t rank) { who.first |= 1u << from[static_cast<std::size_t>(rank)]; });
    note(to_layout, [&](auto& who, rank_t rank) { who.second |= 1u << rank; });
    for (const auto& [element, who] : elements) pieces[who] += 2;
  }
  auto change() const {
    return layout_switch(space(small, parse_degrees(from_layout)), space(small, parse_degrees(to_layout)),
                         {.from = device_map(from), .to = device_map(to), .on = on, .states = adam.named("param")});
  }
  bool speeds() const { return on.has_speeds(); }
  rank_t node_of(rank_t device) const { return device / on.gpus; }
  unsigned devices_of_node(rank_t node) const { return ((1u << on.gpus) - 1) << node * on.gpus; }

  std::map<rank_t, double> bandwidths() const {
    std::set<std::pair<rank_t, index_t>> counted;
    std::map<rank_t, double> sums;
    for (const seats* side : {&from, &to})
      for (const rank_t d : *side)
        if (counted.insert({node_of(d), on.nic_of(d)}).second)
          sums[node_of(d)] += speeds() ? on.kind_of(node_of(d)).nic_GBps * 1e9 : 1;
    return sums;
  }
  figures judge(const seats& devices) const {
    std::map<rank_t, bytes_t> in, out;
    figures all;
    for (const auto& [who, bytes] : pieces) {
      unsigned needing = 0;
      for (std::size_t r = 0; r < devices.size(); ++r)
        if ((who.second >> r & 1) != 0) needing |= 1u << devices[r];
      all.retained += bytes * std::popcount(needing & who.first);
      for (const auto& [y, bandwidth] : bandwidths_) {
        const unsigned here = devices_of_node(y);
        if ((needing & here) != 0 && (who.first & here) == 0) in[y] += bytes;
        if ((who.first & ~here) == 0 && (needing & ~here) != 0) out[y] += bytes;
      }
    }
    for (const auto& [y, bandwidth] : bandwidths_)
      all.seconds = std::max(all.seconds, static_cast<double>(std::max(in[y], out[y])) / bandwidth);
    return all;
  }
  /// Ranks that share a node still do, and those with one GPU number have one.
  bool keeps_nodes(const seats& devices) const {
    for (std::size_t a = 0; a < to.size(); ++a)
      for (std::size_t b = 0; b < a; ++b) {
        if (node_of(to[a]) == node_of(to[b]) && node_of(devices[a]) != node_of(devices[b])) return false;
        if (to[a] % on.gpus == to[b] % on.gpus && devices[a] % on.gpus != devices[b] % on.gpus) return false;
      }
    return true;
  }
  /// Ranks of one tensor-parallel group that share a node still do. Tensor parallelism counts fastest here.
  bool keeps_groups(const seats& devices) const {
    const std::size_t tp = static_cast<std::size_t>(parse_degrees(to_layout).tp);
    for (std::size_t a = 0; a < to.size(); ++a)
      for (std::size_t b = 0; b < a; ++b)
        if (a / tp == b / tp && node_of(to[a]) == node_of(to[b]) && node_of(devices[a]) != node_of(devices[b]))
          return false;
    return true;
  }
  /// The least seconds of all orders that keep what they shall, and with these the most bytes.
  template <typename Keeps>
  figures best(const Keeps& keeps) const {
    figures least{1e300, -1};
    seats devices = to;
    std::sort(devices.begin(), devices.end());
    do {
      if (!keeps(devices)) continue;
      const figures one = judge(devices);
      if (one.seconds < least.seconds * (1 - 1e-9)) least = one;
      else if (one.seconds <= least.seconds * (1 + 1e-9)) least.retained = std::max(least.retained, one.retained);
    } while (std::next_permutation(devices.begin(), devices.end()));
    return least;
  }
  std::map<rank_t, double> bandwidths_ = bandwidths();
};

bool near(double a, double b) { return a == doctest::Approx(b).epsilon(1e-12); }
seats seats_of(const device_map& map) {
  seats devices;
  for (rank_t r = 0; r < map.ranks(); ++r) devices.push_back(map.device_of(r));
  return devices;
}

/// That what is told of a proposal is so, and that it is TO's devices.
void check_figures(const question& asked, const relabelling& found) {
  seats devices = seats_of(found.to), all = asked.to;
  const figures was = asked.judge(all), is = asked.judge(devices);
  CHECK(near(found.given.node_seconds, was.seconds));
  CHECK(found.given.retained == was.retained);
  CHECK(near(found.proposed.node_seconds, is.seconds));
  CHECK(found.proposed.retained == is.retained);
  CHECK(found.relabelled == (devices != asked.to));
  if (found.relabelled)
    CHECK((is.retained > was.retained || (asked.speeds() && is.seconds < was.seconds * (1 - 1e-9))));
  std::sort(devices.begin(), devices.end()), std::sort(all.begin(), all.end());
  CHECK(devices == all);
}

question drawn_question(dice& random) {
  constexpr const char* layouts[] = {"tp=2",      "dp=4",      "pp=2",      "tp=2,dp=2", "pp=2,dp=2",
                                     "tp=2,pp=2", "tp=2,dp=3", "pp=2,dp=3", "dp=5"};
  const auto layout = [&] { return std::string(layouts[random.below(std::ssize(layouts))]); };
  const std::string from = layout(), to = layout();
  const rank_t world = 8;
  cluster on = nodes_of(random.within(1, 4));
  if (random.below(4) != 0)
    for (index_t left = ceil_divide(world, on.gpus); left > 0; left -= on.nodes.back().count) {
      node_kind kind{.count = random.within(1, left)};
      kind.nvlink_GBps = kind.copy_GBps = 1;
      kind.nic_GBps = 1e-6 * static_cast<double>(random.within(1, 4)), kind.nics = random.below(on.gpus + 1);
      on.nodes.push_back(kind);
    }
  const auto sit = [&](const std::string& text) {
    return any_seats(random, space(small, parse_degrees(text)).ranks(), world);
  };
  seats before = sit(from), after = sit(to);
  return {from, to, std::move(before), std::move(after), std::move(on)};
}

}  // namespace

TEST_CASE("up to six ranks: by nodes the best of all orders, by groups no worse, and seldom less than the best") {
  dice random(77);
  int by_nodes = 0, faster = 0, by_groups = 0, judged = 0, least = 0, most = 0, shapes = 0;
  for (int n = testing::thrown(100); n > 0; --n) {
    const question asked = drawn_question(random);
    const auto change = asked.change();
    if (change.node_devices() == 0) continue;
    const relabelling nodes = relabel(change), groups = relabel(change, relabel_by::groups);
    check_figures(asked, nodes), check_figures(asked, groups);
    CHECK(asked.keeps_nodes(seats_of(nodes.to)));
    CHECK(asked.keeps_groups(seats_of(groups.to)));
    const figures was = asked.judge(asked.to);
    const figures best = asked.best([&](const seats& devices) { return asked.keeps_nodes(devices); });
    if (asked.speeds() || best.retained > was.retained) {
      CHECK(near(nodes.proposed.node_seconds, best.seconds));
      CHECK(nodes.proposed.retained == best.retained);
    } else {
      CHECK_FALSE(nodes.relabelled);
    }
    by_nodes += nodes.relabelled ? 1 : 0, faster += nodes.proposed.node_seconds < was.seconds * (1 - 1e-9) ? 1 : 0;
    CHECK(groups.proposed.node_seconds <= nodes.proposed.node_seconds * (1 + 1e-12));
    if (near(groups.proposed.node_seconds, nodes.proposed.node_seconds))
      CHECK(groups.proposed.retained >= nodes.proposed.retained);
    CHECK((groups.relabelled || !nodes.relabelled));
    if (!asked.speeds()) {
      ++shapes;
      continue;
    }
    by_groups += groups.proposed.node_seconds < nodes.proposed.node_seconds * (1 - 1e-9) ? 1 : 0;
    const figures of_all = asked.best([&](const seats& devices) { return asked.keeps_groups(devices); });
    CHECK(groups.proposed.node_seconds >= of_all.seconds * (1 - 1e-12));
    ++judged, least += near(groups.proposed.node_seconds, of_all.seconds) ? 1 : 0;
    most += near(groups.proposed.node_seconds, of_all.seconds) && groups.proposed.retained == of_all.retained ? 1 : 0;
  }
  std::printf("%d by nodes, %d faster; %d of %d faster by groups, of these %d the fastest, %d the best; %d shapes\n",
              by_nodes, faster, by_groups, judged, least, most, shapes);
  for (const int met : {by_nodes, faster, by_groups, shapes}) CHECK_DRAWN(met > 2);
  CHECK_DRAWN(least >= judged - 2);  // a search, which may miss
  CHECK_DRAWN(most >= judged - 6);
}

TEST_CASE("by groups the search begins where nodes are best, and where units are and could retain most") {
  const auto links = [](index_t count, index_t nics, double nic_GBps) {
    return node_kind{.count = count, .nics = nics, .nvlink_GBps = 1, .nic_GBps = nic_GBps, .copy_GBps = 1};
  };
  cluster alike = nodes_of(4), uneven = nodes_of(4);
  alike.nodes = {links(2, 0, 1e-6)};
  uneven.nodes = {links(1, 3, 1e-6), links(1, 0, 3e-6)};
  // from where units are the first finds 0.074 seconds at the least; from the nodes' best the second keeps 160 bytes
  const question first("tp=2,pp=2", "tp=2,dp=3", {6, 2, 3, 0}, {3, 5, 7, 1, 2, 4}, alike),
      second("tp=2,pp=2", "pp=2,dp=3", {2, 6, 7, 3}, {7, 2, 5, 4, 3, 0}, uneven);
  for (const question* asked : {&first, &second}) {
    const relabelling found = relabel(asked->change(), relabel_by::groups);
    const figures best = asked->best([&](const seats& devices) { return asked->keeps_groups(devices); });
    check_figures(*asked, found);
    CHECK(near(found.proposed.node_seconds, best.seconds));
    CHECK(found.proposed.retained == best.retained);
  }
}

TEST_CASE("without speeds groups that spare the busiest node and retain no more leave it to nodes, which do") {
  const question asked("tp=2,pp=2", "tp=2,dp=2", {1, 0, 2, 5}, {7, 3, 0, 4}, nodes_of(4));
  const relabelling nodes = relabel(asked.change()), groups = relabel(asked.change(), relabel_by::groups);
  check_figures(asked, nodes), check_figures(asked, groups);
  CHECK(nodes.given.retained == 16);
  CHECK(nodes.proposed.retained == 152);
  CHECK(groups.relabelled);
  CHECK(groups.proposed == nodes.proposed);
  CHECK(seats_of(groups.to) == seats_of(nodes.to));
}

TEST_CASE("what is saved, against the same question without it") {
  const auto saved = [](bool proposed, bytes_t bytes, std::optional<double> without, std::optional<double> with) {
    const relabel_saves all = saves_of(proposed, bytes, without, with);
    return std::tuple(all.relabelled, all.bytes, all.seconds);
  };
  const auto told = [](bytes_t bytes, std::optional<double> seconds) { return std::tuple(true, bytes, seconds); };
  const std::tuple<bool, bytes_t, std::optional<double>> nothing(false, 0, 0.0);
  CHECK(saved(true, 5, 2.0, 1.5) == told(5, 0.5));
  CHECK(saved(true, 5, 1.5, 2.0) == told(5, -0.5));
  CHECK(saved(true, -5, 2.0, 1.5) == told(-5, 0.5));
  CHECK(saved(true, 1, 2.0, 2.0) == told(1, 0.0));
  CHECK(saved(true, 1, 2.0, 2.0 - 1e-12) == told(1, 0.0));  // but for rounding
  CHECK(saved(true, 0, 2.0, 1.5) == told(0, 0.5));
  CHECK(saved(true, 0, 2.0, 2.0) == nothing);
  CHECK(saved(true, 0, 2.0, 2.0 - 1e-12) == nothing);
  CHECK(saved(true, -5, 1.5, 2.0) == nothing);
  CHECK(saved(false, 5, 2.0, 1.5) == nothing);
  CHECK(saved(false, 5, {}, {}) == nothing);
  // refused or without speeds: only with it; only without it; both
  CHECK(saved(true, 5, 2.0, {}) == nothing);
  CHECK(saved(true, -5, {}, 1.5) == told(-5, {}));
  CHECK(saved(true, 5, {}, {}) == told(5, {}));
  CHECK(relabel_saves{}.seconds == 0.0);
  CHECK_FALSE(relabelling{}.relabelled);
  CHECK(relabelling{}.given == relabel_figures{0, 0});
}

TEST_CASE("by hand: rows that sit on the other node and the other GPU, and a list, which has no groups") {
  std::vector<shard> rows;
  for (rank_t r = 0; r < 4; ++r) rows.push_back({r, "w", dtype::bf16, {8, 3}, {2 * r, 0}, {2, 3}});
  const cluster on{.gpus = 2, .each = {.nvlink_GBps = 1, .nic_GBps = 1e-5, .copy_GBps = 1}};
  const layout_switch crossed(rows, rows, {.to = device_map(seats{3, 2, 1, 0}), .on = on});
  const relabelling found = relabel(crossed);
  CHECK(found.relabelled);
  CHECK(seats_of(found.to) == seats{0, 1, 2, 3});
  CHECK(found.given == relabel_figures{24 / 2e4, 0});
  CHECK(found.proposed == relabel_figures{0, 48});
  const layout_switch one_turned(rows, rows, {.to = device_map(seats{1, 0, 2, 3}), .on = on});
  CHECK_FALSE(relabel(one_turned).relabelled);  // the other node would turn with it
  CHECK(seats_of(relabel(one_turned).to) == seats{1, 0, 2, 3});
  CHECK(relabel(one_turned).given == relabel_figures{0, 24});
  CHECK(relabel(one_turned).proposed == relabel_figures{0, 24});
  CHECK(testing::refused([&] { static_cast<void>(relabel(crossed, relabel_by::groups)); }) ==
        "reshard: relabel: a TO without a layout has no tensor-parallel groups; relabel by nodes");
}
