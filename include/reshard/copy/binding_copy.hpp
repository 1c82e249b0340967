// SPDX-License-Identifier: Apache-2.0
// A copy of what a rank's tensors hold, in memory of its own: state as it was, to go back to.
// Builds on: memory/binding.hpp, copy/strided_copy.hpp.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <reshard/copy/strided_copy.hpp>
#include <reshard/memory/binding.hpp>

namespace reshard {

/// Room for one copy of a binding's boxes, each in row-major order; its own memory holds
///   sum over the boxes b of |b| x the bytes of an element
/// and nothing beside; every element lies at a multiple of its width. Bindings are sealed before. Movable. Refused:
/// tensors that do not lie in the host's memory.
class binding_copy {
 public:
  explicit binding_copy(const binding& of, std::string who = "a copy") : tensors_(std::move(who), {}, of.list()) {
    require_host(of);
    bytes_t bytes = 0;
    for (const bound_box& b : of.boxes()) bytes = checked_add(bytes, b.bytes());
    memory_.resize(static_cast<std::size_t>(bytes));
    bytes = 0;
    for (const bytes_t width : {8, 4, 2, 1})  // the widest first, so that no gaps align them
      for (bound_box b : of.boxes()) {
        if (b.element_bytes != width) continue;
        const index_t columns = b.where.dim[2].size();
        b.data = memory_.data() + bytes;
        b.stride[0] = columns * b.where.dim[1].size(), b.stride[1] = columns, b.stride[2] = 1;
        bytes += b.bytes();
        tensors_.add(b);
      }
    tensors_.seal();
  }

  /// tensors()[x] = of[x] for every element x. Refused: a binding of other boxes than the one that it was made for.
  void take(const binding& of) {
    require_host(of);
    const std::vector<bound_box>&from = of.boxes(), &to = tensors_.boxes();
    if (from.size() != to.size())
      refuse(tensors_.who(), ": it has room for ", to.size(), " boxes, and ", of.who(), " has ", from.size());
    for (std::size_t i = 0; i < to.size(); ++i) {
      const bound_box &a = from[i], &b = to[i];
      if (!a.same_tensor(b) || a.where != b.where || a.element_bytes != b.element_bytes)
        refuse(tensors_.who(), ": it has room for ", tensors_.name(b), ", and ", of.who(), " has ", of.name(a),
               " there");
      copy_shape shape{.ndim = 3, .run_bytes = b.element_bytes};
      for (int d = 0; d < 3; ++d) {
        shape.extent[d] = b.where.dim[d].size();
        shape.src_stride[d] = a.stride[d] * b.element_bytes;
        shape.dst_stride[d] = b.stride[d] * b.element_bytes;
      }
      reshard::copy(b.data, a.data, shape);
    }
  }

  binding& tensors() { return tensors_; }
  const binding& tensors() const { return tensors_; }
  bytes_t bytes() const { return static_cast<bytes_t>(memory_.size()); }

 private:
  void require_host(const binding& of) const {
    if (of.place() != memory_place{})
      refuse(tensors_.who(), ": what is copied lies in ", of.place().text(), ", and copies are made of host memory");
  }

  std::vector<std::byte> memory_;
  binding tensors_;
};

}  // namespace reshard
