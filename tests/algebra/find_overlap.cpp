// SPDX-License-Identifier: Apache-2.0
// find_overlap against all pairs of boxes: not only neighbours of the sweep may overlap.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <reshard/algebra/find_overlap.hpp>

#include "../support/points.hpp"

using namespace reshard;
using testing::dice;

namespace {
/// Whether some coordinate lies in both, by looking at all of them.
template <int N>
bool share_a_point(const box<N>& a, const box<N>& b) {
  bool shared = false;
  testing::each_point(a, [&](const index_t(&x)[N]) {
    bool in_b = true;
    for (int i = 0; i < N; ++i) in_b = in_b && b.dim[i].begin <= x[i] && x[i] < b.dim[i].end;
    shared = shared || in_b;
  });
  return shared;
}

template <int N>
std::set<std::pair<std::size_t, std::size_t>> overlapping_pairs(const std::vector<box<N>>& boxes) {
  std::set<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t i = 0; i < boxes.size(); ++i)
    for (std::size_t j = i + 1; j < boxes.size(); ++j)
      if (share_a_point(boxes[i], boxes[j])) pairs.emplace(i, j);
  return pairs;
}

struct counts {
  int none = 0, some = 0, one_far_apart = 0, with_empty = 0;
};

template <int N>
void check(const std::vector<box<N>>& boxes, counts& met) {
  const auto pairs = overlapping_pairs(boxes);
  const box_pair found = find_overlap(boxes);
  std::string shown;
  for (const box<N>& b : boxes) shown += testing::text(b) + " ";
  CAPTURE(shown);
  if (pairs.empty()) CHECK(found.first == found.second);
  else CHECK(pairs.contains({found.first, found.second}));
  ++(pairs.empty() ? met.none : met.some);
  met.with_empty += std::any_of(boxes.begin(), boxes.end(), [](const box<N>& b) { return b.empty(); }) ? 1 : 0;
  if (pairs.size() != 1) return;
  // boxes between the two along every axis: whichever is swept, they are no neighbours
  const auto [a, b] = *pairs.begin();
  bool apart = true;
  for (int i = 0; i < N; ++i) {
    const index_t low = std::min(boxes[a].dim[i].begin, boxes[b].dim[i].begin),
                  high = std::max(boxes[a].dim[i].begin, boxes[b].dim[i].begin);
    apart = apart && std::any_of(boxes.begin(), boxes.end(),
                                 [&](const box<N>& c) { return low < c.dim[i].begin && c.dim[i].begin < high; });
  }
  met.one_far_apart += apart ? 1 : 0;
}

template <int N>
void check_random(index_t room, int most_boxes, counts& met) {
  dice random(static_cast<std::uint64_t>(N));
  for (int n = 0; n < 2000; ++n) {
    std::vector<box<N>> boxes;
    const index_t wanted = random.within(0, most_boxes);
    for (index_t k = 0; k < wanted; ++k) {
      const box<N> b = testing::random_box<N>(random, 0, room);
      const bool fits =
          std::none_of(boxes.begin(), boxes.end(), [&](const box<N>& other) { return share_a_point(b, other); });
      if (fits || random.below(6) == 0) boxes.push_back(b);
    }
    check(boxes, met);
  }
}
}  // namespace

TEST_CASE(
    "a pair is found iff some two of all pairs share a coordinate, and it is such a pair, the lower index first") {
  counts met;
  check_random<1>(24, 10, met);
  check_random<2>(9, 14, met);
  check_random<3>(6, 26, met);
  std::printf(
      "%d lists without an overlap, %d with one, %d of them a single one of boxes far apart; %d with an empty box\n",
      met.none, met.some, met.one_far_apart, met.with_empty);
  CHECK_DRAWN(met.none > 100);
  CHECK_DRAWN(met.some > 100);
  CHECK_DRAWN(met.one_far_apart > 0);
  CHECK_DRAWN(met.with_empty > 100);
}

TEST_CASE("a long box overlaps one that begins far behind it, whichever axis tells the boxes apart") {
  for (int axis = 0; axis < 3; ++axis) {
    std::vector<box<3>> boxes;
    const int other = (axis + 1) % 3;
    const auto add = [&](interval along, interval beside) {
      box<3> b{{{0, 2}, {0, 2}, {0, 2}}};
      b.dim[axis] = along;
      b.dim[other] = beside;
      boxes.push_back(b);
    };
    add({0, 100}, {1, 2});
    for (index_t i = 1; i < 50; ++i) add({i, i + 1}, {0, 1});
    CHECK(find_overlap(boxes).first == find_overlap(boxes).second);
    add({60, 61}, {1, 2});
    const box_pair found = find_overlap(boxes);
    CHECK(found.first == 0);
    CHECK(found.second == 50);
    std::swap(boxes.front(), boxes.back());  // the one that begins first is now the last of the list
    CHECK(find_overlap(boxes).first == 0);
    CHECK(find_overlap(boxes).second == 50);
  }
}

TEST_CASE("boxes that touch do not overlap; equal ones do; one box, or none, has nothing to overlap with") {
  const box<2> a{{{0, 4}, {0, 4}}}, right{{{0, 4}, {4, 8}}}, below{{{4, 8}, {0, 4}}};
  const auto overlap = [](const std::vector<box<2>>& boxes) {
    const box_pair found = find_overlap(boxes);
    return found.first != found.second;
  };
  CHECK_FALSE(overlap({a, right, below}));
  CHECK(overlap({a, right, below, a}));
  CHECK_FALSE(overlap({a}));
  CHECK_FALSE(overlap({}));
}
