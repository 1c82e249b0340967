// SPDX-License-Identifier: Apache-2.0
// Relabelling: which rank of TO sits on which of TO's devices, so that less must pass NICs and more is retained. Proposed
// as a device map; which devices TO has never changes.
// Builds on: plan/relabel_nodes.hpp.
#pragma once

#include <vector>

#include <reshard/plan/relabel_nodes.hpp>

namespace reshard {

/// Which ranks of TO stay together. `nodes`: those that share a node, and those with one GPU number have one
/// afterwards, so that rails survive.
enum class relabel_by { nodes };

/// The largest over nodes of max(I, O) / bandwidth of the NICs (without speeds: their number), and the bytes that stay
/// where they are.
struct relabel_figures {
  double node_seconds = 0;
  bytes_t retained = 0;

  friend constexpr bool operator==(const relabel_figures&, const relabel_figures&) = default;
};

/// TO's map; what it costs and keeps as given, and so.
struct relabelling {
  device_map to;
  bool relabelled = false;
  relabel_figures given;
  relabel_figures proposed;
};

/// Of all permutations that keep together what `by` says, one with the least node_seconds, and then with many bytes
/// retained; nothing is permuted where neither is better, and without speeds where no bytes are retained.
template <Holding From, Holding To>
[[nodiscard]] relabelling relabel(const layout_switch<From, To>& change, relabel_by = relabel_by::nodes) {
  detail::relabel_table table = detail::relabel_table_of(change);
  const std::size_t nodes = table.nodes.size(), places = table.gpus.size();
  std::vector<std::size_t> block_of(static_cast<std::size_t>(change.to().ranks()));
  for (std::size_t i = 0; i < nodes * places; ++i)
    if (table.ranks[i] >= 0) block_of[static_cast<std::size_t>(table.ranks[i])] = i / places;
  const detail::relabel_bytes bytes = detail::relabel_bytes_of(change, table, block_of, nodes, false);
  detail::node_relabeller search(table, bytes);
  const detail::node_choice was = search.unchanged(), best = search.best();
  relabelling result{change.to_devices(), false, {was.seconds, was.retained}, {was.seconds, was.retained}};
  if (best.retained <= was.retained && !(change.on().has_speeds() && best.seconds < was.seconds)) return result;
  std::vector<rank_t> devices(block_of.size());
  for (std::size_t b = 0; b < nodes; ++b)
    for (std::size_t g = 0; g < places; ++g)
      if (const rank_t rank = table.ranks[table.at(b, g)]; rank >= 0)
        devices[static_cast<std::size_t>(rank)] = table.devices[table.at(best.node_of[b], best.place_of[g])];
  result.to = device_map(devices), result.relabelled = true;
  result.proposed = {best.seconds, best.retained};
  return result;
}

}  // namespace reshard
