// SPDX-License-Identifier: Apache-2.0
// The copy kernels' launches on the emulation: the very body that a GPU runs, a loop over threads on the stream's own
// thread. For one file of a program.
#pragma once

#include <vector>

#include <reshard/exec/device_copies.hpp>

#include "../emulation/emulation.hpp"

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

}  // namespace detail

int launch_copies(const table_copy* table, index_t copies, void* stream) {
  if (copies <= 0) return cudaSuccess;
  return emulation::launch(static_cast<cudaStream_t>(stream), "copies", [table, copies] {
    const table_copy* const jobs = emulation::readable(table, static_cast<std::size_t>(copies));
    for (index_t c = 0; c < copies; ++c) {
      constexpr std::uint32_t threads = 256;
      const table_copy job = detail::seen_by_host(jobs[c]);
      for (std::uint32_t t = 0; t < threads; ++t) run_table_copy(job, t, threads);
    }
  });
}
int load_copy_kernels(void* stream) {
  return emulation::launch(static_cast<cudaStream_t>(stream), "copies", [] {});
}

}  // namespace reshard
