// SPDX-License-Identifier: Apache-2.0
// Are boxes pairwise disjoint? A sweep along the axis that tells most of them apart.
// Builds on: algebra/box.hpp.
#pragma once

#include <algorithm>
#include <vector>

#include <reshard/algebra/box.hpp>

namespace reshard {

/// Indices into a list of boxes; equal where no two boxes overlap.
struct box_pair {
  std::size_t first = 0;
  std::size_t second = 0;
};

/// Two boxes that share a coordinate, if any do. The boxes are sorted along the axis with the most distinct beginnings,
/// and each is compared with those that begin before it ends: n log n for a list cut along one axis.
template <int N>
[[nodiscard]] constexpr box_pair find_overlap(const std::vector<box<N>>& boxes) {
  int axis = 0;
  std::size_t most = 0;
  for (int i = 0; i < N; ++i) {
    std::vector<index_t> begins;
    for (const box<N>& b : boxes) begins.push_back(b.dim[i].begin);
    std::sort(begins.begin(), begins.end());
    const auto distinct = static_cast<std::size_t>(std::unique(begins.begin(), begins.end()) - begins.begin());
    if (distinct > most) most = distinct, axis = i;
  }
  std::vector<std::size_t> order(boxes.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (boxes[a].dim[axis].begin != boxes[b].dim[axis].begin)
      return boxes[a].dim[axis].begin < boxes[b].dim[axis].begin;
    return a < b;
  });
  for (std::size_t i = 0; i < order.size(); ++i)
    for (std::size_t j = i + 1; j < order.size() && boxes[order[j]].dim[axis].begin < boxes[order[i]].dim[axis].end;
         ++j)
      if (intersects(boxes[order[i]], boxes[order[j]]))
        return {std::min(order[i], order[j]), std::max(order[i], order[j])};
  return {};
}

}  // namespace reshard
