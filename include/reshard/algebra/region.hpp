// SPDX-License-Identifier: Apache-2.0
// A region: a finite set of coordinates as disjoint boxes. For results of any shape; the planner itself works on boxes.
// Builds on: algebra/box.hpp.
#pragma once

#include <vector>

#include <reshard/algebra/box.hpp>

namespace reshard {

/// The union of disjoint, non-empty boxes. Two regions are equal as sets iff each covers the other (`same_set`).
template <int N>
class region {
 public:
  constexpr region() = default;
  constexpr explicit region(const box<N>& b) { add(b); }

  constexpr const std::vector<box<N>>& boxes() const { return boxes_; }
  constexpr bool empty() const { return boxes_.empty(); }

  /// sum of the volumes of the boxes == number of coordinates
  constexpr index_t volume() const {
    index_t elements = 0;
    for (const box<N>& b : boxes_) elements = checked_add(elements, b.volume());
    return elements;
  }

  /// this becomes this + b
  constexpr void add(const box<N>& b) {
    region rest;
    if (!b.empty()) rest.boxes_.push_back(b);
    for (const box<N>& held : boxes_) rest.remove(held);
    for (const box<N>& fresh : rest.boxes_) boxes_.push_back(fresh);
  }

  /// this becomes this - b
  constexpr void remove(const box<N>& b) {
    std::vector<box<N>> kept;
    for (const box<N>& held : boxes_) subtract(held, b, [&](const box<N>& part) { kept.push_back(part); });
    boxes_ = static_cast<std::vector<box<N>>&&>(kept);
  }

  /// every coordinate of b is in this
  [[nodiscard]] constexpr bool covers(const box<N>& b) const {
    region rest(b);
    for (const box<N>& held : boxes_) rest.remove(held);
    return rest.empty();
  }

 private:
  std::vector<box<N>> boxes_;
};

/// { x : x in a or x in b }
template <int N>
[[nodiscard]] constexpr region<N> unite(region<N> a, const region<N>& b) {
  for (const box<N>& part : b.boxes()) a.add(part);
  return a;
}

/// { x : x in a and x not in b }
template <int N>
[[nodiscard]] constexpr region<N> difference(region<N> a, const region<N>& b) {
  for (const box<N>& part : b.boxes()) a.remove(part);
  return a;
}

/// { x : x in a and x in b }
template <int N>
[[nodiscard]] constexpr region<N> intersect(const region<N>& a, const region<N>& b) {
  region<N> result;
  for (const box<N>& x : a.boxes())
    for (const box<N>& y : b.boxes()) result.add(intersect(x, y));
  return result;
}

/// a and b hold the same coordinates, however they are cut into boxes.
template <int N>
[[nodiscard]] constexpr bool same_set(const region<N>& a, const region<N>& b) {
  return difference(a, b).empty() && difference(b, a).empty();
}

}  // namespace reshard
