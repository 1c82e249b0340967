// SPDX-License-Identifier: Apache-2.0
// Arithmetic of granules: memory in equal pieces that come and go whole, pages of 4 KiB where nobody says otherwise.
// Builds on: base/integer.hpp.
#pragma once

#include <reshard/base/integer.hpp>

namespace reshard {

/// A page, in which a host's memory is committed and given back: 4 KiB.
inline constexpr std::int64_t page_bytes = 4096;

/// The granules first <= g < last of a block; granule g holds the bytes [g * granule, (g + 1) * granule).
struct page_span {
  std::int64_t first = 0;
  std::int64_t last = 0;

  [[nodiscard]] constexpr std::int64_t count() const noexcept { return last > first ? last - first : 0; }
  constexpr bool operator==(const page_span&) const = default;
};

/// [floor(begin / granule), ceil(end / granule)): the granules that hold any byte of [begin, end), begin < end.
constexpr page_span pages_touching(std::int64_t begin_byte, std::int64_t end_byte,
                                   std::int64_t granule = page_bytes) noexcept {
  if (end_byte <= begin_byte) return {};
  return {begin_byte / granule, (end_byte - 1) / granule + 1};
}

/// [ceil(begin / granule), floor(end / granule)): the granules that lie entirely inside [begin, end).
constexpr page_span pages_inside(std::int64_t begin_byte, std::int64_t end_byte,
                                 std::int64_t granule = page_bytes) noexcept {
  const page_span span{(begin_byte + granule - 1) / granule, end_byte / granule};
  return span.count() > 0 ? span : page_span{};
}

}  // namespace reshard
