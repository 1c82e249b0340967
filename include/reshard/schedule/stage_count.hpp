// SPDX-License-Identifier: Apache-2.0
// How many stages a switch is made in, and the least budget that does: from what its devices hold and its transport.
// Builds on: plan/layout_switch.hpp, space/cover.hpp.
#pragma once

#include <bit>
#include <limits>

#include <reshard/plan/layout_switch.hpp>
#include <reshard/space/cover.hpp>

namespace reshard {

/// Stages that a switch is made in, at most.
inline constexpr index_t most_stages = 4096;

/// s0 = max(1, ceil(4 B / budget)), B the largest max(before, after) of any device: one agreed integer, and what is
/// planned with. Switches are made in at most 4096 stages; a budget that wants more cannot work.
[[nodiscard]] constexpr index_t stage_count(bytes_t largest_holding, bytes_t budget) {
  if (budget < 1) refuse("a budget of ", budget, " bytes; it must be at least 1");
  return greatest(1, ceil_divide(checked_multiply(4, largest_holding), budget));
}

/// The least budget that does where s0 stages are made, over S = 1, 2, 4 .. 4096: at least what S stages exceed
/// max(before, after) by, excess_of(S), and one of which stage_count makes S. The largest index_t where none does.
template <typename ExcessOf>
constexpr bytes_t least_budget(bytes_t largest_holding, ExcessOf&& excess_of) {
  bytes_t least_that_does = std::numeric_limits<bytes_t>::max();
  for (index_t stages = 1; stages <= most_stages; stages *= 2) {
    const bytes_t budget = greatest(greatest(1, excess_of(stages)), ceil_divide(4 * largest_holding, stages));
    if (stage_count(largest_holding, budget) == stages) least_that_does = least(least_that_does, budget);
  }
  return least_that_does;
}

/// What the number of stages follows from, each the most of any device, in bytes.
struct memory_demand {
  bytes_t largest = 0;  // B: of max(before, after)
  bytes_t staging = 0;  // W: that the transport would hold beside the state, if there were one stage
  bytes_t fixed = 0;    // F: that it holds whatever the stages

  /// 4 B + W
  constexpr bytes_t of_one_stage() const { return checked_add(checked_multiply(4, largest), staging); }
  /// S takes the first of s0 = stage_count(demand, budget) and the powers of two above it, up to 4096, at which the
  /// replay of memory fits: this is the next one.
  static constexpr index_t stages_after(index_t stages) {
    return static_cast<index_t>(std::bit_ceil(static_cast<std::uint64_t>(stages) + 1));
  }
};

/// s0 = max(1, ceil((4 B + W) / (budget - F)))
[[nodiscard]] constexpr index_t stage_count(const memory_demand& demand, bytes_t budget) {
  if (budget < 1) refuse("a budget of ", budget, " bytes; it must be at least 1");
  if (budget <= demand.fixed)
    refuse("a budget of ", budget, " bytes, and the transport holds ", demand.fixed,
           " whatever the stages; it must be above that");
  return greatest(1, ceil_divide(demand.of_one_stage(), budget - demand.fixed));
}

/// F + the least, over S = 1, 2, 4 .. 4096, of max(1, excess_of(S), ceil((4 B + W) / S)), excess_of being without F.
template <typename ExcessOf>
constexpr bytes_t least_budget(const memory_demand& demand, ExcessOf&& excess_of) {
  bytes_t least_that_does = std::numeric_limits<bytes_t>::max();
  for (index_t stages = 1; stages <= most_stages; stages *= 2)
    least_that_does =
        least(least_that_does, greatest(greatest(1, excess_of(stages)), ceil_divide(demand.of_one_stage(), stages)));
  return demand.fixed + least_that_does;
}

/// B: the most that any device holds on either side, of what moves. Lost ranks hold nothing.
template <Holding From, Holding To>
[[nodiscard]] constexpr bytes_t largest_holding(const layout_switch<From, To>& change) {
  bytes_t largest = max_bytes_per_rank(change.to(), change.states());
  if (change.lost_ranks().empty()) return greatest(largest, max_bytes_per_rank(change.from(), change.states()));
  for (rank_t device = 0; device < change.devices(); ++device)
    if (const rank_t rank = change.from_rank(device); rank >= 0)
      largest = greatest(largest, held_bytes(change.from(), rank, change.states()));
  return largest;
}

}  // namespace reshard
