// SPDX-License-Identifier: Apache-2.0
// Fractions, exactly: what a learning rate is multiplied by.
// Builds on: job/detail/natural.hpp.
#pragma once

#include <string>
#include <utility>

#include <reshard/job/detail/natural.hpp>

namespace reshard {

/// n / d in lowest terms, n >= 0, d > 0.
class fraction {
 public:
  constexpr fraction() : over_(1) {}
  constexpr fraction(index_t numerator, index_t denominator)
      : fraction(detail::natural(static_cast<std::uint64_t>(numerator)),
                 detail::natural(static_cast<std::uint64_t>(denominator))) {
    if (numerator < 0 || denominator < 1)
      refuse("fraction: ", numerator, " / ", denominator, "; the one is at least 0 and the other at least 1");
  }

  /// numerator / denominator, both without a sign; the denominator is not 0.
  static constexpr fraction of_parts(std::uint64_t numerator, std::uint64_t denominator) {
    return {detail::natural(numerator), detail::natural(denominator)};
  }

  /// (a (of - at) + b at) / of: a where at is 0, b where it is `of`; 0 <= at <= of, of > 0.
  static constexpr fraction between(const fraction& a, const fraction& b, index_t at, index_t of) {
    if (of < 1 || at < 0 || at > of) refuse("fraction: ", at, " / ", of, " of the way; it is from 0 to 1");
    const detail::natural left(static_cast<std::uint64_t>(of - at)), right(static_cast<std::uint64_t>(at));
    return {a.top_ * b.over_ * left + b.top_ * a.over_ * right,
            a.over_ * b.over_ * detail::natural(static_cast<std::uint64_t>(of))};
  }

  /// "5/4"; a whole number too has its denominator, "2/1".
  std::string text() const { return top_.text() + "/" + over_.text(); }
  /// The double next to it, within a few units of its last place.
  constexpr double value() const {
    const int shift = std::max(0, std::max(top_.bits(), over_.bits()) - 1000);
    return top_.halved(shift).value() / over_.halved(shift).value();
  }

  friend constexpr bool operator==(const fraction&, const fraction&) = default;
  friend constexpr bool operator<(const fraction& a, const fraction& b) { return a.top_ * b.over_ < b.top_ * a.over_; }

 private:
  constexpr fraction(detail::natural top, detail::natural over) : top_(std::move(top)), over_(std::move(over)) {
    if (top_.zero()) over_ = 1;
    const detail::natural divisor = detail::common_divisor(top_, over_);
    top_ = detail::exact_quotient(top_, divisor);
    over_ = detail::exact_quotient(over_, divisor);
  }

  detail::natural top_, over_;
};

}  // namespace reshard
