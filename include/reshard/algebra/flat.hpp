// SPDX-License-Identifier: Apache-2.0
// Flat offsets: a row-major array's interval of offsets is a handful of boxes, and a box is a set of offsets.
// Builds on: algebra/box.hpp.
#pragma once

#include <reshard/algebra/box.hpp>

namespace reshard {

/// sum over i of x[i] * product over j > i of extent[j]: where coordinate x lies in a row-major array.
template <int N>
constexpr index_t flat_offset(const index_t (&extent)[N], const index_t (&x)[N]) {
  index_t offset = 0;
  for (int i = 0; i < N; ++i) offset = offset * extent[i] + x[i];
  return offset;
}

/// The flat interval from a box's first element to past its last one; the box's offsets are a subset of it.
template <int N>
constexpr interval flat_hull(const index_t (&extent)[N], const box<N>& b) {
  index_t first = 0, last = 0;
  for (int i = 0; i < N; ++i) {
    first = first * extent[i] + b.dim[i].begin;
    last = last * extent[i] + b.dim[i].end - 1;
  }
  return b.empty() ? interval{} : interval{first, last + 1};
}

/// Calls sink(box) with at most 2N - 1 disjoint boxes, in order of offset, whose union is
/// { x in [0, extent) : flat_offset(extent, x) in range }.
///
/// At each offset reached: as many slices as begin there and fit, of the first dimension of which one does. The
/// dimension climbs to the first in which both ends differ, then falls, one box each: 1 + 2 (N - 1) at most.
template <int N, typename Sink>
constexpr void invert_flat(const index_t (&extent)[N], interval range, Sink&& sink) {
  index_t slice[N + 1];  // slice[i + 1]: elements of one slice of dimension i
  slice[N] = 1;
  for (int i = N; i > 0; --i) slice[i - 1] = slice[i] * extent[i - 1];
  range = intersect(range, {0, slice[0]});
  box<N> part{};
  for (index_t at = range.begin; at < range.end;) {
    const index_t left = range.end - at;
    index_t rest = at;
    int i = 0;
    while (i < N - 1 && (rest % slice[i + 1] != 0 || left < slice[i + 1])) {
      part.dim[i] = {rest / slice[i + 1], rest / slice[i + 1] + 1};
      rest %= slice[++i];
    }
    const index_t first = rest / slice[i + 1], count = least(extent[i] - first, left / slice[i + 1]);
    part.dim[i] = {first, first + count};
    at += count * slice[i + 1];
    while (++i < N) part.dim[i] = {0, extent[i]};
    sink(static_cast<const box<N>&>(part));
  }
}

/// Calls sink(interval) with the maximal flat intervals of a box in a row-major array, in order:
/// their union is { flat_offset(extent, x) : x in b }. Their number can be the product of the outer extents.
template <int N, typename Sink>
constexpr void flat_intervals(const index_t (&extent)[N], const box<N>& b, Sink&& sink) {
  if (b.empty()) return;
  int inner = N - 1;  // dimensions after `inner` are whole, so a run spans them
  index_t slice = 1;
  while (inner > 0 && b.dim[inner].begin == 0 && b.dim[inner].end == extent[inner]) slice *= extent[inner--];
  const index_t run = b.dim[inner].size() * slice;
  index_t x[N] = {};
  for (int i = 0; i < N; ++i) x[i] = b.dim[i].begin;
  while (true) {
    const index_t begin = flat_offset(extent, x);
    sink(interval{begin, begin + run});
    int i = inner - 1;
    for (; i >= 0; --i) {
      if (++x[i] < b.dim[i].end) break;
      x[i] = b.dim[i].begin;
    }
    if (i < 0) return;
  }
}

}  // namespace reshard
