// SPDX-License-Identifier: Apache-2.0
// How much a switch moves, without planning it: a device lacks what its TO rank holds and its FROM rank did not, and
// every lacking byte moves once. Runs in a static_assert.
// Builds on: plan/layout_switch.hpp, plan/lost.hpp, space/cover.hpp.
#pragma once

#include <vector>

#include <reshard/plan/layout_switch.hpp>
#include <reshard/plan/lost.hpp>
#include <reshard/space/cover.hpp>

namespace reshard {

/// The bytes that all devices of a switch need, parted by whether they move, are already there, are created, or are
/// lost.
struct switch_volume {
  bytes_t moved = 0;     // needed and not there: also the least that any plan can deliver
  bytes_t retained = 0;  // needed and already there
  bytes_t created = 0;   // padding of the vocabulary that FROM does not have
  bytes_t lost = 0;      // held by lost ranks of FROM alone; for every rank of TO that holds it

  friend constexpr bool operator==(const switch_volume&, const switch_volume&) = default;
};

namespace detail {
struct wanted_box {
  int family;
  family_box where;
};
/// How many elements of what a device wants its rank of FROM has; both sides come family by family.
template <Holding From>
constexpr index_t held_of(const From& from, rank_t was, role r, const std::vector<wanted_box>& wanted) {
  index_t kept = 0;
  std::size_t first = 0;
  each_held(from, was, r, [&](int f, const family_box& there) {
    while (first < wanted.size() && wanted[first].family < f) ++first;
    for (std::size_t i = first; i < wanted.size() && wanted[i].family == f; ++i)
      if (intersects(wanted[i].where, there)) kept += intersect(wanted[i].where, there).volume();
  });
  return kept;
}
}  // namespace detail

/// The most that any device holds on either side, of what moves. Lost ranks hold nothing.
template <Holding From, Holding To>
[[nodiscard]] constexpr bytes_t largest_holding(const layout_switch<From, To>& change) {
  bytes_t largest = max_bytes_per_rank(change.to(), change.states());
  if (change.lost_ranks().empty()) return greatest(largest, max_bytes_per_rank(change.from(), change.states()));
  for (rank_t device = 0; device < change.devices(); ++device)
    if (const rank_t rank = change.from_rank(device); rank >= 0)
      largest = greatest(largest, held_bytes(change.from(), rank, change.states()));
  return largest;
}

/// moved + retained + created + lost = sum over TO ranks of held bytes; retained = sum over devices of |FROM boxes and
/// TO boxes| x width. Refuses what is lost unless it may be left out, and, as plans do, what no rank of FROM holds.
template <Holding From, Holding To>
[[nodiscard]] constexpr switch_volume volume_of(const layout_switch<From, To>& change) {
  switch_volume total;
  if (!change.lost_ranks().empty()) {
    each_lost(change, [&](const lost_box& b) { total.lost += checked_multiply(b.bytes(), b.wanted); });
    if (total.lost > 0) require_nothing_lost(change);
    total.moved = -total.lost;
  }
  require_nothing_missing(change);
  for (const role r : roles) {
    const bytes_t width = change.states().of(r).bytes_per_element();
    if (width == 0 || !has_role(change.to(), r)) continue;
    index_t needed = 0, kept = 0, created = 0;  // elements
    std::vector<detail::wanted_box> wanted;
    for (rank_t rank = 0; rank < change.to().ranks(); ++rank) {
      const rank_t was = change.from_rank(change.to_devices().device_of(rank));
      wanted.clear();
      each_held(change.to(), rank, r, [&](int f, const family_box& b) {
        const family& there = change.from().family_at(f);
        needed = checked_add(needed, b.volume());
        if (b.dim[axis_of::row].end > there.extent[axis_of::row]) created += padding_beyond(there, b).volume();
        if (was >= 0) wanted.push_back({f, b});
      });
      if (was < 0) continue;  // nothing can be there already
      kept += detail::held_of(change.from(), was, r, wanted);
    }
    total.retained = checked_add(total.retained, checked_multiply(kept, width));
    total.created = checked_add(total.created, checked_multiply(created, width));
    total.moved = checked_add(total.moved, checked_multiply(needed - kept - created, width));
  }
  return total;
}

/// Bytes that cross between devices.
template <Holding From, Holding To>
[[nodiscard]] constexpr bytes_t moved_bytes(const layout_switch<From, To>& change) {
  return volume_of(change).moved;
}
template <typename From, typename To>
[[nodiscard]] constexpr bytes_t moved_bytes(const From& from, const To& to, const placement& placed = {}) {
  return moved_bytes(layout_switch(from, to, placed));
}

/// Bytes that a device needs and already has.
template <Holding From, Holding To>
[[nodiscard]] constexpr bytes_t retained_bytes(const layout_switch<From, To>& change) {
  return volume_of(change).retained;
}
template <typename From, typename To>
[[nodiscard]] constexpr bytes_t retained_bytes(const From& from, const To& to, const placement& placed = {}) {
  return retained_bytes(layout_switch(from, to, placed));
}

}  // namespace reshard
