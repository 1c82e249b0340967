// SPDX-License-Identifier: Apache-2.0
// Rails: which device of a node carries which share of what passes its NICs. Every node cuts [0, 1) among its devices
// that take part, each NIC the same length and its users the same length of that, as much as can be where other nodes
// have the NIC of that number; so that what leaves one node by a NIC enters the next by the same one. Boundaries of all
// nodes together are the segments.
// Builds on: plan/layout_switch.hpp.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include <reshard/plan/layout_switch.hpp>

namespace reshard {

/// Segments of [0, 1), and the device of each node that carries each of them. Costs the runs of devices and the kinds
/// of nodes, not their number.
class node_rails {
 public:
  template <Holding From, Holding To>
  explicit node_rails(const layout_switch<From, To>& change) : on_(&change.on()), gpus_(change.node_devices()) {
    if (gpus_ == 0) return;
    std::vector<interval> used;  // devices that take part, ascending and disjoint
    change.from_devices().each_run([&](interval run) { used.push_back(run); });
    change.to_devices().each_run([&](interval run) { used.push_back(run); });
    std::sort(used.begin(), used.end(), [](interval a, interval b) { return a.begin < b.begin; });
    std::vector<interval> merged;
    for (const interval& run : used) {
      if (!merged.empty() && run.begin <= merged.back().end) merged.back().end = greatest(merged.back().end, run.end);
      else merged.push_back(run);
    }
    add_nodes(merged);
    cut();
  }

  /// Q
  index_t segments() const { return static_cast<index_t>(bounds_.size()) - 1; }
  /// Segment s of an extent: [floor(b(s) E), floor(b(s + 1) E))
  interval segment_of(interval all, index_t s) const {
    const auto at = [&](index_t i) {
      return all.begin + split_point(bounds_[static_cast<std::size_t>(i)], all.size(), grain);
    };
    return {at(s), at(s + 1)};
  }
  /// The devices that carry the segments of a node that takes part: by segment, GPU numbers of the node.
  const std::vector<index_t>& carriers(index_t node) const {
    return shapes_[static_cast<std::size_t>(shape_of(node))].carriers;
  }

  static constexpr index_t grain = 720720 * 1024;  // 1, in parts: 1 / n is exact for n up to 16 and many more

 private:
  struct span {
    interval part;  // of [0, grain)
    index_t gpu;
  };
  struct shape {
    std::vector<index_t> users;  // GPUs that take part
    index_t nics;                // of the node
    std::vector<span> spans;     // ascending
    std::vector<index_t> carriers;
  };

  index_t nics_of(index_t node) const {
    const index_t nics = on_->kind_of(node).nics;
    return nics == 0 ? gpus_ : nics;
  }
  /// The shape with such users and NICs.
  index_t shape_with(std::vector<index_t> users, index_t nics) {
    for (std::size_t i = 0; i < shapes_.size(); ++i)
      if (shapes_[i].nics == nics && shapes_[i].users == users) return static_cast<index_t>(i);
    shapes_.push_back({std::move(users), nics, {}, {}});
    return static_cast<index_t>(shapes_.size()) - 1;
  }
  /// Nodes of which all devices take part, kind by kind, and the others one by one.
  void add_nodes(const std::vector<interval>& used) {
    std::map<index_t, std::vector<index_t>> partial;
    std::vector<index_t> all;
    for (index_t g = 0; g < gpus_; ++g) all.push_back(g);
    for (const interval& run : used) {
      const interval whole{ceil_divide(run.begin, gpus_), run.end / gpus_};
      for (rank_t d = run.begin; d < run.end; ++d) {
        if (whole.contains(d / gpus_)) d = whole.end * gpus_;
        if (d < run.end) partial[d / gpus_].push_back(d % gpus_);
      }
      if (whole.empty()) continue;
      for (index_t node = whole.begin; node < whole.end;) {
        const interval kind = like(node);
        whole_.push_back({{node, least(kind.end, whole.end)}, shape_with(all, nics_of(node))});
        node = whole_.back().nodes.end;
      }
    }
    for (const auto& [node, users] : partial) one_.push_back({{node, node + 1}, shape_with(users, nics_of(node))});
  }
  /// The nodes of a node's entry of the cluster.
  interval like(index_t node) const {
    interval found{0, 0};
    for (const node_kind& kind : on_->nodes) {
      found = {found.end, found.end + kind.count};
      if (found.contains(node)) return found;
    }
    return {node, std::numeric_limits<index_t>::max()};
  }

  void cut() {
    index_t rails = 1;
    for (const shape& s : shapes_) rails = greatest(rails, s.nics);
    std::vector<index_t> bounds = {0, grain};
    for (shape& s : shapes_) {
      spread(s, rails);
      for (const span& one : s.spans) bounds.push_back(one.part.begin);
    }
    std::sort(bounds.begin(), bounds.end());
    bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
    bounds_ = std::move(bounds);
    for (shape& s : shapes_) {
      std::size_t at = 0;
      for (std::size_t i = 0; i + 1 < bounds_.size(); ++i) {
        while (s.spans[at].part.end <= bounds_[i]) ++at;
        s.carriers.push_back(s.spans[at].gpu);
      }
    }
  }
  /// Cuts [0, grain) among a node's NICs in use, and what each has among its users.
  void spread(shape& s, index_t rails) const {
    struct nic {
      std::vector<index_t> users;
      index_t left = 0;
      std::vector<interval> parts;
    };
    std::map<index_t, nic> nics;
    for (const index_t g : s.users) nics[g * s.nics / gpus_].users.push_back(g);
    index_t number = 0;
    for (auto& [rail, one] : nics) {
      one.left = even_part({0, grain}, number++, static_cast<index_t>(nics.size())).size();
    }
    const auto take = [](nic& one, interval part) {  // as much of it as the NIC has room for; returns the rest
      const index_t taken = least(one.left, part.size());
      if (taken > 0) one.parts.push_back({part.begin, part.begin + taken});
      one.left -= taken;
      return interval{part.begin + taken, part.end};
    };
    std::vector<interval> rest;
    for (index_t rail = 0; rail < rails; ++rail) {
      interval part = even_part({0, grain}, rail, rails);
      if (const auto own = nics.find(rail); own != nics.end()) part = take(own->second, part);
      if (!part.empty()) rest.push_back(part);
    }
    for (interval part : rest)
      for (auto& [rail, one] : nics) {
        if (part.empty()) break;
        part = take(one, part);
      }
    for (auto& [rail, one] : nics) among_users(one.parts, one.users, s.spans);
    std::sort(s.spans.begin(), s.spans.end(), [](const span& a, const span& b) { return a.part.begin < b.part.begin; });
  }
  static void among_users(const std::vector<interval>& parts, const std::vector<index_t>& users,
                          std::vector<span>& spans) {
    index_t all = 0, before = 0;
    for (const interval& part : parts) all += part.size();
    for (const interval& part : parts) {
      for (std::size_t u = 0; u < users.size(); ++u) {
        const interval share = even_part({0, all}, static_cast<index_t>(u), static_cast<index_t>(users.size()));
        const interval own = intersect(translate(part, before - part.begin), share);
        if (!own.empty()) spans.push_back({translate(own, part.begin - before), users[u]});
      }
      before += part.size();
    }
  }
  index_t shape_of(index_t node) const {
    for (const std::vector<placed>* list : {&whole_, &one_}) {
      const auto at =
          std::partition_point(list->begin(), list->end(), [node](const placed& p) { return p.nodes.end <= node; });
      if (at != list->end() && at->nodes.contains(node)) return at->shape;
    }
    return 0;
  }

  struct placed {
    interval nodes;
    index_t shape;
  };
  const cluster* on_;
  index_t gpus_;
  std::vector<shape> shapes_;
  std::vector<placed> whole_, one_;  // ascending
  std::vector<index_t> bounds_;
};

}  // namespace reshard
