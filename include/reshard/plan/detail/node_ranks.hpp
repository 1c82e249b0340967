// SPDX-License-Identifier: Apache-2.0
// The ranks of a switch that sit on one node, and which of them have to do with other nodes.
// Builds on: plan/layout_switch.hpp, space/meeting_ranks.hpp.
#pragma once

#include <vector>

#include <reshard/plan/layout_switch.hpp>
#include <reshard/space/meeting_ranks.hpp>

namespace reshard::detail {

/// Whether an interval lies in ascending, disjoint ones, which may touch.
constexpr bool covered_by(interval ranks, const std::vector<interval>& ascending) {
  for (const interval& part : ascending)
    if (part.begin <= ranks.begin && ranks.begin < part.end) ranks.begin = least(part.end, ranks.end);
  return ranks.empty();
}

/// The devices of a node, and the ranks that sit on them as ascending, disjoint intervals; FROM's are those that live.
struct node_ranks {
  interval devices;
  std::vector<interval> from, to;
};

template <Holding From, Holding To>
node_ranks node_ranks_of(const layout_switch<From, To>& change, index_t node) {
  const index_t gpus = change.node_devices();
  node_ranks here;
  here.devices = gpus == 0 ? interval{0, change.devices()} : interval{node * gpus, (node + 1) * gpus};
  change.from_devices().ranks_on(here.devices, here.from);
  change.to_devices().ranks_on(here.devices, here.to);
  return here;
}

/// The ranks of a side that sit on a node, but for those whose elements no rank of the other side outside of the node
/// can have: to these nothing comes from another node, and what they hold goes to none. Ranks of FROM that are lost sit
/// on no node. Costs, for each stretch of ranks (space/meeting_ranks.hpp), the intervals of the other side's here.
template <Holding A, Holding B>
std::vector<interval> ranks_meeting_others(const A& a, const std::vector<interval>& here, const B& b,
                                           const std::vector<interval>& others_here) {
  std::vector<interval> meeting;
  for (const interval& ranks : here)
    for (rank_t rank = ranks.begin; rank < ranks.end;) {
      const meeting_ranks meet = meeting_ranks_of(a, rank, b);
      const interval alike{rank, least(ranks.end, meet.of.end)};
      if (!covered_by(meet.with, others_here)) meeting.push_back(alike);
      rank = alike.end;
    }
  return meeting;
}

/// The lowest of the holders among such ranks, or -1.
template <Holders All>
rank_t lowest_among(const All& all, const std::vector<interval>& ranks) {
  for (const interval& part : ranks)
    if (const index_t first = all.count_below(part.begin); first < all.count())
      if (const rank_t rank = all[first]; rank < part.end) return rank;
  return -1;
}

/// Appends the devices of the holders among such ranks, in rank order.
template <Holders All>
void devices_among(const All& all, const std::vector<interval>& ranks, const device_map& seats,
                   std::vector<rank_t>& devices) {
  for (const interval& part : ranks) {
    const index_t past = all.count_below(part.end);
    for (index_t i = all.count_below(part.begin); i < past; ++i) devices.push_back(seats.device_of(all[i]));
  }
}

}  // namespace reshard::detail
