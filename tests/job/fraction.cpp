// SPDX-License-Identifier: Apache-2.0
// Natural numbers and fractions of them, against 128 bits where these suffice. (job/fraction_large.cpp asks those of
// thousands of bits for the laws of arithmetic.)
#include <doctest/doctest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <reshard/job/detail/fraction.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using reshard::detail::natural;
using testing::dice;

namespace {

__extension__ using wide = unsigned __int128;

natural of(wide n) {
  return natural(static_cast<std::uint64_t>(n >> 64)) * natural(std::uint64_t{1} << 32) *
             natural(std::uint64_t{1} << 32) +
         natural(static_cast<std::uint64_t>(n));
}
std::string decimal(wide n) {
  std::string digits;
  do digits.insert(0, 1, static_cast<char>('0' + static_cast<int>(n % 10)));
  while ((n /= 10) != 0);
  return digits;
}
wide any(dice& random, int bits) {
  return ((static_cast<wide>(random.bits()) << 64) + random.bits()) >> (128 - random.within(1, bits));
}

}  // namespace

TEST_CASE("up to 128 bits: what the compiler's integers say") {
  dice random;
  for (int i = 0; i < testing::tries(3000); ++i) {
    const wide a = any(random, 126), b = any(random, i % 3 == 0 ? 10 : 126), low = any(random, 63),
               less = any(random, 64);
    CHECK(of(a).text() == decimal(a));
    CHECK(of(a) + of(b) == of(a + b));
    CHECK(of(low) * of(less) == of(low * less));
    CHECK((of(a) < of(b)) == (a < b));
    natural difference = of(std::max(a, b));
    difference.subtract(of(std::min(a, b)));
    CHECK(difference == of(std::max(a, b) - std::min(a, b)));
    const int shift = static_cast<int>(random.below(130));
    CHECK(of(a).halved(shift) == of(shift < 128 ? a >> shift : 0));
    if (b == 0) continue;
    natural rest;
    CHECK(of(a).divided(of(b), rest) == of(a / b));
    CHECK(rest == of(a % b));
    wide x = a, y = b;
    while (y != 0) x = std::exchange(y, x % y);
    if (a != 0) CHECK(common_divisor(of(a), of(b)) == of(x));
    CHECK(of(a).value() == doctest::Approx(static_cast<double>(a)).epsilon(1e-15));
  }
}

TEST_CASE("numbers beside each power of two, each with each: what the compiler's integers say") {
  std::vector<wide> all = {0};
  for (const int bit : {0, 1, 2, 15, 16, 30, 31, 32, 33, 47, 62, 63})
    for (const int off : {-1, 0, 1}) all.push_back((static_cast<wide>(1) << bit) + static_cast<wide>(off));
  for (const int bit : {64, 65, 95, 96, 97, 126}) {
    all.push_back(static_cast<wide>(1) << bit);
    all.push_back((static_cast<wide>(1) << bit) - 1);
    all.push_back((static_cast<wide>(0xFFFFFFFFu) << (bit - 32)) + 5);
  }
  for (const wide a : all) {
    const natural n = of(a);
    int bits = 0, twos = 0;
    while (bits < 128 && a >> bits != 0) ++bits;
    while (a != 0 && (a >> twos & 1) == 0) ++twos;
    CHECK(n.bits() == bits);
    CHECK(n.zero() == (a == 0));
    CHECK(n.narrow() == (bits <= 64));
    CHECK(n.low() == static_cast<std::uint64_t>(a));
    if (a != 0) CHECK(n.twos() == twos);
    if (bits <= 64) CHECK(n == natural(static_cast<std::uint64_t>(a)));
    CHECK(n.text() == decimal(a));
    CHECK(n.value() == doctest::Approx(static_cast<double>(a)).epsilon(1e-15));
    for (int shift = 0; shift < 200; ++shift) CHECK(n.halved(shift) == of(shift < 128 ? a >> shift : 0));
    for (const wide b : all) {
      CHECK((n < of(b)) == (a < b));
      CHECK((n == of(b)) == (a == b));
      CHECK(n + of(b) == of(a + b));
      if (a >> 64 == 0 && b >> 64 == 0) CHECK(n * of(b) == of(a * b));
      if (b == 0) continue;
      natural rest, less = of(a < b ? b : a);
      CHECK(n.divided(of(b), rest) == of(a / b));
      CHECK(rest == of(a % b));
      less.subtract(of(a < b ? a : b));
      CHECK(less == of(a < b ? b - a : a - b));
      wide x = a, y = b;
      while (y != 0) x = std::exchange(y, x % y);
      if (a != 0) CHECK(common_divisor(n, of(b)) == of(x));
      if (a % b == 0) CHECK(exact_quotient(n, of(b)) == of(a / b));
    }
  }
}

TEST_CASE("a quotient and a rest are those of the division, whatever the digits") {
  dice random(9);
  const auto check = [](const natural& a, const natural& b) {
    natural rest;
    const natural quotient = a.divided(b, rest);
    return rest < b && quotient * b + rest == a;
  };
  const std::uint64_t ends[] = {0, 1, 0x80000000u, 0xFFFFFFFFu};
  std::vector<natural> three;  // digits
  for (const std::uint64_t high : ends)
    for (const std::uint64_t middle : ends)
      for (const std::uint64_t low : ends) {
        const natural word = std::uint64_t{1} << 32;
        three.push_back((natural(high) * word + natural(middle)) * word + natural(low));
      }
  for (const natural& b : three) {
    if (b.zero()) continue;
    int wrong = 0;
    for (const natural& a : three) wrong += check(a, b) && check(a * three[50], b) ? 0 : 1;
    CHECK(wrong == 0);
  }
  const auto digits = [&](index_t count) {  // many of them at either end, where an estimated digit is corrected
    natural n = 0;
    for (index_t i = 0; i < count; ++i) {
      const index_t kind = random.below(4);
      const std::uint64_t digit = kind == 0   ? 0
                                  : kind == 1 ? 0xFFFFFFFFu
                                  : kind == 2 ? 0x80000000u
                                              : random.bits() >> 32;
      n = n * natural(std::uint64_t{1} << 32) + natural(digit);
    }
    return n;
  };
  for (int i = 0; i < testing::tries(2000); ++i) {
    const natural a = digits(random.within(0, 9)), b = digits(random.within(1, 6));
    if (!b.zero()) CHECK(check(a, b));
  }
}

TEST_CASE("fractions are in lowest terms, ordered, and where they are said to be between two") {
  dice random(2);
  for (int i = 0; i < testing::tries(500); ++i) {
    const index_t n = random.below(60), d = random.within(1, 60), m = random.below(60), e = random.within(1, 60);
    const index_t of_all = random.within(1, 50), at = random.below(of_all + 1);
    const fraction a(n, d), b(m, e), between = fraction::between(a, b, at, of_all);
    CHECK(a.text() == std::to_string(n / std::gcd(n, d)) + "/" + std::to_string(d / std::gcd(n, d)));
    CHECK((a < b) == (n * e < m * d));
    CHECK((a == b) == (n * e == m * d));
    CHECK(between == fraction(n * e * (of_all - at) + m * d * at, d * e * of_all));
    CHECK(a.value() == doctest::Approx(static_cast<double>(n) / static_cast<double>(d)));
  }
  CHECK(fraction(0, 7).text() == "0/1");
  CHECK(fraction() == fraction(0, 1));
  CHECK(fraction::of_parts(~std::uint64_t{0}, 3).text() == "6148914691236517205/1");
  CHECK(fraction(3, 2).value() == 1.5);
  CHECK_REFUSED(fraction(-1, 2), "fraction: -1 / 2; the one is at least 0 and the other at least 1");
  CHECK_REFUSED(fraction(1, 0), "fraction: 1 / 0;");
  CHECK_REFUSED(fraction::between({1, 2}, {1, 3}, 4, 3), "fraction: 4 / 3 of the way; it is from 0 to 1");
  CHECK_REFUSED(fraction::between({1, 2}, {1, 3}, -1, 3), "fraction: -1 / 3 of the way; it is from 0 to 1");
  CHECK_REFUSED(fraction::between({1, 2}, {1, 3}, 0, 0), "fraction: 0 / 0 of the way; it is from 0 to 1");
  CHECK(fraction::between({1, 2}, {1, 3}, 0, 1) == fraction(1, 2));
  CHECK(fraction::between({1, 2}, {1, 3}, 1, 1) == fraction(1, 3));
  CHECK(fraction::between({1, 2}, {1, 3}, INT64_MAX, INT64_MAX) == fraction(1, 3));
  CHECK_REFUSED(fraction(1, -1), "fraction: 1 / -1;");
  CHECK_REFUSED(fraction(0, 0), "fraction: 0 / 0;");
  CHECK(fraction(0, INT64_MAX).text() == "0/1");
  CHECK(fraction(0, 5) == fraction(0, 1));
  CHECK(fraction::of_parts(0, 5) == fraction());
}

TEST_CASE("of thousands of bits, the double is the quotient") {
  fraction f(1, 3);
  for (int i = 0; i < 60; ++i) f = fraction::between(f, fraction(2, 7), 1, 1'000'000'007 + 2 * i);
  CHECK(f.text().size() > 600);
  CHECK(f.value() == doctest::Approx(1.0 / 3).epsilon(1e-6));
}
