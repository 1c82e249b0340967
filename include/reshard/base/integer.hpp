// SPDX-License-Identifier: Apache-2.0
// The integers that everything counts with: 64 bits, checked where a product could leave them.
// Builds on: base/refusal.hpp (the sentence that an overflow ends in).
#pragma once

#include <cstdint>

#include <reshard/base/refusal.hpp>

namespace reshard {

using index_t = std::int64_t;  // a count of elements, an offset, a coordinate
using rank_t = std::int64_t;   // a process of a world
using bytes_t = std::int64_t;  // a count of bytes

#if defined(__CUDACC__)  // nvcc's front end takes the builtins for no constant expressions; it reads 128 bits
namespace detail {
__extension__ using wide_index = __int128;
constexpr bool narrows(wide_index exact, index_t* narrow) {
  *narrow = static_cast<index_t>(exact);
  return exact != *narrow;
}
constexpr bool multiply_overflows(index_t a, index_t b, index_t* to) { return narrows(wide_index{a} * b, to); }
constexpr bool add_overflows(index_t a, index_t b, index_t* to) { return narrows(wide_index{a} + b, to); }
}  // namespace detail
#define RESHARD_MULTIPLY_OVERFLOWS ::reshard::detail::multiply_overflows
#define RESHARD_ADD_OVERFLOWS ::reshard::detail::add_overflows
#else  // macros, as every call counts among the steps that a compiler allows a constant expression
#define RESHARD_MULTIPLY_OVERFLOWS __builtin_mul_overflow
#define RESHARD_ADD_OVERFLOWS __builtin_add_overflow
#endif

/// a * b for a, b of any sign; refused where it leaves 64 bits.
constexpr index_t checked_multiply(index_t a, index_t b) {
  index_t product = 0;
  if (RESHARD_MULTIPLY_OVERFLOWS(a, b, &product)) refuse(a, " x ", b, " does not fit 64 bits");
  return product;
}

/// a + b; refused where it leaves 64 bits.
constexpr index_t checked_add(index_t a, index_t b) {
  index_t sum = 0;
  if (RESHARD_ADD_OVERFLOWS(a, b, &sum)) refuse(a, " + ", b, " does not fit 64 bits");
  return sum;
}

/// ceil(a / b) for a >= 0, b > 0.
constexpr index_t ceil_divide(index_t a, index_t b) { return a / b + (a % b != 0 ? 1 : 0); }

/// The least multiple of b that is >= a, for a >= 0, b > 0.
constexpr index_t round_up(index_t a, index_t b) { return checked_multiply(ceil_divide(a, b), b); }

/// floor(i * extent / parts) without leaving 64 bits, for 0 <= i <= parts: where part i of an even split begins.
constexpr index_t split_point(index_t i, index_t extent, index_t parts) {
  const index_t rest = extent % parts;
  return i * (extent / parts) + (rest == 0 ? 0 : i * rest / parts);
}

namespace detail {
__extension__ using wide_count = unsigned __int128;
}

/// floor(a * b / c) for a, b >= 0, c > 0, however large the product; refused where the quotient leaves 64 bits.
constexpr index_t floor_of_product(index_t a, index_t b, index_t c) {
  const detail::wide_count quotient =
      static_cast<detail::wide_count>(a) * static_cast<detail::wide_count>(b) / static_cast<detail::wide_count>(c);
  if (quotient > static_cast<detail::wide_count>(INT64_MAX))
    refuse("floor(", a, " x ", b, " / ", c, ") does not fit 64 bits");
  return static_cast<index_t>(quotient);
}

/// min(a, b)
constexpr index_t least(index_t a, index_t b) { return a < b ? a : b; }
/// max(a, b)
constexpr index_t greatest(index_t a, index_t b) { return a < b ? b : a; }

/// The greatest common divisor of a, b >= 0, gcd(0, b) == b; `<numeric>` costs more to include than this.
constexpr index_t gcd(index_t a, index_t b) {
  while (b != 0) {
    const index_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/// The least common multiple of a, b > 0; refused where it leaves 64 bits.
constexpr index_t lcm(index_t a, index_t b) { return checked_multiply(a / gcd(a, b), b); }

/// number <= limit, for a static_assert that prints both where it fails:
/// static_assert(at_most<max_bytes_per_rank(s), 80'000'000'000>)
template <index_t Number, index_t Limit>
concept at_most = Number <= Limit;

}  // namespace reshard
