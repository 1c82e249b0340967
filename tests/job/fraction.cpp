// SPDX-License-Identifier: Apache-2.0
// Natural numbers and fractions of them, against 128 bits where these suffice and against the laws of arithmetic
// beyond.
#include <doctest/doctest.h>

#include <numeric>
#include <string>

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
/// A number of about so many bits.
natural large(dice& random, int bits) {
  natural n = 1 + (random.bits() >> 1);
  while (n.bits() < bits) n = n * natural(random.bits() | 1) + natural(random.bits());
  return n;
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

TEST_CASE("beyond: (a b + c) / b is a and c; a divisor that both have is found, and dividing by it leaves none") {
  dice random(1);
  for (int i = 0; i < testing::tries(60); ++i) {
    const natural a = large(random, 40 + i * 11), b = large(random, 200), c = large(random, 100);
    natural rest;
    CHECK((a * b + c).divided(b, rest) == a);
    CHECK(rest == c);
    const natural both = common_divisor(a * c, b * c), a_left = exact_quotient(a * c, both),
                  b_left = exact_quotient(b * c, both);
    CHECK(a_left * both == a * c);
    CHECK(b_left * both == b * c);
    both.divided(c, rest);
    CHECK(rest.zero());
    CHECK(common_divisor(a_left, b_left) == natural(1));
  }
  natural power = 1;
  const natural more = std::uint64_t{1} << 32;
  for (int i = 0; i < 127; ++i) power = power * more;
  CHECK((power * natural(0xFFFFFFFFu)).bits() == natural::most_bits);
  CHECK_REFUSED(power * more,
                "fraction: it takes 4097 bits, and at most 4096 are kept; let ramps end before the next begins");
}

TEST_CASE("a quotient and a rest are those of the division, whatever the digits") {
  dice random(9);
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
    if (b.zero()) continue;
    natural rest;
    const natural quotient = a.divided(b, rest);
    CHECK(rest < b);
    CHECK(quotient * b + rest == a);
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
}

TEST_CASE("of thousands of bits, the double is the quotient") {
  fraction f(1, 3);
  for (int i = 0; i < 60; ++i) f = fraction::between(f, fraction(2, 7), 1, 1'000'000'007 + 2 * i);
  CHECK(f.text().size() > 600);
  CHECK(f.value() == doctest::Approx(1.0 / 3).epsilon(1e-6));
}
