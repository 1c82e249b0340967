// SPDX-License-Identifier: Apache-2.0
// 64-bit arithmetic against a wider integer, and the sentence of a refusal.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <reshard/base/integer.hpp>
#include <reshard/base/version.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using testing::dice, testing::refused;

namespace {
__extension__ using wide = __int128;
constexpr index_t most = std::numeric_limits<index_t>::max();
constexpr index_t fewest = std::numeric_limits<index_t>::min();

/// The ends of 64 and 32 bits, their neighbours, small numbers, and random ones of every length.
std::vector<index_t> telling_numbers() {
  std::vector<index_t> numbers;
  for (const index_t around :
       {fewest + 1, index_t{0}, index_t{1} << 31, index_t{1} << 32, -(index_t{1} << 31), most - 1})
    for (index_t d = -1; d <= 1; ++d) numbers.push_back(around + d);
  dice random;
  for (int i = 0; i < 60; ++i)
    numbers.push_back(static_cast<index_t>(random.bits() >> random.below(64)) * (random.coin() ? 1 : -1));
  return numbers;
}

template <typename Operation>
void check_exact(wide exact, const std::string& shown, Operation&& operation) {
  CAPTURE(shown);
  if (fewest <= exact && exact <= most) CHECK(operation() == static_cast<index_t>(exact));
  else CHECK(refused(operation) == "reshard: " + shown + " does not fit 64 bits");
}
}  // namespace

TEST_CASE("checked_multiply and checked_add are exact, or refuse with both numbers") {
  for (const index_t a : telling_numbers())
    for (const index_t b : telling_numbers()) {
      check_exact(wide{a} * b, std::to_string(a) + " x " + std::to_string(b), [=] { return checked_multiply(a, b); });
      check_exact(wide{a} + b, std::to_string(a) + " + " + std::to_string(b), [=] { return checked_add(a, b); });
    }
}

TEST_CASE("floor_of_product is exact however large the product, or refuses with all three numbers") {
  for (const index_t a : telling_numbers())
    for (const index_t b : telling_numbers())
      for (const index_t c : {index_t{1}, index_t{2}, index_t{7}, index_t{1} << 31, (index_t{1} << 62) + 1, most}) {
        if (a < 0 || b < 0) continue;
        const wide exact = wide{a} * b / c;
        if (exact <= most) CHECK(floor_of_product(a, b, c) == static_cast<index_t>(exact));
        else
          CHECK(refused([=] { return floor_of_product(a, b, c); }) == "reshard: floor(" + std::to_string(a) + " x " +
                                                                          std::to_string(b) + " / " +
                                                                          std::to_string(c) + ") does not fit 64 bits");
      }
}

TEST_CASE("ceil_divide and round_up: the least number of b, and the least multiple of b, that reach a") {
  for (index_t b = 1; b <= 12; ++b)
    for (index_t a = 0; a <= 60; ++a) {
      index_t times = 0;
      while (times * b < a) ++times;
      CHECK(ceil_divide(a, b) == times);
      CHECK(round_up(a, b) == times * b);
    }
  CHECK(ceil_divide(most, 2) == most / 2 + 1);
  CHECK(refused([] { round_up(most, 64); }) == "reshard: 144115188075855872 x 64 does not fit 64 bits");
}

TEST_CASE("split_point is floor(i * extent / parts), also where i * extent leaves 64 bits") {
  dice random(1);
  for (int n = 0; n < 20000; ++n) {
    const index_t extent = static_cast<index_t>(random.bits() >> random.within(1, 63));
    const index_t parts = static_cast<index_t>(random.bits() >> random.within(33, 63)) + 1, i = random.within(0, parts);
    CHECK(split_point(i, extent, parts) == static_cast<index_t>(wide{i} * extent / parts));
  }
}

TEST_CASE("the lesser and the greater of two") {
  for (index_t a = -3; a <= 3; ++a)
    for (index_t b = -3; b <= 3; ++b) {
      CHECK(least(a, b) == std::min(a, b));
      CHECK(greatest(a, b) == std::max(a, b));
    }
}

TEST_CASE("gcd and lcm") {
  for (index_t a = 0; a <= 40; ++a)
    for (index_t b = 0; b <= 40; ++b) {
      CHECK(gcd(a, b) == std::gcd(a, b));
      if (a > 0 && b > 0) CHECK(lcm(a, b) == std::lcm(a, b));
    }
  CHECK(lcm(most, most) == most);
  CHECK(refused([] { lcm(most, most - 1); }) ==
        "reshard: 9223372036854775807 x 9223372036854775806 does not fit 64 bits");
}

TEST_CASE("a refusal is a sentence with its numbers in decimal, and an invalid argument") {
  const std::string who = "rank";
  CHECK(refused([&] { refuse(who, " ", 3, " of ", std::string_view("world"), " ", index_t{-8}, " and ", most); }) ==
        "reshard: rank 3 of world -8 and 9223372036854775807");
  CHECK_THROWS_AS(refuse("no"), std::invalid_argument);
  CHECK(std::string(RESHARD_VERSION).find('.') != std::string::npos);
}

static_assert(at_most<3, 3> && at_most<-4, 3> && !at_most<4, 3>);
