// SPDX-License-Identifier: Apache-2.0
// Holders lifted to nodes: a node holds what a device on it holds. By arithmetic where the nodes are a progression,
// else as a list that is made by going from node to node.
// Builds on: plan/device_map.hpp, parallelism/rank_product.hpp, space/any_holding.hpp.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include <reshard/parallelism/rank_product.hpp>
#include <reshard/plan/device_map.hpp>
#include <reshard/space/any_holding.hpp>

namespace reshard {

/// Numbers of nodes, ascending: a progression, or a list; a Holders of nodes.
class node_set {
 public:
  constexpr explicit node_set(progression nodes) : nodes_(nodes) {}
  explicit node_set(std::vector<index_t> list) : list_(std::move(list)), listed_(true) {}

  constexpr index_t count() const { return listed_ ? static_cast<index_t>(list_.size()) : nodes_.count; }
  constexpr index_t operator[](index_t i) const { return listed_ ? list_[static_cast<std::size_t>(i)] : nodes_[i]; }
  constexpr index_t count_below(index_t node) const {
    if (!listed_) return nodes_.count_below(node);
    return std::lower_bound(list_.begin(), list_.end(), node) - list_.begin();
  }
  constexpr index_t index_of(index_t node) const {
    if (!listed_) return nodes_.index_of(node);
    const index_t at = count_below(node);
    return at < count() && (*this)[at] == node ? at : -1;
  }
  constexpr bool contains(index_t node) const { return index_of(node) >= 0; }

 private:
  progression nodes_;
  std::vector<index_t> list_;
  bool listed_ = false;
};

/// Members of a set of nodes that are not in another, which has few: with their places.
class needing_nodes {
 public:
  needing_nodes(const node_set& all, const node_set& without) : all_(&all) {
    for (index_t i = 0; i < without.count(); ++i)
      if (const index_t at = all.index_of(without[i]); at >= 0) gone_.push_back(at);
  }
  index_t count() const { return all_->count() - static_cast<index_t>(gone_.size()); }
  index_t operator[](index_t i) const {
    for (const index_t at : gone_) {
      if (i < at) break;
      ++i;
    }
    return (*all_)[i];
  }
  /// The place of a member, counted among those that are left.
  index_t index_of(index_t node) const {
    const index_t at = all_->index_of(node);
    return at - (std::lower_bound(gone_.begin(), gone_.end(), at) - gone_.begin());
  }

 private:
  const node_set* all_;
  std::vector<index_t> gone_;  // places in it, ascending
};

namespace detail {

/// floor((shift + i pitch) / gpus) over a product's ranks where that is a progression.
inline std::optional<progression> node_progression(const rank_product& all, rank_t shift, index_t gpus) {
  if (all.listed != nullptr) return {};
  index_t first = shift, pitch = 1, reach = 0;  // of the axes that stay on a node: the farthest from the first
  for (int a = 0; a < mesh_ndim; ++a) {
    first += all.along[a].first * pitch;
    pitch *= all.on.extent[a];
  }
  std::optional<progression> nodes;
  pitch = 1;
  for (int a = 0; a < mesh_ndim; ++a) {
    const progression& p = all.along[a];
    const index_t step = p.step * pitch, count = p.count;
    pitch *= all.on.extent[a];
    if (count == 1) continue;
    if (step % gpus == 0 && !nodes) nodes = progression{0, count, step / gpus};
    else if (step % gpus == 0 && step == nodes->count * nodes->step * gpus) nodes->count *= count;
    else if (!nodes && step < gpus && reach + (count - 1) * step < gpus) reach += (count - 1) * step;
    else if (!nodes && gpus % step == 0 && count * step % gpus == 0 && first % gpus + reach < step)
      nodes = progression{0, count * step / gpus, 1};  // whole nodes, one after the other
    else return {};
  }
  if (first % gpus + reach >= gpus) return {};  // they would not stay on it
  if (!nodes) return progression{first / gpus, 1, 1};
  nodes->first = first / gpus;
  return nodes;
}
template <Holders All>
std::optional<progression> node_progression(const All&, rank_t, index_t) {
  return {};
}
inline std::optional<progression> node_progression(const any_holders& any, rank_t shift, index_t gpus) {
  return any.product() != nullptr ? node_progression(*any.product(), shift, gpus) : std::nullopt;
}

}  // namespace detail

/// { floor(device of h / gpus) : h in all }
template <Holders All>
node_set nodes_of_holders(const All& all, const device_map& seats, index_t gpus) {
  if (seats.one_run())
    if (const auto nodes = detail::node_progression(all, seats.device_of(0), gpus)) return node_set(*nodes);
  std::vector<index_t> nodes;
  if (!seats.ascending()) {
    for (index_t i = 0; i < all.count(); ++i) nodes.push_back(seats.device_of(all[i]) / gpus);
    std::sort(nodes.begin(), nodes.end());
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    return node_set(std::move(nodes));
  }
  for (index_t i = 0; i < all.count();) {
    const index_t node = seats.device_of(all[i]) / gpus;
    nodes.push_back(node);
    i = all.count_below(seats.first_rank_from((node + 1) * gpus));
  }
  return node_set(std::move(nodes));
}

}  // namespace reshard
