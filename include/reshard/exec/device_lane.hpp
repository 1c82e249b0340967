// SPDX-License-Identifier: Apache-2.0
// A stream that makes the copies of tables: a table is sent to the device from pinned memory, then launched; the next
// one waits its turn on the stream, not on the host.
// Builds on: exec/cuda_handles.hpp, exec/device_copies.hpp, exec/patience.hpp, copy/copy_table.hpp.
#pragma once

#include <algorithm>
#include <cstring>
#include <thread>

#include <reshard/base/refusal.hpp>
#include <reshard/copy/copy_table.hpp>
#include <reshard/exec/cuda_handles.hpp>
#include <reshard/exec/device_copies.hpp>
#include <reshard/exec/patience.hpp>
#include <reshard/memory/binding.hpp>

namespace reshard {

/// Copies of one kind, one table after the other.
class device_lane {
 public:
  /// Bytes of a table that are sent at once, and of device memory that a lane wants.
  static constexpr bytes_t part_bytes = bytes_t{1} << 20, table_bytes = 2 * part_bytes;

  /// `tables`: so many bytes of the current device's memory, which outlive the lane.
  explicit device_lane(std::byte* tables) : tables_(tables), host_(table_bytes) {}

  const cuda_stream& stream() const { return stream_; }
  /// Loads the kernels, and is idle once they are there.
  void load() {
    require(load_copy_kernels(stream_.get()), "load its kernels for copies");
    mark();
  }

  /// Begins the copies: in one launch where the table is sent at once. Waits only where more of it is on its way than
  /// there is memory for, and for its own copies; at most so long.
  void copy(const copy_table& table, patience wait) {
    constexpr auto most = static_cast<std::size_t>(part_bytes) / sizeof(table_copy);
    for (std::size_t first = 0; first < table.size(); first += most) {
      const std::size_t count = std::min(most, table.size() - first);
      part_ = 1 - part_;
      for (vain_wait waited(wait); !sent_[part_].happened();) {
        if (waited.over()) refuse("copies on a device did not end for ", wait.count(), " ms");
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
      const std::size_t at = static_cast<std::size_t>(part_bytes) * static_cast<std::size_t>(part_);
      std::memcpy(host_.data() + at, table.data() + first, count * sizeof(table_copy));
      detail::require_cuda(::cudaMemcpyAsync(tables_ + at, host_.data() + at, count * sizeof(table_copy),
                                             cudaMemcpyHostToDevice, stream_.get()),
                           "send a table of copies");
      require(
          launch_copies(reinterpret_cast<const table_copy*>(tables_ + at), static_cast<index_t>(count), stream_.get()),
          "launch copies");
      sent_[part_].record(stream_);
    }
    if (!table.empty()) mark();
  }
  /// Begins to write zeros to a box.
  void zero(const bound_box& b) {
    const bool dense = b.stride[2] == 1;
    const index_t columns = b.where.dim[2].size();
    const auto run = static_cast<std::size_t>((dense ? columns : 1) * b.element_bytes);
    const auto rows_of = [&](std::byte* at, index_t stride, index_t rows) {
      const auto pitch = static_cast<std::size_t>(stride * b.element_bytes);
      detail::require_cuda(rows == 1 || pitch == run
                               ? ::cudaMemsetAsync(at, 0, run * static_cast<std::size_t>(rows), stream_.get())
                               : ::cudaMemset2DAsync(at, pitch, 0, run, static_cast<std::size_t>(rows), stream_.get()),
                           "write zeros");
    };
    for (index_t i = 0; i < b.where.dim[0].size(); ++i) {
      std::byte* const part = b.data + i * b.stride[0] * b.element_bytes;
      if (dense) rows_of(part, b.stride[1], b.where.dim[1].size());
      for (index_t j = 0; !dense && j < b.where.dim[1].size(); ++j)
        rows_of(part + j * b.stride[1] * b.element_bytes, b.stride[2], columns);
    }
    mark();
  }

  /// Whether all that was begun is done; no waiting.
  bool idle() const { return done_.happened(); }
  /// What another stream is given from now on comes after all that was begun here.
  void precedes(const cuda_stream& later) const { done_.precedes(later); }

 private:
  static void require(int code, const char* what) { detail::require_cuda(static_cast<cudaError_t>(code), what); }
  void mark() { done_.record(stream_); }

  cuda_stream stream_;
  std::byte* tables_;
  pinned_memory host_;
  cuda_event sent_[2];  // a part's table, and its copies
  cuda_event done_;
  int part_ = 0;
};

}  // namespace reshard
