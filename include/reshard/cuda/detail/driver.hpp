// SPDX-License-Identifier: Apache-2.0
// The functions of CUDA's driver that map memory by granules and say which context is current, looked up when they are
// wanted first: a program that names them links without the driver, and starts where there is none.
// Builds on: cuda/handles.hpp and cuda.h.
#pragma once

#include <stdexcept>

#include <cuda.h>

#include <reshard/cuda/handles.hpp>

namespace reshard::detail {

/// Functions by the names that cuda.h has for them.
struct cuda_driver {
  decltype(&::cuGetErrorString) error_string = nullptr;
  decltype(&::cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&::cuMemAddressReserve) reserve = nullptr;
  decltype(&::cuMemAddressFree) free_addresses = nullptr;
  decltype(&::cuMemCreate) create = nullptr;
  decltype(&::cuMemRelease) release = nullptr;
  decltype(&::cuMemMap) map = nullptr;
  decltype(&::cuMemUnmap) unmap = nullptr;
  decltype(&::cuMemSetAccess) set_access = nullptr;
  decltype(&::cuMemGetAddressRange) address_range = nullptr;
  decltype(&::cuCtxGetCurrent) current_context = nullptr;
  decltype(&::cuCtxSetCurrent) make_current = nullptr;
  decltype(&::cuDevicePrimaryCtxGetState) primary_context_state = nullptr;

  /// Throws what CUDA says where there is no driver, or an old one.
  static const cuda_driver& get() {
    static const cuda_driver found = look_up();
    return found;
  }
  /// Throws what the driver says where a call failed.
  void require(CUresult code, const char* what) const {
    if (code == CUDA_SUCCESS) return;
    const char* words = nullptr;
    if (error_string(code, &words) != CUDA_SUCCESS || words == nullptr) words = "an error that it has no words for";
    throw std::runtime_error(
        text_of("reshard: CUDA's driver could not ", what, ": ", words, " (CUresult ", static_cast<int>(code), ")"));
  }

 private:
  static constexpr unsigned version = 12000;

  static cuda_driver look_up() {
    cuda_driver d;
    const auto find = [](const char* name, auto& function) {
      void* at = nullptr;
      cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
      const cudaError_t code = ::cudaGetDriverEntryPointByVersion(name, &at, version, cudaEnableDefault, &found);
#else  // of the runtime's own version
      const cudaError_t code = ::cudaGetDriverEntryPoint(name, &at, cudaEnableDefault, &found);
#endif
      require_cuda(code, "look up a function of its driver");
      if (found != cudaDriverEntryPointSuccess || at == nullptr)
        throw std::runtime_error(text_of("reshard: CUDA's driver has no ", name, " of version ", version));
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(at);
    };
    find("cuGetErrorString", d.error_string);
    find("cuMemGetAllocationGranularity", d.granularity);
    find("cuMemAddressReserve", d.reserve);
    find("cuMemAddressFree", d.free_addresses);
    find("cuMemCreate", d.create);
    find("cuMemRelease", d.release);
    find("cuMemMap", d.map);
    find("cuMemUnmap", d.unmap);
    find("cuMemSetAccess", d.set_access);
    find("cuMemGetAddressRange", d.address_range);
    find("cuCtxGetCurrent", d.current_context);
    find("cuCtxSetCurrent", d.make_current);
    find("cuDevicePrimaryCtxGetState", d.primary_context_state);
    return d;
  }
};

}  // namespace reshard::detail
