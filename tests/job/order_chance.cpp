// SPDX-License-Identifier: Apache-2.0
// The order of a pass looks like chance: within six standard deviations of what chance would do. (job/order.cpp asks
// whether it is the order that is told.)
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <vector>

#include <reshard/job/order.hpp>

#include "../support/dice.hpp"

using namespace reshard;

namespace {

std::vector<index_t> whole_pass(const sample_order& order) {
  std::vector<index_t> elements;
  for (index_t p = 0; p < order.size(); ++p) elements.push_back(order(p));
  return elements;
}

/// By how many standard deviations n draws with these counts differ from `expected` of each (chi-squared).
double off_even(const std::vector<index_t>& counts, double expected) {
  double chi = 0;
  for (const index_t c : counts)
    chi += (static_cast<double>(c) - expected) * (static_cast<double>(c) - expected) / expected;
  const auto freedom = static_cast<double>(counts.size() - 1);
  return (chi - freedom) / std::sqrt(2 * freedom);
}

}  // namespace

TEST_CASE("small sets: every permutation is as likely as any other, by seed and by pass") {
  for (const index_t size : {2, 3, 4, 5, 6}) {
    index_t permutations = 1;
    for (index_t i = 2; i <= size; ++i) permutations *= i;
    const index_t each = size < 6 ? 100 : 20;
    for (const bool by_pass : {false, true}) {
      std::map<std::vector<index_t>, index_t> found;
      for (index_t i = 0; i < permutations * each; ++i)
        ++found[whole_pass(by_pass ? sample_order(size, testing::seed(), i)
                                   : sample_order(size, testing::seed() + static_cast<std::uint64_t>(i), 7))];
      std::vector<index_t> counts(static_cast<std::size_t>(permutations));
      std::size_t which = 0;
      for (const auto& [unused, count] : found) counts[which++] = count;
      CAPTURE(size);
      CHECK(static_cast<index_t>(found.size()) == permutations);
      CHECK(std::abs(off_even(counts, static_cast<double>(each))) < 6);
    }
  }
}

TEST_CASE("as many orders are odd as even, whatever the size") {
  for (const index_t size : {7, 8, 9, 10, 23, 24, 25, 47, 49}) {
    int odd = 0;
    for (index_t pass = 0; pass < 400; ++pass) {
      const std::vector<index_t> order = whole_pass(sample_order(size, testing::seed(), pass));
      index_t inversions = 0;
      for (std::size_t i = 0; i < order.size(); ++i)
        for (std::size_t j = 0; j < i; ++j) inversions += order[j] > order[i] ? 1 : 0;
      odd += inversions % 2 == 1 ? 1 : 0;
    }
    CAPTURE(size);
    CHECK(std::abs(odd - 200) < 60);  // six standard deviations
  }
}

TEST_CASE("a position meets every element alike, over passes and over seeds") {
  constexpr index_t size = 1009, draws = 100'000;
  for (const bool by_pass : {false, true}) {
    std::vector<index_t> counts(size);
    for (index_t i = 0; i < draws; ++i) {
      const auto moving = static_cast<std::uint64_t>(i);
      const sample_order order =
          by_pass ? sample_order(size, testing::seed(), i) : sample_order(size, testing::seed() + moving, 1);
      ++counts[static_cast<std::size_t>(order(500))];
    }
    CHECK(std::abs(off_even(counts, static_cast<double>(draws) / size)) < 6);
  }
}

TEST_CASE("fixed points and inversions of whole passes are as many as chance has") {
  constexpr index_t size = 400;
  constexpr int passes = 400;
  double fixed = 0, inversions = 0;
  for (index_t pass = 0; pass < passes; ++pass) {
    const std::vector<index_t> e = whole_pass(sample_order(size, testing::seed(), pass));
    for (std::size_t i = 0; i < e.size(); ++i) {
      fixed += e[i] == static_cast<index_t>(i) ? 1 : 0;
      for (std::size_t j = i + 1; j < e.size(); ++j) inversions += e[i] > e[j] ? 1 : 0;
    }
  }
  CHECK(std::abs(fixed / passes - 1) < 6 * std::sqrt(1.0 / passes));  // mean and variance are 1
  const double n = size, mean = n * (n - 1) / 4, variance = n * (n - 1) * (2 * n + 5) / 72;
  CHECK(std::abs(inversions / passes - mean) < 6 * std::sqrt(variance / passes));
}

TEST_CASE(
    "in a set of 10^12: neighbours, and one position in two passes or seeds, have nothing to do with each other") {
  constexpr index_t size = 1'000'000'000'000;
  constexpr int draws = 100'000;
  const auto unit = [](index_t element) { return (static_cast<double>(element) + 0.5) / 1e12 - 0.5; };
  const std::uint64_t s = testing::seed();
  const sample_order order(size, s, 0), next_pass(size, s, 1), next_seed(size, s + 1, 0);
  double sum = 0, neighbours = 0, passes = 0, seeds = 0, far = 0;
  std::vector<index_t> low_bits(64), gaps(64);
  for (index_t p = 0; p < draws; ++p) {
    const double x = unit(order(p));
    sum += x;
    neighbours += x * unit(order(p + 1));
    far += x * unit(order(p + 1'000'000));  // the same right half, the next left one
    passes += x * unit(next_pass(p));
    seeds += x * unit(next_seed(p));
    ++low_bits[static_cast<std::size_t>(order(p) % 64)];
    const index_t gap = ((order(p + 1) - order(p)) % size + size) % size;
    ++gaps[static_cast<std::size_t>(gap / (size / 64 + 1))];
  }
  const double deviation = std::sqrt(1.0 / 12 / draws);
  CHECK(std::abs(sum / draws) < 6 * deviation);
  for (const double products : {neighbours, passes, seeds, far})
    CHECK(std::abs(products / draws) < 6 * deviation / std::sqrt(12.0));
  CHECK(std::abs(off_even(low_bits, draws / 64.0)) < 6);
  CHECK(std::abs(off_even(gaps, draws / 64.0)) < 6);
}
