// SPDX-License-Identifier: Apache-2.0
// Natural numbers of many digits against decimal arithmetic as it is done on paper, with digits of 32 bits that are the
// least, the greatest and the middle ones.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <reshard/job/detail/natural.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using reshard::detail::common_divisor;
using reshard::detail::exact_quotient;
using reshard::detail::natural;

namespace {

/// Digits in base 10, the least first, the last not 0.
using decimal = std::vector<int>;

decimal trimmed(decimal n) {
  while (!n.empty() && n.back() == 0) n.pop_back();
  return n;
}
int at(const decimal& n, std::size_t i) { return i < n.size() ? n[i] : 0; }

decimal plus(const decimal& a, const decimal& b) {
  decimal sum;
  int carry = 0;
  for (std::size_t i = 0; i <= std::max(a.size(), b.size()); ++i) {
    const int all = at(a, i) + at(b, i) + carry;
    sum.push_back(all % 10), carry = all / 10;
  }
  return trimmed(sum);
}
decimal times(const decimal& a, const decimal& b) {
  decimal product(a.size() + b.size() + 1, 0);
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < b.size(); ++j) product[i + j] += a[i] * b[j];
  for (std::size_t i = 0; i + 1 < product.size(); ++i) product[i + 1] += product[i] / 10, product[i] %= 10;
  return trimmed(product);
}
decimal of(std::uint64_t n) {
  decimal result;
  for (; n != 0; n /= 10) result.push_back(static_cast<int>(n % 10));
  return result;
}
std::string text(const decimal& n) {
  std::string result;
  for (std::size_t i = n.size(); i-- > 0;) result += static_cast<char>('0' + n[i]);
  return result.empty() ? "0" : result;
}

constexpr std::uint64_t base = std::uint64_t{1} << 32;

/// A number by its digits in base 2^32, and the same in decimal.
struct both {
  natural number;
  decimal paper;
  std::vector<std::uint64_t> digits;  // the least first
};
both made_of(const std::vector<std::uint64_t>& digits) {
  both made{0, {}, digits};
  for (std::size_t i = digits.size(); i-- > 0;) {
    made.number = made.number * natural(base) + natural(digits[i]);
    made.paper = plus(times(made.paper, of(base)), of(digits[i]));
  }
  while (!made.digits.empty() && made.digits.back() == 0) made.digits.pop_back();
  return made;
}
both drawn(testing::dice& random, int most_digits) {
  const std::uint64_t special[] = {0, 1, base / 2, base - 1, base - 2, base / 2 - 1};
  std::vector<std::uint64_t> digits;
  for (std::int64_t n = random.below(most_digits + 1); n > 0; --n)
    digits.push_back(random.coin() ? special[random.below(6)] : random.bits() % base);
  return made_of(digits);
}
/// 2^count
natural power_of_two(int count) {
  natural n = 1;
  for (int i = 0; i < count; ++i) n = n + n;
  return n;
}
natural power(std::uint64_t of, int count) {
  natural n = 1;
  for (int i = 0; i < count; ++i) n = n * natural(of);
  return n;
}
bool less(const both& a, const both& b) {
  if (a.digits.size() != b.digits.size()) return a.digits.size() < b.digits.size();
  return std::lexicographical_compare(a.digits.rbegin(), a.digits.rend(), b.digits.rbegin(), b.digits.rend());
}

}  // namespace

TEST_CASE("numbers of up to 64 bits are themselves") {
  CHECK(natural().zero());
  CHECK(natural().bits() == 0);
  CHECK(natural().low() == 0);
  CHECK(natural().text() == "0");
  CHECK(natural().value() == 0.0);
  CHECK(natural() == natural(0));
  for (const std::uint64_t n :
       {std::uint64_t{1}, std::uint64_t{1} << 31, base - 1, base, base + 1, ~std::uint64_t{0}}) {
    const natural number(n);
    CHECK(!number.zero());
    CHECK(number.low() == n);
    CHECK(number.narrow());
    CHECK(number.bits() == 64 - std::countl_zero(n));
    CHECK(number.twos() == std::countr_zero(n));
    CHECK(number.text() == std::to_string(n));
  }
  CHECK(natural(base + 5).value() == 4294967301.0);
  const natural wide = natural(~std::uint64_t{0}) + natural(1);
  CHECK(!wide.narrow());
  CHECK(wide.low() == 0);
  CHECK(wide.bits() == 65);
  CHECK(wide.twos() == 64);
  CHECK(wide.value() == 18446744073709551616.0);
  CHECK(wide.text() == "18446744073709551616");
  CHECK((wide * wide).value() == 18446744073709551616.0 * 18446744073709551616.0);
  CHECK((wide + natural(7)).low() == 7);
}

TEST_CASE("drawn numbers: sums, products, differences and order are those on paper") {
  testing::dice random(62);
  int shorter = 0, same = 0;
  for (int n = testing::thrown(300); n > 0; --n) {
    const both a = drawn(random, 7), b = random.below(8) == 0 ? a : drawn(random, 7);
    const natural sum = a.number + b.number, product = a.number * b.number;
    CHECK(a.number.text() == text(a.paper));
    CHECK(sum.text() == text(plus(a.paper, b.paper)));
    CHECK(product.text() == text(times(a.paper, b.paper)));
    CHECK((a.number < b.number) == less(a, b));
    CHECK((b.number < a.number) == less(b, a));
    CHECK((a.number == b.number) == (a.digits == b.digits));
    natural difference = sum;
    difference.subtract(b.number);
    CHECK(difference == a.number);
    difference.subtract(a.number);
    CHECK(difference.zero());
    CHECK(difference.bits() == 0);
    const std::uint64_t low = a.digits.empty() ? 0 : a.digits[0] + (a.digits.size() > 1 ? a.digits[1] * base : 0);
    CHECK(a.number.low() == low);
    CHECK(a.number.narrow() == (a.digits.size() <= 2));
    shorter += less(a, b) ? 1 : 0, same += a.number == b.number ? 1 : 0;
  }
  CHECK_DRAWN(shorter > 50);
  CHECK_DRAWN(same > 10);
}

TEST_CASE("numbers that differ in their lowest or highest digit alone") {
  const natural a = made_of({5, 9, 7}).number, b = made_of({6, 9, 7}).number, c = made_of({5, 9, 8}).number;
  CHECK(a < b);
  CHECK(!(b < a));
  CHECK(b < c);
  CHECK(!(c < b));
  CHECK(!(a < a));
  CHECK(a != b);
}

TEST_CASE("divided by two to some power, and how often two divides") {
  testing::dice random(63);
  for (int n = testing::thrown(200); n > 0; --n) {
    const both a = drawn(random, 6);
    const int count = static_cast<int>(random.coin() ? 32 * random.below(8) : random.below(230));
    natural halved = a.number.halved(count), again = a.number;
    again.halve(count);
    CHECK(halved == again);
    CHECK(halved.bits() == std::max(a.number.bits() - count, 0));
    // a = 2^count halved + rest, rest < 2^count
    natural rest = a.number;
    rest.subtract(halved * power_of_two(count));
    CHECK(rest < power_of_two(count));
    if (a.digits.empty()) continue;
    int twos = 0;
    for (natural left = a.number; left.low() % 2 == 0; ++twos) left.halve(1);
    CHECK(a.number.twos() == twos);
    CHECK((a.number * power_of_two(count)).twos() == twos + count);
  }
}

TEST_CASE("drawn quotients and rests") {
  testing::dice random(64);
  int rests = 0;
  for (int n = testing::thrown(1000); n > 0; --n) {
    const both quotient = drawn(random, 4);
    both by = drawn(random, 4), rest = drawn(random, 4);
    if (by.digits.empty()) by = made_of({3});
    if (!less(rest, by)) rest = random.coin() ? made_of({}) : by;
    natural less_by_one = by.number;
    less_by_one.subtract(natural(1));
    if (rest.digits == by.digits) rest.number = less_by_one;
    const natural all = quotient.number * by.number + rest.number;
    natural left(17);
    CHECK(all.divided(by.number, left) == quotient.number);
    CHECK(left == rest.number);
    CHECK(exact_quotient(quotient.number * by.number, by.number) == quotient.number);
    rests += rest.number.zero() ? 0 : 1;
  }
  CHECK_DRAWN(rests > 300);
}

TEST_CASE("quotients whose first estimate is too great by one and by two, or has no digit") {
  const auto digits = [](std::vector<std::uint64_t> of) { return made_of(of).number; };
  struct division {
    std::vector<std::uint64_t> quotient, by, rest;
  };
  const division all[] = {{{base - 1}, {base - 1, base / 2}, {base - 2, base / 2}},
                          {{base - 1, base - 1}, {base - 1, base - 1, base / 2}, {0, 0, base / 2}},
                          {{base - 2}, {base - 1, base - 1, base / 2}, {1}},
                          {{0, 1}, {0, 0, base / 2}, {base - 1, base - 1, base / 2 - 1}},
                          {{base - 1, 0, base - 1}, {1, base - 1}, {0, base - 1}},
                          {{1}, {7, 9, 1}, {6, 9, 1}},
                          {{}, {7, 9, 1}, {6, 9, 1}},
                          {{}, {7, 9, 1}, {3}},
                          {{base - 1, base - 1}, {base - 1, 1}, {base - 2, 1}}};
  for (const auto& [quotient, by, rest] : all) {
    natural left;
    const natural whole = digits(quotient) * digits(by) + digits(rest);
    CHECK(whole.divided(digits(by), left) == digits(quotient));
    CHECK(left == digits(rest));
  }
}

TEST_CASE("a product may have 4096 bits and no more") {
  const natural half = power_of_two(2048), most = power_of_two(2047);
  CHECK((half * most).bits() == 4096);
  CHECK_REFUSED(half * half, "fraction: it takes 4097 bits, and at most 4096 are kept");
  CHECK((half * natural()).zero());
  CHECK(std::isinf(half.value()));
}

TEST_CASE("text of several groups of nine digits, zeros among them") {
  CHECK(power(10, 27).text() == "1" + std::string(27, '0'));
  CHECK((power(10, 36) + natural(1'000'000'007)).text() == "1" + std::string(26, '0') + "1000000007");
  CHECK(power(7, 40).text() == "6366805760909027985741435139224001");
}

TEST_CASE("the greatest common divisor") {
  testing::dice random(65);
  for (int n = testing::thrown(300); n > 0; --n) {
    const std::uint64_t x = random.bits() >> random.below(40), y = random.bits() >> random.below(40);
    CHECK(common_divisor(natural(x), natural(y)) == natural(std::gcd(x, y)));
    // numbers by their prime factors
    natural a = 1, b = 1, common = 1;
    for (const std::uint64_t prime : {2u, 3u, 5u, 4294967291u, 65537u}) {
      const int p = static_cast<int>(random.below(prime == 2 ? 70 : 6));
      const int q = static_cast<int>(random.below(prime == 2 ? 70 : 6));
      a = a * power(prime, p), b = b * power(prime, q), common = common * power(prime, std::min(p, q));
    }
    CHECK(common_divisor(a, b) == common);
    CHECK(common_divisor(b, a) == common);
    CHECK(exact_quotient(a, common) * common == a);
  }
  CHECK(common_divisor(natural(0), natural(12)) == natural(12));
  CHECK(common_divisor(natural(12), natural(0)) == natural(12));
  CHECK(common_divisor(power(3, 50), power(3, 50)) == power(3, 50));
  CHECK(common_divisor(power(3, 50), natural(9)) == natural(9));
  CHECK(common_divisor(natural(18), power(2, 80)) == natural(2));
  CHECK(exact_quotient(natural(91), natural(7)) == natural(13));
}
