// SPDX-License-Identifier: Apache-2.0
// Copies on a GPU, as a declaration: what calls them needs no CUDA compiler. cuda/copy_kernels.cuh defines them, in the
// one .cu of a program that includes it; a program without one does not link.
// Builds on: copy/table_copy.hpp.
#pragma once

#include <reshard/copy/table_copy.hpp>

namespace reshard {

/// Makes the copies of a table that lies where the current device reads it, in one launch on a stream, a cudaStream_t:
/// a block of threads a copy, none waiting for another. Returns at once: 0, or the cudaError_t of the launch. Without
/// copies there is none.
int launch_copies(const table_copy* table, index_t copies, void* stream);

/// Loads the kernels into the current device and launches them once with nothing to do, so that nothing is loaded while
/// something else spins. Returns 0, or the cudaError_t.
int load_copy_kernels(void* stream);

}  // namespace reshard
