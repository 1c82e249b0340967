// SPDX-License-Identifier: Apache-2.0
// Every pattern of bf16, fp16 and fp32, converted, against an oracle of another kind: values of the narrow type as
// doubles, in order, and the halves between them, which rounding goes by. No bit is computed twice in one way.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <reshard/model/float_conversion.hpp>

#include "../support/tries.hpp"

using namespace reshard;

namespace {

/// A format by its numbers: 1 sign bit, then exponent, then digits.
struct format {
  int exponent_bits, digits;
  std::uint32_t infinity() const { return ((std::uint32_t{1} << exponent_bits) - 1) << digits; }
  std::uint32_t sign() const { return std::uint32_t{1} << (exponent_bits + digits); }
  std::uint32_t quiet() const { return std::uint32_t{1} << (digits - 1); }
  /// What a pattern below infinity, without its sign, stands for, by the definition of the format.
  double value(std::uint32_t size) const {
    const int bias = (1 << (exponent_bits - 1)) - 1, exponent = static_cast<int>(size >> digits);
    const double fraction = static_cast<double>(size % (std::uint32_t{1} << digits)) / (std::uint32_t{1} << digits);
    return exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  }
};
constexpr format bf16_format{8, 7}, fp16_format{5, 10}, fp32_format{8, 23};

/// A NaN: sign, all exponent bits, quiet, and the first digits of its payload.
std::uint32_t nan_in(const format& to, const format& from, std::uint32_t bits) {
  const std::uint32_t payload = bits % (std::uint32_t{1} << from.digits);
  const int more = to.digits - from.digits;
  return ((bits & from.sign()) != 0 ? to.sign() : 0) | to.infinity() | to.quiet() |
         (more >= 0 ? payload << more : payload >> -more);
}

/// Patterns of fp32 that a conversion gets wrong, of every `step`-th pattern: those of rising size are met by rising
/// values of the narrow type.
template <std::uint32_t (*Narrow)(std::uint32_t)>
std::uint64_t wrong_from_fp32(const format& to, std::uint32_t first, std::uint32_t step) {
  std::vector<double> past;  // past[k]: from half way between the values k and k + 1 on, k is too small
  for (std::uint32_t k = 0; k + 1 < to.infinity(); ++k) past.push_back((to.value(k) + to.value(k + 1)) / 2);
  const double last = to.value(to.infinity() - 1);
  past.push_back(last + (last - to.value(to.infinity() - 2)) / 2);  // from here on infinity is nearer
  std::uint64_t wrong = 0;
  std::uint32_t k = 0;
  for (std::uint64_t size = first; size <= 0x7fffffff; size += step) {
    const auto bits = static_cast<std::uint32_t>(size);
    if (bits > fp32_format.infinity()) {
      for (const std::uint32_t all : {bits, bits | fp32_format.sign()})
        wrong += Narrow(all) != nan_in(to, fp32_format, all) ? 1 : 0;
      continue;
    }
    const auto x = static_cast<double>(std::bit_cast<float>(bits));
    while (k < to.infinity() && x > past[k]) ++k;
    const std::uint32_t nearest = k < to.infinity() && x == past[k] ? k + k % 2 : k;
    wrong += Narrow(bits) != nearest ? 1 : 0;
    wrong += Narrow(bits | fp32_format.sign()) != (nearest | to.sign()) ? 1 : 0;
  }
  return wrong;
}

template <std::uint32_t (*Wide)(std::uint32_t)>
int wrong_to_fp32(const format& from) {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const std::uint32_t size = bits & ~from.sign(), got = Wide(bits);
    const double sign = bits == size ? 1 : -1;
    if (size > from.infinity()) {
      wrong += got != nan_in(fp32_format, from, bits) ? 1 : 0;
    } else {
      const double value = size == from.infinity() ? std::numeric_limits<double>::infinity() : from.value(size);
      const auto found = static_cast<double>(std::bit_cast<float>(got));
      wrong += found != sign * value || std::signbit(found) != (sign < 0) ? 1 : 0;
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("every pattern of bf16 and fp16 becomes fp32, and fp32 becomes it again") {
  CHECK(wrong_to_fp32<fp32_of_bf16>(bf16_format) == 0);
  CHECK(wrong_to_fp32<fp32_of_fp16>(fp16_format) == 0);
  int changed = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto quiet = [&](const format& f) { return (bits & ~f.sign()) > f.infinity() ? bits | f.quiet() : bits; };
    changed += bf16_of_fp32(fp32_of_bf16(bits)) != quiet(bf16_format) ? 1 : 0;
    changed += fp16_of_fp32(fp32_of_fp16(bits)) != quiet(fp16_format) ? 1 : 0;
  }
  CHECK(changed == 0);
}

TEST_CASE("3 in 64 patterns of fp32 become the nearest bf16 and fp16") {
  for (const std::uint32_t first : {0u, 1u, 63u}) {  // what lies half way between two values, and beside it
    CHECK(wrong_from_fp32<bf16_of_fp32>(bf16_format, first, 64) == 0);
    CHECK(wrong_from_fp32<fp16_of_fp32>(fp16_format, first, 64) == 0);
  }
}

TEST_CASE("every pattern of fp32 does") {
  if (testing::few()) return;  // 2^32 of them
  CHECK(wrong_from_fp32<bf16_of_fp32>(bf16_format, 0, 1) == 0);
  CHECK(wrong_from_fp32<fp16_of_fp32>(fp16_format, 0, 1) == 0);
}

TEST_CASE("a conversion goes by the type that travels, once there and once back") {
  static_assert(conversion{}.none() && !conversion{dtype::fp32, dtype::bf16, dtype::fp32}.none());
  static_assert(!conversion{dtype::fp32, dtype::bf16, dtype::bf16}.none());
  static_assert(loses_bits(fp32, bf16) && loses_bits(bf16, fp16) && loses_bits(fp16, bf16) && !loses_bits(bf16, fp32));
  static_assert(!loses_bits(bf16, bf16) && !loses_bits(fp16, fp32));
  static_assert(converts(bf16, fp32) && converts(fp16, bf16) && !converts(bf16, dtype::fp64));
  static_assert(!converts(dtype::int32, fp32));
  constexpr std::uint32_t third = 0x3eaaaaab;  // 1/3 in fp32
  for (const dtype from : {bf16, fp16, fp32})
    for (const dtype via : {bf16, fp16, fp32})
      for (const dtype to : {bf16, fp16, fp32}) {
        const std::uint32_t bits = conversion{fp32, fp32, from}(third);
        const conversion sent{from, via, via}, received{via, via, to};
        CHECK(conversion{from, via, to}(bits) == received(sent(bits)));
      }
  CHECK(conversion{fp32, bf16, fp32}(third) == 0x3eab0000);
  CHECK(conversion{fp32, fp16, fp32}(third) == 0x3eaaa000);
  CHECK(conversion{bf16, fp16, fp16}(0x3eab) == 0x3558);
}
