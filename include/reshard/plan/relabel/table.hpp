// SPDX-License-Identifier: Apache-2.0
// TO's devices as a table of nodes and places, for relabelling, and how fast the NICs of each node are.
// Builds on: plan/layout_switch.hpp.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include <reshard/plan/layout_switch.hpp>

namespace reshard::detail {

/// TO's devices as nodes and places: a place is a GPU number that TO uses on any node. All numbers here count from 0
/// among those in use, ascending.
struct relabel_table {
  std::vector<index_t> nodes;     // of TO
  std::vector<index_t> gpus;      // their numbers
  std::vector<rank_t> devices;    // by node and place; -1 where TO has none
  std::vector<rank_t> ranks;      // TO's on them before
  std::vector<double> bandwidth;  // of a node's NICs; without speeds their number
  double elsewhere = 0;           // the most seconds of a node without TO ranks, whatever sits where

  constexpr std::size_t at(std::size_t node, std::size_t place) const { return node * gpus.size() + place; }
};

/// The number of a device among those of its node.
constexpr index_t gpu_of(const cluster& on, rank_t device) { return on.gpus == 0 ? device : device % on.gpus; }

inline std::size_t index_among(const std::vector<index_t>& sorted, index_t value) {
  return static_cast<std::size_t>(std::lower_bound(sorted.begin(), sorted.end(), value) - sorted.begin());
}

template <Holding From, Holding To>
relabel_table relabel_table_of(const layout_switch<From, To>& change) {
  relabel_table table;
  const cluster& on = change.on();
  for (rank_t d = 0; d < change.devices(); ++d)
    if (change.to_rank(d) >= 0) table.nodes.push_back(on.node_of(d)), table.gpus.push_back(gpu_of(on, d));
  for (std::vector<index_t>* list : {&table.nodes, &table.gpus}) {
    sort_items(*list, [](index_t a, index_t b) { return a < b; });
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  table.devices.assign(table.nodes.size() * table.gpus.size(), -1);
  table.ranks = table.devices;
  for (rank_t d = 0; d < change.devices(); ++d) {
    if (change.to_rank(d) < 0) continue;
    const std::size_t at = table.at(index_among(table.nodes, on.node_of(d)), index_among(table.gpus, gpu_of(on, d)));
    table.devices[at] = d, table.ranks[at] = change.to_rank(d);
  }
  return table;
}

/// A node's NICs that devices which take part use: the sum of their bandwidths, or without speeds their number.
template <Holding From, Holding To>
std::map<index_t, double> nic_bandwidths(const layout_switch<From, To>& change) {
  std::map<index_t, double> sums;
  const cluster& on = change.on();
  index_t node = -1, nic = -1;
  for (rank_t d = 0; d < change.devices(); ++d) {
    if (change.from_rank(d) < 0 && change.to_rank(d) < 0) continue;
    if (on.node_of(d) == node && on.nic_of(d) == nic) continue;
    node = on.node_of(d), nic = on.nic_of(d);
    sums[node] += on.has_speeds() ? on.kind_of(node).nic_GBps * 1e9 : 1;
  }
  return sums;
}

}  // namespace reshard::detail
