// SPDX-License-Identifier: Apache-2.0
// How many stages a switch is made in, and the least budget that does, from what so many stages take of memory.
// Builds on: base/integer.hpp.
#pragma once

#include <limits>

#include <reshard/base/integer.hpp>

namespace reshard {

/// Stages that a switch is made in, at most.
inline constexpr index_t most_stages = 4096;

/// How many stages keep a budget, and what they exceed max(before, after) by; where none do, the least that would.
struct stages_found {
  index_t stages = 1;
  bytes_t excess = 0;  // of that device with the most, without what a transport holds whatever the stages
  bool kept = true;
  bytes_t least_budget = 0;  // that is kept, where this one is not
};

/// Refuses a budget below 1, and one not above F, what the transport holds whatever the stages.
constexpr void require_budget(bytes_t budget, bytes_t fixed = 0) {
  if (budget < 1) refuse("a budget of ", budget, " bytes; it must be at least 1");
  if (budget <= fixed)
    refuse("a budget of ", budget, " bytes, and the transport holds ", fixed,
           " whatever the stages; it must be above that");
}

/// S as it is named: kept where what it exceeds is within the budget, and the least budget is that.
[[nodiscard]] constexpr stages_found stages_named(index_t stages, bytes_t excess, bytes_t budget) {
  return {stages, excess, excess <= budget, excess};
}

/// S = the least of 1, 2, 4 .. 4096 with excess_of(S) + F <= budget: excess_of(S) is what S stages exceed max(before,
/// after) by on that device with the most, F what the transport holds whatever the stages. Where there is none, the
/// result tells of one stage, and the least budget that does is F + max(1, the least excess_of(S)).
template <typename ExcessOf>
[[nodiscard]] constexpr stages_found stages_within(bytes_t budget, bytes_t fixed, ExcessOf&& excess_of) {
  require_budget(budget, fixed);
  stages_found first{};
  bytes_t smallest = std::numeric_limits<bytes_t>::max();
  for (index_t stages = 1; stages <= most_stages; stages *= 2) {
    const bytes_t excess = excess_of(stages);
    if (excess <= budget - fixed) return {stages, excess, true, 0};
    if (stages == 1) first.excess = excess;
    smallest = least(smallest, excess);
  }
  first.kept = false;
  first.least_budget = checked_add(fixed, greatest(1, smallest));
  return first;
}

}  // namespace reshard
