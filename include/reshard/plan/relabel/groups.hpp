// SPDX-License-Identifier: Apache-2.0
// Relabelling by groups: a unit is what one tensor-parallel group has on one node, and units of one size may swap
// nodes. What a node costs hangs on all units that sit there, so this is a search: from several seats on, units of the
// busiest node are swapped while that helps; then each node's ranks take the places that retain most, an assignment.
// Builds on: algebra/assignment.hpp, plan/relabel/bytes.hpp, parallelism/mesh.hpp.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <reshard/algebra/assignment.hpp>
#include <reshard/base/same_seconds.hpp>
#include <reshard/parallelism/mesh.hpp>
#include <reshard/plan/relabel/bytes.hpp>

namespace reshard::detail {

/// Units of TO's ranks: unit_of each rank, its ranks, and the node where they sat.
struct rank_units {
  std::vector<std::size_t> unit_of;
  std::vector<std::vector<rank_t>> ranks;
  assignment node_of;
};

/// Ranks of one group of the larger of tp and etp that share a node.
inline rank_units tensor_units(const degrees& d, const relabel_table& table, rank_t ranks) {
  const mesh by = mesh_of(d, d.expert_tp() > d.tp ? mesh_kind::expert : mesh_kind::dense);
  std::vector<std::size_t> node_of(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < table.ranks.size(); ++i)
    if (table.ranks[i] >= 0) node_of[static_cast<std::size_t>(table.ranks[i])] = i / table.gpus.size();
  rank_units units;
  std::map<std::pair<rank_t, std::size_t>, std::size_t> known;
  for (rank_t r = 0; r < ranks; ++r) {
    const rank_t group = r - by.coordinate(mesh_axis::tensor, r) * by.pitch(mesh_axis::tensor);
    const std::size_t node = node_of[static_cast<std::size_t>(r)];
    const auto [at, fresh] = known.try_emplace({group, node}, units.ranks.size());
    if (fresh) units.ranks.emplace_back(), units.node_of.push_back(node);
    units.ranks[at->second].push_back(r);
    units.unit_of.push_back(at->second);
  }
  return units;
}

/// The device of every rank; what it costs and keeps.
struct group_choice {
  std::vector<rank_t> devices;
  double seconds = 0;
  bytes_t retained = -1;
};

/// Fewer seconds are better, and of equal ones more bytes retained.
inline void keep_better(group_choice& best, group_choice other) {
  if (fewer_seconds(other.seconds, best.seconds) ||
      (same_seconds(other.seconds, best.seconds) && other.retained > best.retained))
    best = std::move(other);
}

class group_relabeller {
 public:
  group_relabeller(const relabel_table& table, const relabel_bytes& bytes, const rank_units& units)
      : table_(&table), bytes_(&bytes), units_(&units), of_unit_(units.ranks.size()), alone_on_(table.nodes.size()),
        place_of_(units.unit_of.size()) {
    for (const auto& entry : bytes.patterns) {
      for (const std::size_t u : entry.first.units) of_unit_[u].push_back(&entry);
      if (entry.first.held_on.size() == 1 && !entry.first.held_elsewhere)
        alone_on_[entry.first.held_on[0]].push_back(&entry);
    }
    for (std::size_t i = 0; i < table.ranks.size(); ++i)
      if (table.ranks[i] >= 0) place_of_[static_cast<std::size_t>(table.ranks[i])] = i;
  }

  /// The best that is found from some nodes of the units on: as given, and where most could be retained.
  group_choice best() const {
    group_choice found = from(units_->node_of);
    if (units_->ranks.size() <= most_units) keep_better(found, from(nearest_nodes()));
    return found;
  }
  group_choice from(assignment node_of) const {
    seats at(std::move(node_of), table_->nodes.size());
    improve(at);
    return placed(at);
  }

 private:
  using pattern_bytes = std::pair<const relabel_bytes::pattern, bytes_t>;
  static constexpr std::size_t most_units = 512;
  static constexpr int most_tried = 50'000;  // swaps

  bytes_t retained(std::size_t node, std::size_t place, rank_t rank) const {
    const std::size_t places = table_->gpus.size(), was = place_of_[static_cast<std::size_t>(rank)];
    const std::vector<bytes_t>& tile = bytes_->retained[node * table_->nodes.size() + was / places];
    return tile.empty() ? 0 : tile[place * places + was % places];
  }

  /// The node of every unit, and the units of every node.
  struct seats {
    assignment node_of;
    std::vector<std::vector<std::size_t>> on;

    seats(assignment nodes, std::size_t count) : node_of(std::move(nodes)), on(count) {
      for (std::size_t u = 0; u < node_of.size(); ++u) on[node_of[u]].push_back(u);
    }
    void swap(std::size_t u, std::size_t v) {
      std::replace(on[node_of[u]].begin(), on[node_of[u]].end(), u, v);
      std::replace(on[node_of[v]].begin(), on[node_of[v]].end(), v, u);
      std::swap(node_of[u], node_of[v]);
    }
  };

  /// max(I(y), O(y)) / bandwidth with the units that sit there.
  double cost(const seats& at, std::size_t y) const {
    bytes_t in = 0, out = 0;
    const auto here = [&](std::size_t u) { return at.node_of[u] == y; };
    for (const std::size_t u : at.on[y])
      for (const pattern_bytes* p : of_unit_[u]) {
        const relabel_bytes::pattern& what = p->first;
        if (std::binary_search(what.held_on.begin(), what.held_on.end(), y)) continue;
        const bool first = *std::find_if(what.units.begin(), what.units.end(), here) == u;  // once, whoever needs it
        if (first) in += p->second;
      }
    for (const pattern_bytes* p : alone_on_[y])
      if (!std::all_of(p->first.units.begin(), p->first.units.end(), here)) out += p->second;
    return static_cast<double>(greatest(in, out)) / table_->bandwidth[y];
  }

  /// Swaps units of the busiest node while the busier of both nodes is less busy than it was.
  void improve(seats& at) const {
    std::vector<double> costs;
    for (std::size_t y = 0; y < table_->nodes.size(); ++y) costs.push_back(cost(at, y));
    for (int tried = 0; tried < most_tried;) {
      const std::size_t busiest =
          static_cast<std::size_t>(std::max_element(costs.begin(), costs.end()) - costs.begin());
      if (!fewer_seconds(table_->elsewhere, costs[busiest])) return;
      double least = costs[busiest];
      std::pair<std::size_t, std::size_t> swapped;
      const std::vector<std::size_t> there = at.on[busiest];
      for (const std::size_t u : there)
        for (std::size_t v = 0; v < at.node_of.size(); ++v) {
          const std::size_t other = at.node_of[v];
          if (other == busiest || units_->ranks[u].size() != units_->ranks[v].size()) continue;
          ++tried;
          at.swap(u, v);
          if (const double most = cost(at, busiest); fewer_seconds(most, least))
            if (const double both = std::max(most, cost(at, other)); fewer_seconds(both, least))
              least = both, swapped = {u, v};
          at.swap(v, u);
        }
      if (swapped.first == swapped.second) return;
      const std::size_t other = at.node_of[swapped.second];
      at.swap(swapped.first, swapped.second);
      costs[busiest] = cost(at, busiest), costs[other] = cost(at, other);
    }
  }

  /// Units of each size among the nodes that they have, by the sum over ranks of the most that a device there has.
  assignment nearest_nodes() const {
    assignment node_of = units_->node_of;
    std::map<std::size_t, std::vector<std::size_t>> of_size;
    for (std::size_t u = 0; u < node_of.size(); ++u) of_size[units_->ranks[u].size()].push_back(u);
    for (const auto& [size, alike] : of_size) {
      square<index_t> kept(alike.size());
      for (std::size_t i = 0; i < alike.size(); ++i)
        for (std::size_t j = 0; j < alike.size(); ++j)
          for (const rank_t rank : units_->ranks[alike[i]]) {
            bytes_t most = 0;
            for (std::size_t g = 0; g < table_->gpus.size(); ++g)
              most = greatest(most, retained(units_->node_of[alike[j]], g, rank));
            kept.at(i, j) += most;
          }
      const assignment chosen = heaviest_assignment(kept, [](std::size_t, std::size_t) { return true; });
      for (std::size_t i = 0; i < alike.size(); ++i) node_of[alike[i]] = units_->node_of[alike[chosen[i]]];
    }
    return node_of;
  }

  /// The most retained with these nodes: on each an assignment of ranks to devices.
  group_choice placed(const seats& at) const {
    group_choice choice{std::vector<rank_t>(units_->unit_of.size()), table_->elsewhere, 0};
    for (std::size_t y = 0; y < table_->nodes.size(); ++y) {
      choice.seconds = std::max(choice.seconds, cost(at, y));
      std::vector<rank_t> ranks;
      std::vector<std::size_t> places;
      for (const std::size_t u : at.on[y]) ranks.insert(ranks.end(), units_->ranks[u].begin(), units_->ranks[u].end());
      for (std::size_t g = 0; g < table_->gpus.size(); ++g)
        if (table_->devices[table_->at(y, g)] >= 0) places.push_back(g);
      square<index_t> kept(ranks.size());
      for (std::size_t i = 0; i < ranks.size(); ++i)
        for (std::size_t j = 0; j < ranks.size(); ++j) kept.at(i, j) = retained(y, places[j], ranks[i]);
      const assignment chosen = heaviest_assignment(kept, [](std::size_t, std::size_t) { return true; });
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        choice.devices[static_cast<std::size_t>(ranks[i])] = table_->devices[table_->at(y, places[chosen[i]])];
        choice.retained += kept.at(i, chosen[i]);
      }
    }
    return choice;
  }

  const relabel_table* table_;
  const relabel_bytes* bytes_;
  const rank_units* units_;
  std::vector<std::vector<const pattern_bytes*>> of_unit_, alone_on_;
  std::vector<std::size_t> place_of_;  // of each rank, before
};

}  // namespace reshard::detail
