// SPDX-License-Identifier: Apache-2.0
// Natural numbers of thousands of bits, and fractions of them, against the laws of arithmetic. (job/fraction.cpp has
// those that fit 128 bits.)
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>

#include <reshard/job/detail/fraction.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using reshard::detail::natural;
using testing::dice;

namespace {

/// A number of about so many bits.
natural large(dice& random, int bits) {
  natural n = 1 + (random.bits() >> 1);
  while (n.bits() < bits) n = n * natural(random.bits() | 1) + natural(random.bits());
  return n;
}

}  // namespace

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
  natural doubled = 1;
  for (int twos = 0; twos < 4000; ++twos, doubled = doubled + doubled) {
    CHECK(doubled.twos() == twos);
    CHECK(doubled.bits() == twos + 1);
    if (twos % 31 == 0) CHECK(doubled.halved(twos) == natural(1));
    if (twos % 31 == 0) CHECK(common_divisor(doubled, doubled * natural(3)) == doubled);
  }
  natural power = 1;
  const natural more = std::uint64_t{1} << 32;
  for (int i = 0; i < 127; ++i) power = power * more;
  CHECK((power * natural(0xFFFFFFFFu)).bits() == natural::most_bits);
  CHECK_REFUSED(power * more,
                "fraction: it takes 4097 bits, and at most 4096 are kept; let ramps end before the next begins");
}

TEST_CASE("a double lies within a few units of its last place from the fraction, however many bits that takes") {
  fraction up(1, 3), down(7, 8);
  int narrow = 0, wide_ones = 0;
  for (int i = 0; i < 130; ++i) {
    for (const fraction& f : {up, down}) {
      const auto n = static_cast<std::uint64_t>(std::ldexp(f.value(), 62));  // exactly: these are between 1/4 and 1
      REQUIRE(n >= std::uint64_t{1} << 60);
      REQUIRE(n <= std::uint64_t{1} << 62);
      const std::uint64_t units = n >> 50;
      CHECK(fraction::of_parts(n - units, std::uint64_t{1} << 62) < f);
      CHECK(f < fraction::of_parts(n + units, std::uint64_t{1} << 62));
      ++(f.text().size() > 2 * 302 ? wide_ones : narrow);  // digits of 1000 bits
    }
    up = fraction::between(up, fraction(2, 3), 1, 1'000'003 + 2 * i);
    down = fraction::between(down, fraction(5, 7), 1, 997 + 2 * i);
  }
  CHECK(narrow > 50);
  CHECK(wide_ones > 50);
  for (index_t n = 0; n < 40; ++n)
    for (index_t d = 1; d < 40; ++d) CHECK(fraction(n, d).value() == static_cast<double>(n) / static_cast<double>(d));
  CHECK(fraction(INT64_MAX, 1).value() == 9223372036854775808.0);
  CHECK(fraction(1, INT64_MAX).value() == 1 / 9223372036854775808.0);
}
