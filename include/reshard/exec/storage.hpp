// SPDX-License-Identifier: Apache-2.0
// A rank's state in memory of the library's own: a page_range per array, reserved whole and committed as it fills, and the
// binding over them. What the demo and the tests switch; a trainer binds the arrays it already has (exec/rank_arrays.hpp).
// Builds on: exec/rank_arrays.hpp.
#pragma once

#include <utility>
#include <vector>

#include <reshard/exec/rank_arrays.hpp>

namespace reshard {

/// The arrays of one rank of a holding. Movable.
class rank_storage {
 public:
  /// A device without a rank: nothing.
  explicit rank_storage(std::string who = "no rank") : bound_(std::move(who)) {}

  template <Holding H>
  rank_storage(const H& h, rank_t rank, std::string who, pages_are at_first = pages_are::reserved, state_set wanted = all_states) {
    each_array(h, rank, wanted, [&](const rank_array& a) {
      ranges_.emplace_back(a.bytes());
      if (at_first == pages_are::committed) ranges_.back().commit(0, ranges_.back().bytes());
    });
    std::size_t next = 0;
    bound_ = bind_rank(h, rank, std::move(who), [&](const rank_array& a) { return memory{ranges_[next++].data(), a.bytes()}; }, wanted);
    for (page_range& range : ranges_) bound_.own(range, at_first);
    bound_.seal();
  }

  binding& tensors() { return bound_; }
  const binding& tensors() const { return bound_; }

  bytes_t reserved_bytes() const {
    bytes_t bytes = 0;
    for (const page_range& range : ranges_) bytes += range.bytes();
    return bytes;
  }
  /// What the kernel has committed of it now.
  bytes_t resident_bytes() const {
    bytes_t bytes = 0;
    for (const page_range& range : ranges_) bytes += range.resident_bytes();
    return bytes;
  }

 private:
  std::vector<page_range> ranges_;
  binding bound_;
};

}  // namespace reshard
