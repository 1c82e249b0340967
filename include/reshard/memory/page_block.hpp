// SPDX-License-Identifier: Apache-2.0
// Memory that a switch may give back by pages: the library's page_range, or memory of an owner who releases it.
// Builds on: memory/pages.hpp, base/integer.hpp.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include <reshard/base/integer.hpp>
#include <reshard/memory/pages.hpp>

namespace reshard {

/// Some bytes of the caller's, and the width of their elements where it is known.
struct memory {
  std::byte* data = nullptr;
  bytes_t bytes = 0;
  bytes_t element_bytes = 0;  // 0: bytes of any type

  constexpr memory() = default;
  constexpr memory(std::byte* begin, bytes_t size) : data(begin), bytes(size) {}
  /// An array of a type of its own: std::byte and characters are bytes of any type.
  template <typename T>
  memory(std::span<T> array)
      : data(reinterpret_cast<std::byte*>(array.data())), bytes(static_cast<bytes_t>(array.size_bytes())),
        element_bytes(sizeof(T) == 1 ? 0 : static_cast<bytes_t>(sizeof(T))) {}
  template <typename T, typename Allocator>
  memory(std::vector<T, Allocator>& array) : memory(std::span<T>(array)) {}
};

/// Whether pages take memory from the first, or only once they are written.
enum class pages_are { reserved, committed };

/// Whole pages of a binding that may be given back: a page_range of the library's kind, or memory of an owner who
/// releases it.
struct page_block {
  std::byte* begin = nullptr;
  std::int64_t pages = 0;
  pages_are at_first = pages_are::reserved;
  page_range* range = nullptr;
  std::function<void(std::byte*, bytes_t)> give_back;

  const std::byte* end() const { return begin + pages * page_bytes; }
  void release(page_span span) const {
    if (range != nullptr) range->release(span);
    else give_back(begin + span.first * page_bytes, span.count() * page_bytes);
  }
  void commit(page_span span) const {
    if (range != nullptr && at_first == pages_are::reserved)
      range->commit(span.first * page_bytes, span.last * page_bytes);
  }
};

}  // namespace reshard
