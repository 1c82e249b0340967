// SPDX-License-Identifier: Apache-2.0
// The copy kernels, for programs of tools/ and examples/.
#include <reshard/exec/copy_kernels.cuh>
