// SPDX-License-Identifier: Apache-2.0
// One row of runs, stored past the caches: four stretches of memory side by side, as memory serves several open pages
// faster than one after the other, and without prefetching, which the processor does better by itself then.
// Builds on: copy/detail/copy_row.hpp; on x86-64 SSE2, which every such processor has, so that nothing is dispatched on
// its model.
#pragma once

#include <algorithm>
#include <cstdlib>

#include <reshard/copy/detail/copy_row.hpp>
#include <reshard/copy/detail/copy_shape.hpp>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace reshard::detail {

/// Runs that are so long that their ends do not matter.
inline constexpr std::int64_t runs_of_any_place = 2048;

/// Streaming pays where it fills whole lines: runs of whole lines at lines' starts, runs that follow
/// one another in the destination in units of 16 bytes, or runs so long that their ends do not matter.
constexpr bool fills_lines(std::uintptr_t dst, const copy_shape& shape) noexcept {
  if (shape.run_bytes < line_bytes || shape.run_bytes >= runs_of_any_place) return shape.run_bytes >= runs_of_any_place;
  auto bits = dst | static_cast<std::uintptr_t>(shape.run_bytes);
  for (int d = 0; d < shape.ndim; ++d) bits |= static_cast<std::uintptr_t>(shape.dst_stride[d]);
  const bool dense = shape.ndim > 0 && shape.dst_stride[shape.ndim - 1] == shape.run_bytes;
  return bits % (dense ? 16 : line_bytes) == 0;
}

#if defined(__SSE2__)
inline constexpr std::int64_t open_page_bytes = 4096;
inline constexpr int lanes_beside = 4;
/// From here on the lines of four runs take turns; the shorter ones move whole, one after the other.
inline constexpr std::int64_t runs_by_lines = 1024;

/// Streams the 64 bytes at `from` to a multiple of 16.
inline void stream_line(std::byte* to, const std::byte* from) {
  const auto load = [from](int k) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + k)); };
  const auto store = [to](int k, __m128i v) { _mm_stream_si128(reinterpret_cast<__m128i*>(to + k), v); };
  const __m128i a = load(0), b = load(16), c = load(32), d = load(48);
  store(0, a), store(16, b), store(32, c), store(48, d);
}

/// Streams n bytes, n and `to` multiples of 16.
inline void stream(std::byte* to, const std::byte* from, std::int64_t n) {
  std::int64_t k = 0;
  for (; k + line_bytes <= n; k += line_bytes) stream_line(to + k, from + k);
  for (; k < n; k += 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + k), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + k)));
}

/// Streams n bytes of each of `lanes_beside` stretches, a line of each in turn; what is left of n by the last 63 bytes,
/// after them. Stretch i lies i `dst_apart` and i `src_apart` from the first; all destinations are multiples of 16, and
/// n is.
inline void stream_beside(std::byte* to, const std::byte* from, std::int64_t dst_apart, std::int64_t src_apart,
                          std::int64_t n) {
  const std::int64_t lines = n / line_bytes * line_bytes;
  for (std::int64_t k = 0; k < lines; k += line_bytes)
    for (int i = 0; i < lanes_beside; ++i) stream_line(to + i * dst_apart + k, from + i * src_apart + k);
  for (int i = 0; i < lanes_beside && lines < n; ++i)
    stream(to + i * dst_apart + lines, from + i * src_apart + lines, n - lines);
}

/// The bytes before a multiple of 16, at most n.
inline std::int64_t bytes_to_alignment(const std::byte* to, std::int64_t n) {
  return std::min((16 - static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % 16)) % 16, n);
}

/// One run, of any length and place: its pages by fours, then the rest.
inline void stream_run(std::byte* to, const std::byte* from, std::int64_t n) {
  constexpr std::int64_t block = lanes_beside * open_page_bytes;
  std::int64_t at = bytes_to_alignment(to, n);
  if (at != 0) std::memcpy(to, from, static_cast<std::size_t>(at));
  for (; at + block <= n; at += block)
    stream_beside(to + at, from + at, open_page_bytes, open_page_bytes, open_page_bytes);
  const std::int64_t body = (n - at) / 16 * 16, tail = n - at - body;
  stream(to + at, from + at, body);
  if (tail != 0) std::memcpy(to + at + body, from + at + body, static_cast<std::size_t>(tail));
}

/// Four runs that lie as far apart as those of stream_beside, at places that differ by multiples of 16.
inline void stream_runs_beside(std::byte* to, const std::byte* from, std::int64_t dst_apart, std::int64_t src_apart,
                               std::int64_t n) {
  const std::int64_t head = bytes_to_alignment(to, n), body = (n - head) / 16 * 16, tail = n - head - body;
  for (int i = 0; i < lanes_beside && head + tail != 0; ++i) {
    std::byte* const one = to + i * dst_apart;
    const std::byte* const of = from + i * src_apart;
    std::memcpy(one, of, static_cast<std::size_t>(head));
    std::memcpy(one + head + body, of + head + body, static_cast<std::size_t>(tail));
  }
  stream_beside(to + head, from + head, dst_apart, src_apart, body);
}

inline void copy_row_streaming(std::byte* dst, const std::byte* src, const copy_row& row) {
  const std::int64_t n = row.run_bytes;
  // four runs side by side are as many runs apart as a page has room for
  const std::int64_t group = std::max<std::int64_t>(
      1, open_page_bytes / std::max({std::abs(row.src_stride), std::abs(row.dst_stride), line_bytes}));
  const std::int64_t dst_apart = group * row.dst_stride, src_apart = group * row.src_stride;
  const bool by_lines = n >= runs_by_lines && row.dst_stride % 16 == 0 && n < lanes_beside * open_page_bytes;
  std::int64_t i = 0;
  if (by_lines || n < runs_by_lines)
    for (; i + lanes_beside * group <= row.count; i += lanes_beside * group)
      for (std::int64_t j = i; j < i + group; ++j) {
        std::byte* const to = dst + j * row.dst_stride;
        const std::byte* const from = src + j * row.src_stride;
        if (by_lines) {
          stream_runs_beside(to, from, dst_apart, src_apart, n);
        } else {
          for (int lane = 0; lane < lanes_beside; ++lane) stream(to + lane * dst_apart, from + lane * src_apart, n);
        }
      }
  for (; i < row.count; ++i) stream_run(dst + i * row.dst_stride, src + i * row.src_stride, n);
}
#endif

}  // namespace reshard::detail
