// SPDX-License-Identifier: Apache-2.0
// The holders of a piece that sit on one node, in rank order: what devices of the node share among themselves.
// Builds on: plan/device_map.hpp, space/holding.hpp.
#pragma once

#include <vector>

#include <reshard/plan/device_map.hpp>
#include <reshard/space/holding.hpp>

namespace reshard {

/// { h : h in all, device of h in node_devices }, counted and indexed by arithmetic over the node's ranks.
template <Holders All>
class node_holders {
 public:
  constexpr node_holders(const All& all, const device_map& seats, interval node_devices) : all_(&all) {
    seats.ranks_on(node_devices, ranks_);
    for (const interval& r : ranks_) count_ += all.count_below(r.end) - all.count_below(r.begin);
  }
  constexpr index_t count() const { return count_; }
  constexpr rank_t operator[](index_t i) const {
    for (const interval& r : ranks_) {
      const index_t first = all_->count_below(r.begin), holding = all_->count_below(r.end) - first;
      if (i < holding) return (*all_)[first + i];
      i -= holding;
    }
    return -1;
  }
  constexpr index_t index_of(rank_t rank) const {
    index_t index = 0;
    for (const interval& r : ranks_) {
      const index_t first = all_->count_below(r.begin);
      if (r.contains(rank)) return index + all_->count_below(rank) - first;
      index += all_->count_below(r.end) - first;
    }
    return -1;
  }

 private:
  const All* all_;
  index_t count_ = 0;
  std::vector<interval> ranks_;
};

}  // namespace reshard
