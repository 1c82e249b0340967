// SPDX-License-Identifier: Apache-2.0
// Regions against sets of coordinates, and the laws of a Boolean algebra.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include <reshard/algebra/region.hpp>

#include "../support/points.hpp"

using namespace reshard;
using testing::dice, testing::occurrences, testing::random_box;

namespace {
constexpr index_t width = 5;

template <int N>
box<N> universe() {
  box<N> all{};
  for (interval& i : all.dim) i = {0, width};
  return all;
}

template <int N>
region<N> random_region(dice& random) {
  region<N> r;
  for (index_t n = random.below(5); n > 0; --n) {
    const box<N> b = random_box<N>(random, 0, width);
    if (random.below(4) == 0) r.remove(b);
    else r.add(b);
  }
  return r;
}

/// The members of a region as 0 or 1 per coordinate; a coordinate in two boxes would show as 2.
template <int N>
std::vector<int> members(const region<N>& r) {
  return occurrences(universe<N>(), r.boxes());
}

template <typename Combine>
std::vector<int> combined(std::vector<int> a, const std::vector<int>& b, Combine&& combine) {
  std::transform(a.begin(), a.end(), b.begin(), a.begin(), combine);
  return a;
}

template <int N>
void check_regions() {
  CAPTURE(N);
  dice random(N);
  for (int n = 0; n < 120; ++n) {
    const auto a = random_region<N>(random), b = random_region<N>(random), c = random_region<N>(random);
    const box<N> probe = random_box<N>(random, 0, width);
    const std::vector<int> in_a = members(a), in_b = members(b), in_probe = members(region<N>(probe));

    CHECK(std::all_of(in_a.begin(), in_a.end(), [](int times) { return times <= 1; }));
    CHECK(a.volume() == std::count(in_a.begin(), in_a.end(), 1));
    CHECK(a.empty() == (a.volume() == 0));
    CHECK(members(unite(a, b)) == combined(in_a, in_b, std::logical_or<>()));
    CHECK(members(intersect(a, b)) == combined(in_a, in_b, std::logical_and<>()));
    CHECK(members(difference(a, b)) == combined(in_a, in_b, std::greater<>()));
    CHECK(a.covers(probe) == (combined(in_probe, in_a, std::logical_and<>()) == in_probe));
    CHECK(same_set(a, b) == (in_a == in_b));

    CHECK(same_set(unite(a, b), unite(b, a)));
    CHECK(same_set(intersect(a, b), intersect(b, a)));
    CHECK(same_set(unite(unite(a, b), c), unite(a, unite(b, c))));
    CHECK(same_set(intersect(intersect(a, b), c), intersect(a, intersect(b, c))));
    CHECK(same_set(unite(a, a), a));
    CHECK(same_set(intersect(a, a), a));
    CHECK(same_set(unite(a, intersect(a, b)), a));
    CHECK(same_set(intersect(a, unite(b, c)), unite(intersect(a, b), intersect(a, c))));
    CHECK(same_set(difference(a, unite(b, c)), intersect(difference(a, b), difference(a, c))));
    CHECK(difference(a, a).empty());
  }
}
}  // namespace

TEST_CASE("a region is a set: union, difference, intersection, cover and their laws, in 1 to 3 dimensions") {
  check_regions<1>();
  check_regions<2>();
  check_regions<3>();
}

TEST_CASE("two cuts of the same set are the same set, and one coordinate less is not") {
  region<2> columns, rows;
  for (index_t i = 0; i < 4; ++i) {
    columns.add({{{0, 4}, {i, i + 1}}});
    rows.add({{{i, i + 1}, {0, 4}}});
  }
  CHECK(same_set(columns, rows));
  rows.remove({{{3, 4}, {3, 4}}});
  CHECK_FALSE(same_set(columns, rows));
  CHECK_FALSE(same_set(rows, columns));
}
