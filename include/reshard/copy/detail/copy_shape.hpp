// SPDX-License-Identifier: Apache-2.0
// The shape of an N-d strided copy: runs of contiguous bytes, at a stride of its own on either side in each dimension;
// and the same shape in the fewest dimensions. Builds on: base/integer.hpp.
#pragma once

#include <cstdint>

#include <reshard/base/integer.hpp>

namespace reshard {

/// Dimensions of a copy_shape, at most.
inline constexpr int max_copy_dims = 8;

/// The runs { [sum_d i_d * stride_d, + run_bytes) : 0 <= i_d < extent_d } on either side, strides
/// and runs in bytes; dimension ndim - 1 is the innermost. ndim = 0 is one run.
struct copy_shape {
  int ndim = 0;
  std::int64_t extent[max_copy_dims] = {};
  std::int64_t src_stride[max_copy_dims] = {};
  std::int64_t dst_stride[max_copy_dims] = {};
  std::int64_t run_bytes = 0;

  /// run_bytes * prod_d extent_d
  [[nodiscard]] constexpr std::int64_t total_bytes() const noexcept {
    std::int64_t total = run_bytes;
    for (int d = 0; d < ndim; ++d) total *= extent[d];
    return total;
  }
  constexpr bool operator==(const copy_shape&) const = default;
};

/// The copy in the fewest dimensions: unit dimensions dropped, each dimension contiguous on
/// both sides merged into the next inner one, or into the run. The order of the runs stays, so does
/// total_bytes(); an empty copy becomes copy_shape{}. coalesce(coalesce(s)) = coalesce(s).
constexpr copy_shape coalesce(const copy_shape& shape) {
  if (shape.ndim < 0 || shape.ndim > max_copy_dims)
    refuse("a copy_shape of ", shape.ndim, " dimensions; there may be 0 to ", max_copy_dims);
  if (shape.run_bytes < 0) refuse("a copy_shape with runs of ", shape.run_bytes, " bytes");
  copy_shape out;
  out.run_bytes = shape.run_bytes;
  bool empty = shape.run_bytes == 0;
  for (int d = 0; d < shape.ndim; ++d) {
    const std::int64_t extent = shape.extent[d];
    if (extent < 0) refuse("a copy_shape whose dimension ", d, " has the extent ", extent);
    empty = empty || extent == 0;
    if (empty || extent == 1) continue;
    const int outer = out.ndim - 1;
    const bool merges = outer >= 0 && out.src_stride[outer] == checked_multiply(extent, shape.src_stride[d]) &&
                        out.dst_stride[outer] == checked_multiply(extent, shape.dst_stride[d]);
    const int at = merges ? outer : out.ndim++;
    out.extent[at] = merges ? checked_multiply(out.extent[at], extent) : extent;
    out.src_stride[at] = shape.src_stride[d];
    out.dst_stride[at] = shape.dst_stride[d];
  }
  if (empty) return {};
  const int last = out.ndim - 1;
  if (last >= 0 && out.src_stride[last] == out.run_bytes && out.dst_stride[last] == out.run_bytes) {
    out.run_bytes = checked_multiply(out.run_bytes, out.extent[last]);
    out.extent[last] = out.src_stride[last] = out.dst_stride[last] = 0;
    out.ndim = last;
  }
  return out;
}

}  // namespace reshard
