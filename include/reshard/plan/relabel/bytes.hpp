// SPDX-License-Identifier: Apache-2.0
// What relabelling weighs. Ranks of TO that move together are a unit: a block, all that share a node; or a group. With
// u on node y, alone or with others, bytes pass y's NICs:
//   I(y) = what u needs and no FROM rank on y holds = need(u) - kept(y, u) for a block;
//   O(y) = what FROM ranks on y alone hold and a unit elsewhere needs = alone(y) - only(y, u) for a block.
// Whoever needs a byte and does not sit on y sits elsewhere, wherever that is: O(y) hangs on what sits on y, as I does,
// and on no other node's choice.
// Builds on: plan/lost.hpp, plan/relabel/table.hpp.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <reshard/plan/lost.hpp>
#include <reshard/plan/relabel/table.hpp>

namespace reshard::detail {

/// Bytes by node y and unit u, at y x units + u, by node, or by unit.
struct relabel_bytes {
  std::size_t units = 0;
  std::vector<bytes_t> need, alone, kept, only;
  std::vector<bytes_t> alone_elsewhere;  // of nodes without TO ranks, by their number
  /// retained[y][b]: by place of node y, then by place of block b; empty where all are 0.
  std::vector<std::vector<bytes_t>> retained;
  /// Bytes that FROM holds on some nodes of TO's and perhaps others, and that some units need; for groups.
  struct pattern {
    std::vector<std::size_t> held_on;  // TO's nodes
    bool held_elsewhere = false;
    std::vector<std::size_t> units;
    friend bool operator<(const pattern& a, const pattern& b) {
      if (a.held_elsewhere != b.held_elsewhere) return b.held_elsewhere;
      return a.held_on != b.held_on ? a.held_on < b.held_on : a.units < b.units;
    }
  };
  std::map<pattern, bytes_t> patterns;
};

/// Adds up pieces, each with its holders on both sides.
class relabel_counter {
 public:
  /// By the unit of each rank of TO; `all_nodes` are numbered from 0.
  template <Holding From, Holding To>
  relabel_counter(const layout_switch<From, To>& change, const relabel_table& table, std::vector<std::size_t> unit_of,
                  std::size_t units, bool patterns)
      : table_(&table), unit_of_(std::move(unit_of)), patterns_(patterns) {
    const std::size_t nodes = table.nodes.size(), places = table.gpus.size();
    sums_.units = units;
    sums_.need.resize(units), sums_.alone.resize(nodes);
    sums_.kept.resize(nodes * units), sums_.only = sums_.kept;
    sums_.retained.resize(nodes * nodes);
    const index_t last = change.on().node_of(change.devices() - 1);
    sums_.alone_elsewhere.resize(static_cast<std::size_t>(last) + 1);
    held_on_.resize(sums_.alone_elsewhere.size()), needed_by_.resize(units);
    to_place_.assign(static_cast<std::size_t>(change.devices()), no_place);
    place_of_rank_.resize(static_cast<std::size_t>(change.to().ranks()));
    for (std::size_t i = 0; i < nodes * places; ++i)
      if (table.devices[i] >= 0) {
        to_place_[static_cast<std::size_t>(table.devices[i])] = i;
        place_of_rank_[static_cast<std::size_t>(table.ranks[i])] = i;
      }
  }

  void add(bytes_t bytes, const Holders auto& holders, const device_map& from, const cluster& on,
           const Holders auto& wanted) {
    ++piece_;
    held_nodes_.clear(), needing_.clear(), held_places_.clear();
    for (index_t i = 0; i < holders.count(); ++i) {
      const rank_t device = from.device_of(holders[i]);
      const std::size_t node = static_cast<std::size_t>(on.node_of(device));
      if (held_on_[node] != piece_) held_nodes_.push_back(node);
      held_on_[node] = piece_;
      if (const std::size_t place = to_place_[static_cast<std::size_t>(device)]; place != no_place)
        held_places_.push_back(place);
    }
    for (index_t k = 0; k < wanted.count(); ++k) {
      const std::size_t rank = static_cast<std::size_t>(wanted[k]), unit = unit_of_[rank];
      if (needed_by_[unit] != piece_) needing_.push_back(unit);
      needed_by_[unit] = piece_;
      for (const std::size_t held : held_places_) retain(held, place_of_rank_[rank], bytes);
    }
    if (held_nodes_.empty()) return;
    add_units(bytes);
  }
  const relabel_bytes& sums() const { return sums_; }

 private:
  static constexpr std::size_t no_place = static_cast<std::size_t>(-1);

  void retain(std::size_t held, std::size_t wanted, bytes_t bytes) {
    const std::size_t places = table_->gpus.size(), nodes = table_->nodes.size();
    std::vector<bytes_t>& tile = sums_.retained[held / places * nodes + wanted / places];
    if (tile.empty()) tile.resize(places * places);
    tile[held % places * places + wanted % places] += bytes;
  }
  void add_units(bytes_t bytes) {
    const std::vector<index_t>& nodes = table_->nodes;
    for (const std::size_t unit : needing_) sums_.need[unit] += bytes;
    relabel_bytes::pattern seen;
    for (const std::size_t number : held_nodes_) {
      const std::size_t y = index_among(nodes, static_cast<index_t>(number));
      if (y == nodes.size() || nodes[y] != static_cast<index_t>(number)) {
        if (held_nodes_.size() == 1) sums_.alone_elsewhere[number] += bytes;
        seen.held_elsewhere = true;
        continue;
      }
      seen.held_on.push_back(y);
      for (const std::size_t unit : needing_) sums_.kept[y * sums_.units + unit] += bytes;
      if (held_nodes_.size() > 1) continue;
      sums_.alone[y] += bytes;
      if (needing_.size() == 1) sums_.only[y * sums_.units + needing_[0]] += bytes;
    }
    if (!patterns_) return;
    seen.units = needing_;
    std::sort(seen.units.begin(), seen.units.end());
    std::sort(seen.held_on.begin(), seen.held_on.end());
    sums_.patterns[seen] += bytes;
  }

  const relabel_table* table_;
  std::vector<std::size_t> unit_of_, to_place_, place_of_rank_;
  bool patterns_;
  relabel_bytes sums_;
  index_t piece_ = 0;
  std::vector<index_t> held_on_, needed_by_;  // the last piece that is, by node and by unit
  std::vector<std::size_t> held_nodes_, needing_, held_places_;
};

template <Holding From, Holding To, Holding Sources>
relabel_bytes relabel_bytes_over(const layout_switch<From, To>& change, const Sources& sources, relabel_counter count) {
  for (const role r : roles) {
    const bytes_t width = change.states().of(r).bytes_per_element();
    if (width == 0 || !has_role(change.to(), r)) continue;
    for (int f = 0; f < change.to().families(); ++f)
      change.to().owners(f, r, change.to().family_at(f).whole(), [&](const family_box& target, const auto& wanted) {
        sources.owners(f, r, target, [&](const family_box& source, const auto& holders) {
          count.add(checked_multiply(intersect(source, target).volume(), width), holders, change.from_devices(),
                    change.on(), wanted);
        });
      });
  }
  return count.sums();
}

/// The bytes, from each distinct piece once; and in the table the bandwidths, and what no choice changes.
template <Holding From, Holding To>
relabel_bytes relabel_bytes_of(const layout_switch<From, To>& change, relabel_table& table,
                               const std::vector<std::size_t>& unit_of, std::size_t units, bool patterns) {
  relabel_counter count(change, table, unit_of, units, patterns);
  relabel_bytes sums =
      change.lost_ranks().empty()
          ? relabel_bytes_over(change, change.from(), std::move(count))
          : relabel_bytes_over(change, living_holding(change.from(), change.lost_ranks()), std::move(count));
  const std::map<index_t, double> nics = nic_bandwidths(change);
  table.bandwidth.clear(), table.elsewhere = 0;
  for (const index_t node : table.nodes) table.bandwidth.push_back(nics.at(node));
  for (std::size_t node = 0; node < sums.alone_elsewhere.size(); ++node)
    if (const bytes_t bytes = sums.alone_elsewhere[node]; bytes > 0)
      table.elsewhere = std::max(table.elsewhere, static_cast<double>(bytes) / nics.at(static_cast<index_t>(node)));
  return sums;
}

}  // namespace reshard::detail
