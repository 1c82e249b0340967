// SPDX-License-Identifier: Apache-2.0
// The order of a pass: a bijection by every element of small sets and by its inverse in large ones; and that it looks
// like chance, within six standard deviations of what chance would do.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include <range/v3/algorithm/equal.hpp>
#include <range/v3/view/iota.hpp>
#include <range/v3/view/stride.hpp>
#include <range/v3/view/transform.hpp>

#include <reshard/algebra/interval.hpp>
#include <reshard/job/order.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice;

namespace {

constexpr index_t most = std::numeric_limits<index_t>::max();

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

TEST_CASE("every element once, for every small size; and the inverse") {
  dice random;
  for (index_t size = 1; size <= 300; ++size) {
    const sample_order order(size, random.bits(), random.below(1000));
    std::vector<bool> seen(static_cast<std::size_t>(size));
    for (index_t p = 0; p < size; ++p) {
      const index_t element = order(p);
      REQUIRE(0 <= element);
      REQUIRE(element < size);
      CHECK_FALSE(seen[static_cast<std::size_t>(element)]);
      seen[static_cast<std::size_t>(element)] = true;
      CHECK(order.position_of(element) == p);
    }
  }
}

TEST_CASE("sets too large to be gone through: within the set, and back") {
  dice random(1);
  for (int i = 0; i < testing::tries(2000); ++i) {
    const index_t size = i == 0 ? most : i == 1 ? 1'000'000'000'000 : 1 + random.below(most >> random.below(62));
    const sample_order order(size, random.bits(), random.below(most));
    const index_t p = i % 3 == 0 ? size - 1 : random.below(size), element = order(p);
    CHECK(0 <= element);
    CHECK(element < size);
    CHECK(order.position_of(element) == p);
  }
}

TEST_CASE("it is the network that is told: every position of small sets, some of large ones") {
  __extension__ using wide = unsigned __int128;
  const auto told = [](index_t size, std::uint64_t seed, index_t pass, index_t position) {
    const auto n = static_cast<std::uint64_t>(size);
    auto a = static_cast<std::uint64_t>(std::sqrt(static_cast<long double>(size)));
    while (static_cast<wide>(a) * a < n || a % 2 == 1) ++a;
    while (a > 2 && static_cast<wide>(a - 2) * (a - 2) >= n) a -= 2;
    const std::uint64_t b = (n - 1) / a + 1;
    auto at = static_cast<std::uint64_t>(position);
    do {
      std::uint64_t pair[] = {at / b, at % b}, key = mix64(mix64(seed) + static_cast<std::uint64_t>(pass));
      for (int round = 0; round < 24; ++round) {
        key = mix64(key);
        std::uint64_t& changes = pair[round % 2];
        const std::uint64_t below = round % 2 == 0 ? a : b, mixed = mix64(pair[1 - round % 2] ^ key);
        changes =
            static_cast<std::uint64_t>((static_cast<wide>(changes) + (static_cast<wide>(mixed) * below >> 64)) % below);
      }
      at = pair[0] * b + pair[1];
    } while (at >= n);
    return static_cast<index_t>(at);
  };
  dice random(2);
  for (index_t size = 1; size <= 120; ++size) {
    const std::uint64_t seed = random.bits();
    const index_t pass = random.below(1000);
    index_t wrong = 0;
    for (index_t p = 0; p < size; ++p) wrong += sample_order(size, seed, pass)(p) == told(size, seed, pass, p) ? 0 : 1;
    CAPTURE(size);
    CHECK(wrong == 0);
  }
  for (index_t root = 1; root <= index_t{3'037'000'499}; root = root * 3 + 1)
    for (const index_t size : {root * root, root * root + 1, greatest(1, root * root - 1), root * root + root}) {
      const index_t p = random.below(size);
      CHECK(sample_order(size, 1, 2)(p) == told(size, 1, 2, p));
      CHECK(sample_order(size, 1, 2)(size - 1) == told(size, 1, 2, size - 1));
    }
  CHECK(sample_order(most, 1, most)(5) == told(most, 1, most, 5));
}

TEST_CASE("a root rounded up, and a number below another made of 64 bits") {
  std::uint64_t root = 1;
  for (std::uint64_t x = 1; x <= 10'000; ++x) {
    while (root * root < x) ++root;
    CHECK(detail::root_above(x) == root);
  }
  for (const std::uint64_t r : {std::uint64_t{65'536}, std::uint64_t{1} << 31, std::uint64_t{3'037'000'499}}) {
    CHECK(detail::root_above(r * r - 1) == r);
    CHECK(detail::root_above(r * r) == r);
    CHECK(detail::root_above(r * r + 1) == r + 1);
  }
  CHECK(detail::root_above(static_cast<std::uint64_t>(most)) == 3'037'000'500);
  constexpr std::uint64_t all = ~std::uint64_t{0}, half = std::uint64_t{1} << 63;
  for (const std::uint64_t n : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{7}, half, all}) {
    CHECK(detail::below(n, 0) == 0);
    CHECK(detail::below(n, all) == n - 1);
    CHECK(detail::below(n, half) == n / 2);
  }
  CHECK(detail::below(3, all / 3) == 0);
  CHECK(detail::below(3, all / 3 + 1) == 1);
}

TEST_CASE("the same on every machine") {
  const sample_order order(10, 20261121, 3);
  CHECK(whole_pass(order) == std::vector<index_t>{3, 6, 4, 9, 2, 0, 8, 5, 7, 1});
  CHECK(sample_order(1'000'000'000'000, 5, 2)(17) == 551492389527);
  CHECK(sample_order(most, ~std::uint64_t{0}, most)(most - 1) == 3370502097842684146);
}

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

TEST_CASE("positions of all passes: each pass has an order of its own") {
  const sample_set set{11, 9};
  for (index_t pass = 0; pass < 20; ++pass) {
    const sample_order order(11, 9, pass);
    for (index_t p = 0; p < 11; ++p) {
      CHECK(set.element(pass * 11 + p) == order(p));
      CHECK(set.pass_of(pass * 11 + p) == pass);
    }
  }
  CHECK(whole_pass(sample_order(11, 9, 0)) != whole_pass(sample_order(11, 9, 1)));
  CHECK(whole_pass(sample_order(11, 9, 0)) != whole_pass(sample_order(11, 10, 0)));
}

TEST_CASE("a rank's samples as a view: nothing is stored, and what is not looked at is not computed") {
  const sample_set set{1'000'000'000'000, 3};
  const interval share{999'999'999'998, 1'000'000'000'004};  // across the end of a pass
  const auto samples =
      ranges::views::iota(share.begin, share.end) | ranges::views::transform([&](index_t p) { return set.element(p); });
  const std::vector<index_t> wanted = {set.element(999'999'999'998), set.element(1'000'000'000'000),
                                       set.element(1'000'000'000'002)};
  CHECK(ranges::equal(samples | ranges::views::stride(2), wanted));
}

TEST_CASE("what is refused") {
  CHECK_REFUSED(sample_order(0, 1, 0), "order: a set of 0 elements; it has at least 1");
  CHECK_REFUSED(sample_order(5, 1, -1), "order: pass -1; passes count from 0");
  CHECK_REFUSED(sample_order(5, 1, 0)(5), "order: there is no position 5; they are 0 to 4");
  CHECK_REFUSED(sample_order(5, 1, 0)(-1), "order: there is no position -1; they are 0 to 4");
  CHECK_REFUSED(sample_order(5, 1, 0).position_of(5), "order: there is no element 5; they are 0 to 4");
  CHECK_REFUSED(sample_order(5, 1, 0).position_of(-1), "order: there is no element -1; they are 0 to 4");
  CHECK_REFUSED(sample_order(-1, 1, 0), "order: a set of -1 elements; it has at least 1");
  CHECK_REFUSED((sample_set{-3, 1}.pass_of(0)), "order: position 0 of passes over -3 elements");
  CHECK(sample_set{}.element(3) == 0);
  CHECK(sample_set{}.pass_of(3) == 3);
  CHECK_REFUSED(sample_set{}.element(-1),
                "order: position -1 of passes over 1 elements; both are told from 0, and a set is not empty");
  CHECK_REFUSED((sample_set{0, 1}.element(1)), "order: position 1 of passes over 0 elements");
  CHECK_REFUSED((sample_set{0, 1}.pass_of(5)), "order: position 5 of passes over 0 elements");
}
