// SPDX-License-Identifier: Apache-2.0
// The copy kernels, for programs of tools/ and examples/.
#include <reshard/cuda/copy_kernels.cuh>
