// SPDX-License-Identifier: Apache-2.0
// Somebody who moves state between GPUs, on a machine that has the libraries. Without a device CUDA says why.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdio>

#include <reshard/cuda/launch_copies.hpp>
#include <reshard/transport/sockets.hpp>

int main() {
  int version = 0, devices = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return 1;
  const cudaError_t found = cudaGetDeviceCount(&devices);
  std::printf("NCCL %d, %d devices: %s; a copy is described in %zu bytes\n", version,
              found == cudaSuccess ? devices : 0, cudaGetErrorString(found), sizeof(reshard::table_copy));
}
