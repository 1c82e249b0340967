// SPDX-License-Identifier: Apache-2.0
// What a switch may take and takes of a device's memory, as values: a budget or none, whether sources are kept, and the
// live bytes before, after and at their most.
// Builds on: base/integer.hpp.
#pragma once

#include <limits>

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

}  // namespace reshard
