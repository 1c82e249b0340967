// SPDX-License-Identifier: Apache-2.0
// What CUDA says of the memory of a binding: of which kind it is, on which device, and how long. Arrays that lie
// elsewhere than the others, or reach past their allocation, are refused by name.
// Builds on: cuda/detail/driver.hpp, memory/binding.hpp.
#pragma once

#include <reshard/cuda/detail/driver.hpp>
#include <reshard/memory/binding.hpp>

namespace reshard {

namespace detail {

/// Where an address is; `array()` begins the sentence.
template <typename Array>
memory_place place_of_address(const std::byte* at, Array&& array) {
  cudaPointerAttributes what = {};
  require_cuda(::cudaPointerGetAttributes(&what, at), "say where an array lies");
  if (what.type == cudaMemoryTypeDevice) return {memory_place::kind::device, what.device};
  if (what.type == cudaMemoryTypeHost) return {memory_place::kind::pinned, 0};
  if (what.type == cudaMemoryTypeManaged)
    refuse(array(),
           " lies in managed memory, which moves between host and devices by itself; bind memory of one place");
  return {};
}
/// The bytes from an address on that one allocation holds, or several that follow one another.
inline bytes_t bytes_allocated(const std::byte* at, bytes_t wanted) {
  const cuda_driver& driver = cuda_driver::get();
  bytes_t found = 0;
  while (found < wanted) {
    CUdeviceptr begin = 0;
    std::size_t bytes = 0;
    const auto here = reinterpret_cast<CUdeviceptr>(at + found);
    if (driver.address_range(&begin, &bytes, here) != CUDA_SUCCESS || begin + bytes <= here) break;
    found += static_cast<bytes_t>(begin + bytes - here);
  }
  return found;
}

}  // namespace detail

/// Finds out where a binding lies, and says so by lies_in. What a block will only map when it is taken lies where the
/// binding says already. Sealed before.
inline void locate_memory(binding& b) {
  bool first = true;
  for (const bound_box& box : b.boxes()) {
    const std::ptrdiff_t block = b.block_of(box.data);
    const auto array = [&] { return b.who() + ": " + b.name(box); };
    memory_place place = b.place();
    if (block < 0 || b.blocks()[static_cast<std::size_t>(block)].come != granules_come::when_taken) {
      place = detail::place_of_address(box.data, array);
      const bytes_t bytes = box.bytes_spanned();
      if (place.is == memory_place::kind::device) {
        const bytes_t there = detail::bytes_allocated(box.data, bytes);
        if (there < bytes)
          refuse(array(), " needs ", bytes, " bytes from where it begins, and its allocation on device ", place.number,
                 " has ", there);
      }
    }
    if (first) b.lies_in(place);
    first = false;
    if (place != b.place())
      refuse(array(), " lies in ", place.text(), ", and others in ", b.place().text(), "; a binding lies in one place");
  }
}

}  // namespace reshard
