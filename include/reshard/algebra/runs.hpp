// SPDX-License-Identifier: Apache-2.0
// Contiguous runs: how a box lies in a row-major local array, as one N-d strided pattern instead of a list of runs
// (an inner-dimension split of one matrix can make 99% of all runs of a model).
// Builds on: algebra/flat.hpp.
#pragma once

#include <reshard/algebra/flat.hpp>

namespace reshard {

/// The offsets { offset + sum x[i] stride[i] + y : 0 <= x[i] < count[i], 0 <= y < run }, in that order, x[0] slowest.
/// Unit loops are dropped and loops that continue each other are one, so `ndim` is the least that describes the box.
template <int N>
struct strided_runs {
  index_t offset = 0;
  index_t run = 0;  // elements per run
  int ndim = 0;     // loops around the run
  index_t count[N] = {};
  index_t stride[N] = {};

  /// product of count[i]
  constexpr index_t runs() const {
    index_t product = run == 0 ? 0 : 1;
    for (int i = 0; i < ndim; ++i) product *= count[i];
    return product;
  }
  constexpr index_t elements() const { return runs() * run; }

  /// Calls sink(interval) with every run, in order.
  template <typename Sink>
  constexpr void for_each(Sink&& sink) const {
    if (run == 0) return;
    index_t x[N] = {};
    while (true) {
      index_t begin = offset;
      for (int i = 0; i < ndim; ++i) begin += x[i] * stride[i];
      sink(interval{begin, begin + run});
      int i = ndim - 1;
      for (; i >= 0; --i) {
        if (++x[i] < count[i]) break;
        x[i] = 0;
      }
      if (i < 0) return;
    }
  }
};

/// The runs of a box in a row-major array of `extent`: for_each visits flat_intervals(extent, b) in the same order.
template <int N>
constexpr strided_runs<N> contiguous_runs(const index_t (&extent)[N], const box<N>& b) {
  strided_runs<N> result;
  if (b.empty()) return result;
  result.offset = flat_hull(extent, b).begin;
  result.run = 1;
  index_t count[N] = {}, stride[N] = {};  // collected from the innermost loop outwards
  int loops = 0;
  index_t pitch = 1;
  for (int i = N - 1; i >= 0; --i) {
    const index_t size = b.dim[i].size();
    if (size > 1) {
      if (loops == 0 && pitch == result.run) {
        result.run *= size;
      } else if (loops > 0 && pitch == stride[loops - 1] * count[loops - 1]) {
        count[loops - 1] *= size;
      } else {
        count[loops] = size;
        stride[loops] = pitch;
        ++loops;
      }
    }
    pitch *= extent[i];
  }
  result.ndim = loops;
  for (int i = 0; i < loops; ++i) {
    result.count[i] = count[loops - 1 - i];
    result.stride[i] = stride[loops - 1 - i];
  }
  return result;
}

}  // namespace reshard
