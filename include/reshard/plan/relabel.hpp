// SPDX-License-Identifier: Apache-2.0
// Relabelling: which rank of TO sits on which of TO's devices, so that less must pass NICs and more is retained.
// Proposed as a device map; which devices TO has never changes.
// Builds on: plan/relabel/nodes.hpp, plan/relabel/groups.hpp.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <reshard/plan/relabel/groups.hpp>
#include <reshard/plan/relabel/nodes.hpp>

namespace reshard {

/// Which ranks of TO stay together. `nodes`: those that share a node, and those with one GPU number have one
/// afterwards, so that rails survive. `groups`: those of one tensor-parallel group (the larger of tp and etp) that
/// share a node.
enum class relabel_by { nodes, groups };

/// What placing TO's ranks costs and keeps.
struct relabel_figures {
  double node_seconds = 0;  // the largest over nodes of max(I, O) / bandwidth of NICs; without speeds, / their number
  bytes_t retained = 0;     // bytes that stay on their device

  friend constexpr bool operator==(const relabel_figures&, const relabel_figures&) = default;
};

/// TO's map, with its figures and those of the map that was given.
struct relabelling {
  device_map to;
  bool relabelled = false;
  relabel_figures given;
  relabel_figures proposed;
};

/// Whether something was permuted, and what that saves against the same question without it.
struct relabel_saves {
  bool relabelled = false;
  bytes_t bytes = 0;                  // that need not move
  std::optional<double> seconds = 0;  // none where the cluster has no speeds, or the question without it is refused
};

/// What a relabelling saves, given the seconds of the same question without and with it, none where that is refused or
/// has no speeds. Not relabelled where neither seconds nor bytes are saved, nor where only that is refused.
constexpr relabel_saves saves_of(bool proposed, bytes_t bytes, const std::optional<double>& without,
                                 const std::optional<double>& with) {
  if (!proposed || (without && !with)) return {};
  if (!without) return {true, bytes, {}};
  if (bytes <= 0 && !fewer_seconds(*with, *without)) return {};
  return {true, bytes, same_seconds(*with, *without) ? 0 : *without - *with};
}

namespace detail {

/// The devices that a choice of nodes and places gives to TO's ranks.
inline group_choice devices_of(const node_choice& choice, const relabel_table& table, rank_t ranks) {
  group_choice result{std::vector<rank_t>(static_cast<std::size_t>(ranks)), choice.seconds, choice.retained};
  for (std::size_t b = 0; b < table.nodes.size(); ++b)
    for (std::size_t g = 0; g < table.gpus.size(); ++g)
      if (const rank_t rank = table.ranks[table.at(b, g)]; rank >= 0)
        result.devices[static_cast<std::size_t>(rank)] = table.devices[table.at(choice.node_of[b], choice.place_of[g])];
  return result;
}

/// Searched from where `blocks`, the best by nodes, has them, and from elsewhere; never worse than that.
template <Holding From, Holding To>
group_choice choose_groups(const layout_switch<From, To>& change, const degrees& to, relabel_table& table,
                           const node_choice& blocks) {
  const rank_t ranks = change.to().ranks();
  const rank_units units = tensor_units(to, table, ranks);
  const relabel_bytes bytes = relabel_bytes_of(change, table, units.unit_of, units.ranks.size(), true);
  const group_relabeller search(table, bytes, units);
  assignment moved = units.node_of;
  for (std::size_t& node : moved) node = blocks.node_of[node];
  group_choice best = devices_of(blocks, table, ranks);
  keep_better(best, search.from(moved));
  keep_better(best, search.best());
  return best;
}

}  // namespace detail

/// The permutation with the least node_seconds of all that keep together what is asked for, and then with many bytes
/// retained; by groups the best that a search finds, no worse than by nodes. Nothing is permuted where neither is
/// better, and without speeds where no more bytes are retained.
template <Holding From, Holding To>
[[nodiscard]] relabelling relabel(const layout_switch<From, To>& change, relabel_by how = relabel_by::nodes) {
  detail::relabel_table table = detail::relabel_table_of(change);
  std::vector<std::size_t> block_of(static_cast<std::size_t>(change.to().ranks()));
  for (std::size_t i = 0; i < table.ranks.size(); ++i)
    if (table.ranks[i] >= 0) block_of[static_cast<std::size_t>(table.ranks[i])] = i / table.gpus.size();
  const detail::relabel_bytes bytes = detail::relabel_bytes_of(change, table, block_of, table.nodes.size(), false);
  detail::node_relabeller search(table, bytes);
  const detail::node_choice was = search.unchanged(), blocks = search.best();
  const auto saves = [&](const detail::group_choice& choice) {
    return choice.retained > was.retained || (change.on().has_speeds() && fewer_seconds(choice.seconds, was.seconds));
  };
  detail::group_choice best = detail::devices_of(blocks, table, change.to().ranks());
  if (how == relabel_by::groups) {
    const computed_holding* to = known_as<computed_holding>(change.to());
    if (to == nullptr) refuse("relabel: a TO without a layout has no tensor-parallel groups; relabel by nodes");
    detail::group_choice other = detail::choose_groups(change, to->space().degrees(), table, blocks);
    if (saves(other)) best = std::move(other);  // without speeds the best by groups may save nothing where nodes do
  }
  relabelling result{change.to_devices(), false, {was.seconds, was.retained}, {was.seconds, was.retained}};
  if (!saves(best)) return result;
  result.to = device_map(best.devices), result.relabelled = true;
  result.proposed = {best.seconds, best.retained};
  return result;
}

}  // namespace reshard
