// SPDX-License-Identifier: Apache-2.0
// A plan: what one device does in a switch. Pure data, the same on every device that derives it; no pointer, stream or
// communicator.
// Builds on: plan/transfer.hpp.
#pragma once

#include <vector>

#include <reshard/plan/transfer.hpp>

namespace reshard {

/// What one device does in a switch. Retained, created and lost boxes have src == dst == device.
struct plan {
  rank_t device = 0;
  std::vector<transfer> sends;
  std::vector<transfer> receives;
  std::vector<transfer> retains;
  std::vector<transfer> creates;  // zeros: padding of the vocabulary that FROM does not have
  std::vector<transfer> lost;     // zeros: what lost ranks of FROM alone held

  friend constexpr bool operator==(const plan&, const plan&) = default;
};

/// sum of bytes()
[[nodiscard]] constexpr bytes_t total_bytes(const std::vector<transfer>& transfers) {
  bytes_t bytes = 0;
  for (const transfer& t : transfers) bytes = checked_add(bytes, t.bytes());
  return bytes;
}

}  // namespace reshard
