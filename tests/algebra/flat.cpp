// SPDX-License-Identifier: Apache-2.0
// Flat offsets and intervals of row-major arrays, against the offsets of single coordinates.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include <reshard/algebra/flat.hpp>
#include <reshard/algebra/region.hpp>

#include "../support/points.hpp"

using namespace reshard;
using testing::dice, testing::each_point, testing::random_part;

namespace {
template <int N>
std::vector<box<N>> inverted(const index_t (&extent)[N], interval range) {
  std::vector<box<N>> boxes;
  invert_flat(extent, range, [&](const box<N>& b) { boxes.push_back(b); });
  return boxes;
}

template <int N>
std::vector<interval> flattened(const index_t (&extent)[N], const box<N>& b) {
  std::vector<interval> intervals;
  flat_intervals(extent, b, [&](interval i) { intervals.push_back(i); });
  return intervals;
}

/// Neighbours that touch become one.
std::vector<interval> joined(const std::vector<interval>& intervals) {
  std::vector<interval> result;
  for (const interval i : intervals)
    if (!result.empty() && result.back().end == i.begin) result.back().end = i.end;
    else result.push_back(i);
  return result;
}

template <int N>
void random_extent(dice& random, index_t (&extent)[N]) {
  for (index_t& e : extent) e = random.within(1, 4);
}

template <int N>
void check_offsets(const index_t (&extent)[N]) {
  index_t next = 0;
  each_point(whole_box(extent), [&](const index_t(&x)[N]) { CHECK(flat_offset(extent, x) == next++); });
}

template <int N>
void check_invert(const index_t (&extent)[N], interval range) {
  CAPTURE(range.begin);
  CAPTURE(range.end);
  const index_t elements = whole_box(extent).volume();
  const std::vector<box<N>> boxes = inverted(extent, range);
  CHECK(boxes.size() <= 2 * N - 1);
  // each box is one stretch of offsets, and begins where the one before ends
  index_t reached = greatest(range.begin, 0);
  for (const box<N>& b : boxes) {
    CHECK_FALSE(b.empty());
    CHECK(whole_box(extent).contains(b));
    const std::vector<interval> stretch = flattened(extent, b);
    REQUIRE(stretch.size() == 1);
    CHECK(stretch[0].begin == reached);
    CHECK(stretch[0].size() == b.volume());
    reached = stretch[0].end;
  }
  if (intersects(range, {0, elements})) CHECK(reached == least(range.end, elements));
  else CHECK(boxes.empty());
}

template <int N>
void check_intervals(const index_t (&extent)[N], const box<N>& b) {
  CAPTURE(testing::text(whole_box(extent)));
  CAPTURE(testing::text(b));
  std::vector<interval> offsets;
  each_point(b, [&](const index_t(&x)[N]) {
    const index_t offset = flat_offset(extent, x);
    offsets.push_back({offset, offset + 1});
  });
  const std::vector<interval> wanted = joined(offsets), found = flattened(extent, b);
  CHECK(found == wanted);  // in order, none missing, and none that touches the next: maximal
  CHECK(flat_hull(extent, b) == interval{wanted.front().begin, wanted.back().end});
}

template <int N>
void check_dimension() {
  CAPTURE(N);
  dice random(N);
  index_t extent[N];
  for (int n = 0; n < 40; ++n) {
    random_extent(random, extent);
    check_offsets(extent);
    const index_t elements = whole_box(extent).volume();
    for (int m = 0; m < 40; ++m) check_invert(extent, {random.within(-1, elements), random.within(0, elements + 1)});
    for (int m = 0; m < 20; ++m) check_intervals(extent, random_part(random, extent));
  }
  for (index_t& e : extent) e = 3;
  const index_t elements = whole_box(extent).volume();
  CHECK(inverted(extent, {1, elements - 1}).size() == 2 * N - 1);  // the bound is reached
}
}  // namespace

TEST_CASE(
    "invert_flat: at most 2N - 1 boxes that follow each other and are exactly the interval; N = 2, every interval") {
  const index_t extent[] = {3, 4};
  for (index_t begin = -1; begin <= 13; ++begin)
    for (index_t end = -1; end <= 13; ++end) check_invert(extent, {begin, end});
}

TEST_CASE("flat offsets, their inverse, flat intervals and runs agree, in 1 to 5 dimensions") {
  check_dimension<1>();
  check_dimension<2>();
  check_dimension<3>();
  check_dimension<4>();
  check_dimension<5>();
}

TEST_CASE("an empty box has no intervals and no elements") {
  const index_t extent[] = {3, 4};
  const box<2> nothing{{{0, 3}, {2, 2}}};
  CHECK(flattened(extent, nothing).empty());
  CHECK(flat_hull(extent, nothing).empty());
}

TEST_CASE("invert_flat gives no more boxes than the ends of the interval need") {
  const index_t extent[] = {4, 3, 5};
  CHECK(inverted(extent, {15, 45}) == std::vector<box<3>>{{{{1, 3}, {0, 3}, {0, 5}}}});  // whole planes: one box
  CHECK(inverted(extent, {20, 30}) == std::vector<box<3>>{{{{1, 2}, {1, 3}, {0, 5}}}});  // whole rows of one plane
  CHECK(inverted(extent, {15, 50}) == std::vector<box<3>>{{{{1, 3}, {0, 3}, {0, 5}}}, {{{3, 4}, {0, 1}, {0, 5}}}});
  CHECK(inverted(extent, {20, 45}) == std::vector<box<3>>{{{{1, 2}, {1, 3}, {0, 5}}}, {{{2, 3}, {0, 3}, {0, 5}}}});
  CHECK(inverted(extent, {22, 52}).size() == 5);  // ragged at both ends, in both dimensions
}
