// SPDX-License-Identifier: Apache-2.0
// How a switch is routed: the three integers that all devices must be given alike, as they are given the budget. Each
// derives the rest alone.
// Builds on: base/integer.hpp.
#pragma once

#include <reshard/base/integer.hpp>

namespace reshard {

/// Whether devices pass on bytes that they received: never, every byte coming from one that held it before; or always,
/// so that a byte enters a node once, over all of its NICs.
enum class relay { never, always };

/// relay, F and S: each of n nodes that hold a byte serves F nodes itself, which pass it on in turn, in S stages.
struct routing {
  relay how = relay::never;
  index_t chains = 1;  // F
  index_t stages = 1;  // S

  friend constexpr bool operator==(const routing&, const routing&) = default;
};

}  // namespace reshard
