// SPDX-License-Identifier: Apache-2.0
// page_range against what the kernel reports; and with a kernel that lacks MADV_POPULATE_WRITE, which madvise here can
// pretend. With RESHARD_WITHOUT_POPULATE_WRITE the C library's headers lack it too.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {
constexpr int populate_write = 23;  // of Linux 5.14
}
#ifdef RESHARD_WITHOUT_POPULATE_WRITE
#undef MADV_POPULATE_WRITE
#endif

namespace {
int refused_advice = -1, refused_with = 0;  // what madvise refuses, and the error
int populated = 0;                          // times that it was asked to populate
std::size_t small_pages = 0;                // bytes for which huge pages were declined last
long host_page = 4096;                      // what the host says of its pages
int mincore_answers = 1 << 20;              // calls of mincore that are answered before one fails

/// Take the place of the C library's.
long told_by_host(int name) { return name == _SC_PAGESIZE ? host_page : ::sysconf(name); }
int answered_mincore(void* at, std::size_t bytes, unsigned char* in_core) {
  if (mincore_answers-- > 0) return ::mincore(at, bytes, in_core);
  errno = EAGAIN;
  return -1;
}
}  // namespace

#define sysconf told_by_host
#define mincore answered_mincore
#include <reshard/memory/pages.hpp>
#undef sysconf
#undef mincore

/// Takes the place of the C library's.
extern "C" int madvise(void* at, std::size_t bytes, int advice) noexcept {
  populated += advice == populate_write ? 1 : 0;
  if (advice == MADV_NOHUGEPAGE) small_pages = bytes;
  if (advice == refused_advice) {
    errno = refused_with;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_madvise, at, bytes, advice));
}

using reshard::page_bytes;
using reshard::page_range;
using reshard::page_span;
using reshard::pages_inside;
using reshard::pages_touching;
using std::int64_t;

namespace {

template <class Error, class Act>
std::string refused(Act&& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "not refused";
}

bool mapped(const std::byte* page) {
  unsigned char in_core = 0;
  return ::mincore(const_cast<std::byte*>(page), static_cast<std::size_t>(page_bytes), &in_core) == 0;
}

static_assert(pages_touching(4095, 4097) == page_span{0, 2} && pages_touching(7, 7) == page_span{});
static_assert(pages_inside(1, 12288) == page_span{1, 3} && pages_inside(1, 8191) == page_span{});

}  // namespace

TEST_CASE("the pages of an interval of bytes: those that it touches, and those that lie inside") {
  for (int64_t begin = 0; begin <= 3 * page_bytes;
       begin += begin % page_bytes < 2 || begin % page_bytes == 4095 ? 1 : 4093)
    for (int64_t end = begin; end <= 3 * page_bytes;
         end += end % page_bytes < 2 || end % page_bytes == 4095 ? 1 : 4093) {
      page_span touched, inside;
      for (int64_t p = 2; p >= 0; --p) {
        const int64_t first = p * page_bytes, last = first + page_bytes;
        if (begin < end && begin < last && first < end) touched = {p, touched.count() == 0 ? p + 1 : touched.last};
        if (begin <= first && last <= end) inside = {p, inside.count() == 0 ? p + 1 : inside.last};
      }
      CAPTURE(begin);
      CAPTURE(end);
      CHECK(pages_touching(begin, end) == touched);
      CHECK(pages_inside(begin, end) == inside);
    }
  CHECK(page_span{2, 5}.count() == 3);
  CHECK(page_span{5, 5}.count() == 0);
  CHECK(page_span{5, 2}.count() == 0);
}

TEST_CASE("granules of any size, those that an interval touches and those inside of it, against every byte") {
  for (const int64_t granule : {1, 2, 3, 7})
    for (int64_t begin = 0; begin <= 16; ++begin)
      for (int64_t end = 0; end <= 16; ++end) {
        page_span touched, inside;
        for (int64_t g = 16; g >= 0; --g) {
          int64_t bytes = 0;
          for (int64_t byte = g * granule; byte < (g + 1) * granule; ++byte) bytes += begin <= byte && byte < end;
          if (bytes > 0) touched = {g, touched.count() == 0 ? g + 1 : touched.last};
          if (bytes == granule) inside = {g, inside.count() == 0 ? g + 1 : inside.last};
        }
        CAPTURE(granule);
        CAPTURE(begin);
        CAPTURE(end);
        CHECK(pages_touching(begin, end, granule) == touched);
        CHECK(pages_inside(begin, end, granule) == inside);
      }
}

TEST_CASE("a range of one byte is a page, which huge pages are declined for") {
  page_range one(1);
  CHECK(small_pages == 4096);
  CHECK(one.bytes() == page_bytes);
  CHECK(one.resident_bytes() == 0);
  one.commit(0, 1);
  CHECK(one.resident_bytes() == page_bytes);
  CHECK(one.release(0, page_bytes) == page_span{0, 1});
  CHECK(one.resident_bytes() == 0);
  const page_range more(4097);
  CHECK(small_pages == 8192);
}

TEST_CASE("a host with pages of another size is refused") {
  host_page = 16384;
  const std::string sentence = refused<std::invalid_argument>([] { page_range(1); });
  host_page = 4096;
  CHECK(sentence == "reshard: page_range: the host's pages are of 16384 bytes, not of 4096");
}

TEST_CASE("a range commits as it fills and gives back whole pages") {
  page_range range(10 * page_bytes - 5);
  CHECK(range.bytes() == 10 * page_bytes);
  CHECK(reinterpret_cast<std::uintptr_t>(range.data()) % 4096 == 0);
  CHECK(range.resident_bytes() == 0);

  std::memset(range.data() + 4096 + 100, 7, 5 * 4096);  // pages 1 to 6, the first and the last in part
  CHECK(range.resident_bytes() == 6 * page_bytes);
  CHECK(range.release(4096 + 100, 6 * 4096 + 100) == page_span{2, 6});
  CHECK(range.resident_bytes() == 2 * page_bytes);
  CHECK(range.data()[2 * 4096 - 1] == std::byte{7});
  CHECK(range.data()[6 * 4096] == std::byte{7});

  CHECK(range.release(2 * 4096 - 1, 2 * 4096 + 4095) == page_span{});  // holds no page
  CHECK(range.resident_bytes() == 2 * page_bytes);
  range.release(page_span{1, 2});  // by number: the whole page, whatever of it was written
  CHECK(range.resident_bytes() == page_bytes);
  CHECK(range.data()[2 * 4096 - 1] == std::byte{0});
  range.release(page_span{3, 3});
  range.release(0, range.bytes());
  CHECK(range.resident_bytes() == 0);
}

TEST_CASE("commit populates the pages that an interval touches and keeps what they hold") {
  page_range range(64 * page_bytes);
  range.data()[5 * 4096 + 3] = std::byte{42};
  range.commit(4 * 4096 + 4095, 7 * 4096 + 1);
  CHECK(range.resident_bytes() == 4 * page_bytes);
  CHECK(range.data()[5 * 4096 + 3] == std::byte{42});
  range.commit(100, 100);
  CHECK(range.resident_bytes() == 4 * page_bytes);
  range.commit(0, range.bytes());
  CHECK(range.resident_bytes() == range.bytes());
}

namespace {
/// While it lives, madvise refuses one advice.
struct refusing {
  refusing(int advice, int error) {
    refused_advice = advice;
    refused_with = error;
  }
  ~refusing() { refused_advice = -1; }
};
}  // namespace

TEST_CASE("the kernel is asked to populate where its headers know how") {
  page_range range(4 * page_bytes);
  populated = 0;
  range.commit(0, range.bytes());
#ifdef MADV_POPULATE_WRITE
  CHECK(populated == 1);
  range.commit(5000, 5000);  // no page, no call
  CHECK(populated == 1);
  static_assert(MADV_POPULATE_WRITE == populate_write);
#else
  CHECK(populated == 0);
#endif
}

TEST_CASE("a kernel that cannot populate has every page touched instead, and nothing of it changed") {
  for (const int error : {EINVAL, ENOSYS}) {
    const refusing old_kernel(populate_write, error);
    page_range range(64 * page_bytes);
    for (int64_t byte = 0; byte < 3 * page_bytes; ++byte)
      range.data()[5 * page_bytes + byte] = static_cast<std::byte>(byte % 251);
    range.commit(4 * page_bytes + 4095, 9 * page_bytes + 1);
    CHECK(range.resident_bytes() == 6 * page_bytes);
    bool kept = true;
    for (int64_t byte = 0; byte < 3 * page_bytes; ++byte)
      kept = kept && range.data()[5 * page_bytes + byte] == static_cast<std::byte>(byte % 251);
    CHECK(kept);
    range.commit(0, range.bytes());
    CHECK(range.resident_bytes() == range.bytes());
  }
}

TEST_CASE("pages that are touched while another thread writes them lose nothing") {
  const refusing old_kernel(populate_write, EINVAL);
  for (int round = 0; round < 20; ++round) {
    page_range range(40 * page_bytes);
    std::thread writer([&] {
      for (int64_t p = 0; p < 40; ++p)
        __atomic_store_n(reinterpret_cast<unsigned char*>(range.data() + p * page_bytes), 7, __ATOMIC_RELAXED);
    });
    range.commit(0, range.bytes());
    writer.join();
    int wrong = 0;
    for (int64_t p = 0; p < 40; ++p) wrong += range.data()[p * page_bytes] == std::byte{7} ? 0 : 1;
    CHECK(wrong == 0);
  }
}

TEST_CASE("what the kernel refuses otherwise is an error that says which bytes") {
  page_range range(8 * page_bytes);
#ifdef MADV_POPULATE_WRITE
  {
    const refusing full(populate_write, ENOMEM);
    CHECK(refused<std::system_error>([&] {
            range.commit(page_bytes, 3 * page_bytes);
          }).find("page_range: MADV_POPULATE_WRITE refused the 8192 bytes from byte 4096: ") == 0);
    CHECK(range.resident_bytes() == 0);
  }
#endif
  const refusing locked(MADV_DONTNEED, EINVAL);
  CHECK(refused<std::system_error>([&] {
          range.release(0, 2 * page_bytes + 1);
        }).find("page_range: MADV_DONTNEED refused the 8192 bytes from byte 0: ") == 0);
  range.release(page_span{3, 3});  // no page, no call
}

TEST_CASE("where the kernel does not say which pages it holds, the error says of which bytes") {
  const page_range range(20'000 * page_bytes);
  mincore_answers = 1;
  const std::string sentence = refused<std::system_error>([&] { static_cast<void>(range.resident_bytes()); });
  mincore_answers = 1 << 20;
  CHECK(sentence.find("page_range: mincore refused the 14811136 bytes from byte 67108864: ") == 0);
}

TEST_CASE("resident bytes are counted beyond one batch of mincore") {
  page_range range(40'000 * page_bytes);
  for (const int64_t page : {0, 16'383, 16'384, 32'768, 39'999}) range.data()[page * 4096] = std::byte{1};
  CHECK(range.resident_bytes() == 5 * page_bytes);
}

TEST_CASE("a range moves and unmaps what it held") {
  page_range first(3 * page_bytes);
  const std::byte* const at = first.data();
  page_range second(std::move(first));
  CHECK(second.data() == at);
  CHECK(first.data() == nullptr);  // NOLINT: the moved-from state is promised
  CHECK(first.bytes() == 0);
  CHECK(first.resident_bytes() == 0);
  const std::byte* kept = nullptr;
  {
    page_range third(page_bytes);
    kept = third.data();
    second = std::move(third);
    CHECK_FALSE(mapped(at));
  }
  CHECK(second.data() == kept);
  CHECK(second.bytes() == page_bytes);
  CHECK(mapped(kept));
  { const page_range last(std::move(second)); }
  CHECK_FALSE(mapped(kept));
}

TEST_CASE("refusals of a range say what was asked and what would do") {
  const std::string most = " bytes; the size must be in [1, 70368744177664]";
  CHECK(refused<std::invalid_argument>([] { page_range(0); }) ==
        "reshard: page_range: cannot reserve 0 bytes; the size must be in [1, 70368744177664]");
  CHECK(refused<std::invalid_argument>([] { page_range(-5); }) == "reshard: page_range: cannot reserve -5" + most);
  const std::string absurd = refused<std::invalid_argument>([] { page_range((int64_t{1} << 46) + 1); });
  CHECK(absurd.find("70368744177665 bytes; the size must be in [1, 70368744177664]") != std::string::npos);
  // Two such ranges do not fit into a 47-bit space, so the kernel refuses one of them.
  const std::string full = refused<std::system_error>(
      [] { page_range a(reshard::max_range_bytes), b(reshard::max_range_bytes), c(reshard::max_range_bytes); });
  CHECK(full.find("page_range: mmap refused the 70368744177664 bytes from byte 0: ") != std::string::npos);

  page_range range(2 * page_bytes);
  CHECK(refused<std::invalid_argument>([&] {
          range.commit(0, 8193);
        }).find("commit: [0, 8193) is no interval of [0, 8192)") != std::string::npos);
  CHECK(refused<std::invalid_argument>([&] { range.release(-1, 5); }).find("release: [-1, 5) is no") !=
        std::string::npos);
  CHECK(refused<std::invalid_argument>([&] { range.release(6, 5); }).find("release: [6, 5) is no") !=
        std::string::npos);
  CHECK(refused<std::invalid_argument>([&] {
          range.release(page_span{1, 3});
        }).find("pages: [1, 3) is no interval of [0, 2)") != std::string::npos);
}
