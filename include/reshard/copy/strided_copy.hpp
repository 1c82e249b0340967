// SPDX-License-Identifier: Apache-2.0
// An N-d strided copy between two byte arrays: row by row, through the caches or past them.
// Builds on: copy/detail/copy_row.hpp, copy/detail/streaming_row.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include <reshard/copy/detail/copy_row.hpp>
#include <reshard/copy/detail/copy_shape.hpp>
#include <reshard/copy/detail/streaming_row.hpp>

namespace reshard {

/// How runs move. The paths differ in time alone.
enum class copy_path {
  automatic,  ///< streaming where total_bytes() >= stream_from_bytes, else cached
  reference,  ///< one memcpy a run: what the others are measured against
  cached,     ///< fixed-size moves for short runs, memcpy for the others, the source prefetched
  streaming,  ///< stores past the caches where they fill whole lines, else as cached: for data that
              ///< is not in a cache yet, or of which more moves than the caches hold, in whatever tiles
};

/// Where streaming overtakes caching if one copy is made again and again (bench/copy/strided_copy.cpp).
inline constexpr std::int64_t stream_from_bytes = std::int64_t{8} << 20;

/// dst[o_dst + b] = src[o_src + b] for each run of the shape at the offsets o_dst and o_src, and
/// 0 <= b < run_bytes. The bytes written must be distinct from one another and from those read.
inline void copy(std::byte* dst, const std::byte* src, const copy_shape& shape, copy_path path = copy_path::automatic) {
  const copy_shape s = coalesce(shape);
  if (s.run_bytes == 0) return;
  const int outer = s.ndim > 0 ? s.ndim - 1 : 0;
  const detail::copy_row row =
      s.ndim > 0 ? detail::copy_row{s.extent[outer], s.src_stride[outer], s.dst_stride[outer], s.run_bytes}
                 : detail::copy_row{1, 0, 0, s.run_bytes};

  detail::row_copier copy_one =
      path == copy_path::reference ? detail::copy_row_reference : detail::choose_cached(s.run_bytes);
#if defined(__SSE2__)
  const bool large = path == copy_path::automatic && s.total_bytes() >= stream_from_bytes;
  const bool streams =
      (large || path == copy_path::streaming) && detail::fills_lines(reinterpret_cast<std::uintptr_t>(dst), s);
  if (streams) copy_one = detail::copy_row_streaming;
#endif

  std::int64_t index[max_copy_dims] = {};
  std::int64_t to = 0;
  std::int64_t from = 0;
  for (int d = outer; d >= 0;) {
    copy_one(dst + to, src + from, row);
    for (d = outer - 1; d >= 0; --d) {  // the innermost of the outer dimensions that can step, steps
      to += s.dst_stride[d];
      from += s.src_stride[d];
      if (++index[d] < s.extent[d]) break;
      to -= s.extent[d] * s.dst_stride[d];
      from -= s.extent[d] * s.src_stride[d];
      index[d] = 0;
    }
  }
#if defined(__SSE2__)
  if (streams) _mm_sfence();
#endif
}

}  // namespace reshard
