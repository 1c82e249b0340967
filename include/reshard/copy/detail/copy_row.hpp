// SPDX-License-Identifier: Apache-2.0
// One row of runs, copied through the caches: the innermost dimension of a strided copy.
// Builds on: base/integer.hpp.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <reshard/base/integer.hpp>

namespace reshard::detail {

/// dst[i dst_stride + b] = src[i src_stride + b] for 0 <= i < count, 0 <= b < run_bytes.
struct copy_row {
  std::int64_t count;
  std::int64_t src_stride;
  std::int64_t dst_stride;
  std::int64_t run_bytes;
};
using row_copier = void (*)(std::byte* dst, const std::byte* src, const copy_row& row);

inline constexpr std::int64_t line_bytes = 64;
inline constexpr std::int64_t prefetch_bytes = 4096;  // of payload ahead of the copy: about a memory latency

inline void prefetch(const std::byte* at) noexcept {
#if defined(__GNUC__)
  __builtin_prefetch(at, 0, 3);
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

/// short_runs[ceil(log2 run)] for runs of 1 to 64 bytes; beyond, memcpy is as good.
inline constexpr row_copier short_runs[] = {copy_row_short<1>, copy_row_short<1>,  copy_row_short<2>, copy_row_short<4>,
                                            copy_row_short<8>, copy_row_short<16>, copy_row_short<32>};

inline row_copier choose_cached(std::int64_t run_bytes) noexcept {
  return run_bytes > 64 ? copy_row_long : short_runs[std::bit_width(static_cast<std::uint64_t>(run_bytes) - 1)];
}

}  // namespace reshard::detail
