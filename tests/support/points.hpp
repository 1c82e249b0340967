// SPDX-License-Identifier: Apache-2.0
// Sets of coordinates by brute force: what the algebra's laws are checked against.
#pragma once

#include <string>
#include <vector>

#include <reshard/algebra/flat.hpp>

#include "dice.hpp"

namespace testing {

using reshard::box, reshard::index_t, reshard::interval;

/// Calls visit(x) with every coordinate of a box, in row-major order.
template <int N, typename Visit>
void each_point(const box<N>& b, Visit&& visit) {
  if (b.empty()) return;
  index_t x[N];
  for (int i = 0; i < N; ++i) x[i] = b.dim[i].begin;
  while (true) {
    visit(static_cast<const index_t(&)[N]>(x));
    int i = N - 1;
    for (; i >= 0; --i) {
      if (++x[i] < b.dim[i].end) break;
      x[i] = b.dim[i].begin;
    }
    if (i < 0) return;
  }
}

/// How often each coordinate of `universe`, in row-major order, occurs in some boxes.
template <int N, typename Boxes>
std::vector<int> occurrences(const box<N>& universe, const Boxes& boxes) {
  std::vector<int> times;
  each_point(universe, [&](const index_t(&x)[N]) {
    int n = 0;
    for (const box<N>& b : boxes) n += b.contains(x) ? 1 : 0;
    times.push_back(n);
  });
  return times;
}

/// One number per coordinate of `universe`, in row-major order.
template <int N, typename Of>
std::vector<int> tabulate(const box<N>& universe, Of&& of) {
  std::vector<int> table;
  each_point(universe, [&](const index_t(&x)[N]) { table.push_back(of(x)); });
  return table;
}

/// A box with ends in [low, high], now and then empty.
template <int N>
box<N> random_box(dice& random, index_t low, index_t high) {
  box<N> b{};
  for (int i = 0; i < N; ++i) {
    b.dim[i] = {random.within(low, high), random.within(low, high)};
    if (b.dim[i].end < b.dim[i].begin && random.below(8) != 0) b.dim[i] = {b.dim[i].end, b.dim[i].begin};
  }
  return b;
}

/// A non-empty box of an array, each dimension whole every third time.
template <int N>
box<N> random_part(dice& random, const index_t (&extent)[N]) {
  box<N> b = reshard::whole_box(extent);
  for (int i = 0; i < N; ++i) {
    if (random.below(3) == 0) continue;
    b.dim[i].begin = random.below(extent[i]);
    b.dim[i].end = random.within(b.dim[i].begin + 1, extent[i]);
  }
  return b;
}

template <int N>
std::string text(const box<N>& b) {
  std::string result;
  for (const interval& i : b.dim) result += "[" + std::to_string(i.begin) + "," + std::to_string(i.end) + ")";
  return result;
}

}  // namespace testing
