// SPDX-License-Identifier: Apache-2.0
// When two predicted times are one: sums of the same seconds, added in another order, differ in their last digits, and
// no choice may hang on those.
// Builds on: nothing.
#pragma once

namespace reshard {

/// Seconds that differ by no more than this part of the larger are equal.
inline constexpr double seconds_tolerance = 1e-9;

/// a < (1 - 1e-9) b, for a, b >= 0 or without a limit: a is fewer seconds than b, by more than rounding.
[[nodiscard]] constexpr bool fewer_seconds(double a, double b) { return a < b * (1 - seconds_tolerance); }

/// Neither is fewer: |a - b| <= 1e-9 max(a, b). Not transitive: where many are compared, compare each with the least.
[[nodiscard]] constexpr bool same_seconds(double a, double b) { return !fewer_seconds(a, b) && !fewer_seconds(b, a); }

}  // namespace reshard
