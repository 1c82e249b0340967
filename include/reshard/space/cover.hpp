// SPDX-License-Identifier: Apache-2.0
// Exact cover, proved from the boxes alone: any two ranks' boxes of a family are equal or disjoint, and the distinct ones'
// volumes add up to the family's. And what a rank holds in bytes. All of it runs in a static_assert.
// Builds on: space/holding_of.hpp.
#pragma once

#include <algorithm>
#include <vector>

#include <reshard/space/holding_of.hpp>

namespace reshard {

namespace detail {

/// The distinct intervals met along one axis, in order of first occurrence.
struct axis_cuts {
  std::vector<interval> parts;
  std::size_t latest = 0;  // neighbours mostly repeat, so the search begins here

  constexpr std::size_t index_of(interval part) {
    for (std::size_t tried = 0; tried < parts.size(); ++tried) {
      const interval& known = parts[latest];
      if (known.begin == part.begin && known.end == part.end) return latest;
      if (++latest == parts.size()) latest = 0;
    }
    parts.push_back(part);
    return latest = parts.size() - 1;
  }
  /// They tile [0, extent): disjoint, none missing.
  constexpr bool tile(index_t extent) const {
    std::vector<interval> ascending = parts;
    std::sort(ascending.begin(), ascending.end(), [](interval a, interval b) { return a.begin < b.begin; });
    index_t reached = 0;
    for (const interval& part : ascending) {
      if (part.begin != reached) return false;
      reached = part.end;
    }
    return reached == extent;
  }
};

/// Boxes as cells of a grid: where every axis is tiled by the boxes' own intervals, any two boxes are cells of it, so equal or
/// disjoint, and they cover iff every cell occurs. Linear in the boxes.
class grid_of_boxes {
 public:
  constexpr void add(const family_box& b) {
    std::uint64_t key = 0;
    for (int i = 0; i < family_ndim; ++i) key = key << key_bits | along_[i].index_of(b.dim[i]);
    keys_.push_back(key);
  }
  constexpr bool covers(const family& which) const {
    std::size_t cells = 1;
    for (int i = 0; i < family_ndim; ++i) {
      const std::size_t parts = along_[i].parts.size();
      if (parts >= std::size_t{1} << key_bits || !along_[i].tile(which.extent[i])) return false;
      cells *= parts;
      if (cells > keys_.size()) return false;
    }
    std::vector<int> seen;
    for (std::size_t c = 0; c < cells; ++c) seen.push_back(0);
    std::size_t missing = cells;
    for (const std::uint64_t key : keys_) {
      std::size_t cell = 0;
      for (int i = 0; i < family_ndim; ++i)
        cell = cell * along_[i].parts.size() + (key >> (key_bits * (family_ndim - 1 - i)) & ((1u << key_bits) - 1));
      missing -= seen[cell]++ == 0 ? 1 : 0;
    }
    return missing == 0;
  }

 private:
  static constexpr int key_bits = 12;
  axis_cuts along_[family_ndim];
  std::vector<std::uint64_t> keys_;
};

/// Boxes of any shape: the distinct ones are pairwise disjoint, lie in the family, and their volumes add up to its.
constexpr bool covers_by_sweep(std::vector<family_box> boxes, const family& which) {
  std::sort(boxes.begin(), boxes.end(), [](const family_box& a, const family_box& b) { return precedes(a, b); });
  boxes.erase(std::unique(boxes.begin(), boxes.end()), boxes.end());
  const family_box whole = which.whole();
  index_t elements = 0;
  for (const family_box& b : boxes) {
    if (!whole.contains(b)) return false;
    elements = checked_add(elements, b.volume());
  }
  if (elements != whole.volume()) return false;
  for (std::size_t i = 0; i < boxes.size(); ++i)  // sorted: fewer steps of constant evaluation than find_overlap, which looks for an axis
    for (std::size_t j = i + 1; j < boxes.size() && boxes[j].dim[0].begin < boxes[i].dim[0].end; ++j)
      if (intersects(boxes[i], boxes[j])) return false;
  return true;
}

}  // namespace detail

/// For every family and every wanted role: the boxes of all ranks are pairwise equal or disjoint, and the distinct ones'
/// volumes add up to the family's. Reads only the boxes, nothing of how they came about.
template <Holding H>
constexpr bool covers(const H& h, state_set wanted = all_states) {
  for (const role r : roles) {
    if ((states_of(r) & wanted & h.states()).empty()) continue;
    for (int f = 0; f < h.families(); ++f) {
      detail::grid_of_boxes grid;
      for (rank_t rank = 0; rank < h.ranks(); ++rank) h.held(f, rank, r, [&grid](int, const family_box& b) { grid.add(b); });
      if (grid.covers(h.family_at(f))) continue;
      std::vector<family_box> boxes;
      for (rank_t rank = 0; rank < h.ranks(); ++rank)
        h.held(f, rank, r, [&boxes](int, const family_box& b) { boxes.push_back(b); });
      if (!detail::covers_by_sweep(boxes, h.family_at(f))) return false;
    }
  }
  return true;
}
template <typename L>
  requires(Layout<L> && !Holding<L>)
constexpr bool covers(const L& layout, state_set wanted = all_states) {
  return covers(holding_of(layout, wanted), wanted);
}

/// sum over what the rank holds, of the wanted states that there are, of elements x width; 0 where there is no rank (-1)
template <Holding H>
constexpr bytes_t held_bytes(const H& h, rank_t rank, state_set wanted = all_states) {
  bytes_t bytes = 0;
  if (rank < 0) return bytes;
  for (const role r : roles) {
    const bytes_t per_element = (states_of(r) & wanted & h.states()).bytes_per_element();
    if (per_element == 0) continue;
    h.held(rank, r, [&](int, const family_box& b) {
      bytes = checked_add(bytes, checked_multiply(b.volume(), per_element));
    });
  }
  return bytes;
}
template <typename L>
  requires(Layout<L> && !Holding<L>)
constexpr bytes_t held_bytes(const L& layout, rank_t rank, state_set wanted = all_states) {
  return held_bytes(holding_of(layout, wanted), rank, wanted);
}

/// The most that any rank holds.
template <Holding H>
constexpr bytes_t bytes_per_rank(const H& h, state_set wanted = all_states) {
  bytes_t most = 0;
  for (rank_t rank = 0; rank < h.ranks(); ++rank) {
    if constexpr (requires { h.as_much_as_a_lower_rank(rank); })
      if (h.as_much_as_a_lower_rank(rank)) continue;
    most = greatest(most, held_bytes(h, rank, wanted));
  }
  return most;
}
template <typename L>
  requires(Layout<L> && !Holding<L>)
constexpr bytes_t bytes_per_rank(const L& layout, state_set wanted = all_states) {
  return bytes_per_rank(holding_of(layout, wanted), wanted);
}

}  // namespace reshard
