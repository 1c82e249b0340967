// SPDX-License-Identifier: Apache-2.0
// The copy kernels on the emulation: the launches of cuda/copy_kernels.cuh themselves, and the very body that a GPU
// runs, a loop over threads on the stream's own thread. For one file of a program.
#pragma once

#include <functional>

#include <cuda_runtime_api.h>

#undef __global__  // what a CUDA compiler knows, for one that does not
#undef __launch_bounds__
#define __global__
#define __launch_bounds__(...)
namespace reshard {
inline const dim3 blockIdx, threadIdx, blockDim;
}

#include <reshard/cuda/copy_kernels.cuh>

#include "../emulation/emulation.hpp"

namespace testing {

/// What the device does before each table of copies; nothing, where nobody says.
inline std::function<void(const reshard::table_copy*)> before_copies;

}  // namespace testing

namespace reshard {

namespace detail {

/// The same copy between addresses that this thread can touch; every run of it is looked at.
inline table_copy seen_by_host(const table_copy& job) {
  table_copy seen = job;
  const std::size_t to = std::size_t{job.run_units} * job.dst_unit, from = std::size_t{job.run_units} * job.src_unit;
  for (std::uint32_t i = 0; i < job.extent[0]; ++i)
    for (std::uint32_t j = 0; j < job.extent[1]; ++j)
      for (std::uint32_t k = 0; k < job.extent[2]; ++k) {
        const auto at = [&](const std::int64_t(&stride)[3]) { return i * stride[0] + j * stride[1] + k * stride[2]; };
        std::byte* const dst =
            emulation::device_view(job.dst + at(job.dst_stride), to, emulation::use::write) - at(job.dst_stride);
        const std::byte* const src =
            emulation::device_view(job.src + at(job.src_stride), from, emulation::use::read) - at(job.src_stride);
        if (i + j + k > 0 && (dst != seen.dst || src != seen.src)) std::abort();  // one view of a range
        seen.dst = dst, seen.src = src;
      }
  return seen;
}

inline const bool copies_have_a_twin =
    emulation::twin(reinterpret_cast<const void*>(copy_table_kernel),
                    {"copies", [](void** arguments) {
                       const auto table = *static_cast<const table_copy**>(arguments[0]);
                       const index_t copies = *static_cast<index_t*>(arguments[1]);
                       return [table, copies] {
                         if (testing::before_copies) testing::before_copies(table);
                         const table_copy* const jobs = emulation::readable(table, static_cast<std::size_t>(copies));
                         for (index_t c = 0; c < copies; ++c) {
                           const table_copy job = seen_by_host(jobs[c]);
                           for (std::uint32_t t = 0; t < copy_threads; ++t) run_table_copy(job, t, copy_threads);
                         }
                       };
                     }});

}  // namespace detail

}  // namespace reshard
