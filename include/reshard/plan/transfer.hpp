// SPDX-License-Identifier: Apache-2.0
// Transfers and plans: pure data, the same on every device that derives them; no pointer, stream or communicator.
// Builds on: model/state.hpp, model/family.hpp.
#pragma once

#include <vector>

#include <reshard/model/family.hpp>
#include <reshard/model/state.hpp>

namespace reshard {

/// A box of one family that goes from device src to device dst, for every state of the set.
struct transfer {
  rank_t src = 0;
  rank_t dst = 0;
  state_set states;
  int family = 0;
  family_box where;

  /// volume x the widths of the states
  constexpr bytes_t bytes() const { return checked_multiply(where.volume(), states.bytes_per_element()); }

  friend constexpr bool operator==(const transfer&, const transfer&) = default;
};

/// The order in which both ends list what passes between them: source, destination, states, family, box.
constexpr bool precedes(const transfer& a, const transfer& b) {
  if (a.src != b.src) return a.src < b.src;
  if (a.dst != b.dst) return a.dst < b.dst;
  if (a.states.bits != b.states.bits) return a.states.bits < b.states.bits;
  if (a.family != b.family) return a.family < b.family;
  return precedes(a.where, b.where);
}

/// What one device does in a switch. Retained boxes have src == dst == device.
struct plan {
  rank_t device = 0;
  std::vector<transfer> sends;
  std::vector<transfer> receives;
  std::vector<transfer> retains;

  friend constexpr bool operator==(const plan&, const plan&) = default;
};

/// sum of bytes()
constexpr bytes_t total_bytes(const std::vector<transfer>& transfers) {
  bytes_t bytes = 0;
  for (const transfer& t : transfers) bytes = checked_add(bytes, t.bytes());
  return bytes;
}

}  // namespace reshard
