// SPDX-License-Identifier: Apache-2.0
// A stream that makes the copies of tables: a table is sent to the device from pinned memory, then launched; the next
// one waits its turn on the stream, not on the host.
// Builds on: cuda/handles.hpp, cuda/launch_copies.hpp, base/patience.hpp, copy/copy_table.hpp.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>

#include <reshard/base/patience.hpp>
#include <reshard/base/refusal.hpp>
#include <reshard/copy/copy_table.hpp>
#include <reshard/cuda/handles.hpp>
#include <reshard/cuda/launch_copies.hpp>
#include <reshard/memory/binding.hpp>

namespace reshard {

/// Copies of one kind, and zeros, one table after the other.
class device_lane {
 public:
  /// Bytes of a table that are sent at once, and of device memory that a lane wants.
  static constexpr bytes_t part_bytes = bytes_t{1} << 20, zero_bytes = bytes_t{64} << 10,
                           table_bytes = 2 * part_bytes + zero_bytes;

  /// `tables`: so many bytes of the current device's memory, which outlive the lane and what it began.
  explicit device_lane(std::byte* tables) : tables_(tables), host_(2 * part_bytes) {}
  device_lane(const device_lane&) = delete;
  device_lane& operator=(const device_lane&) = delete;
  /// Waits for what was begun, once as long as the last copy might: what has not ended by then keeps the host's memory
  /// that it reads, as to free that would wait for ever.
  ~device_lane() {
    try {
      for (vain_wait waited(wait_); !idle(); std::this_thread::sleep_for(std::chrono::microseconds(20)))
        if (waited.over()) {
          host_.leave();
          return;
        }
    } catch (const std::exception&) {  // the device does nothing more
    }
  }

  const cuda_stream& stream() const { return stream_; }
  /// Loads the kernels, and is idle once they are there.
  void load() {
    require(load_copy_kernels(stream_.get()), "load its kernels for copies");
    detail::require_cuda(::cudaMemsetAsync(zeros(), 0, zero_bytes, stream_.get()), "write zeros");
  }

  /// Begins the copies: in one launch where the table is sent at once. Waits only where more of it is on its way than
  /// there is memory for, and for its own copies; at most so long.
  void copy(const copy_table& table, patience wait) {
    constexpr auto most = static_cast<std::size_t>(part_bytes) / sizeof(table_copy);
    wait_ = wait;
    for (std::size_t first = 0; first < table.size(); first += most) {
      const std::size_t count = std::min(most, table.size() - first);
      part_ = 1 - part_;
      for (vain_wait waited(wait); !sent_[part_].happened();) {
        if (waited.over()) {
          wait_ = patience(0);
          refuse("copies on a device did not end for ", wait.count(), " ms");
        }
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
      const std::size_t at = static_cast<std::size_t>(part_bytes) * static_cast<std::size_t>(part_);
      std::memcpy(host_.data() + at, table.data() + first, count * sizeof(table_copy));
      detail::require_cuda(::cudaMemcpyAsync(tables_ + at, host_.data() + at, count * sizeof(table_copy),
                                             cudaMemcpyHostToDevice, stream_.get()),
                           "send a table of copies");
      const int launched =
          launch_copies(reinterpret_cast<const table_copy*>(tables_ + at), static_cast<index_t>(count), stream_.get());
      sent_[part_].record(stream_);  // launched or not, the table is read
      require(launched, "launch copies");
    }
  }
  /// Begins to write zeros to a box: it is copied from a row of them.
  void zero(const bound_box& b, patience wait) {
    copy_table table;
    const index_t most = zero_bytes / b.element_bytes;
    for (index_t first = b.where.dim[2].begin; first < b.where.dim[2].end; first += most) {
      box<3> part = b.where;
      part.dim[2] = {first, least(first + most, b.where.dim[2].end)};
      const bound_box to = b.narrowed(part);
      bound_box from = to;
      from.data = zeros();
      from.stride[0] = from.stride[1] = 0, from.stride[2] = 1;
      table.add(to, from);
    }
    copy(table, wait);
  }

  /// Whether all that was begun is done, of a copy that broke off too; no waiting.
  bool idle() const { return stream_.idle(); }
  /// What another stream is given from now on comes after all that was begun here.
  void precedes(const cuda_stream& later) {
    done_.record(stream_);
    done_.precedes(later);
  }

 private:
  static void require(int code, const char* what) { detail::require_cuda(static_cast<cudaError_t>(code), what); }
  std::byte* zeros() const { return tables_ + 2 * part_bytes; }

  cuda_stream stream_;
  std::byte* tables_;
  pinned_memory host_;
  cuda_event sent_[2];  // a part's table, and its copies
  cuda_event done_;     // what another stream waits for
  int part_ = 0;
  patience wait_ = default_patience;
};

}  // namespace reshard
