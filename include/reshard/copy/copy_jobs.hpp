// SPDX-License-Identifier: Apache-2.0
// Copies as data: what one device does in each stage as a flat list of strided copies, each at most a few hundred KiB
// and with the pages that are committed just before it, while they are still in the cache when the copy writes them.
// Builds on: copy/strided_copy.hpp, copy/table_copy.hpp, memory/page_stages.hpp.
#pragma once

#include <vector>

#include <reshard/copy/strided_copy.hpp>
#include <reshard/copy/table_copy.hpp>
#include <reshard/memory/page_stages.hpp>

namespace reshard {

/// Destination bytes of one job at most, unless a single run is longer than that and cannot be cut.
inline constexpr bytes_t job_bytes = bytes_t{256} << 10;

/// One strided copy, runs and strides in bytes, and which of its list's page spans are committed just before it.
struct copy_job {
  std::byte* dst = nullptr;
  const std::byte* src = nullptr;
  bytes_t run_bytes = 0;
  int ndim = 0;
  index_t extent[3] = {};
  bytes_t src_stride[3] = {};
  bytes_t dst_stride[3] = {};
  std::size_t first_span = 0;
  std::size_t spans = 0;
  conversion as = {};  // of elements; the runs are the destination's then, and the source's as many elements

  copy_shape shape() const {
    copy_shape s{.ndim = ndim, .run_bytes = run_bytes};
    for (int d = 0; d < ndim; ++d)
      s.extent[d] = extent[d], s.src_stride[d] = src_stride[d], s.dst_stride[d] = dst_stride[d];
    return s;
  }
};

/// A copy of one box in memory to another. Where elements are converted, runs are those of the destination.
inline copy_shape shape_between(const bound_box& to, const bound_box& from) {
  copy_shape s{.ndim = 3, .run_bytes = 1};  // in elements, of which either side has its own
  for (int i = 0; i < 3; ++i) {
    s.extent[i] = to.where.dim[i].size();
    s.src_stride[i] = from.stride[i];
    s.dst_stride[i] = to.stride[i];
  }
  s = coalesce(s);
  s.run_bytes *= to.element_bytes;
  for (int i = 0; i < s.ndim; ++i) s.src_stride[i] *= from.element_bytes, s.dst_stride[i] *= to.element_bytes;
  return s;
}

/// Jobs in order of their stages, and what they commit.
class job_list {
 public:
  explicit job_list(index_t stages = 0) : begin_(static_cast<std::size_t>(stages) + 1, 0) {}

  /// Copies a box from one place to another, in the stage of the last call or a later one. `pages` are the
  /// destination's.
  void add(index_t stage, const bound_box& to, const bound_box& from, page_stages* pages) {
    int cut = 0;  // the outermost dimension that there is
    while (cut < 2 && to.where.dim[cut].size() == 1) ++cut;
    const interval slices = to.where.dim[cut];
    const bytes_t slice_bytes = to.bytes() / slices.size();
    const index_t step = greatest(1, job_bytes / slice_bytes);
    for (index_t first = slices.begin; first < slices.end; first += step) {
      box<3> part = to.where;
      part.dim[cut] = {first, least(first + step, slices.end)};
      if (slice_bytes > job_bytes && cut < 2) add(stage, to.narrowed(part), from.narrowed(part), pages);
      else append(to.narrowed(part), from.narrowed(part), pages);
    }
    ends(stage);
  }
  /// A box that something else writes, in such a stage: take_pages commits its pages, those that earlier jobs commit
  /// included, and nothing is copied.
  void add_pages(index_t stage, const bound_box& to, page_stages& pages) {
    copy_job job{.first_span = spans_.size()};
    pages.claim(to, spans_, true);
    job.spans = spans_.size() - job.first_span;
    jobs_.push_back(job);
    ends(stage);
  }
  /// After the last add, of at least so many stages.
  void seal(index_t stages = 0) {
    begin_.resize(std::max(begin_.size(), static_cast<std::size_t>(stages) + 1), 0);
    for (std::size_t k = 1; k < begin_.size(); ++k) begin_[k] = std::max(begin_[k], begin_[k - 1]);
  }

  /// The pages of a stage's jobs are there: from now on these only copy.
  void keep_pages(index_t stage) {
    for (std::size_t i = begin(stage); i < end(stage); ++i) jobs_[i].spans = 0;
  }
  /// Commits them before the jobs are run.
  void take_pages(index_t stage, const binding& into) {
    for (std::size_t i = begin(stage); i < end(stage); ++i) commit_pages(jobs_[i], into);
    keep_pages(stage);
  }

  std::size_t begin(index_t stage) const { return begin_[static_cast<std::size_t>(stage)]; }
  std::size_t end(index_t stage) const { return begin_[static_cast<std::size_t>(stage) + 1]; }
  std::size_t size() const { return jobs_.size(); }
  const copy_job& operator[](std::size_t i) const { return jobs_[i]; }

  /// Commits the job's pages in the destination's blocks, and copies: through the caches where these hold the new pages
  /// already, as the kernel has just cleared them, else on the path for pages that are there.
  void run(std::size_t i, const binding& into, copy_path there = copy_path::streaming) const {
    const copy_job& job = jobs_[i];
    commit_pages(job, into);
    const copy_shape shape = job.shape();
    if (!job.as.none()) return run_table_copy(table_copy_of(job.dst, job.src, shape, job.as), 0, 1);
    reshard::copy(job.dst, job.src, shape, job.spans > 0 ? copy_path::cached : there);
  }

 private:
  /// The jobs of a stage end here, so far.
  void ends(index_t stage) {
    if (begin_.size() < static_cast<std::size_t>(stage) + 2) begin_.resize(static_cast<std::size_t>(stage) + 2, 0);
    begin_[static_cast<std::size_t>(stage) + 1] = jobs_.size();
  }
  void commit_pages(const copy_job& job, const binding& into) const {
    for (std::size_t s = job.first_span; s < job.first_span + job.spans; ++s)
      into.blocks()[spans_[s].block].commit(spans_[s].pages);
  }
  void append(const bound_box& to, const bound_box& from, page_stages* pages) {
    const copy_shape s = shape_between(to, from);
    copy_job job{to.data, from.data, s.run_bytes, s.ndim};
    job.as = conversion_between(to, from);
    for (int i = 0; i < s.ndim; ++i)
      job.extent[i] = s.extent[i], job.src_stride[i] = s.src_stride[i], job.dst_stride[i] = s.dst_stride[i];
    job.first_span = spans_.size();
    if (pages != nullptr) pages->claim(to, spans_);
    job.spans = spans_.size() - job.first_span;
    jobs_.push_back(job);
  }

  std::vector<copy_job> jobs_;
  std::vector<block_span> spans_;
  std::vector<std::size_t> begin_;
};

}  // namespace reshard
