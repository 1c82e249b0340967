// SPDX-License-Identifier: Apache-2.0
// Assignments against all permutations.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include <reshard/algebra/assignment.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice;

namespace {
template <typename Visit>
void each_permutation(std::size_t n, Visit&& visit) {
  assignment p(n);
  std::iota(p.begin(), p.end(), std::size_t{0});
  do visit(p);
  while (std::next_permutation(p.begin(), p.end()));
}
square<index_t> random_square(dice& random, std::size_t n, index_t most) {
  square<index_t> numbers(n);
  for (index_t& cell : numbers.cells) cell = random.within(-most, most);
  return numbers;
}
}  // namespace

TEST_CASE("by hand: a heavy cell that leaves little for the others is left out") {
  square<index_t> weight(2);
  weight.cells = {10, 9, 9, 1};
  const auto any = [](std::size_t, std::size_t) { return true; };
  CHECK(heaviest_assignment(weight, any) == assignment{1, 0});
  CHECK(heaviest_assignment(weight, [](std::size_t i, std::size_t j) { return i == j; }) == assignment{0, 1});
  CHECK(least_bottleneck(weight) == 9);
  CHECK(heaviest_assignment(square<index_t>(0), any).empty());
  CHECK(least_bottleneck(square<double>(0)) == 0);
  CHECK(testing::refused([&] {
          (void)heaviest_assignment(weight, [](std::size_t, std::size_t j) { return j == 0; });
        }) == "reshard: assignment: of 2 rows, row 1 gets no column that is allowed");
}

TEST_CASE("random tables: the least bottleneck and the most weight of all permutations") {
  dice random(61);
  int impossible = 0, forbidden = 0;
  for (int n = 0; n < testing::tries(400); ++n) {
    const std::size_t size = static_cast<std::size_t>(random.within(1, 6));
    const index_t most = random.coin() ? 3 : 1'000'000'000'000;  // ties, or none
    const square<index_t> cost = random_square(random, size, most), weight = random_square(random, size, most);
    index_t least = std::numeric_limits<index_t>::max();
    each_permutation(size, [&](const assignment& p) {
      index_t worst = cost.at(0, p[0]);
      for (std::size_t i = 0; i < size; ++i) worst = std::max(worst, cost.at(i, p[i]));
      least = std::min(least, worst);
    });
    CHECK(least_bottleneck(cost) == least);

    square<char> open(size, 1);
    if (random.coin())
      for (char& cell : open.cells) cell = random.below(3) > 0 ? 1 : 0;
    bool any = false;
    index_t best = 0;
    each_permutation(size, [&](const assignment& p) {
      index_t sum = 0;
      for (std::size_t i = 0; i < size; ++i) {
        if (open.at(i, p[i]) == 0) return;
        sum += weight.at(i, p[i]);
      }
      best = any ? std::max(best, sum) : sum;
      any = true;
    });
    const auto allowed = [&](std::size_t i, std::size_t j) { return open.at(i, j) != 0; };
    impossible += any ? 0 : 1;
    forbidden += std::count(open.cells.begin(), open.cells.end(), 0) > 0 && any ? 1 : 0;
    if (!any) {
      CHECK(testing::refused([&] { (void)heaviest_assignment(weight, allowed); }) != "accepted");
      continue;
    }
    const assignment found = heaviest_assignment(weight, allowed);
    assignment sorted = found;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < size; ++i) CHECK(sorted[i] == i);
    index_t sum = 0;
    for (std::size_t i = 0; i < size; ++i) {
      CHECK(allowed(i, found[i]));
      sum += weight.at(i, found[i]);
    }
    CHECK(sum == best);
  }
  if (testing::few()) return;
  CHECK_DRAWN(impossible >= 5);
  CHECK_DRAWN(forbidden >= 20);
}
