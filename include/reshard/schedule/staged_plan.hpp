// SPDX-License-Identifier: Apache-2.0
// One device's part of a switch, cut into stages: its plan expanded to tensors, in the order in which it is done.
// Builds on: schedule/detail/stage_transfers.hpp, schedule/slot_times.hpp.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include <reshard/schedule/detail/stage_transfers.hpp>
#include <reshard/schedule/slot_times.hpp>

namespace reshard {

/// A device's plan as pieces of single tensors, each of one stage and phase, and so of one slot; a direct plan has one
/// phase, so that its slots are its stages.
struct staged_plan {
  rank_t device = 0;
  index_t stages = 1;
  // each list by slot, then as stage_transfers has it: what two devices exchange in one
  std::vector<staged_piece> sends;
  std::vector<staged_piece> receives;  // slot comes in the same order at both ends
  std::vector<staged_piece> retains;   // of phase 0
  std::vector<staged_piece> creates;   // zeros, all in the first stage: what is created or lost
  index_t phases = 1;
  index_t lag = 0;  // of the transport

  constexpr slot_times times() const { return {stages, phases, lag}; }
};

/// The pieces of one slot in a list that is sorted by slots.
struct slot_range {
  const staged_piece* first;
  const staged_piece* last;
  constexpr const staged_piece* begin() const { return first; }
  constexpr const staged_piece* end() const { return last; }
};
/// { p in pieces : p.slot(lag) == slot }, in their order; by binary search.
constexpr slot_range pieces_of_slot(const std::vector<staged_piece>& pieces, index_t slot, index_t lag = 0) {
  const auto at = [&pieces, lag](index_t k) {
    return pieces.data() + (std::partition_point(pieces.begin(), pieces.end(),
                                                 [k, lag](const staged_piece& p) { return p.slot(lag) < k; }) -
                            pieces.begin());
  };
  return {at(slot), at(slot + 1)};
}

/// A device's plan in so many stages, its lists by the slots of a transport.
template <Holding From, Holding To>
[[nodiscard]] constexpr staged_plan stage_plan(const plan& whole, const layout_switch<From, To>& change,
                                               const slot_times& times) {
  const index_t stages = times.stages, lag = times.lag;
  const auto staged = [&](const std::vector<transfer>& transfers) {
    const std::vector<staged_piece> pieces = stage_transfers(transfers, change, stages);
    // where each slot's pieces go, in the order they have
    index_t slots = stages;
    for (const staged_piece& p : pieces) slots = greatest(slots, p.slot(lag) + 1);
    std::vector<std::size_t> at(static_cast<std::size_t>(slots) + 1, 0);
    for (const staged_piece& p : pieces) ++at[static_cast<std::size_t>(p.slot(lag)) + 1];
    std::partial_sum(at.begin(), at.end(), at.begin());
    std::vector<staged_piece> by_slot(pieces.size());
    for (const staged_piece& p : pieces) by_slot[at[static_cast<std::size_t>(p.slot(lag))]++] = p;
    return by_slot;
  };
  staged_plan result{whole.device,          stages,
                     staged(whole.sends),   staged(whole.receives),
                     staged(whole.retains), stage_transfers(whole.creates, change, 1),
                     times.phases,          lag};
  for (const staged_piece& p : stage_transfers(whole.lost, change, 1)) result.creates.push_back(p);
  return result;
}
/// stage_plan over a transport without lag, of a direct plan.
template <Holding From, Holding To>
[[nodiscard]] constexpr staged_plan stage_plan(const plan& whole, const layout_switch<From, To>& change,
                                               index_t stages) {
  return stage_plan(whole, change, slot_times{.stages = stages});
}

}  // namespace reshard
