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
  /// Adds what copy(dst, src, shape) makes, cut along its outermost dimensions, or along its run. Where elements are
  /// converted, the runs are the destination's, strides are in bytes of either side, and nothing is merged any more.
  void add(std::byte* dst, const std::byte* src, const copy_shape& shape, const conversion& as = {}) {
    add_coalesced(dst, src, as.none() ? coalesce(shape) : shape, as);
  }
  /// A box from one place to another; both are one box of one tensor.
  void add(const bound_box& to, const bound_box& from) {
    if (!to.where.empty()) add(to.data, from.data, shape_between(to, from), conversion_between(to, from));
  }
  /// The copies of a stage of such a list, or of a message. What the list commits is the caller's to commit before.
  void add(const job_list& jobs, index_t stage) {
    for (std::size_t i = jobs.begin(stage); i < jobs.end(stage); ++i)
      add(jobs[i].dst, jobs[i].src, jobs[i].shape(), jobs[i].as);
  }

  const table_copy* data() const { return copies_.data(); }
  std::size_t size() const { return copies_.size(); }
  bool empty() const { return copies_.empty(); }
  void clear() { copies_.clear(); }
  auto begin() const { return copies_.begin(); }
  auto end() const { return copies_.end(); }

 private:
  void add_coalesced(std::byte* dst, const std::byte* src, const copy_shape& s, const conversion& as) {
    const bytes_t bytes = s.total_bytes();
    if (bytes == 0) return;
    if (bytes <= job_bytes && s.ndim <= 3) return copies_.push_back(table_copy_of(dst, src, s, as));
    copy_shape part = s;
    if (s.ndim == 0) {
      const bytes_t to_width = as.none() ? 1 : width(as.to), from_width = as.none() ? 1 : width(as.from);
      for (bytes_t at = 0; at < bytes; at += job_bytes) {
        part.run_bytes = least(job_bytes, bytes - at);
        copies_.push_back(table_copy_of(dst + at, src + at / to_width * from_width, part, as));
      }
      return;
    }
    const bytes_t slice_bytes = bytes / s.extent[0];
    const index_t step = s.ndim > 3 ? 1 : greatest(1, job_bytes / slice_bytes);
    for (index_t i = 0; i < s.extent[0]; i += step) {
      part.extent[0] = least(step, s.extent[0] - i);
      add_coalesced(dst + i * s.dst_stride[0], src + i * s.src_stride[0], part.extent[0] == 1 ? inner(s) : part, as);
    }
  }
  /// A copy of one index of its outermost dimension.
  static copy_shape inner(const copy_shape& s) {
    copy_shape result{.ndim = s.ndim - 1, .run_bytes = s.run_bytes};
    for (int d = 1; d < s.ndim; ++d)
      result.extent[d - 1] = s.extent[d], result.src_stride[d - 1] = s.src_stride[d],
                        result.dst_stride[d - 1] = s.dst_stride[d];
    return result;
  }

  std::vector<table_copy> copies_;
};

}  // namespace reshard
