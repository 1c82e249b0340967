// SPDX-License-Identifier: Apache-2.0
// An interval of integers [begin, end): the atom of every set in the library.
// Builds on: base/integer.hpp.
#pragma once

#include <reshard/base/integer.hpp>

namespace reshard {

/// { x : begin <= x < end }. Empty where end <= begin; all empty intervals mean the same set.
struct interval {
  index_t begin = 0;
  index_t end = 0;

  constexpr index_t size() const { return end > begin ? end - begin : 0; }
  constexpr bool empty() const { return end <= begin; }

  /// x in [begin, end)
  constexpr bool contains(index_t x) const { return begin <= x && x < end; }

  /// other is a subset of this; the empty set is a subset of every set.
  constexpr bool contains(interval other) const { return other.empty() || (begin <= other.begin && other.end <= end); }

  friend constexpr bool operator==(const interval&, const interval&) = default;
};

// Written out, without greatest() and least(): compilers count calls, and assertions about layouts are made of these
// two.
/// { x : x in a and x in b }
[[nodiscard]] constexpr interval intersect(interval a, interval b) {
  return {a.begin < b.begin ? b.begin : a.begin, a.end < b.end ? a.end : b.end};
}

/// a and b have a number in common.
[[nodiscard]] constexpr bool intersects(interval a, interval b) {
  return (a.begin < b.begin ? b.begin : a.begin) < (a.end < b.end ? a.end : b.end);
}

/// { x + by : x in a }
[[nodiscard]] constexpr interval translate(interval a, index_t by) { return {a.begin + by, a.end + by}; }

/// Part i of `parts` of an even split: [floor(i E / parts), floor((i+1) E / parts)) of a, E its size, 0 <= i < parts.
constexpr interval even_part(interval a, index_t i, index_t parts) {
  return {a.begin + split_point(i, a.size(), parts), a.begin + split_point(i + 1, a.size(), parts)};
}

/// Part i of `parts` as torch's chunk() cuts: [min(i c, E), min((i + 1) c, E)) of a, E its size, c = ceil(E / parts);
/// the last parts are shorter or empty.
constexpr interval chunk_part(interval a, index_t i, index_t parts) {
  const index_t c = ceil_divide(a.size(), parts);
  return intersect({a.begin + i * c, a.begin + (i + 1) * c}, a);
}

/// Part i of [0, extent) where `parts` divides the extent: [i E / parts, (i + 1) E / parts).
constexpr interval equal_part(index_t extent, index_t i, index_t parts) {
  const index_t size = extent / parts;
  return {i * size, (i + 1) * size};
}

}  // namespace reshard
