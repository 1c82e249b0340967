// SPDX-License-Identifier: Apache-2.0
// The one .cu of a program that copies on GPUs.
#include <reshard/cuda/copy_kernels.cuh>
