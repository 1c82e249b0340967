// SPDX-License-Identifier: Apache-2.0
// The arrays of one rank in device memory, filled and compared through the host: one range of device_memory for all of
// them, or an allocation that can only be dropped whole for each.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <reshard/cuda/device_memory.hpp>
#include <reshard/memory/rank_arrays.hpp>
#include <reshard/testing/known_values.hpp>

namespace testing {

using namespace reshard;

class device_storage {
 public:
  explicit device_storage(std::string who = "no rank") : tensors(std::move(who)) {}
  device_storage(const device_storage&) = delete;
  ~device_storage() {
    for (void* array : arrays_)
      if (array != nullptr) cudaFree(array);
  }

  /// A rank's arrays of a holding, in a range; one after the other, as far apart as `alignment` wants.
  template <Holding H>
  device_storage(const H& h, rank_t rank, const std::string& who, device_granules& from, pages_are at_first,
                 bytes_t alignment = 512)
      : device_(from.device()) {
    place_all(h, rank, alignment);
    if (total_ > 0) range_.emplace(from, total_);
    bind(h, rank, who, [&](std::size_t i) { return range_->data() + offsets_[i]; });
    if (range_) tensors.own(*range_, at_first);
    tensors.seal();
  }
  /// Each an allocation of its own, that is given back whole.
  template <Holding H>
  device_storage(const H& h, rank_t rank, const std::string& who, int device) : device_(device) {
    place_all(h, rank, 512);
    for (const bytes_t bytes : bytes_) {
      detail::require_cuda(cudaMalloc(&arrays_.emplace_back(), static_cast<std::size_t>(bytes)), "allocate");
    }
    bind(h, rank, who, [&](std::size_t i) { return static_cast<std::byte*>(arrays_[i]); });
    for (std::size_t i = 0; i < arrays_.size(); ++i)
      tensors.own_whole({static_cast<std::byte*>(arrays_[i]), bytes_[i]}, pages_are::committed, [this, i] {
        detail::require_cuda(cudaFree(std::exchange(arrays_[i], nullptr)), "free an array");
        ++dropped;
      });
    tensors.seal();
  }

  /// Like fill and compare, whose twin in the host's memory is copied to the device and from it.
  template <Holding H, typename Values = known_values>
  void fill(const H& h, const Values& values = {}) {
    reshard::fill(twin_.tensors, h, values);
    copy(cudaMemcpyHostToDevice);
  }
  template <Holding H, typename Values = known_values>
  comparison compare(const H& h, const Values& values = {}) {
    for (std::vector<std::byte>& array : twin_.arrays) std::fill(array.begin(), array.end(), std::byte{0xA5});
    copy(cudaMemcpyDeviceToHost);
    return reshard::compare(twin_.tensors, h, values);
  }
  /// Compares some boxes in device memory with what fill writes, whoever's they are.
  template <typename H, typename Values = known_values>
  static comparison compare_boxes(const binding& boxes, const H& h, const Values& values = {}) {
    comparison all;
    const cuda_stream stream;
    for (const bound_box& b : boxes.boxes()) {
      std::vector<std::byte> dense(static_cast<std::size_t>(b.bytes()));
      const index_t planes = b.where.dim[0].size(), rows = b.where.dim[1].size(), columns = b.where.dim[2].size();
      const bool side_by_side = rows == 1 || b.stride[1] == columns;  // rows, of which a copy takes as many as can be
      const index_t at_once = side_by_side ? rows : 1;
      for (index_t i = 0; i < planes; ++i)
        for (index_t j = 0; j < rows; j += at_once)
          detail::require_cuda(cudaMemcpyAsync(dense.data() + (i * rows + j) * columns * b.element_bytes,
                                               b.data + (i * b.stride[0] + j * b.stride[1]) * b.element_bytes,
                                               static_cast<std::size_t>(at_once * columns * b.element_bytes),
                                               cudaMemcpyDeviceToHost, stream.get()),
                               "copy rows");
      detail::require_cuda(cudaStreamSynchronize(stream.get()), "copy a box");
      binding one("a box");
      one.add(b, memory{dense.data(), b.bytes()});
      one.seal();
      const comparison found = reshard::compare(one, h, values);
      all.elements += found.elements, all.wrong += found.wrong;
    }
    return all;
  }
  bytes_t mapped_bytes() const { return range_ ? range_->mapped_bytes() : 0; }
  device_memory& range() { return *range_; }
  bytes_t bytes() const { return total_; }
  /// The same boxes in the host's memory, as copied by `compare` last.
  const binding& twin() const { return twin_.tensors; }
  void copy(cudaMemcpyKind kind) {
    if (bytes_.empty()) return;
    const on_device here(device_);
    const cuda_stream stream;
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      void *there = where_[i], *at_host = twin_.arrays[i].data();
      const bool up = kind == cudaMemcpyHostToDevice;
      detail::require_cuda(cudaMemcpyAsync(up ? there : at_host, up ? at_host : there,
                                           static_cast<std::size_t>(bytes_[i]), kind, stream.get()),
                           "copy an array");
    }
    detail::require_cuda(cudaStreamSynchronize(stream.get()), "copy arrays");
  }

  /// Its first array becomes an allocation of half the bytes, and is bound as if it were whole.
  void cut_short() {
    const std::byte* const was = where_[0];
    detail::require_cuda(cudaFree(arrays_[0]), "free an array");
    detail::require_cuda(cudaMalloc(&arrays_[0], static_cast<std::size_t>(bytes_[0] / 2)), "allocate");
    binding other(tensors.who(), {}, tensors.list());
    for (bound_box b : tensors.boxes()) {
      if (b.data >= was && b.data < was + bytes_[0]) b.data = static_cast<std::byte*>(arrays_[0]) + (b.data - was);
      other.add(b);
    }
    other.seal();
    tensors = other;
  }

  binding tensors;
  long dropped = 0;

 private:
  template <Holding H>
  void place_all(const H& h, rank_t rank, bytes_t alignment) {
    each_array(h, rank, {}, [&](const rank_array& a) {
      if (a.bytes() == 0) return;
      offsets_.push_back(total_);
      bytes_.push_back(a.bytes());
      total_ += ceil_divide(a.bytes(), alignment) * alignment;
    });
  }
  template <Holding H, typename Where>
  void bind(const H& h, rank_t rank, const std::string& who, Where&& where) {
    const auto arrays = [&](auto&& place) {
      std::size_t next = 0;
      return bind_rank(h, rank, who, [&](const rank_array& a) {
        if (a.bytes() == 0) return memory{};
        const std::size_t i = next++;
        return memory{place(i), a.bytes()};
      });
    };
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      where_.push_back(where(i));
      twin_.arrays.emplace_back(static_cast<std::size_t>(bytes_[i]));
    }
    tensors = arrays([&](std::size_t i) { return where_[i]; });
    twin_.tensors = arrays([&](std::size_t i) { return twin_.arrays[i].data(); });
    twin_.tensors.seal();
  }

  struct host_twin {
    std::vector<std::vector<std::byte>> arrays;
    binding tensors;
  };

  int device_ = 0;
  std::vector<bytes_t> offsets_, bytes_;
  std::vector<std::byte*> where_;
  bytes_t total_ = 0;
  std::optional<device_memory> range_;
  std::vector<void*> arrays_;
  host_twin twin_;
};

}  // namespace testing
