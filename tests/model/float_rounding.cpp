// SPDX-License-Identifier: Apache-2.0
// Floating types into one another where rounding turns: every value of bf16 and fp16, the middle to the next one, and
// one bit of fp32 beside either; NaN, infinity, and types that are no floating ones. (All patterns of fp32 are
// model/float_conversion.cpp's, which takes minutes.)
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include <reshard/model/float_conversion.hpp>

using namespace reshard;

namespace {

constexpr std::uint32_t bf16_infinity = 0x7f80, fp16_infinity = 0x7c00, minus = 0x80000000;
constexpr dtype all[] = {dtype::bf16, dtype::fp16, dtype::fp32,  dtype::fp64,
                         dtype::fp8,  dtype::int8, dtype::int32, dtype::int64};
constexpr dtype floating[] = {dtype::bf16, dtype::fp16, dtype::fp32};

std::uint32_t bits_of(double value) { return std::bit_cast<std::uint32_t>(static_cast<float>(value)); }
/// What patterns below infinity stand for, by the formats' definitions.
double fp16_value(std::uint32_t k) {
  const int exponent = static_cast<int>(k >> 10), digits = static_cast<int>(k & 0x3ff);
  return exponent == 0 ? std::ldexp(digits, -24) : std::ldexp(1024 + digits, exponent - 25);
}
double bf16_value(std::uint32_t k) {
  const int exponent = static_cast<int>(k >> 7), digits = static_cast<int>(k & 0x7f);
  return exponent == 0 ? std::ldexp(digits, -133) : std::ldexp(128 + digits, exponent - 134);
}

/// How many of the values below infinity, and of what lies between them, become another than the nearest.
template <std::uint32_t (*Narrow)(std::uint32_t), double (*Value)(std::uint32_t)>
int wrong_around_values(std::uint32_t infinity) {
  int wrong = 0;
  const auto check = [&](std::uint32_t wide, std::uint32_t nearest) {
    wrong += Narrow(wide) == nearest ? 0 : 1;
    wrong += Narrow(wide | minus) == (nearest | 0x8000) ? 0 : 1;
  };
  for (std::uint32_t k = 0; k < infinity; ++k) {
    const double step = k + 1 < infinity ? Value(k + 1) - Value(k) : Value(k) - Value(k - 1);
    const std::uint32_t own = bits_of(Value(k)), middle = bits_of(Value(k) + step / 2);
    check(own, k);
    check(own + 1, k);
    check(middle - 1, k);
    check(middle, k + k % 2);  // of two the even one; infinity counts as one
    check(middle + 1, k + 1);
    if (k > 0) check(own - 1, k);
  }
  check(0x7f800000, infinity);
  check(0x7f7fffff, infinity);  // the largest of fp32
  return wrong;
}

/// A value's bits in one type, of a value that fp32 has.
std::uint32_t in_type(dtype type, std::uint32_t wide) {
  return type == dtype::bf16 ? bf16_of_fp32(wide) : type == dtype::fp16 ? fp16_of_fp32(wide) : wide;
}
std::uint32_t in_fp32(dtype type, std::uint32_t bits) {
  return type == dtype::bf16 ? fp32_of_bf16(bits) : type == dtype::fp16 ? fp32_of_fp16(bits) : bits;
}

}  // namespace

TEST_CASE("fp32 becomes the nearest bf16 and fp16, of two the even one, on both sides of every middle") {
  CHECK(wrong_around_values<bf16_of_fp32, bf16_value>(bf16_infinity) == 0);
  CHECK(wrong_around_values<fp16_of_fp32, fp16_value>(fp16_infinity) == 0);
  CHECK(fp16_of_fp32(0x477fefff) == 0x7bff);  // below 65520
  CHECK(fp16_of_fp32(0x477ff000) == 0x7c00);
  CHECK(fp16_of_fp32(0x33000000) == 0);  // 2^-25 is half of the least
  CHECK(fp16_of_fp32(0x33000001) == 1);
  CHECK(fp16_of_fp32(0x00000001) == 0);
}

TEST_CASE("every value of bf16 and fp16 is one of fp32") {
  int wrong = 0;
  for (std::uint32_t k = 0; k < bf16_infinity; ++k) {
    wrong += fp32_of_bf16(k) == bits_of(bf16_value(k)) ? 0 : 1;
    wrong += fp32_of_bf16(k | 0x8000) == (bits_of(bf16_value(k)) | minus) ? 0 : 1;
  }
  for (std::uint32_t k = 0; k < fp16_infinity; ++k) {
    wrong += fp32_of_fp16(k) == bits_of(fp16_value(k)) ? 0 : 1;
    wrong += fp32_of_fp16(k | 0x8000) == (bits_of(fp16_value(k)) | minus) ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK(fp32_of_bf16(0x7f80) == 0x7f800000);
  CHECK(fp32_of_bf16(0xff80) == 0xff800000);
  CHECK(fp32_of_fp16(0x7c00) == 0x7f800000);
  CHECK(fp32_of_fp16(0xfc00) == 0xff800000);
}

TEST_CASE("NaN stays one: quiet, with its sign and as much of its payload as fits") {
  CHECK(fp32_of_bf16(0x7f81) == 0x7fc10000);
  CHECK(fp32_of_bf16(0xffaa) == 0xffea0000);
  CHECK(fp32_of_bf16(0x7fff) == 0x7fff0000);
  CHECK(fp32_of_fp16(0x7c01) == 0x7fc02000);
  CHECK(fp32_of_fp16(0xfdff) == 0xffffe000);
  CHECK(fp32_of_fp16(0x7e00) == 0x7fc00000);
  for (const std::uint32_t sign : {0u, 1u}) {
    CHECK(bf16_of_fp32(sign << 31 | 0x7f800001) == (sign << 15 | 0x7fc0));
    CHECK(bf16_of_fp32(sign << 31 | 0x7fffffff) == (sign << 15 | 0x7fff));
    CHECK(bf16_of_fp32(sign << 31 | 0x7fa1ffff) == (sign << 15 | 0x7fe1));
    CHECK(fp16_of_fp32(sign << 31 | 0x7f800001) == (sign << 15 | 0x7e00));
    CHECK(fp16_of_fp32(sign << 31 | 0x7fffffff) == (sign << 15 | 0x7fff));
    CHECK(fp16_of_fp32(sign << 31 | 0x7f802000) == (sign << 15 | 0x7e01));
    CHECK(fp16_of_fp32(sign << 31 | 0x7fa15fff) == (sign << 15 | 0x7f0a));
  }
}

TEST_CASE("bf16, fp16 and fp32 become one another and no other type; all but what becomes fp32 may change") {
  for (const dtype from : all)
    for (const dtype to : all) {
      const auto known = [](dtype t) { return name(t) == "bf16" || name(t) == "fp16" || name(t) == "fp32"; };
      CHECK(converts(from, to) == (known(from) && known(to)));
      CHECK(loses_bits(from, to) == (name(from) != name(to) && name(to) != "fp32"));
      CHECK(conversion{from, from, to}.none() == (from == to));
      CHECK(conversion{from, to, to}.none() == (from == to));
      CHECK(conversion{from, to, from}.none() == (from == to));
    }
  CHECK(conversion{}.none());
  CHECK(conversion{fp32, bf16, fp16} == conversion{fp32, bf16, fp16});
  for (const conversion& other : {conversion{bf16, bf16, fp16}, {fp32, fp16, fp16}, {fp32, bf16, fp32}})
    CHECK_FALSE(other == conversion{fp32, bf16, fp16});
}

TEST_CASE("an element is rounded to the type that travels, and then to the one that is kept") {
  // a third; a tenth more; just beside a middle of fp16, which bf16 takes away; too large for fp16; too small
  for (const std::uint32_t wide : {0x3eaaaaabu, 0xbf8ccccdu, 0x3f801001u, 0x3f807fffu, 0x47c35000u, 0x2edbe6ffu, 0u})
    for (const dtype from : floating)
      for (const dtype via : floating)
        for (const dtype to : floating) {
          const std::uint32_t bits = in_type(from, wide);
          const std::uint32_t sent = in_type(via, in_fp32(from, bits)), kept = in_type(to, in_fp32(via, sent));
          CHECK(conversion{from, via, to}(bits) == kept);
        }
  CHECK(conversion{fp32, bf16, fp32}(0x3eaaaaab) == 0x3eab0000);
  CHECK(conversion{fp32, fp16, fp32}(0x3eaaaaab) == 0x3eaaa000);
  CHECK(conversion{fp32, fp16, bf16}(0x47c35000) == 0x7f80);  // 100000 is no fp16
  CHECK(conversion{fp32, fp32, bf16}(0x47c35000) == 0x47c3);
  CHECK(conversion{fp32, fp32, fp32}(0x3eaaaaab) == 0x3eaaaaab);
}
