// SPDX-License-Identifier: Apache-2.0
// Random strided copies in memory that begins at a given place modulo 16 and ends where the copy ends, and what they
// make, one byte at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include <reshard/copy/detail/copy_shape.hpp>
#include <reshard/model/float_conversion.hpp>

#include "dice.hpp"

namespace testing {

/// So many bytes that begin a multiple of 16, random ones.
class aligned_bytes {
 public:
  aligned_bytes(std::int64_t bytes, dice& random) : size_(bytes) {
    void* at = nullptr;
    if (::posix_memalign(&at, 16, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))) != 0)
      throw std::bad_alloc();
    data_.reset(static_cast<std::byte*>(at));
    for (std::int64_t i = 0; i < bytes; i += 8) {
      const std::uint64_t bits = random.bits();
      std::memcpy(data_.get() + i, &bits, static_cast<std::size_t>(std::min<std::int64_t>(8, bytes - i)));
    }
  }
  std::byte* data() const { return data_.get(); }
  std::int64_t size() const { return size_; }
  std::vector<std::byte> copy() const { return {data(), data() + size_}; }
  void assign(const std::vector<std::byte>& bytes) { std::copy(bytes.begin(), bytes.end(), data()); }

 private:
  struct freed {
    void operator()(std::byte* at) const { std::free(at); }
  };
  std::int64_t size_;
  std::unique_ptr<std::byte, freed> data_;
};

/// A strided copy and its memory on both sides.
struct random_copy {
  reshard::copy_shape shape;
  std::int64_t dst_at, src_at;  // of offset 0
  aligned_bytes dst, src;
  std::vector<std::byte> expected;  // of dst, afterwards

  /// Destination strides keep all runs apart; in either order of dimensions, with gaps or none, forwards or backwards.
  static reshard::copy_shape shape_of(dice& random, std::int64_t run, std::int64_t most_bytes) {
    reshard::copy_shape s;
    s.run_bytes = run;
    s.ndim = static_cast<int>(random.within(1, 3));
    const bool swapped = random.coin(), even = random.coin();
    std::int64_t dst_span = run, src_span = run, left = most_bytes / std::max<std::int64_t>(run, 1);
    const std::int64_t unit = even ? std::int64_t{1} << random.below(5) : 1;  // strides are often multiples of it
    for (int k = 0; k < s.ndim; ++k) {
      const int d = swapped ? k : s.ndim - 1 - k;
      s.extent[d] = random.within(1, std::clamp<std::int64_t>(left, 1, random.coin() ? 5 : 70));
      left /= s.extent[d];
      const auto stride = [&](std::int64_t span) {
        const std::int64_t gap = random.coin() ? 0 : random.within(1, 40);
        return (span + gap + unit - 1) / unit * unit;
      };
      s.dst_stride[d] = random.below(8) == 0 ? dst_span : stride(dst_span);
      s.src_stride[d] = random.below(8) == 0 ? src_span : stride(src_span);
      dst_span = s.extent[d] * s.dst_stride[d];
      src_span = s.extent[d] * s.src_stride[d];
      if (random.below(12) == 0) s.dst_stride[d] *= -1;
      if (random.below(12) == 0) s.src_stride[d] *= -1;
      if (random.below(20) == 0) s.src_stride[d] = 0;
    }
    if (random.below(50) == 0) s.extent[random.below(s.ndim)] = 0;  // empty
    return s;
  }
  /// Bytes before offset 0 and from it on that one side touches.
  static std::int64_t before(const reshard::copy_shape& s, const std::int64_t* stride) {
    std::int64_t bytes = 0;
    for (int d = 0; d < s.ndim; ++d) bytes += std::max<std::int64_t>(0, -stride[d] * (s.extent[d] - 1));
    return bytes;
  }
  static std::int64_t after(const reshard::copy_shape& s, const std::int64_t* stride) {
    std::int64_t bytes = s.run_bytes;
    for (int d = 0; d < s.ndim; ++d) bytes += std::max<std::int64_t>(0, stride[d] * (s.extent[d] - 1));
    return bytes;
  }
  /// The least offset >= before that is `place` modulo 16.
  static std::int64_t placed(std::int64_t before, std::int64_t place) {
    return before + ((place - before) % 16 + 16) % 16;
  }

  random_copy(dice& random, const reshard::copy_shape& s, std::int64_t dst_place, std::int64_t src_place)
      : shape(s), dst_at(placed(before(s, s.dst_stride), dst_place)),
        src_at(placed(before(s, s.src_stride), src_place)), dst(dst_at + after(s, s.dst_stride), random),
        src(src_at + after(s, s.src_stride), random), expected(dst.copy()) {
    std::int64_t runs = 1;
    for (int d = 0; d < s.ndim; ++d) runs *= s.extent[d];
    for (std::int64_t r = 0; r < runs; ++r) {
      std::int64_t to = dst_at, from = src_at, rest = r;
      for (int d = s.ndim - 1; d >= 0; --d) {
        to += rest % s.extent[d] * s.dst_stride[d];
        from += rest % s.extent[d] * s.src_stride[d];
        rest /= s.extent[d];
      }
      for (std::int64_t b = 0; b < s.run_bytes; ++b) expected[static_cast<std::size_t>(to + b)] = src.data()[from + b];
    }
  }
  std::byte* to() const { return dst.data() + dst_at; }
  const std::byte* from() const { return src.data() + src_at; }
  bool made() const { return std::equal(expected.begin(), expected.end(), dst.data()); }
};

/// The i-th of many: every pair of places modulo 16 in turn; runs of 1 byte to 1 MiB, most of them short.
inline random_copy any_copy(dice& random, std::int64_t i) {
  const bool is_long = random.below(40) == 0;
  std::int64_t run = std::int64_t{1} << random.below(is_long ? 21 : 12);
  if (random.coin()) run = random.within((run + 1) / 2, run);
  if (random.below(100) == 0) run = 0;  // nothing
  const reshard::copy_shape s = random_copy::shape_of(random, run, is_long ? std::int64_t{1} << 20 : 16384);
  return random_copy(random, s, i % 16, i / 16 % 16);
}

/// A copy whose elements are converted: any shape of elements, at any place that is a multiple of their width.
struct random_conversion {
  reshard::conversion as;
  reshard::copy_shape elements;  // runs and strides in elements of either side
  std::int64_t to_width, from_width, dst_at, src_at;
  aligned_bytes dst, src;
  std::vector<std::byte> expected;

  static reshard::dtype any_type(dice& random) {
    constexpr reshard::dtype types[] = {reshard::bf16, reshard::fp16, reshard::fp32};
    return types[random.below(3)];
  }
  /// Not all of one type: those are no conversion.
  static reshard::conversion any_conversion(dice& random) {
    reshard::conversion as{any_type(random), any_type(random), any_type(random)};
    while (as.none()) as.via = any_type(random);
    return as;
  }
  static std::uint32_t load(const std::byte* at, std::int64_t bytes) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, at, static_cast<std::size_t>(bytes));
    return bits;
  }
  random_conversion(dice& random, const reshard::conversion& how, const reshard::copy_shape& s)
      : as(how), elements(s), to_width(width(as.to)), from_width(width(as.from)),
        dst_at((random_copy::before(s, s.dst_stride) + random.below(8)) * to_width),
        src_at((random_copy::before(s, s.src_stride) + random.below(8)) * from_width),
        dst(dst_at + random_copy::after(s, s.dst_stride) * to_width, random),
        src(src_at + random_copy::after(s, s.src_stride) * from_width, random), expected(dst.copy()) {
    std::int64_t runs = 1;
    for (int d = 0; d < s.ndim; ++d) runs *= s.extent[d];
    for (std::int64_t r = 0; r < runs; ++r) {
      std::int64_t to = 0, from = 0, rest = r;
      for (int d = s.ndim - 1; d >= 0; --d) {
        to += rest % s.extent[d] * s.dst_stride[d];
        from += rest % s.extent[d] * s.src_stride[d];
        rest /= s.extent[d];
      }
      for (std::int64_t e = 0; e < s.run_bytes; ++e) {
        const std::uint32_t bits = as(load(src.data() + src_at + (from + e) * from_width, from_width));
        std::memcpy(expected.data() + dst_at + (to + e) * to_width, &bits, static_cast<std::size_t>(to_width));
      }
    }
  }
  /// As copy_table wants it.
  reshard::copy_shape shape() const {
    reshard::copy_shape s = coalesce(elements);
    s.run_bytes *= to_width;
    for (int d = 0; d < s.ndim; ++d) s.dst_stride[d] *= to_width, s.src_stride[d] *= from_width;
    return s;
  }
  std::byte* to() const { return dst.data() + dst_at; }
  const std::byte* from() const { return src.data() + src_at; }
  bool made() const { return std::equal(expected.begin(), expected.end(), dst.data()); }
};

inline random_conversion any_converted_copy(dice& random) {
  const bool is_long = random.below(60) == 0;
  const std::int64_t run = random.within(1, is_long ? 300'000 : random.coin() ? 12 : 300);
  const reshard::copy_shape s = random_copy::shape_of(random, run, is_long ? 1 : 4000);
  return random_conversion(random, random_conversion::any_conversion(random), s);
}

}  // namespace testing
