// SPDX-License-Identifier: Apache-2.0
// Bindings of any framework's tensors by DLPack: the struct is read by its members, so whichever dlpack.h there is will
// do, and none is needed here. What can't be bound is refused by name.
// Builds on: memory/bind_shard.hpp.
#pragma once

#include <bit>
#include <cstddef>
#include <string>
#include <type_traits>

#include <reshard/memory/bind_shard.hpp>

namespace reshard {

/// A DLTensor: data, byte_offset, ndim, shape and strides in elements, dtype (code, bits, lanes), and device.
template <typename T>
concept DLPackTensor = requires(const T& t) {
  { t.data } -> std::convertible_to<const void*>;
  { t.device.device_id } -> std::convertible_to<int>;
  static_cast<int>(t.device.device_type);
  { t.ndim } -> std::convertible_to<int>;
  { static_cast<int>(t.dtype.code) } -> std::same_as<int>;
  { static_cast<int>(t.dtype.bits) } -> std::same_as<int>;
  { static_cast<int>(t.dtype.lanes) } -> std::same_as<int>;
  { t.shape[0] } -> std::convertible_to<index_t>;
  { t.strides[0] } -> std::convertible_to<index_t>;
  { t.byte_offset } -> std::convertible_to<std::uint64_t>;
};

namespace detail {

/// The number of a DLDeviceType. A framework of a newer DLPack than the dlpack.h here has kinds that its enumeration
/// lacks, so it is read by its bits: as a value of the enumeration it would be undefined.
template <typename Kind>
constexpr int number_of(const Kind& kind) {
  if constexpr (std::is_enum_v<Kind>) return static_cast<int>(std::bit_cast<std::underlying_type_t<Kind>>(kind));
  else return static_cast<int>(kind);
}

/// Where a DLDevice is: the host (1), a CUDA device (2), pinned memory (3). `array()` begins the sentence.
template <typename Array>
memory_place place_of_dlpack(int kind, int number, Array&& array) {
  switch (kind) {
    case 1: return {memory_place::kind::host, 0};
    case 2: return {memory_place::kind::device, number};
    case 3: return {memory_place::kind::pinned, 0};
    default: break;
  }
  constexpr const char* others[] = {"OpenCL", nullptr,  nullptr,       "Vulkan",       "Metal",
                                    "VPI",    "ROCm",   "ROCm's host", "an extension", "CUDA's managed memory",
                                    "oneAPI", "WebGPU", "Hexagon",     "MAIA"};
  const int at = kind - 4;
  const char* const known = at >= 0 && at < static_cast<int>(std::size(others)) ? others[at] : nullptr;
  refuse(array(), " is a tensor of DLPack's device type ", kind, known != nullptr ? ", " : "",
         known != nullptr ? known : "", "; host memory (1), CUDA (2) and CUDA's pinned memory (3) can be bound");
}

/// "bfloat of 16 bits"
inline std::string words_of_dlpack_type(int code, int bits, int lanes) {
  constexpr const char* codes[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  std::string words = code >= 0 && code < static_cast<int>(std::size(codes)) ? std::string(codes[code])
                      : code >= 7 && code <= 14                              ? std::string("float8")
                                                                             : text_of("type code ", code);
  words += text_of(" of ", bits, " bits");
  return lanes == 1 ? words : words + text_of(", ", lanes, " at a time");
}
/// Whether a DLDataType is the type. A state of bytes or of numbers takes any that has its width.
inline bool is_dlpack_type(dtype type, int code, int bits, int lanes) {
  if (lanes != 1 || bits != 8 * width(type)) return false;
  switch (type) {
    case dtype::bf16: return code == 4;
    case dtype::fp16:
    case dtype::fp32:
    case dtype::fp64: return code == 2;
    case dtype::fp8: return (code >= 7 && code <= 14) || code == 1;  // before 1.1 it travels as bytes
    case dtype::int8:
    case dtype::int32:
    case dtype::int64: return code == 0 || code == 1 || (code == 6 && type == dtype::int8);
  }
  return false;
}

}  // namespace detail

/// Binds a shard that is a DLPack tensor: its shape is the shard's, its type too or one that is converted into it on
/// the way, its strides are in elements (none: it is row-major), and its first element lies at data + byte_offset. The
/// binding lies where its tensors do; refused where that is two places, or one that no switch reaches.
template <DLPackTensor Tensor>
void bind_dlpack(binding& out, const tensor_table& table, const shard& s, const Tensor& t) {
  const auto array = [&] { return out.who() + ": " + s.state + " of '" + s.tensor + "'"; };
  const int code = static_cast<int>(t.dtype.code), bits = static_cast<int>(t.dtype.bits),
            lanes = static_cast<int>(t.dtype.lanes);
  dtype holds = s.type;
  for (const dtype other : {bf16, fp16, fp32})
    if (converts(other, s.type) && detail::is_dlpack_type(other, code, bits, lanes)) holds = other;
  if (!detail::is_dlpack_type(holds, code, bits, lanes))
    refuse(array(), " is ", name(s.type), ", and its tensor is ", detail::words_of_dlpack_type(code, bits, lanes));
  if (t.ndim != s.shape.ndim)
    refuse(array(), " has ", s.shape.ndim, " dimensions, and its tensor has ", static_cast<int>(t.ndim));
  extents stride = s.shape;
  index_t dense = 1, last = 0;
  bool empty = false;
  for (int i = s.shape.ndim - 1; i >= 0; --i) {
    if (t.shape[i] != s.shape.at[i])
      refuse(array(), " has ", s.shape.at[i], " elements in dimension ", i, ", and its tensor has ",
             static_cast<index_t>(t.shape[i]));
    stride.at[i] = t.strides != nullptr ? static_cast<index_t>(t.strides[i]) : dense;
    if (stride.at[i] < 0)
      refuse(array(), " has a stride of ", stride.at[i], " elements in dimension ", i, "; strides count forwards");
    dense = checked_multiply(dense, s.shape.at[i]);
    empty = empty || s.shape.at[i] == 0;
    if (!empty) last = checked_add(last, checked_multiply(s.shape.at[i] - 1, stride.at[i]));
  }
  const memory_place place =
      detail::place_of_dlpack(detail::number_of(t.device.device_type), static_cast<int>(t.device.device_id), array);
  if (out.boxes().empty()) out.lies_in(place);
  if (place != out.place())
    refuse(array(), " lies in ", place.text(), ", and others of ", out.who(), " in ", out.place().text(),
           "; a binding lies in one place");
  memory at;
  if (!empty) {
    at.data = static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(t.data))) + t.byte_offset;
    if (t.data == nullptr) refuse(array(), " has ", dense, " elements, and its tensor has no memory");
    at.bytes = checked_multiply(checked_add(last, 1), width(holds));
    if (holds != s.type) at.holds = holds;
    if (reinterpret_cast<std::uintptr_t>(at.data) % static_cast<std::uintptr_t>(width(holds)) != 0)
      refuse(array(), " is ", name(s.type), ", and its tensor begins ", t.byte_offset,
             " bytes into its memory, at an address that no element of ", width(holds), " bytes has");
  }
  bind_shard(out, table, s, at, stride);
}

}  // namespace reshard
