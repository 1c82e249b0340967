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
/// Per dimension, from the first: what both ends share is fixed; at the first dimension where they differ there are
/// whole slices in the middle, a partial slice before them and one after; each partial slice is the same question with
/// one dimension less and one open end. So 1 + 2 (N - 1) boxes at most.
template <int N, typename Sink>
constexpr void invert_flat(const index_t (&extent)[N], interval range, Sink&& sink) {
  index_t pitch[N] = {};  // elements of one slice of dimension i
  index_t elements = 1;
  for (int i = N - 1; i >= 0; --i) {
    pitch[i] = elements;
    elements *= extent[i];
  }
  range = intersect(range, {0, elements});
  if (range.empty()) return;

  box<N> whole = whole_box(extent);
  box<N> prefix = whole;
  index_t begin = range.begin, end = range.end;  // offsets inside the slice that the prefix fixes
  int split = 0;
  for (; split < N - 1; ++split) {
    const index_t slice = begin / pitch[split];
    if (slice != (end - 1) / pitch[split]) break;
    prefix.dim[split] = {slice, slice + 1};
    begin -= slice * pitch[split];
    end -= slice * pitch[split];
  }

  // Climb from the innermost partial row up to the split: the ragged beginning.
  index_t low[N] = {}, high[N] = {};  // mixed-radix digits of begin and end below the split
  index_t b = begin, e = end;
  for (int i = split; i < N; ++i) {
    low[i] = b / pitch[i];
    b -= low[i] * pitch[i];
    high[i] = e / pitch[i];
    e -= high[i] * pitch[i];
  }
  int ragged_low = split;  // deepest dimension with a non-zero digit
  int ragged_high = split;
  for (int i = split + 1; i < N; ++i) {
    if (low[i] != 0) ragged_low = i;
    if (high[i] != 0) ragged_high = i;
  }
  for (int i = ragged_low; i > split; --i) {
    box<N> part = prefix;
    for (int j = split; j < i; ++j) part.dim[j] = {low[j], low[j] + 1};
    part.dim[i] = {i == ragged_low ? low[i] : low[i] + 1, extent[i]};
    if (!part.dim[i].empty()) sink(static_cast<const box<N>&>(part));
  }
  box<N> middle = prefix;
  middle.dim[split] = {ragged_low == split ? low[split] : low[split] + 1, high[split]};
  if (!middle.dim[split].empty()) sink(static_cast<const box<N>&>(middle));
  for (int i = split + 1; i <= ragged_high; ++i) {
    box<N> part = prefix;
    for (int j = split; j < i; ++j) part.dim[j] = {high[j], high[j] + 1};
    part.dim[i] = {0, high[i]};
    if (!part.dim[i].empty()) sink(static_cast<const box<N>&>(part));
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
