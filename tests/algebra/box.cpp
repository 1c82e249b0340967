// SPDX-License-Identifier: Apache-2.0
// Intervals and boxes, every operation against membership of single coordinates.
#include <doctest/doctest.h>

#include <algorithm>
#include <new>
#include <vector>

#include <reshard/algebra/box.hpp>

#include "../support/points.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using testing::dice, testing::each_point, testing::occurrences, testing::random_box, testing::refused,
    testing::tabulate;

namespace {
std::vector<interval> small_intervals() {
  std::vector<interval> all;
  for (index_t begin = -2; begin <= 4; ++begin)
    for (index_t end = -2; end <= 4; ++end) all.push_back({begin, end});
  return all;
}

template <int N>
box<N> cube(index_t low, index_t high) {
  box<N> result{};
  for (interval& i : result.dim) i = {low, high};
  return result;
}

template <int N>
void check_boxes() {
  CAPTURE(N);
  const box<N> universe = cube<N>(-1, 5);
  dice random(N);
  for (int n = 0; n < 300; ++n) {
    const box<N> a = random_box<N>(random, 0, 4), b = random_box<N>(random, 0, 4);
    CAPTURE(testing::text(a));
    CAPTURE(testing::text(b));
    const auto in = [](const box<N>& x) { return [x](const index_t(&p)[N]) { return x.contains(p) ? 1 : 0; }; };
    const std::vector<int> in_a = tabulate(universe, in(a)), in_b = tabulate(universe, in(b));
    const auto count = [](const std::vector<int>& members) { return std::count(members.begin(), members.end(), 1); };
    std::vector<int> both = in_a, only_a = in_a;
    for (std::size_t i = 0; i < both.size(); ++i) both[i] &= in_b[i], only_a[i] &= 1 - in_b[i];

    CHECK(a.volume() == count(in_a));
    CHECK(a.empty() == (count(in_a) == 0));
    CHECK(tabulate(universe, in(intersect(a, b))) == both);
    CHECK(intersects(a, b) == (count(both) > 0));
    CHECK(a.contains(b) == (both == in_b));

    std::vector<box<N>> parts;
    subtract(a, b, [&](const box<N>& part) { parts.push_back(part); });
    CHECK(occurrences(universe, parts) == only_a);  // 0 or 1 times each: disjoint, and no more than the difference
    CHECK(parts.size() <= 2 * N);
    CHECK(std::none_of(parts.begin(), parts.end(), [](const box<N>& part) { return part.empty(); }));

    index_t by[N];
    for (index_t& d : by) d = random.within(-3, 3);
    const box<N> moved = translate(a, by);
    CHECK(moved.volume() == a.volume());
    each_point(a, [&](const index_t(&x)[N]) {
      index_t y[N];
      for (int i = 0; i < N; ++i) y[i] = x[i] + by[i];
      CHECK(moved.contains(y));
    });
  }

  std::vector<box<N>> hole;
  subtract(cube<N>(0, 3), cube<N>(1, 2), [&](const box<N>& part) { hole.push_back(part); });
  CHECK(hole.size() == 2 * N);  // the bound is reached
}

/// (lower corner, upper corner) as one list of numbers, whose own order is lexicographic.
template <int N>
std::vector<index_t> corners(const box<N>& b) {
  std::vector<index_t> numbers;
  for (const interval& i : b.dim) numbers.push_back(i.begin);
  for (const interval& i : b.dim) numbers.push_back(i.end);
  return numbers;
}
}  // namespace

TEST_CASE("interval: size, membership, intersection, translation") {
  for (const interval a : small_intervals()) {
    index_t size = 0;
    for (index_t x = -3; x <= 5; ++x) size += a.contains(x) ? 1 : 0;
    CHECK(a.size() == size);
    CHECK(a.empty() == (size == 0));
    for (const interval b : small_intervals()) {
      bool subset = true, meet = false;
      for (index_t x = -3; x <= 5; ++x) {
        const bool in_a = a.begin <= x && x < a.end, in_b = b.begin <= x && x < b.end;
        CHECK(a.contains(x) == in_a);
        CHECK(intersect(a, b).contains(x) == (in_a && in_b));
        CHECK(translate(a, b.begin).contains(x + b.begin) == in_a);
        subset &= in_a || !in_b;
        meet |= in_a && in_b;
      }
      CHECK(a.contains(b) == subset);
      CHECK(intersects(a, b) == meet);
    }
  }
}

TEST_CASE("even_part: part i is [floor(i E / P), floor((i + 1) E / P)), so the parts follow each other") {
  for (index_t begin : {-3, 0, 7})
    for (index_t extent = 0; extent <= 20; ++extent)
      for (index_t parts = 1; parts <= 9; ++parts)
        for (index_t i = 0; i < parts; ++i)
          CHECK(even_part({begin, begin + extent}, i, parts) ==
                interval{begin + i * extent / parts, begin + (i + 1) * extent / parts});
}

TEST_CASE("equal_part is even_part where the parts divide the extent") {
  for (index_t size = 0; size <= 5; ++size)
    for (index_t parts = 1; parts <= 6; ++parts)
      for (index_t i = 0; i < parts; ++i)
        CHECK(equal_part(size * parts, i, parts) == even_part({0, size * parts}, i, parts));
}

TEST_CASE("box: volume, membership, intersection, subtraction and translation in 1 to 4 dimensions") {
  check_boxes<1>();
  check_boxes<2>();
  check_boxes<3>();
  check_boxes<4>();
}

TEST_CASE("an intersection is N intervals long: what lies behind the box is left as it was") {
  const box<2> a[2] = {{{{0, 4}, {1, 6}}}, {{{10, 20}, {10, 20}}}}, b[2] = {{{{2, 9}, {0, 3}}}, {{{15, 30}, {15, 30}}}};
  box<2> found[2] = {{{{7, 7}, {7, 7}}}, {{{7, 8}, {7, 9}}}};
  new (&found[0]) box<2>(intersect(a[0], b[0]));  // made in its place, not copied there
  CHECK(found[0] == box<2>{{{2, 4}, {1, 3}}});
  CHECK(found[1] == box<2>{{{7, 8}, {7, 9}}});
}

TEST_CASE("whole_box begins at 0, and a volume beyond 64 bits is refused") {
  CHECK(whole_box({3, 1, 4}) == box<3>{{{0, 3}, {0, 1}, {0, 4}}});
  const index_t far = index_t{1} << 40;
  CHECK(refused([=] {
          whole_box({far, far}).volume();
        }) == "reshard: 1099511627776 x 1099511627776 does not fit 64 bits");
  CHECK(whole_box({60000, 60000}).volume() == 3600000000);
}

TEST_CASE("precedes is the lexicographic order of the lower corner, then the upper") {
  dice random(9);
  for (int n = 0; n < 2000; ++n) {
    const box<3> a = random_box<3>(random, 0, 2), b = random_box<3>(random, 0, 2);
    CHECK(precedes(a, b) == (corners(a) < corners(b)));
  }
}
