// SPDX-License-Identifier: Apache-2.0
// A rank's state in memory of the library's own: a page_range per array, reserved whole and committed as it fills, and
// the binding over them. What the demo and the tests switch; a trainer binds the arrays it already has
// (memory/rank_arrays.hpp).
// Builds on: memory/rank_arrays.hpp, memory/pages.hpp.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <reshard/memory/pages.hpp>
#include <reshard/memory/rank_arrays.hpp>

namespace reshard {

/// The arrays of one rank of a layout. Movable.
class rank_storage {
 public:
  /// A device without a rank: nothing.
  explicit rank_storage(std::string who = "no rank") : bound_(std::move(who)) {}

  template <Layout L>
  rank_storage(const L& layout, rank_t rank, std::string who, pages_are at_first = pages_are::reserved,
               const std::optional<state_set>& wanted = {}, const state_list& list = adam) {
    const auto& h = holding_of(layout, wanted, list);
    const auto reserve = [&](const rank_array& a) {
      page_range& range = ranges_.emplace_back(a.bytes());
      if (at_first == pages_are::committed) range.commit(0, range.bytes());
      return memory{range.data(), a.bytes()};
    };
    bound_ = bind_rank(h, rank, std::move(who), reserve, wanted, list);
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
  /// Commits what is reserved, 16 MiB at a time, as long as goes() says so; whether all is there.
  template <typename Goes>
  bool commit_while(Goes&& goes) {
    constexpr bytes_t piece = bytes_t{16} << 20;
    for (page_range& range : ranges_)
      for (bytes_t at = 0; at < range.bytes(); at += piece) {
        if (!goes()) return false;
        range.commit(at, least(at + piece, range.bytes()));
      }
    return true;
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
