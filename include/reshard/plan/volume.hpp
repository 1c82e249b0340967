// SPDX-License-Identifier: Apache-2.0
// How much a switch moves, without planning it: a device lacks what its TO rank holds and its FROM rank did not, and
// every lacking byte moves once. Runs in a static_assert.
// Builds on: plan/layout_switch.hpp, plan/lost.hpp.
#pragma once

#include <vector>

#include <reshard/plan/layout_switch.hpp>
#include <reshard/plan/lost.hpp>

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

/// moved + retained + created + lost = sum over TO ranks of held bytes; retained = sum over devices of |FROM boxes and
/// TO boxes| x width. Refuses what is lost unless it may be left out.
template <Holding From, Holding To>
[[nodiscard]] constexpr switch_volume volume_of(const layout_switch<From, To>& change) {
  switch_volume total;
  if (!change.lost_ranks().empty()) {
    require_nothing_lost(change);
    each_lost(change, [&](const lost_box& b) { total.lost += checked_multiply(b.bytes(), b.wanted); });
    total.moved = -total.lost;
  }
  for (const role r : roles) {
    const bytes_t width = (states_of(r) & change.states()).bytes_per_element();
    if (width == 0 || !has_role(change.to(), r)) continue;
    index_t needed = 0, kept = 0, created = 0;  // elements
    std::vector<family_box> wanted;
    for (rank_t rank = 0; rank < change.to().ranks(); ++rank) {
      const rank_t was = change.from_rank(change.to_devices().device_of(rank));
      for (int f = 0; f < change.to().families(); ++f) {
        const bool grows =
            change.to().family_at(f).extent[axis_of::row] > change.from().family_at(f).extent[axis_of::row];
        wanted.clear();
        change.to().held(f, rank, r, [&](int, const family_box& b) {
          needed = checked_add(needed, b.volume());
          if (grows) created += padding_beyond(change.from().family_at(f), b).volume();
          wanted.push_back(b);
        });
        if (was < 0 || wanted.empty()) continue;  // nothing can be there already
        change.from().held(f, was, r, [&](int, const family_box& there) {
          for (const family_box& b : wanted)
            if (intersects(b, there)) kept += intersect(b, there).volume();
        });
      }
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
