// SPDX-License-Identifier: Apache-2.0
// A table of strided copies for a GPU: every copy in at most three dimensions and of at most job_bytes, in the widest
// units that its addresses, strides and runs allow.
// Builds on: copy/copy_jobs.hpp, copy/table_copy.hpp.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include <reshard/copy/copy_jobs.hpp>
#include <reshard/copy/table_copy.hpp>

namespace reshard {

static_assert(std::is_trivially_copyable_v<table_copy> && std::is_standard_layout_v<table_copy>);

/// Copies that are made together, in any order: what one launch takes, a block of threads each. On the host until
/// somebody sends data() to a device, size() x sizeof(table_copy) bytes.
class copy_table {
 public:
  /// As copy(dst, src, shape) would make it, cut along its outermost dimensions, or along its run.
  void add(std::byte* dst, const std::byte* src, const copy_shape& shape) { add_coalesced(dst, src, coalesce(shape)); }
  /// A box from one place to another; both are one box of one tensor.
  void add(const bound_box& to, const bound_box& from) {
    if (!to.where.empty()) add_coalesced(to.data, from.data, shape_between(to, from));
  }

  /// The copies of a stage of such a list, or of a message. What the list commits is the caller's to commit before.
  void add(const job_list& jobs, index_t stage) {
    for (std::size_t i = jobs.begin(stage); i < jobs.end(stage); ++i) add(jobs[i].dst, jobs[i].src, jobs[i].shape());
  }

  const table_copy* data() const { return copies_.data(); }
  std::size_t size() const { return copies_.size(); }
  bool empty() const { return copies_.empty(); }
  void clear() { copies_.clear(); }
  auto begin() const { return copies_.begin(); }
  auto end() const { return copies_.end(); }

 private:
  void add_coalesced(std::byte* dst, const std::byte* src, const copy_shape& s) {
    const bytes_t bytes = s.total_bytes();
    if (bytes == 0) return;
    if (bytes <= job_bytes && s.ndim <= 3) return append(dst, src, s);
    copy_shape part = s;
    if (s.ndim == 0) {
      for (bytes_t at = 0; at < bytes; at += job_bytes) {
        part.run_bytes = least(job_bytes, bytes - at);
        append(dst + at, src + at, part);
      }
      return;
    }
    const bytes_t slice_bytes = bytes / s.extent[0];
    const index_t step = s.ndim > 3 ? 1 : greatest(1, job_bytes / slice_bytes);
    for (index_t i = 0; i < s.extent[0]; i += step) {
      part.extent[0] = least(step, s.extent[0] - i);
      add_coalesced(dst + i * s.dst_stride[0], src + i * s.src_stride[0], coalesce(part));
    }
  }
  void append(std::byte* dst, const std::byte* src, const copy_shape& s) {
    std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(dst) | reinterpret_cast<std::uintptr_t>(src) |
                          static_cast<std::uintptr_t>(s.run_bytes) | 16;
    for (int d = 0; d < s.ndim; ++d)
      bits |= static_cast<std::uintptr_t>(s.dst_stride[d]) | static_cast<std::uintptr_t>(s.src_stride[d]);
    const auto unit = static_cast<std::uint32_t>(bits & (~bits + 1));  // its lowest bit
    table_copy job{.dst = dst, .src = src};
    for (int d = 0, at = 3 - s.ndim; d < s.ndim; ++d, ++at) {
      job.extent[at] = static_cast<std::uint32_t>(s.extent[d]);
      job.dst_stride[at] = s.dst_stride[d];
      job.src_stride[at] = s.src_stride[d];
    }
    job.run_units = static_cast<std::uint32_t>(s.run_bytes) / unit;
    job.dst_unit = job.src_unit = unit;
    copies_.push_back(job);
  }

  std::vector<table_copy> copies_;
};

}  // namespace reshard
