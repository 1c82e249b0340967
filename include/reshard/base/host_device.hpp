// SPDX-License-Identifier: Apache-2.0
// What a function is called that a GPU runs as well: RESHARD_HOST_DEVICE before it. Where nvcc does not read, it is
// nothing. Builds on: nothing of the library.
#pragma once

#if defined(__CUDACC__)
#define RESHARD_HOST_DEVICE __host__ __device__
#else
#define RESHARD_HOST_DEVICE
#endif
