// SPDX-License-Identifier: Apache-2.0
// Memory that a switch may give back by granules: pages of a host, a device's allocation granules, or whole arrays. Its
// owner says how, by calls: nothing above knows mmap or a device's driver.
// Builds on: memory/detail/page_span.hpp, model/dtype.hpp, base/text.hpp.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <reshard/base/text.hpp>
#include <reshard/memory/detail/page_span.hpp>
#include <reshard/model/dtype.hpp>

namespace reshard {

/// Some bytes of the caller's, and the width and type of their elements where they are known.
struct memory {
  std::byte* data = nullptr;
  bytes_t bytes = 0;
  bytes_t element_bytes = 0;        // 0: bytes of any type
  std::optional<dtype> holds = {};  // none: elements of the state's type

  constexpr memory() = default;
  constexpr memory(std::byte* begin, bytes_t size) : data(begin), bytes(size) {}
  /// An array of a type of its own: std::byte and characters are bytes of any type.
  template <typename T>
  memory(std::span<T> array)
      : data(reinterpret_cast<std::byte*>(array.data())), bytes(static_cast<bytes_t>(array.size_bytes())),
        element_bytes(sizeof(T) == 1 ? 0 : static_cast<bytes_t>(sizeof(T))) {}
  template <typename T, typename Allocator>
  memory(std::vector<T, Allocator>& array) : memory(std::span<T>(array)) {}

  /// This memory with elements of a type that need not be the state's: they are converted on their way.
  memory as(dtype type) const {
    memory result = *this;
    result.holds = type;
    return result;
  }
};

/// Whether granules take memory from the first, or only once they are taken or written.
enum class pages_are { reserved, committed };

/// How granules come to be: by the first write, so that whoever copies may ask for them just before, while they are in
/// the cache; or only by `take`, which the switch calls ahead of the copies of a slot.
enum class granules_come { when_written, when_taken };

/// Where memory is. Devices are numbered by whoever has them; a host is one.
struct memory_place {
  enum class kind { host, pinned, device };
  kind is = kind::host;
  int number = 0;

  constexpr bool operator==(const memory_place&) const = default;
  std::string text() const {
    if (is == kind::device) return detail::text_of("device memory of device ", number);
    return is == kind::pinned ? "pinned host memory" : "host memory";
  }
};

/// Whole granules of a binding that may be given back, and by which calls: [begin, begin + granules granule).
struct memory_block {
  using call = std::function<void(std::byte* begin, bytes_t bytes)>;

  std::byte* begin = nullptr;
  std::int64_t granules = 0;
  bytes_t granule = page_bytes;  // bytes
  pages_are at_first = pages_are::reserved;
  granules_come come = granules_come::when_written;
  call take = {};  // none: writing is all that it takes
  call give_back = {};
  call reopen = {};  // before a switch writes to what may have been given back; none: it can be touched all the same

  const std::byte* end() const { return begin + granules * granule; }
  void release(page_span span) const { give_back(begin + span.first * granule, span.count() * granule); }
  void open_again() const {
    if (reopen) reopen(begin, granules * granule);
  }
  void commit(page_span span) const {
    if (take && at_first == pages_are::reserved) take(begin + span.first * granule, span.count() * granule);
  }
};

}  // namespace reshard
