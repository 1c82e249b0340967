// SPDX-License-Identifier: Apache-2.0
// The kernel of the copies of a table, and its launch. Exactly one .cu of a program includes this; everything else sees
// cuda/launch_copies.hpp. Builds on: cuda/launch_copies.hpp; nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include <reshard/cuda/launch_copies.hpp>

namespace reshard {

namespace detail {

/// Threads of a block: 256 KiB in units of 16 bytes are 64 units each.
inline constexpr std::uint32_t copy_threads = 256;

static __global__ void __launch_bounds__(copy_threads) copy_table_kernel(const table_copy* table, index_t copies) {
  if (static_cast<index_t>(blockIdx.x) >= copies) return;
  const table_copy job = table[blockIdx.x];
  run_table_copy(job, threadIdx.x, blockDim.x);
}

/// Blocks of one launch at most; no table of a switch has as many copies.
inline constexpr index_t most_blocks = 0x7fffffff;

/// Launches the kernel and returns the error of this launch: cudaGetLastError after <<<>>> would return an older one,
/// of the caller, as if it were of this one.
inline int launch_table(const table_copy* table, index_t copies, index_t blocks, void* stream) {
  void* arguments[] = {&table, &copies};
  return static_cast<int>(cudaLaunchKernel(reinterpret_cast<const void*>(copy_table_kernel),
                                           dim3(static_cast<std::uint32_t>(blocks)), dim3(copy_threads), arguments, 0,
                                           static_cast<cudaStream_t>(stream)));
}

}  // namespace detail

/// Launches a table of copies on a stream: cuda/launch_copies.hpp says how.
int launch_copies(const table_copy* table, index_t copies, void* stream) {
  if (copies <= 0) return 0;
  if (copies > detail::most_blocks) return static_cast<int>(cudaErrorInvalidConfiguration);
  return detail::launch_table(table, copies, copies, stream);
}

/// Loads the kernel before it is first wanted: cuda/launch_copies.hpp says why.
int load_copy_kernels(void* stream) {
  cudaFuncAttributes attributes{};
  const cudaError_t loaded =
      cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(detail::copy_table_kernel));
  if (loaded != cudaSuccess) return static_cast<int>(loaded);
  return detail::launch_table(nullptr, 0, 1, stream);
}

}  // namespace reshard
