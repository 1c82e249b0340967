// SPDX-License-Identifier: Apache-2.0
// When the parts of a switch happen, in slots: S stages of P phases each, over a transport of lag L.
// Builds on: base/integer.hpp.
#pragma once

#include <reshard/base/integer.hpp>

namespace reshard {

/// What is sent in phase p of stage k goes in slot k + p (1 + L), and is in place at the end of slot k + p (1 + L) + L,
/// before the next phase of the stage sends it on.
struct slot_times {
  index_t stages = 1;  // S
  index_t phases = 1;  // P
  index_t lag = 0;     // L

  /// k + p (1 + L)
  constexpr index_t slot_of(index_t stage, index_t phase) const { return stage + phase * (1 + lag); }
  /// (P - 1) (1 + L): from a stage's own slot to that of its last phase.
  constexpr index_t span() const { return (phases - 1) * (1 + lag); }
  /// S + (P - 1) (1 + L): slots in which something may be sent.
  constexpr index_t sending() const { return stages + span(); }
  /// S + (P - 1) (1 + L) + L: all slots.
  constexpr index_t slots() const { return sending() + lag; }
  /// How many stages are in place once the first n slots' messages are: max(0, n - (P - 1) (1 + L)).
  constexpr index_t stages_in_place(index_t slots) const { return greatest(0, slots - span()); }

  friend constexpr bool operator==(const slot_times&, const slot_times&) = default;
};

}  // namespace reshard
