// SPDX-License-Identifier: Apache-2.0
// Refinement against sets of coordinates, and its laws: the order of adding, adding again, adding the parts themselves.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <vector>

#include <reshard/algebra/refine.hpp>

#include "../support/points.hpp"

using namespace reshard;
using testing::dice, testing::random_box;

namespace {
constexpr index_t width = 5;
using tags = std::vector<int>;
template <int N>
using parts_of = std::vector<labelled_box<N, tags>>;

template <int N>
box<N> universe() {
  box<N> all{};
  for (interval& i : all.dim) i = {0, width};
  return all;
}

template <int N>
void add(parts_of<N>& parts, const box<N>& b, int name) {
  refine(parts, b, [name](tags& label) { label.push_back(name); });
}

/// The labels by coordinate, in row-major order; `often` counts the coordinates that lie in several parts.
template <int N>
std::vector<tags> labels(const parts_of<N>& parts, long& often) {
  std::vector<tags> all;
  testing::each_point(universe<N>(), [&](const index_t(&x)[N]) {
    long held = 0;
    all.emplace_back();
    for (const auto& [where, label] : parts)
      if (where.contains(x)) ++held, all.back() = label;
    often += held > 1 ? 1 : 0;
  });
  return all;
}

/// A second definition: the boxes that hold a coordinate.
template <int N>
std::vector<tags> expected(const std::vector<box<N>>& boxes) {
  std::vector<tags> all;
  testing::each_point(universe<N>(), [&](const index_t(&x)[N]) {
    all.emplace_back();
    for (std::size_t i = 0; i < boxes.size(); ++i)
      if (boxes[i].contains(x)) all.back().push_back(static_cast<int>(i));
  });
  return all;
}

struct counts {
  int apart = 0, inside = 0, across = 0, empty = 0, again = 0;
};

template <int N>
void check_refinements(counts& seen) {
  CAPTURE(N);
  dice random(N);
  for (int n = 0; n < 150; ++n) {
    std::vector<box<N>> boxes;
    for (index_t left = random.within(1, 6); left > 0; --left) {
      boxes.push_back(random_box<N>(random, 0, width));
      if (boxes.size() > 1 && random.below(6) == 0) boxes.back() = boxes.front(), ++seen.again;
      seen.empty += boxes.back().empty() ? 1 : 0;
      for (std::size_t i = 0; i + 1 < boxes.size() && !boxes.back().empty(); ++i) {
        const box<N> common = intersect(boxes[i], boxes.back());
        ++(common.empty() ? seen.apart : common == boxes[i] || common == boxes.back() ? seen.inside : seen.across);
      }
    }
    parts_of<N> parts;
    for (std::size_t i = 0; i < boxes.size(); ++i) add(parts, boxes[i], static_cast<int>(i));
    long often = 0;
    CHECK(labels(parts, often) == expected(boxes));
    CHECK(std::none_of(parts.begin(), parts.end(), [](const auto& p) { return p.where.empty() || p.label.empty(); }));

    parts_of<N> backwards;  // another order cuts elsewhere, and says the same
    for (std::size_t i = boxes.size(); i-- > 0;) add(backwards, boxes[i], static_cast<int>(i));
    for (auto& [where, label] : backwards) std::reverse(label.begin(), label.end());
    CHECK(labels(backwards, often) == expected(boxes));

    parts_of<N> twice = parts;  // what was added is a union of parts: adding it again cuts nothing
    for (const box<N>& b : boxes) add(twice, b, -1);
    CHECK(twice.size() == parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) CHECK(twice[i].where == parts[i].where);

    parts_of<N> of_parts;  // the parts are equal or disjoint: their own refinement is they
    for (const auto& [where, label] : parts) add(of_parts, where, 0);
    CHECK(of_parts.size() == parts.size());
    CHECK(often == 0);
  }
}
}  // namespace

TEST_CASE("every coordinate has the tags of the boxes that hold it, in 1 to 3 dimensions, whatever the order") {
  counts seen;
  check_refinements<1>(seen);
  check_refinements<2>(seen);
  check_refinements<3>(seen);
  std::printf("pairs of boxes: %d apart, %d inside, %d across; %d boxes empty, %d added again\n", seen.apart,
              seen.inside, seen.across, seen.empty, seen.again);
  CHECK_DRAWN((seen.apart > 100 && seen.inside > 100 && seen.across > 100 && seen.empty > 20 && seen.again > 20));
}

TEST_CASE("by hand: two intervals that overlap are three parts, and the label begins as the caller's") {
  parts_of<1> parts;
  add(parts, box<1>{{{0, 6}}}, 1);
  add(parts, box<1>{{{4, 9}}}, 2);
  REQUIRE(parts.size() == 3);
  std::map<index_t, tags> by_begin;
  for (const auto& [where, label] : parts) by_begin[where.dim[0].begin] = label;
  CHECK(by_begin == std::map<index_t, tags>{{0, {1}}, {4, {1, 2}}, {6, {2}}});

  struct seven {
    int value = 7;
  };
  std::vector<labelled_box<2, seven>> sums;
  refine(sums, box<2>{{{0, 2}, {0, 2}}}, [](seven& label) { label.value += 1; });
  refine(sums, box<2>{{{0, 2}, {0, 2}}}, [](seven&) {});
  REQUIRE(sums.size() == 1);
  CHECK(sums[0].label.value == 8);
}
