// SPDX-License-Identifier: Apache-2.0
// Intervals as sets: every interval with small ends, as a mask of its members. (algebra/box.cpp asks the same of
// products.)
#include <doctest/doctest.h>

#include <vector>

#include <reshard/algebra/interval.hpp>

using namespace reshard;

namespace {
constexpr index_t low = -2, high = 5;

/// Bit x - low for every member x in [low, high).
unsigned members(interval a) {
  unsigned mask = 0;
  for (index_t x = low; x < high; ++x)
    if (a.begin <= x && x < a.end) mask |= 1u << (x - low);
  return mask;
}
std::vector<interval> all_intervals() {
  std::vector<interval> all;
  for (index_t begin = low; begin <= high; ++begin)
    for (index_t end = low; end <= high; ++end) all.push_back({begin, end});
  return all;
}
}  // namespace

TEST_CASE("an interval is the set of its members: size, emptiness, membership") {
  for (const interval a : all_intervals()) {
    CHECK(a.size() == __builtin_popcount(members(a)));
    CHECK(a.empty() == (members(a) == 0));
    for (index_t x = low; x < high; ++x) CHECK(a.contains(x) == ((members(a) >> (x - low) & 1u) != 0));
    CHECK_FALSE(a.contains(a.end));
  }
}

TEST_CASE("intersection and inclusion are those of sets; intervals that touch do not meet") {
  for (const interval a : all_intervals())
    for (const interval b : all_intervals()) {
      CHECK(members(intersect(a, b)) == (members(a) & members(b)));
      CHECK(intersects(a, b) == ((members(a) & members(b)) != 0));
      CHECK(a.contains(b) == ((members(b) & ~members(a)) == 0));
    }
}

TEST_CASE("a translation moves both ends; equality is that of the ends") {
  CHECK(translate({2, 5}, 4) == interval{6, 9});
  CHECK(translate({2, 5}, -4) == interval{-2, 1});
  CHECK_FALSE(interval{2, 5} == interval{2, 6});
  CHECK_FALSE(interval{1, 5} == interval{2, 5});
}

TEST_CASE("an even split: parts follow each other, fill the interval, and differ by one element at most") {
  for (index_t begin = -3; begin <= 9; begin += 6)
    for (index_t size = 0; size <= 17; ++size)
      for (index_t parts = 1; parts <= 7; ++parts) {
        index_t reached = begin;
        for (index_t i = 0; i < parts; ++i) {
          const interval part = even_part({begin, begin + size}, i, parts);
          CHECK(part.begin == reached);
          CHECK(part.end - part.begin >= size / parts);
          CHECK(part.end - part.begin <= size / parts + 1);
          reached = part.end;
        }
        CHECK(reached == begin + size);
      }
}

TEST_CASE("an even split of 2^62 is exact, though 2^62 x 3 does not fit 64 bits") {
  const index_t quarter = index_t{1} << 60, whole = 4 * quarter;
  for (index_t i = 0; i < 4; ++i) CHECK(even_part({0, whole}, i, 4) == interval{i * quarter, (i + 1) * quarter});
  const index_t third = (whole - 1) / 3;  // 2^62 = 3 x third + 1
  CHECK(even_part({0, whole}, 0, 3) == interval{0, third});
  CHECK(even_part({0, whole}, 1, 3) == interval{third, 2 * third});
  CHECK(even_part({0, whole}, 2, 3) == interval{2 * third, whole});
}

TEST_CASE("torch's chunk(): parts of ceil(size / parts) follow each other, and the last are shorter or empty") {
  for (index_t begin : {0, 5})
    for (index_t size = 0; size <= 9; ++size)
      for (index_t parts = 1; parts <= 6; ++parts) {
        index_t each = 0, next = begin;
        while (each * parts < size) ++each;
        for (index_t i = 0; i < parts; ++i) {
          const interval part = chunk_part({begin, begin + size}, i, parts);
          const index_t left = begin + size - next;
          CHECK(part.size() == (left < each ? left : each));
          if (!part.empty()) CHECK(part.begin == next);
          next += part.size();
        }
        CHECK(next == begin + size);
      }
  static_assert(chunk_part({0, 151665}, 0, 2) == interval{0, 75833});
  static_assert(chunk_part({0, 151665}, 1, 2) == interval{75833, 151665});
  static_assert(chunk_part({0, 5}, 3, 4).empty());
}

TEST_CASE("equal parts of [0, extent) are extent / parts long") {
  for (index_t size = 0; size <= 4; ++size)
    for (index_t parts = 1; parts <= 5; ++parts)
      for (index_t i = 0; i < parts; ++i)
        CHECK(equal_part(size * parts, i, parts) == interval{i * size, i * size + size});
}
