// SPDX-License-Identifier: Apache-2.0
// The order in which a pass goes through a set: a bijection, of which one position is computed without the others, on
// any machine, so that no permutation is made, stored or carried.
// Builds on: base/integer.hpp.
#pragma once

#include <cstdint>

#include <reshard/base/digest.hpp>
#include <reshard/base/integer.hpp>

namespace reshard {

namespace detail {

/// floor(bits * n / 2^64): a number of [0, n) made of 64 bits.
constexpr std::uint64_t below(std::uint64_t n, std::uint64_t bits) {
  return static_cast<std::uint64_t>(static_cast<wide_count>(bits) * n >> 64);
}

/// ceil(sqrt(x)) for 0 < x < 2^63, by bisection.
constexpr std::uint64_t root_above(std::uint64_t x) {
  std::uint64_t low = 1, high = std::uint64_t{1} << 32;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (static_cast<wide_count>(middle) * middle < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

}  // namespace detail

/// order(seed, pass) of the set [0, size): which element stands at a position of the pass, and where an element stands.
/// A Feistel network: with a the least even number from sqrt(size) on and b = ceil(size / a), position p is the pair
/// (p div b, p mod b); 24 rounds add to one of the two, modulo a or b, a number that is mixed of the other and of a key
/// of seed, pass and round. That permutes [0, a b); a pair beyond the set goes through the rounds again until it lies
/// within (cycle walking: a b - size < a of them do). 24 rounds, as for six elements sixteen can be told from chance.
class sample_order {
 public:
  constexpr sample_order(index_t size, std::uint64_t seed, index_t pass) : size_(size) {
    if (size < 1) refuse("order: a set of ", size, " elements; it has at least 1");
    if (pass < 0) refuse("order: pass ", pass, "; passes count from 0");
    a_ = detail::root_above(static_cast<std::uint64_t>(size));
    a_ += a_ % 2;  // where a and b are odd, every round is an even permutation, and half of all orders never come up
    b_ = static_cast<std::uint64_t>(ceil_divide(size, static_cast<index_t>(a_)));
    std::uint64_t key = mix64(mix64(seed) + static_cast<std::uint64_t>(pass));
    for (std::uint64_t& of_round : keys_) of_round = key = mix64(key);
  }

  constexpr index_t size() const { return size_; }

  /// The element at a position, both of [0, size).
  constexpr index_t operator()(index_t position) const {
    require("position", position);
    auto at = static_cast<std::uint64_t>(position);
    do at = forward(at);
    while (at >= static_cast<std::uint64_t>(size_));
    return static_cast<index_t>(at);
  }

  /// The inverse: (*this)(position_of(element)) == element.
  constexpr index_t position_of(index_t element) const {
    require("element", element);
    auto at = static_cast<std::uint64_t>(element);
    do at = backward(at);
    while (at >= static_cast<std::uint64_t>(size_));
    return static_cast<index_t>(at);
  }

 private:
  static constexpr int rounds = 24;

  constexpr void require(const char* what, index_t x) const {
    if (x < 0 || x >= size_) refuse("order: there is no ", what, " ", x, "; they are 0 to ", size_ - 1);
  }
  constexpr std::uint64_t forward(std::uint64_t at) const {
    std::uint64_t left = at / b_, right = at % b_;
    for (int i = 0; i < rounds; i += 2) {
      left += detail::below(a_, mix64(right ^ keys_[i]));
      if (left >= a_) left -= a_;
      right += detail::below(b_, mix64(left ^ keys_[i + 1]));
      if (right >= b_) right -= b_;
    }
    return left * b_ + right;
  }
  constexpr std::uint64_t backward(std::uint64_t at) const {
    std::uint64_t left = at / b_, right = at % b_;
    for (int i = rounds - 2; i >= 0; i -= 2) {
      right += b_ - detail::below(b_, mix64(left ^ keys_[i + 1]));
      if (right >= b_) right -= b_;
      left += a_ - detail::below(a_, mix64(right ^ keys_[i]));
      if (left >= a_) left -= a_;
    }
    return left * b_ + right;
  }

  index_t size_;
  std::uint64_t a_ = 1, b_ = 1;
  std::uint64_t keys_[rounds] = {};
};

/// A set that a job goes through again and again, each pass in an order of its own.
struct sample_set {
  index_t size = 1;
  std::uint64_t seed = 0;

  /// Which pass position p belongs to: p div size.
  constexpr index_t pass_of(index_t p) const {
    require(p);
    return p / size;
  }
  /// The element at position p of all passes: order(seed, p div size)(p mod size).
  constexpr index_t element(index_t p) const { return sample_order(size, seed, pass_of(p))(p % size); }

 private:
  constexpr void require(index_t p) const {
    if (size < 1 || p < 0)
      refuse("order: position ", p, " of passes over ", size,
             " elements; both are told from 0, and a set is not empty");
  }
};

}  // namespace reshard
