// SPDX-License-Identifier: Apache-2.0
// A box: a product of N intervals, a rectangle of an N-dimensional array in global coordinates.
// Builds on: algebra/interval.hpp. Boxes hold raw arrays: std::array costs 4 to 6 times the constant-evaluation steps.
#pragma once

#include <reshard/algebra/interval.hpp>

namespace reshard {

/// { x : x[i] in dim[i] for all i }. Empty where any interval is empty.
template <int N>
struct box {
  static_assert(N >= 1, "reshard: a box has at least one dimension");
  static constexpr int ndim = N;
  interval dim[N];

  constexpr bool empty() const {
    for (int i = 0; i < N; ++i)
      if (dim[i].end <= dim[i].begin) return true;
    return false;
  }

  /// product over i of size(dim[i]); refused where it leaves 64 bits.
  constexpr index_t volume() const {
    index_t elements = 1;
    for (int i = 0; i < N; ++i) elements = checked_multiply(elements, dim[i].size());
    return elements;
  }

  /// other is a subset of this.
  constexpr bool contains(const box& other) const {
    if (other.empty()) return true;
    for (int i = 0; i < N; ++i)
      if (!dim[i].contains(other.dim[i])) return false;
    return true;
  }

  /// x in this, for a coordinate of N numbers.
  constexpr bool contains(const index_t (&x)[N]) const {
    for (int i = 0; i < N; ++i)
      if (!dim[i].contains(x[i])) return false;
    return true;
  }

  friend constexpr bool operator==(const box&, const box&) = default;
};

/// [0, extent[0]) x ... x [0, extent[N-1])
template <int N>
constexpr box<N> whole_box(const index_t (&extent)[N]) {
  box<N> result{};
  for (int i = 0; i < N; ++i) result.dim[i] = {0, extent[i]};
  return result;
}

/// { x : x in a and x in b }
template <int N>
[[nodiscard]] constexpr box<N> intersect(const box<N>& a, const box<N>& b) {
  box<N> result{};
  for (int i = 0; i < N; ++i) result.dim[i] = intersect(a.dim[i], b.dim[i]);
  return result;
}

/// a and b have a coordinate in common.
template <int N>
[[nodiscard]] constexpr bool intersects(const box<N>& a, const box<N>& b) {
  for (int i = 0; i < N; ++i)
    if (!intersects(a.dim[i], b.dim[i])) return false;
  return true;
}

/// { x + by : x in a }
template <int N>
[[nodiscard]] constexpr box<N> translate(const box<N>& a, const index_t (&by)[N]) {
  box<N> result = a;
  for (int i = 0; i < N; ++i) result.dim[i] = translate(a.dim[i], by[i]);
  return result;
}

/// Calls sink(box) with at most 2N disjoint, non-empty boxes whose union is { x : x in a and x not in b }.
/// Order: per dimension the part below b, then the part above it, narrowed to b in the dimensions before.
template <int N, typename Sink>
constexpr void subtract(const box<N>& a, const box<N>& b, Sink&& sink) {
  if (a.empty()) return;
  if (!intersects(a, b)) {
    sink(a);
    return;
  }
  box<N> rest = a;
  for (int i = 0; i < N; ++i) {
    box<N> side = rest;
    side.dim[i].end = least(rest.dim[i].end, b.dim[i].begin);
    if (!side.dim[i].empty()) sink(static_cast<const box<N>&>(side));
    side.dim[i] = {greatest(rest.dim[i].begin, b.dim[i].end), rest.dim[i].end};
    if (!side.dim[i].empty()) sink(static_cast<const box<N>&>(side));
    rest.dim[i] = intersect(rest.dim[i], b.dim[i]);
  }
}

/// Lexicographic by the lower corner, then the upper: a total order of boxes that every rank sorts by.
template <int N>
constexpr bool precedes(const box<N>& a, const box<N>& b) {
  for (int i = 0; i < N; ++i)
    if (a.dim[i].begin != b.dim[i].begin) return a.dim[i].begin < b.dim[i].begin;
  for (int i = 0; i < N; ++i)
    if (a.dim[i].end != b.dim[i].end) return a.dim[i].end < b.dim[i].end;
  return false;
}

}  // namespace reshard
