// SPDX-License-Identifier: Apache-2.0
// page_range against what the kernel reports, page_ledger against a model of every byte, and the two together.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "reshard/exec/pages.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

using reshard::page_bytes;
using reshard::page_ledger;
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

/// The ledger's meaning, byte by byte.
struct byte_model {
  std::vector<char> live;
  std::vector<char> committed;
  int64_t peak = 0;

  explicit byte_model(int64_t bytes)
      : live(static_cast<std::size_t>(bytes)), committed(static_cast<std::size_t>((bytes + 4095) / 4096)) {}

  int64_t pages() const { return static_cast<int64_t>(committed.size()); }
  int64_t live_in(int64_t page) const {
    const auto begin = live.begin() + page * 4096;
    return std::count(begin, std::min(begin + 4096, live.end()), 1);
  }
  int64_t committed_count() const { return std::count(committed.begin(), committed.end(), 1); }
  void set(int64_t begin, int64_t end, char state) {
    for (int64_t b = begin; b < end; ++b) {
      live[static_cast<std::size_t>(b)] = state;
      if (state != 0) committed[static_cast<std::size_t>(b / 4096)] = 1;
    }
    peak = std::max(peak, committed_count());
  }
  std::vector<page_span> settle() {
    std::vector<page_span> freed;
    for (int64_t p = 0; p < pages(); ++p) {
      if (committed[static_cast<std::size_t>(p)] == 0 || live_in(p) > 0) continue;
      committed[static_cast<std::size_t>(p)] = 0;
      if (!freed.empty() && freed.back().last == p)
        ++freed.back().last;
      else
        freed.push_back({p, p + 1});
    }
    return freed;
  }
};

constexpr int64_t constant_ledger() {
  page_ledger ledger(5 * page_bytes);
  ledger.fill(100, 9000);                                      // pages 0 to 2
  if (ledger.drain(100, 8192) != page_span{0, 2}) return -1;   // leaves 808 bytes of page 2
  if (ledger.drain(8192, 8300) != page_span{}) return -2;      // 700
  if (ledger.drain(8300, 9000) != page_span{2, 3}) return -3;  // none
  ledger.fill(4096, 4097);                                     // page 1 is wanted again
  int64_t code = 0;
  const int64_t freed = ledger.settle([&](page_span span) { code = code * 100 + span.first * 10 + span.last; });
  return code * 1000 + freed * 100 + ledger.committed_pages() * 10 + ledger.peak_pages();
}
static_assert(constant_ledger() == 123'213);  // spans [0, 1) and [2, 3): 01 then 23; 2 freed, 1 left, 3 at most
static_assert(pages_touching(4095, 4097) == page_span{0, 2} && pages_touching(7, 7) == page_span{});
static_assert(pages_inside(1, 12288) == page_span{1, 3} && pages_inside(1, 8191) == page_span{});

}  // namespace

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
  CHECK(refused<std::invalid_argument>([] { page_range(0); }).find("cannot reserve 0 bytes") != std::string::npos);
  CHECK(refused<std::invalid_argument>([] { page_range(-5); }).find("cannot reserve -5 bytes") != std::string::npos);
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

TEST_CASE("the ledger agrees with a model of every byte, and so does the kernel") {
  std::mt19937_64 random(20240607);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<std::uint64_t>(n)); };
  for (int round = 0; round < 60; ++round) {
    const int64_t bytes = 1 + below(9 * page_bytes);
    page_range range(bytes);
    page_ledger ledger(bytes);
    byte_model model(bytes);
    for (int step = 0; step < 120; ++step) {
      // A stretch of bytes in one state, a part of it at either end perhaps left as it is.
      int64_t begin = below(bytes);
      const char state = model.live[static_cast<std::size_t>(begin)];
      int64_t end = begin;
      while (end < bytes && model.live[static_cast<std::size_t>(end)] == state) ++end;
      while (begin > 0 && model.live[static_cast<std::size_t>(begin - 1)] == state) --begin;
      if (below(3) == 0) begin += below(end - begin);
      if (below(3) == 0) end -= below(end - begin);
      if (below(40) == 0) end = begin;

      const char now = state == 0 ? 1 : 0;
      model.set(begin, end, now);
      if (now == 1) {
        ledger.fill(begin, end);
        std::memset(range.data() + begin, 1, static_cast<std::size_t>(end - begin));
      } else {
        const page_span freed = ledger.drain(begin, end);
        for (int64_t p = 0; p < model.pages(); ++p) {
          const bool touched = begin < end && p >= begin / 4096 && p <= (end - 1) / 4096;
          REQUIRE((p >= freed.first && p < freed.last) == (touched && model.live_in(p) == 0));
        }
      }
      for (int64_t p = 0; p < model.pages(); ++p) REQUIRE(ledger.live_bytes_in(p) == model.live_in(p));
      REQUIRE(ledger.live_bytes() == std::count(model.live.begin(), model.live.end(), 1));
      REQUIRE(ledger.committed_pages() == model.committed_count());
      REQUIRE(ledger.peak_pages() == model.peak);
      if (below(4) == 0) {
        std::vector<page_span> spans;
        const int64_t before = ledger.committed_pages();
        const int64_t freed = ledger.settle([&](page_span span) {
          spans.push_back(span);
          range.release(span);
        });
        REQUIRE(spans == model.settle());
        REQUIRE(ledger.committed_pages() == before - freed);
        REQUIRE(ledger.committed_pages() == model.committed_count());
      }
      REQUIRE(range.resident_bytes() == page_bytes * ledger.committed_pages());
    }
  }
}

TEST_CASE("settling twice, or a page drained twice, frees it once") {
  page_ledger ledger(4 * page_bytes);
  ledger.fill(0, 4 * page_bytes);
  ledger.drain(page_bytes, 2 * page_bytes);
  ledger.fill(page_bytes, page_bytes + 1);
  ledger.drain(page_bytes, page_bytes + 1);
  int64_t pages = 0;
  const auto count = [&](page_span span) { pages += span.count(); };
  CHECK(ledger.settle(count) == 1);
  CHECK(ledger.settle(count) == 0);
  CHECK(pages == 1);
  CHECK(ledger.committed_pages() == 3);
  CHECK(ledger.peak_pages() == 4);
}

TEST_CASE("drains out of order settle as one span") {
  page_ledger ledger(8 * page_bytes);
  ledger.fill(0, 8 * page_bytes);
  for (const int64_t p : {6, 3, 5, 2, 4}) ledger.drain(p * page_bytes, (p + 1) * page_bytes);
  std::vector<page_span> spans;
  ledger.settle([&](page_span span) { spans.push_back(span); });
  CHECK(spans == std::vector<page_span>{{2, 7}});
}

TEST_CASE("refusals of a ledger say which bytes") {
  page_ledger ledger(2 * page_bytes);
  ledger.fill(0, 4000);
  CHECK(refused<std::invalid_argument>([&] {
          ledger.fill(3000, 4096);
        }).find("page_ledger::fill: 1096 bytes in a page that has 4000 live") != std::string::npos);
  CHECK(refused<std::invalid_argument>([&] {
          ledger.drain(4096, 4097);
        }).find("page_ledger::drain: 1 bytes in a page that has 0 live") != std::string::npos);
  CHECK(refused<std::invalid_argument>([&] {
          ledger.fill(8000, 8193);
        }).find("page_ledger::fill: [8000, 8193) is no interval of [0, 8192)") != std::string::npos);
  CHECK(refused<std::invalid_argument>([&] { ledger.drain(-1, 3); }).find("[-1, 3)") != std::string::npos);
  CHECK(refused<std::invalid_argument>([] { page_ledger(-1); }).find("page_ledger: [0, -1)") != std::string::npos);
  CHECK(ledger.live_bytes() == 4000);
  CHECK(page_ledger(0).committed_pages() == 0);
}
