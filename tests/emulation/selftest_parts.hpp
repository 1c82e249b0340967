// SPDX-License-Identifier: Apache-2.0
// What several of the emulation's own tests use: how an end is judged, a kernel that is held, a granule.
#pragma once

#include <cuda.h>

#include "children.hpp"

namespace children {

inline constexpr std::size_t mib = std::size_t{1} << 20, kib = 1024;

inline void stopped(const outcome& found, const std::string& sentence) {
  INFO(found.words);
  CHECK(found.code == emulation::stopped_code);
  CHECK(found.says("emulation: "));
  CHECK(found.says(sentence));
}
inline void ended_well(const outcome& found) {
  INFO(found.words);
  CHECK(found.code == 0);
}
template <typename F>
F driver(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status;
  check(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &status));
  return reinterpret_cast<F>(found);
}
inline void* device_memory(std::size_t bytes) {
  void* at = nullptr;
  check(cudaMalloc(&at, bytes));
  return at;
}
/// A kernel that ends when it is told.
struct held {
  std::atomic<bool> free{false};
  void on(cudaStream_t s) {
    emulation::enqueue(s, [this] {
      while (!free) std::this_thread::sleep_for(std::chrono::microseconds(100));
    });
  }
};
/// One granule at an address.
struct granule {
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle handle = 0;
  static constexpr std::size_t bytes = 2 * mib;
  CUmemAllocationProp how() const {
    CUmemAllocationProp p{};
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED, p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return p;
  }
  void map() {
    const CUmemAllocationProp p = how();
    expect(cuMemAddressReserve(&at, 2 * bytes, 0, 0, 0) == CUDA_SUCCESS, "reserved");
    expect(cuMemCreate(&handle, bytes, &p, 0) == CUDA_SUCCESS, "made");
    expect(cuMemMap(at, bytes, 0, handle, 0) == CUDA_SUCCESS, "mapped");
  }
  void grant() {
    CUmemAccessDesc d{};
    d.location.type = CU_MEM_LOCATION_TYPE_DEVICE, d.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    expect(cuMemSetAccess(at, bytes, &d, 1) == CUDA_SUCCESS, "granted");
  }
  void* pointer() const { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(at)); }
};

/// One of the ranks is stopped with the sentence; none ends well.
inline void one_stopped(const std::vector<outcome>& found, const std::string& sentence) {
  int said = 0;
  for (const outcome& o : found) {
    INFO(o.words);
    CHECK(o.code == emulation::stopped_code);
    said += o.says(sentence);
  }
  CHECK(said > 0);
}
inline void all_ended_well(const std::vector<outcome>& found) {
  for (const outcome& o : found) ended_well(o);
}

}  // namespace children
