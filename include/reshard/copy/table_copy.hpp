// SPDX-License-Identifier: Apache-2.0
// One strided copy as a GPU reads it: plain numbers, and the function by which any number of threads makes it, each its
// own units and none waiting for another. A loop on the host runs the very same function.
// Builds on: base/host_device.hpp, base/integer.hpp, model/dtype.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include <reshard/base/host_device.hpp>
#include <reshard/base/integer.hpp>
#include <reshard/model/dtype.hpp>

namespace reshard {

/// The units { sum_d i_d stride_d + u unit : 0 <= i_d < extent_d, 0 <= u < run_units } on either side, strides and
/// units in bytes; all addresses are multiples of the unit. Trivial to copy: a table of them is sent to a device as is.
struct table_copy {
  std::byte* dst = nullptr;
  const std::byte* src = nullptr;
  std::int64_t dst_stride[3] = {};
  std::int64_t src_stride[3] = {};
  std::uint32_t extent[3] = {1, 1, 1};
  std::uint32_t run_units = 0;
  std::uint32_t dst_unit = 1, src_unit = 1;              // 16, 8, 4, 2 or 1; the same where nothing is converted
  dtype dst_type = dtype::int8, src_type = dtype::int8;  // the same: bytes move as they are

  /// run_units prod_d extent_d
  [[nodiscard]] RESHARD_HOST_DEVICE constexpr std::uint32_t units() const noexcept {
    return run_units * extent[0] * extent[1] * extent[2];
  }
};

namespace detail {

/// Bytes that move as one. They alias whatever lies there.
template <std::uint32_t Bytes>
struct copy_unit;
template <>
struct [[gnu::may_alias]] alignas(16) copy_unit<16> {
  std::uint64_t low, high;
};
template <>
struct [[gnu::may_alias]] copy_unit<8> {
  std::uint64_t all;
};
template <>
struct [[gnu::may_alias]] copy_unit<4> {
  std::uint32_t all;
};
template <>
struct [[gnu::may_alias]] copy_unit<2> {
  std::uint16_t all;
};
template <>
struct [[gnu::may_alias]] copy_unit<1> {
  std::uint8_t all;
};

/// The unit of a copy at which a thread is, as digits i_0, i_1, i_2, u of its number, and the digits of its step: it
/// divides once, and carries from then on.
class unit_walk {
 public:
  RESHARD_HOST_DEVICE unit_walk(const table_copy& of, std::uint32_t first, std::uint32_t step) : of_(of) {
    split(first, at_);
    split(step, step_);
  }
  RESHARD_HOST_DEVICE std::byte* dst() const {
    return of_.dst + at_[0] * of_.dst_stride[0] + at_[1] * of_.dst_stride[1] + at_[2] * of_.dst_stride[2] +
           std::int64_t{at_[3]} * of_.dst_unit;
  }
  RESHARD_HOST_DEVICE const std::byte* src() const {
    return of_.src + at_[0] * of_.src_stride[0] + at_[1] * of_.src_stride[1] + at_[2] * of_.src_stride[2] +
           std::int64_t{at_[3]} * of_.src_unit;
  }
  RESHARD_HOST_DEVICE void advance() {
    std::uint32_t carry = 0;
    for (int d = 3; d > 0; --d) {
      const std::uint32_t radix = d == 3 ? of_.run_units : of_.extent[d];
      at_[d] += step_[d] + carry;
      carry = at_[d] >= radix ? 1 : 0;
      if (carry != 0) at_[d] -= radix;
    }
    at_[0] += step_[0] + carry;
  }

 private:
  RESHARD_HOST_DEVICE void split(std::uint32_t number, std::uint32_t (&digits)[4]) const {
    digits[3] = number % of_.run_units, number /= of_.run_units;
    digits[2] = number % of_.extent[2], number /= of_.extent[2];
    digits[1] = number % of_.extent[1], number /= of_.extent[1];
    digits[0] = number;
  }

  const table_copy& of_;
  std::uint32_t at_[4], step_[4];
};

/// A thread's units, four on their way at a time, as memory answers late.
template <std::uint32_t Bytes>
RESHARD_HOST_DEVICE void move_units(const table_copy& job, std::uint32_t thread, std::uint32_t threads) {
  using unit = copy_unit<Bytes>;
  constexpr int beside = 4;
  const std::uint32_t units = job.units();
  if (thread >= units) return;
  unit_walk at(job, thread, threads);
  std::uint32_t left = (units - thread - 1) / threads + 1;
  for (; left >= beside; left -= beside) {
    unit moved[beside];
    std::byte* to[beside];
    for (int k = 0; k < beside; ++k, at.advance()) {
      moved[k] = *reinterpret_cast<const unit*>(at.src());
      to[k] = at.dst();
    }
    for (int k = 0; k < beside; ++k) *reinterpret_cast<unit*>(to[k]) = moved[k];
  }
  for (; left > 0; --left, at.advance()) *reinterpret_cast<unit*>(at.dst()) = *reinterpret_cast<const unit*>(at.src());
}

}  // namespace detail

/// What thread `thread` of `threads` does of a copy: the units whose numbers are `thread` modulo `threads`. All threads
/// together make it, in any order; those bytes that are written must be none of those that are read.
RESHARD_HOST_DEVICE inline void run_table_copy(const table_copy& job, std::uint32_t thread, std::uint32_t threads) {
  switch (job.dst_unit) {
    case 16: return detail::move_units<16>(job, thread, threads);
    case 8: return detail::move_units<8>(job, thread, threads);
    case 4: return detail::move_units<4>(job, thread, threads);
    case 2: return detail::move_units<2>(job, thread, threads);
    default: return detail::move_units<1>(job, thread, threads);
  }
}

}  // namespace reshard
