// SPDX-License-Identifier: Apache-2.0
// What a switch may take and takes of a device's memory, as values: a budget or none, whether sources are kept, and the
// live bytes before, after and at their most; and what comes and goes slot by slot.
// Builds on: base/integer.hpp.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include <reshard/base/integer.hpp>

namespace reshard {

/// Whether a switch gives memory back as it drains, or leaves the sources whole until the caller drops them.
enum class sources { release, keep };

/// No limit: the switch is made in as many stages as its routing says. An eighth of what 64 bits hold, so that it may
/// be multiplied.
inline constexpr bytes_t no_budget = std::numeric_limits<bytes_t>::max() / 8;

/// before + arrived - released, slot by slot.
struct memory_replay {
  bytes_t before = 0;
  bytes_t after = 0;
  bytes_t peak = 0;  // the largest of before, after and every slot

  /// What the switch costs beyond what either side needs.
  constexpr bytes_t excess() const { return peak - greatest(before, after); }
};

/// Bytes over the slots of a switch: `held` are there first, comes[k] from the start of slot k, goes[k] up to its end.
struct timeline {
  bytes_t held = 0;
  std::vector<bytes_t> comes, goes;

  constexpr timeline(bytes_t first, index_t slots)
      : held(first), comes(static_cast<std::size_t>(slots), 0), goes(static_cast<std::size_t>(slots), 0) {}

  /// live[k] = held + comes[0] + .. + comes[k] - goes[0] - .. - goes[k - 1]
  [[nodiscard]] constexpr std::vector<bytes_t> live() const {
    std::vector<bytes_t> live = comes;
    bytes_t now = held;
    for (std::size_t k = 0; k < live.size(); ++k) {
      live[k] += now;
      now = live[k] - goes[k];
    }
    return live;
  }
};

/// max(floor, live[0], live[1] ..)
[[nodiscard]] constexpr bytes_t peak_of(const std::vector<bytes_t>& live, bytes_t floor) {
  for (const bytes_t bytes : live) floor = greatest(floor, bytes);
  return floor;
}

}  // namespace reshard
