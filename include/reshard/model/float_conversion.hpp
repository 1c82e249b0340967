// SPDX-License-Identifier: Apache-2.0
// Floating types into one another, by integers alone and so alike on every machine: to the nearest value, of two the
// even one; NaN becomes a quiet NaN with its sign and what fits of its payload.
// Builds on: base/host_device.hpp, model/dtype.hpp.
#pragma once

#include <cstdint>

#include <reshard/base/host_device.hpp>
#include <reshard/model/dtype.hpp>

namespace reshard {

/// bits of the same value in fp32
RESHARD_HOST_DEVICE constexpr std::uint32_t fp32_of_bf16(std::uint32_t bits) {
  const std::uint32_t wide = bits << 16;
  return (wide & 0x7fffffff) > 0x7f800000 ? wide | 0x400000 : wide;
}
/// bits of the same value in fp32
RESHARD_HOST_DEVICE constexpr std::uint32_t fp32_of_fp16(std::uint32_t bits) {
  const std::uint32_t sign = (bits & 0x8000) << 16;
  std::uint32_t size = bits & 0x7fff;
  if (size > 0x7c00) return sign | 0x7fc00000 | (size & 0x3ff) << 13;
  if (size == 0x7c00) return sign | 0x7f800000;
  if (size >= 0x400) return sign | ((size << 13) + (std::uint32_t{127 - 15} << 23));
  if (size == 0) return sign;
  std::uint32_t exponent = 127 - 14;  // size x 2^-24
  for (; size < 0x400; size <<= 1) --exponent;
  return sign | exponent << 23 | (size & 0x3ff) << 13;
}
/// bits of the nearest bf16
RESHARD_HOST_DEVICE constexpr std::uint32_t bf16_of_fp32(std::uint32_t bits) {
  if ((bits & 0x7fffffff) > 0x7f800000) return bits >> 16 | 0x40;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
/// bits of the nearest fp16; infinity from 65520 on
RESHARD_HOST_DEVICE constexpr std::uint32_t fp16_of_fp32(std::uint32_t bits) {
  const std::uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
  if (size > 0x7f800000) return sign | 0x7e00 | (size >> 13 & 0x1ff);
  if (size >= 0x477ff000) return sign | 0x7c00;
  if (size >= 0x38800000) {  // 2^-14 and more
    const std::uint32_t rebased = size - (std::uint32_t{127 - 15} << 23);
    return sign | (rebased + 0xfff + (rebased >> 13 & 1)) >> 13;
  }
  if (size <= 0x33000000) return sign;  // 2^-25, half of the least, and less
  const std::uint32_t digits = (size & 0x7fffff) | 0x800000, shift = 126 - (size >> 23);
  const std::uint32_t kept = digits >> shift, rest = digits & ((std::uint32_t{1} << shift) - 1),
                      half = std::uint32_t{1} << (shift - 1);
  return sign | (kept + (rest > half || (rest == half && kept % 2 == 1) ? 1 : 0));
}

/// Whether elements of one type can become elements of the other: both are bf16, fp16 or fp32.
constexpr bool converts(dtype from, dtype to) {
  const auto known = [](dtype t) { return t == dtype::bf16 || t == dtype::fp16 || t == dtype::fp32; };
  return known(from) && known(to);
}
/// Whether a value may change on that way: not to the same type, and not to fp32.
constexpr bool loses_bits(dtype from, dtype to) { return from != to && to != dtype::fp32; }

/// What becomes of elements in a copy: they have the type `from`, travel as `via` and are kept as `to`. Where all are
/// the same, whichever, bytes stay as they are.
struct conversion {
  dtype from = dtype::int8, via = dtype::int8, to = dtype::int8;

  RESHARD_HOST_DEVICE constexpr bool none() const { return from == via && via == to; }

  /// The bits of an element, converted.
  RESHARD_HOST_DEVICE constexpr std::uint32_t operator()(std::uint32_t bits) const {
    std::uint32_t value = in_fp32(from, bits);
    if (via != from && via != to) value = in_fp32(via, out_of_fp32(via, value));
    return out_of_fp32(to, value);
  }
  friend constexpr bool operator==(const conversion&, const conversion&) = default;

 private:
  static RESHARD_HOST_DEVICE constexpr std::uint32_t in_fp32(dtype type, std::uint32_t bits) {
    return type == dtype::bf16 ? fp32_of_bf16(bits) : type == dtype::fp16 ? fp32_of_fp16(bits) : bits;
  }
  static RESHARD_HOST_DEVICE constexpr std::uint32_t out_of_fp32(dtype type, std::uint32_t value) {
    return type == dtype::bf16 ? bf16_of_fp32(value) : type == dtype::fp16 ? fp16_of_fp32(value) : value;
  }
};

}  // namespace reshard
