// SPDX-License-Identifier: Apache-2.0
// Memory that is reserved whole, committed by 4 KiB pages as it fills and given back by pages as it drains.
// Builds on: memory/memory_block.hpp and Linux's mmap, madvise, mincore, mprotect.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include <reshard/base/refusal.hpp>
#include <reshard/memory/memory_block.hpp>

namespace reshard {

inline constexpr std::int64_t max_range_bytes = std::int64_t{1} << 46;  // half of a 47-bit space

namespace detail {
constexpr void check_interval(const char* what, std::int64_t begin, std::int64_t end, std::int64_t bytes) {
  if (begin < 0 || end < begin || end > bytes)
    refuse(what, ": [", begin, ", ", end, ") is no interval of [0, ", bytes, ")");
}
}  // namespace detail

/// A reservation of address space: reading or writing a page commits it, release gives it back (it then reads as zeros;
/// what a switch gives back cannot be read at all in a debug build). Distinct pages may be used, committed and released
/// from distinct threads.
class page_range {
 public:
  /// Reserves ceil(bytes / 4096) pages and commits none.
  explicit page_range(std::int64_t bytes) {
    if (bytes <= 0 || bytes > max_range_bytes)
      refuse("page_range: cannot reserve ", bytes, " bytes; the size must be in [1, ", max_range_bytes, "]");
    if (const long host = ::sysconf(_SC_PAGESIZE); host != page_bytes)
      refuse("page_range: the host's pages are of ", host, " bytes, not of ", page_bytes);
    const std::int64_t rounded = pages_touching(0, bytes).count() * page_bytes;
    void* at = ::mmap(nullptr, static_cast<std::size_t>(rounded), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) fail("mmap", 0, rounded);
    data_ = static_cast<std::byte*>(at);
    bytes_ = rounded;
    // A kernel built without huge pages answers EINVAL and has 4 KiB pages anyway.
    static_cast<void>(::madvise(at, static_cast<std::size_t>(rounded), MADV_NOHUGEPAGE));
  }
  page_range(page_range&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  page_range& operator=(page_range&& other) noexcept {
    page_range taken(std::move(other));
    std::swap(data_, taken.data_);
    std::swap(bytes_, taken.bytes_);
    return *this;
  }
  ~page_range() {
    if (data_ != nullptr) ::munmap(data_, static_cast<std::size_t>(bytes_));
  }

  [[nodiscard]] std::byte* data() noexcept { return data_; }
  [[nodiscard]] const std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

  /// Commits pages_touching(begin, end) in one call; what they hold stays.
  void commit(std::int64_t begin_byte, std::int64_t end_byte) {
    detail::check_interval("page_range::commit", begin_byte, end_byte, bytes_);
    const page_span span = pages_touching(begin_byte, end_byte);
    if (span.count() == 0) return;
    guard(data_ + span.first * page_bytes, span.count() * page_bytes, PROT_READ | PROT_WRITE);
#ifdef MADV_POPULATE_WRITE
    if (advise(span, MADV_POPULATE_WRITE) == 0) return;
    if (errno != EINVAL && errno != ENOSYS)
      fail("MADV_POPULATE_WRITE", span.first * page_bytes, span.last * page_bytes);
#endif
    touch(span);
  }

  /// Gives back pages_inside(begin, end), and says which they are. A page at an edge, part of
  /// which lies outside, stays: whoever knows that the rest of it is dead too names it as a span.
  page_span release(std::int64_t begin_byte, std::int64_t end_byte) {
    detail::check_interval("page_range::release", begin_byte, end_byte, bytes_);
    const page_span span = pages_inside(begin_byte, end_byte);
    release(span);
    return span;
  }
  /// Gives back exactly these pages.
  void release(page_span span) {
    detail::check_interval("page_range::release, pages", span.first, span.last, bytes_ / page_bytes);
    if (span.count() > 0 && advise(span, MADV_DONTNEED) != 0)
      fail("MADV_DONTNEED", span.first * page_bytes, span.last * page_bytes);
  }

  /// The range as a block of a binding, in pages: these are the calls that commit and release it. Outlives the block.
  [[nodiscard]] memory_block block(pages_are at_first = pages_are::reserved) {
    return {.begin = data_,
            .granules = bytes_ / page_bytes,
            .at_first = at_first,
            .take = [this](std::byte* at, bytes_t bytes) { commit(at - data_, at - data_ + bytes); },
            .give_back =
                [this](std::byte* at, bytes_t bytes) {
                  release(at - data_, at - data_ + bytes);
                  guard(at, bytes, PROT_NONE);
                },
            .reopen = [](std::byte* at, bytes_t bytes) { guard(at, bytes, PROT_READ | PROT_WRITE); }};
  }

  /// 4096 * |{p : the kernel holds page p for us}|, by mincore: on private anonymous memory it
  /// answers as /proc/self/pagemap does, without needing /proc. A page read but never written
  /// counts (it maps the shared zero page); a page in swap does not.
  [[nodiscard]] std::int64_t resident_bytes() const {
    std::array<unsigned char, 16384> in_core;  // mincore writes what is read
    constexpr auto step = static_cast<std::int64_t>(in_core.size());
    std::int64_t pages = 0;
    for (page_span at{0, 0}; at.first < bytes_ / page_bytes; at.first = at.last) {
      at.last = std::min(at.first + step, bytes_ / page_bytes);
      if (::mincore(data_ + at.first * page_bytes, static_cast<std::size_t>(at.count() * page_bytes), in_core.data()) !=
          0)
        fail("mincore", at.first * page_bytes, at.last * page_bytes);
      pages +=
          std::count_if(in_core.begin(), in_core.begin() + at.count(), [](unsigned char c) { return (c & 1U) != 0; });
    }
    return pages * page_bytes;
  }

 private:
  [[noreturn]] static void fail(const char* call, std::int64_t begin, std::int64_t end) {
    const int error = errno;
    throw std::system_error(
        error, std::generic_category(),
        detail::text_of("page_range: ", call, " refused the ", end - begin, " bytes from byte ", begin));
  }
  /// In debug builds, what may be done with pages: who reads what was given back is stopped there. Where the kernel has
  /// no room for more mappings it stays as it is.
  static void guard([[maybe_unused]] std::byte* at, [[maybe_unused]] bytes_t bytes, [[maybe_unused]] int access) {
#if !defined(NDEBUG) && !defined(__OPTIMIZE__)
    static_cast<void>(::mprotect(at, static_cast<std::size_t>(bytes), access));
#endif
  }
  int advise(page_span span, int advice) noexcept {
    return ::madvise(data_ + span.first * page_bytes, static_cast<std::size_t>(span.count() * page_bytes), advice);
  }
  /// The write of commit for a kernel without MADV_POPULATE_WRITE (before 5.14): byte |= 0, atomically.
  void touch(page_span span) noexcept {
    for (std::int64_t p = span.first; p < span.last; ++p)
      __atomic_fetch_or(reinterpret_cast<unsigned char*>(data_ + p * page_bytes), 0, __ATOMIC_RELAXED);
  }

  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace reshard
