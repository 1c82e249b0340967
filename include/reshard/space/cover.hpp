// SPDX-License-Identifier: Apache-2.0
// Exact cover, proved from the boxes alone: put together, neighbour to neighbour, they are the family. Whether both
// questions of a holding have one answer. And what a rank holds in bytes. All of it runs in a static_assert.
// Builds on: space/any_holding.hpp, space/holding_of.hpp.
#pragma once

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include <reshard/space/any_holding.hpp>
#include <reshard/space/holding_of.hpp>

namespace reshard {

namespace detail {

/// One error for what is no layout, instead of a page.
template <typename L>
constexpr void require_layout() {
  static_assert(Layout<L>, "reshard: a layout is a space, a list of shards, or a type that models Holding");
}

/// a becomes { x : x in a or x in b } where that is a box and a, b are disjoint: they differ along one axis, and abut
/// there.
constexpr bool join(family_box& a, const family_box& b) {
  int axis = 0;
  while (axis < family_ndim - 1 && a.dim[axis].begin == b.dim[axis].begin && a.dim[axis].end == b.dim[axis].end) ++axis;
  for (int i = axis + 1; i < family_ndim; ++i)
    if (a.dim[i].begin != b.dim[i].begin || a.dim[i].end != b.dim[i].end) return false;
  interval &in_a = a.dim[axis], in_b = b.dim[axis];
  if (in_a.end <= in_a.begin || in_b.end <= in_b.begin) return false;
  if (in_a.end == in_b.begin) in_a.end = in_b.end;
  else if (in_b.end == in_a.begin) in_a.begin = in_b.begin;
  else return false;
  return true;
}

/// Boxes as they come, each joined to those before it while it fits.
/// sum over i < count of 1_parts[i] == sum over the boxes added of 1_b
struct joined_boxes {
  // those past `count` are free: assigning costs fewer steps than pop_back and push_back
  std::vector<family_box> parts;
  std::size_t count = 0;

  constexpr void add(family_box b) {
    while (count > 0 && join(b, parts[count - 1])) --count;
    if (count == parts.size()) parts.push_back(b);
    else parts[count] = b;
    ++count;
  }
  /// sum over the boxes added of 1_b == 1_whole: they are disjoint, none missing, none outside.
  constexpr bool are(const family_box& whole) {
    parts.resize(count);
    std::sort(parts.begin(), parts.end(), [](const family_box& a, const family_box& b) { return precedes(a, b); });
    index_t elements = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (!whole.contains(parts[i])) return false;
      elements = checked_add(elements, parts[i].volume());
      for (std::size_t j = i + 1; j < parts.size() && parts[j].dim[0].begin < parts[i].dim[0].end; ++j)
        if (intersects(parts[i], parts[j])) return false;
    }
    return elements == whole.volume();
  }
};

template <Holding H>
constexpr bool covers_of(const H& h, const std::optional<state_set>& wanted) {
  const state_set asked = states_asked_of(h, wanted);
  for (const role r : roles) {
    if (asked.of(r).empty()) continue;
    for (int f = 0; f < h.families(); ++f) {
      if (!has_states_of(h.family_at(f).kind, r)) continue;
      joined_boxes all;
      h.owners(f, r, h.family_at(f).whole(), [&all](const family_box& b, const auto&) { all.add(b); });
      if (!all.are(h.family_at(f).whole())) return false;
    }
  }
  return true;
}

/// Whether two name the same ranks, each in its place.
constexpr bool alike(const Holders auto& a, const Holders auto& b) {
  bool same = a.count() == b.count();
  for (index_t i = 0; same && i < a.count(); ++i) same = a[i] == b[i];
  return same;
}

template <Holding H>
constexpr bool agrees_of(const H& h, const std::optional<state_set>& wanted) {
  const state_set asked = states_asked_of(h, wanted);
  for (const role r : roles) {
    if (asked.of(r).empty()) continue;
    for (int f = 0; f < h.families(); ++f) {
      bool same = true;
      index_t missing = 0;  // elements, once for every holder
      h.owners(f, r, h.family_at(f).whole(), [&](const family_box& b, const auto& holders) {
        missing = checked_add(missing, checked_multiply(b.volume(), holders.count()));
      });
      std::vector<family_box> boxes;
      for (rank_t rank = 0; same && rank < h.ranks(); ++rank) {
        boxes.clear();
        h.held(f, rank, r, [&](int, const family_box& b) { boxes.push_back(b); });
        std::size_t i = 0;
        h.shared(f, rank, r, [&](int, const family_box& b, const auto& holders) {
          same = same && i < boxes.size() && boxes[i++] == b;
          const index_t place = holders.index_of(rank);
          int named = 0;
          h.owners(f, r, b, [&](const family_box& whose, const auto& owners) {
            ++named;
            same = same && whose == b && owners.index_of(rank) == place && alike(owners, holders);
          });
          same = same && named == 1 && place >= 0 && holders[place] == rank && holders.count_below(rank) == place;
          missing -= b.volume();
        });
        same = same && i == boxes.size();
      }
      if (!same || missing != 0) return false;
    }
  }
  return true;
}

/// Bytes of an element in the wanted states of each role; 0 where the holding has none.
struct role_widths {
  bytes_t of[std::size(roles)] = {};

  template <Holding H>
  constexpr role_widths(const H& h, const std::optional<state_set>& wanted) {
    const state_set asked = states_asked_of(h, wanted);
    for (const role r : roles)
      if (const state_set states = asked.of(r); !states.empty() && has_role(h, r))
        of[static_cast<int>(r)] = states.bytes_per_element();
  }
};

template <Holding H>
constexpr bytes_t held_bytes_of(const H& h, rank_t rank, const role_widths& width) {
  bytes_t bytes = 0;
  if (rank < 0) return bytes;
  for (const role r : roles) {
    const bytes_t per_element = width.of[static_cast<int>(r)];
    if (per_element == 0) continue;
    each_held(h, rank, r,
              [&](int, const family_box& b) { bytes = checked_add(bytes, checked_multiply(b.volume(), per_element)); });
  }
  return bytes;
}

template <Holding H>
constexpr bytes_t max_bytes_per_rank_of(const H& h, const std::optional<state_set>& wanted) {
  const role_widths width(h, wanted);
  bytes_t most = 0;
  const computed_holding* computed = known_as<computed_holding>(h);
  for (rank_t rank = 0; rank < h.ranks(); ++rank) {
    if (computed != nullptr && computed->as_much_as_a_lower_rank(rank)) continue;
    most = greatest(most, held_bytes_of(h, rank, width));
  }
  return most;
}

}  // namespace detail

/// For every family f and every wanted role r, over the boxes b that owners(f, r, all of f) names: sum of 1_b == 1_f.
/// That is, every element is in exactly one distinct box and no box reaches outside. Read from the boxes alone, nothing
/// of how they came about; ranks are not visited, so replicas cost nothing. That held() names the same boxes is
/// agrees(). Here and below, where no states are named, all that the layout has are wanted; of a space, adam's.
template <typename L>
[[nodiscard]] constexpr bool covers(const L& layout, const std::optional<state_set>& wanted = {}) {
  detail::require_layout<L>();
  if constexpr (Layout<L>) return detail::covers_of(holding_of(layout, wanted), wanted);
  else return false;
}

/// For every family f, wanted role r and rank q: shared(f, q, r) == { b : owners(f, r, all of f) names b, with q among
/// its holders }, both name the same holders, and held() names the same boxes in the same order.
/// Given that it names a box once. Every rank is visited:
///   each b in shared(f, q, r) is all that owners(f, r, b) names, and q is a holder of it;
///   sum over q and shared(f, q, r) of |b| == sum over owners(f, r, all of f) of |b| x holders, so none is missing.
template <typename L>
[[nodiscard]] constexpr bool agrees(const L& layout, const std::optional<state_set>& wanted = {}) {
  detail::require_layout<L>();
  if constexpr (Layout<L>) return detail::agrees_of(holding_of(layout, wanted), wanted);
  else return false;
}

/// sum over what the rank holds, of the wanted states that there are, of elements x width; 0 where there is no rank
/// (-1)
template <typename L>
[[nodiscard]] constexpr bytes_t held_bytes(const L& layout, rank_t rank, const std::optional<state_set>& wanted = {}) {
  detail::require_layout<L>();
  if constexpr (Layout<L>) {
    const auto& h = holding_of(layout, wanted);
    return detail::held_bytes_of(h, rank, detail::role_widths(h, wanted));
  } else {
    return 0;
  }
}

/// The most that any rank holds.
template <typename L>
[[nodiscard]] constexpr bytes_t max_bytes_per_rank(const L& layout, const std::optional<state_set>& wanted = {}) {
  detail::require_layout<L>();
  if constexpr (Layout<L>) return detail::max_bytes_per_rank_of(holding_of(layout, wanted), wanted);
  else return 0;
}

}  // namespace reshard
