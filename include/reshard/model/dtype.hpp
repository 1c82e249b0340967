// SPDX-License-Identifier: Apache-2.0
// Element types of training state: a name and a width. Nothing here computes with values.
// Builds on: base/integer.hpp.
#pragma once

#include <string_view>

#include <reshard/base/integer.hpp>

namespace reshard {

/// The types that the elements of a state may have.
enum class dtype { bf16, fp16, fp32, fp64, fp8, int8, int32, int64 };

/// bfloat16: 2 bytes an element.
inline constexpr dtype bf16 = dtype::bf16;
/// IEEE half precision: 2 bytes an element.
inline constexpr dtype fp16 = dtype::fp16;
/// IEEE single precision: 4 bytes an element.
inline constexpr dtype fp32 = dtype::fp32;

/// Bytes of one element.
constexpr bytes_t width(dtype type) {
  switch (type) {
    case dtype::fp8:
    case dtype::int8: return 1;
    case dtype::bf16:
    case dtype::fp16: return 2;
    case dtype::fp32:
    case dtype::int32: return 4;
    case dtype::fp64:
    case dtype::int64: return 8;
  }
  return 0;
}

/// The type as it is written: "bf16".
constexpr std::string_view name(dtype type) {
  switch (type) {
    case dtype::bf16: return "bf16";
    case dtype::fp16: return "fp16";
    case dtype::fp32: return "fp32";
    case dtype::fp64: return "fp64";
    case dtype::fp8: return "fp8";
    case dtype::int8: return "int8";
    case dtype::int32: return "int32";
    case dtype::int64: return "int64";
  }
  return "";
}

}  // namespace reshard
