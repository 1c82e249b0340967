// SPDX-License-Identifier: Apache-2.0
// Natural numbers of up to 4096 bits: what exact fractions are made of, once ramps of learning rates overlap.
// Builds on: base/integer.hpp.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <reshard/base/integer.hpp>

namespace reshard::detail {

/// n >= 0 in digits of 32 bits, the least first, the last not 0; zero has none.
class natural {
 public:
  static constexpr int most_bits = 4096;

  constexpr natural(std::uint64_t n = 0) {
    for (; n != 0; n >>= 32) digits_.push_back(static_cast<std::uint32_t>(n));
  }

  constexpr bool zero() const { return digits_.empty(); }
  constexpr int bits() const {
    return zero() ? 0 : static_cast<int>(digits_.size()) * 32 - std::countl_zero(digits_.back());
  }
  constexpr bool narrow() const { return digits_.size() <= 2; }
  /// n mod 2^64
  constexpr std::uint64_t low() const {
    return (digits_.size() > 1 ? std::uint64_t{digits_[1]} << 32 : 0) + (zero() ? 0 : digits_[0]);
  }
  /// The nearest double but for rounding of each digit; infinity where there is none.
  constexpr double value() const {
    double sum = 0;
    for (std::size_t i = digits_.size(); i-- > 0;) sum = sum * 4294967296.0 + digits_[i];
    return sum;
  }

  friend constexpr bool operator==(const natural&, const natural&) = default;
  friend constexpr bool operator<(const natural& a, const natural& b) {
    if (a.digits_.size() != b.digits_.size()) return a.digits_.size() < b.digits_.size();
    for (std::size_t i = a.digits_.size(); i-- > 0;)
      if (a.digits_[i] != b.digits_[i]) return a.digits_[i] < b.digits_[i];
    return false;
  }
  friend constexpr natural operator+(const natural& a, const natural& b) {
    natural sum;
    std::uint64_t carry = 0;
    for (std::size_t i = 0; i < std::max(a.digits_.size(), b.digits_.size()) || carry != 0; ++i) {
      carry += std::uint64_t{a.digit(i)} + b.digit(i);
      sum.digits_.push_back(static_cast<std::uint32_t>(carry));
      carry >>= 32;
    }
    return sum;
  }
  friend constexpr natural operator*(const natural& a, const natural& b) {
    natural product;
    product.digits_.assign(a.digits_.size() + b.digits_.size(), 0);
    for (std::size_t i = 0; i < a.digits_.size(); ++i) {
      std::uint64_t carry = 0;
      for (std::size_t j = 0; j <= b.digits_.size(); ++j) {
        carry += std::uint64_t{a.digits_[i]} * b.digit(j) + product.digits_[i + j];
        product.digits_[i + j] = static_cast<std::uint32_t>(carry);
        carry >>= 32;
      }
    }
    product.trim();
    if (product.bits() > most_bits)
      refuse("fraction: it takes ", product.bits(), " bits, and at most ", most_bits,
             " are kept; let ramps end before the next begins");
    return product;
  }

  /// Becomes this - b, for b <= this.
  constexpr void subtract(const natural& b) {
    std::int64_t borrow = 0;
    for (std::size_t i = 0; i < digits_.size(); ++i) {
      borrow += std::int64_t{digits_[i]} - b.digit(i);
      digits_[i] = static_cast<std::uint32_t>(borrow);
      borrow >>= 32;
    }
    trim();
  }
  /// Becomes floor(this / 2^count).
  constexpr void halve(int count) {
    const auto whole = static_cast<std::size_t>(count / 32);
    for (std::size_t i = whole; i < digits_.size(); ++i) {
      const std::uint64_t two = (std::uint64_t{digit(i + 1)} << 32) + digits_[i];
      digits_[i - whole] = static_cast<std::uint32_t>(two >> count % 32);
    }
    digits_.resize(digits_.size() - std::min(whole, digits_.size()));
    trim();
  }
  constexpr natural halved(int count) const {
    natural less = *this;
    less.halve(count);
    return less;
  }
  /// How often 2 divides it; it is not 0.
  constexpr int twos() const {
    std::size_t i = 0;
    while (digits_[i] == 0) ++i;
    return static_cast<int>(i) * 32 + std::countr_zero(digits_[i]);
  }
  /// floor(this / b), and the rest in `rest`; b is not 0. Digit by digit, each estimated by the leading digit of b once
  /// that is at least 2^31, which is at most 2 too many (Knuth, volume 2, 4.3.1, D).
  constexpr natural divided(const natural& b, natural& rest) const {
    const int shift = std::countl_zero(b.digits_.back());
    const natural by = b.doubled(shift);
    rest = doubled(shift);
    natural quotient;
    if (rest.digits_.size() >= by.digits_.size()) {
      rest.digits_.push_back(0);
      quotient.digits_.assign(rest.digits_.size() - by.digits_.size(), 0);
      for (std::size_t j = quotient.digits_.size(); j-- > 0;) quotient.digits_[j] = rest.take(by, j);
    }
    quotient.trim();
    rest.trim();
    rest.halve(shift);
    return quotient;
  }

  /// In decimal.
  std::string text() const {
    std::string digits;
    natural left = *this, rest;
    while (!left.narrow()) {
      left = left.divided(1'000'000'000u, rest);
      for (std::uint64_t nine = rest.low(), i = 0; i < 9; ++i, nine /= 10) digits += static_cast<char>('0' + nine % 10);
    }
    std::reverse(digits.begin(), digits.end());
    return std::to_string(left.low()) + digits;
  }

 private:
  constexpr std::uint32_t digit(std::size_t i) const { return i < digits_.size() ? digits_[i] : 0; }
  constexpr void trim() {
    while (!digits_.empty() && digits_.back() == 0) digits_.pop_back();
  }
  /// this * 2^count, 0 <= count < 32
  constexpr natural doubled(int count) const {
    natural more;
    std::uint64_t carry = 0;
    for (const std::uint32_t d : digits_) {
      carry |= std::uint64_t{d} << count;
      more.digits_.push_back(static_cast<std::uint32_t>(carry));
      carry >>= 32;
    }
    if (carry != 0) more.digits_.push_back(static_cast<std::uint32_t>(carry));
    return more;
  }
  /// One digit of a quotient: how often `by`, whose leading digit is at least 2^31, lies in the digits from j on, which
  /// are one more than its own and lose that; less than 2^32.
  constexpr std::uint32_t take(const natural& by, std::size_t j) {
    const std::size_t n = by.digits_.size();
    const std::uint64_t two = (std::uint64_t{digits_[j + n]} << 32) + digits_[j + n - 1];
    std::uint64_t times = std::min<std::uint64_t>(two / by.digits_.back(), 0xFFFFFFFFu), carry = 0;
    std::int64_t borrow = 0;
    for (std::size_t i = 0; i <= n; ++i) {
      if (i < n) carry += times * by.digits_[i];
      borrow += std::int64_t{digits_[j + i]} - static_cast<std::int64_t>(carry & 0xFFFFFFFFu);
      digits_[j + i] = static_cast<std::uint32_t>(borrow);
      borrow >>= 32;
      carry >>= 32;
    }
    for (; borrow < 0; --times) {  // one or two too many were taken
      std::uint64_t back = 0;
      for (std::size_t i = 0; i <= n; ++i) {
        back += std::uint64_t{digits_[j + i]} + by.digit(i);
        digits_[j + i] = static_cast<std::uint32_t>(back);
        back >>= 32;
      }
      borrow += static_cast<std::int64_t>(back);
    }
    return static_cast<std::uint32_t>(times);
  }

  std::vector<std::uint32_t> digits_;
};

/// The greatest common divisor of two numbers that are not 0, by halving and subtracting; of 0 and n < 2^64 it is n.
constexpr natural common_divisor(natural a, natural b) {
  if (a.narrow() && b.narrow()) {
    std::uint64_t x = a.low(), y = b.low();
    while (y != 0) {
      const std::uint64_t rest = x % y;
      x = y;
      y = rest;
    }
    return x;
  }
  const int twos = std::min(a.twos(), b.twos());
  a.halve(a.twos());
  while (!b.zero()) {
    b.halve(b.twos());
    if (b < a) std::swap(a, b);
    b.subtract(a);
  }
  natural two_power = 1;
  for (int i = 0; i < twos; ++i) two_power = two_power + two_power;
  return a * two_power;
}

/// a / b, which divides it.
constexpr natural exact_quotient(const natural& a, const natural& b) {
  if (a.narrow() && b.narrow()) return a.low() / b.low();
  natural rest;
  return a.divided(b, rest);
}

}  // namespace reshard::detail
