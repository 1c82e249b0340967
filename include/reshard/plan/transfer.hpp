// SPDX-License-Identifier: Apache-2.0
// Transfers and plans: pure data, the same on every device that derives them; no pointer, stream or communicator.
// Builds on: model/state.hpp, model/family.hpp.
#pragma once

#include <algorithm>
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

/// Sorts a list of one end's transfers by `precedes`, given the other end of each. First by peer over small keys, as a
/// transfer is too large to be moved log(n) times; then inside each peer's list, which mostly arrives in order.
constexpr void sort_transfers(std::vector<transfer>& transfers, rank_t transfer::*peer) {
  struct key {
    rank_t peer;
    std::size_t at;
  };
  std::vector<key> keys(transfers.size());
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = {transfers[i].*peer, i};
  std::sort(keys.begin(), keys.end(),
            [](const key& a, const key& b) { return a.peer != b.peer ? a.peer < b.peer : a.at < b.at; });
  std::vector<transfer> sorted;
  sorted.reserve(keys.size());
  for (const key& k : keys) sorted.push_back(transfers[k.at]);
  const auto in_order = [](const transfer& a, const transfer& b) { return precedes(a, b); };
  for (std::size_t first = 0, past = 0; first < keys.size(); first = past) {
    bool ordered = true;
    for (past = first + 1; past < keys.size() && keys[past].peer == keys[first].peer; ++past)
      ordered = ordered && !precedes(sorted[past], sorted[past - 1]);
    const auto at = [&sorted](std::size_t i) { return sorted.begin() + static_cast<std::ptrdiff_t>(i); };
    if (!ordered) std::sort(at(first), at(past), in_order);
  }
  transfers = static_cast<std::vector<transfer>&&>(sorted);
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
[[nodiscard]] constexpr bytes_t total_bytes(const std::vector<transfer>& transfers) {
  bytes_t bytes = 0;
  for (const transfer& t : transfers) bytes = checked_add(bytes, t.bytes());
  return bytes;
}

}  // namespace reshard
