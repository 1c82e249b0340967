// SPDX-License-Identifier: Apache-2.0
// One strided copy as a GPU reads it: plain numbers, and the function by which any number of threads makes it, each its
// own units and none waiting for another. A loop on the host runs the very same function.
// Builds on: base/host_device.hpp, copy/detail/copy_shape.hpp, model/float_conversion.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include <reshard/base/host_device.hpp>
#include <reshard/base/integer.hpp>
#include <reshard/copy/detail/copy_shape.hpp>
#include <reshard/model/float_conversion.hpp>

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
  std::uint32_t dst_unit = 1, src_unit = 1;  // 16, 8, 4, 2 or 1; the same where nothing is converted
  conversion as = {};                        // of the elements of a unit

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

/// Elements that are converted as one.
template <typename T, std::uint32_t Elements>
struct [[gnu::may_alias]] alignas(sizeof(T) * Elements) element_unit {
  T element[Elements];
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

/// Copies one thread's units where the elements of each, `Elements` of them, are converted one by one.
template <typename To, typename From, std::uint32_t Elements>
RESHARD_HOST_DEVICE void convert_units(const table_copy& job, std::uint32_t thread, std::uint32_t threads) {
  const std::uint32_t units = job.units();
  if (thread >= units) return;
  unit_walk at(job, thread, threads);
  for (std::uint32_t left = (units - thread - 1) / threads + 1; left > 0; --left, at.advance()) {
    const auto in = *reinterpret_cast<const element_unit<From, Elements>*>(at.src());
    element_unit<To, Elements> out;
    for (std::uint32_t e = 0; e < Elements; ++e) out.element[e] = static_cast<To>(job.as(in.element[e]));
    *reinterpret_cast<element_unit<To, Elements>*>(at.dst()) = out;
  }
}
template <typename To, typename From>
RESHARD_HOST_DEVICE void convert_units(const table_copy& job, std::uint32_t thread, std::uint32_t threads) {
  if (job.dst_unit == 4 * sizeof(To)) return convert_units<To, From, 4>(job, thread, threads);
  if (job.dst_unit == 2 * sizeof(To)) return convert_units<To, From, 2>(job, thread, threads);
  convert_units<To, From, 1>(job, thread, threads);
}
RESHARD_HOST_DEVICE inline void convert_units(const table_copy& job, std::uint32_t thread, std::uint32_t threads) {
  using narrow = std::uint16_t;
  using wide = std::uint32_t;
  const bool to_wide = job.as.to == dtype::fp32;
  if (job.as.from == dtype::fp32)
    return to_wide ? convert_units<wide, wide>(job, thread, threads)
                   : convert_units<narrow, wide>(job, thread, threads);
  to_wide ? convert_units<wide, narrow>(job, thread, threads) : convert_units<narrow, narrow>(job, thread, threads);
}

}  // namespace detail

/// What thread `thread` of `threads` does of a copy: the units whose numbers are `thread` modulo `threads`. All threads
/// together make it, in any order; those bytes that are written must be none of those that are read.
RESHARD_HOST_DEVICE inline void run_table_copy(const table_copy& job, std::uint32_t thread, std::uint32_t threads) {
  if (!job.as.none()) return detail::convert_units(job, thread, threads);
  switch (job.dst_unit) {
    case 16: return detail::move_units<16>(job, thread, threads);
    case 8: return detail::move_units<8>(job, thread, threads);
    case 4: return detail::move_units<4>(job, thread, threads);
    case 2: return detail::move_units<2>(job, thread, threads);
    default: return detail::move_units<1>(job, thread, threads);
  }
}

/// The copy of a shape in at most three dimensions, of fewer than 2^32 bytes, in the widest units that its addresses,
/// strides and runs allow. Where elements are converted, runs are the destination's, strides in bytes of either side,
/// and at most four elements are a unit.
inline table_copy table_copy_of(std::byte* dst, const std::byte* src, const copy_shape& s, const conversion& as = {}) {
  const auto to_width = static_cast<std::uintptr_t>(as.none() ? 1 : width(as.to)),
             from_width = static_cast<std::uintptr_t>(as.none() ? 1 : width(as.from));
  const auto run = static_cast<std::uintptr_t>(s.run_bytes) / to_width;  // elements, or bytes
  std::uintptr_t to_bits = reinterpret_cast<std::uintptr_t>(dst), from_bits = reinterpret_cast<std::uintptr_t>(src);
  table_copy job{.dst = dst, .src = src};
  job.as = as;
  for (int d = 0, at = 3 - s.ndim; d < s.ndim; ++d, ++at) {
    to_bits |= static_cast<std::uintptr_t>(s.dst_stride[d]);
    from_bits |= static_cast<std::uintptr_t>(s.src_stride[d]);
    job.extent[at] = static_cast<std::uint32_t>(s.extent[d]);
    job.dst_stride[at] = s.dst_stride[d];
    job.src_stride[at] = s.src_stride[d];
  }
  std::uintptr_t unit = as.none() ? 16 : 4;  // elements, or bytes
  while (unit > 1 && (run % unit != 0 || to_bits % (unit * to_width) != 0 || from_bits % (unit * from_width) != 0))
    unit /= 2;
  job.run_units = static_cast<std::uint32_t>(run / unit);
  job.dst_unit = static_cast<std::uint32_t>(unit * to_width);
  job.src_unit = static_cast<std::uint32_t>(unit * from_width);
  return job;
}

}  // namespace reshard
