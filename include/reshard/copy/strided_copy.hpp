// SPDX-License-Identifier: Apache-2.0
// An N-d strided copy between two byte arrays. Builds on: copy/copy_shape.hpp; on x86-64 also SSE2, which every such
// processor has, so that nothing is dispatched on the processor's model.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <reshard/copy/copy_shape.hpp>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

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

namespace detail {

/// One innermost dimension: count runs.
struct copy_row {
  std::int64_t count;
  std::int64_t src_stride;
  std::int64_t dst_stride;
  std::int64_t run_bytes;
};
using row_copier = void (*)(std::byte* dst, const std::byte* src, const copy_row& row);

inline constexpr std::int64_t line_bytes = 64;
inline constexpr std::int64_t prefetch_bytes = 4096;  // of payload ahead of the copy: about a memory latency

/// Into all caches, or with locality 0 past them: for a line that is read once.
template <int Locality = 3>
void prefetch(const std::byte* at) noexcept {
#if defined(__GNUC__)
  __builtin_prefetch(at, 0, Locality);
#else
  static_cast<void>(at);
#endif
}

inline void copy_row_reference(std::byte* dst, const std::byte* src, const copy_row& row) {
  for (std::int64_t i = 0; i < row.count; ++i)
    std::memcpy(dst + i * row.dst_stride, src + i * row.src_stride, static_cast<std::size_t>(row.run_bytes));
}

/// Runs of Half <= run <= 2 * Half bytes, as their first and last Half bytes: moves of a constant
/// size, which the compiler turns into vector loads and stores.
template <std::int64_t Half>
void copy_row_short(std::byte* dst, const std::byte* src, const copy_row& row) {
  const std::int64_t ahead = prefetch_bytes / row.run_bytes;
  const std::int64_t second = row.run_bytes - Half;
  for (std::int64_t i = 0; i < row.count; ++i) {
    std::byte* to = dst + i * row.dst_stride;
    const std::byte* from = src + i * row.src_stride;
    if (i + ahead < row.count) prefetch(from + ahead * row.src_stride);
    std::memcpy(to, from, Half);
    std::memcpy(to + second, from + second, Half);
  }
}

/// Runs by memcpy, each one prefetched while those before it move.
inline void copy_row_long(std::byte* dst, const std::byte* src, const copy_row& row) {
  const std::int64_t ahead = row.run_bytes < prefetch_bytes ? prefetch_bytes / row.run_bytes : row.count;
  for (std::int64_t i = 0; i < row.count; ++i) {
    const std::byte* from = src + i * row.src_stride;
    if (i + ahead < row.count)
      for (std::int64_t k = 0; k < row.run_bytes; k += line_bytes) prefetch(from + ahead * row.src_stride + k);
    std::memcpy(dst + i * row.dst_stride, from, static_cast<std::size_t>(row.run_bytes));
  }
}

#if defined(__SSE2__)
/// Streams n bytes to dst, both multiples of 16; the source is prefetched `ahead` bytes further on.
inline void stream(std::byte* dst, const std::byte* src, std::int64_t n, std::int64_t ahead) {
  const auto load = [&](std::int64_t k) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(src + k)); };
  const auto store = [&](std::int64_t k, __m128i v) { _mm_stream_si128(reinterpret_cast<__m128i*>(dst + k), v); };
  std::int64_t k = 0;
  for (; k + line_bytes <= n; k += line_bytes) {
    prefetch<0>(src + k + ahead);
    const __m128i a = load(k), b = load(k + 16), c = load(k + 32), d = load(k + 48);
    store(k, a), store(k + 16, b), store(k + 32, c), store(k + 48, d);
  }
  for (; k < n; k += 16) store(k, load(k));
}

inline void copy_row_streaming(std::byte* dst, const std::byte* src, const copy_row& row) {
  const std::int64_t ahead = row.run_bytes < prefetch_bytes ? prefetch_bytes / row.run_bytes : 1;
  for (std::int64_t i = 0; i < row.count; ++i) {
    std::byte* to = dst + i * row.dst_stride;
    const std::byte* from = src + i * row.src_stride;
    const auto misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % 16);
    const std::int64_t head = std::min((16 - misaligned) % 16, row.run_bytes);
    const std::int64_t body = (row.run_bytes - head) / 16 * 16;
    const std::int64_t tail = row.run_bytes - head - body;
    const std::int64_t next = i + ahead < row.count ? ahead * row.src_stride : 0;
    // Ahead within the run as far as it goes, then from its last prefetch_bytes into a run to come.
    const std::int64_t inside = body > prefetch_bytes ? (body - prefetch_bytes) / line_bytes * line_bytes : 0;
    if (head != 0) std::memcpy(to, from, static_cast<std::size_t>(head));
    stream(to + head, from + head, inside, prefetch_bytes);
    stream(to + head + inside, from + head + inside, body - inside, next == 0 ? 0 : next - inside);
    if (tail != 0) std::memcpy(to + head + body, from + head + body, static_cast<std::size_t>(tail));
  }
}
#endif

/// Streaming pays where it fills whole lines: runs of whole lines at lines' starts, runs that follow
/// one another in the destination in units of 16 bytes, or runs so long that their ends do not matter.
constexpr bool fills_lines(std::uintptr_t dst, const copy_shape& shape) noexcept {
  if (shape.run_bytes < line_bytes || shape.run_bytes >= 2048) return shape.run_bytes >= 2048;
  auto bits = dst | static_cast<std::uintptr_t>(shape.run_bytes);
  for (int d = 0; d < shape.ndim; ++d) bits |= static_cast<std::uintptr_t>(shape.dst_stride[d]);
  const bool dense = shape.ndim > 0 && shape.dst_stride[shape.ndim - 1] == shape.run_bytes;
  return bits % (dense ? 16 : line_bytes) == 0;
}

/// short_runs[ceil(log2 run)] for runs of 1 to 64 bytes; beyond, memcpy is as good.
inline constexpr row_copier short_runs[] = {copy_row_short<1>, copy_row_short<1>,  copy_row_short<2>, copy_row_short<4>,
                                            copy_row_short<8>, copy_row_short<16>, copy_row_short<32>};

inline row_copier choose_cached(std::int64_t run_bytes) noexcept {
  return run_bytes > 64 ? copy_row_long : short_runs[std::bit_width(static_cast<std::uint64_t>(run_bytes) - 1)];
}
}  // namespace detail

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
