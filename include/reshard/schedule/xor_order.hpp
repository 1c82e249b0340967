// SPDX-License-Identifier: Apache-2.0
// The order in which peers meet where a transport works in steps: at step s, device d meets d XOR s, s = 1 .. P - 1
// with P = bit_ceil(N). Every step is a perfect matching, so two peers always mean each other and nobody waits in a
// circle; every pair meets once. (With N - 1 steps, 3 and 4 of 6 would never meet.)
// Builds on: base/integer.hpp.
#pragma once

#include <bit>

#include <reshard/base/integer.hpp>

namespace reshard {

/// bit_ceil(N) - 1, for N >= 1 devices.
constexpr index_t xor_steps(index_t devices) {
  return static_cast<index_t>(std::bit_ceil(static_cast<std::uint64_t>(devices))) - 1;
}

/// d XOR step, or -1 where that is no device: peer(peer(d)) == d.
constexpr index_t xor_peer(index_t device, index_t step, index_t devices) {
  const index_t peer = device ^ step;
  return peer < devices ? peer : -1;
}

}  // namespace reshard
