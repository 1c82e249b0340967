// SPDX-License-Identifier: Apache-2.0
// How much a switch moves, without planning it: a device lacks what its TO rank holds and its FROM rank did not, and every
// lacking byte moves once. Runs in a static_assert.
// Builds on: plan/make_plan.hpp.
#pragma once

#include <reshard/plan/make_plan.hpp>

namespace reshard {

struct switch_volume {
  bytes_t moved = 0;     // needed and not there: also the least that any plan can deliver
  bytes_t retained = 0;  // needed and already there

  friend constexpr bool operator==(const switch_volume&, const switch_volume&) = default;
};

/// moved + retained = sum over TO ranks of held bytes; retained = sum over devices of |FROM boxes and TO boxes| x width.
template <Holding From, Holding To>
constexpr switch_volume volume_of_switch(const From& from, const To& to, const placement& where) {
  require_plannable(from, to, where);
  switch_volume total;
  for (const role r : roles) {
    const bytes_t width = (states_of(r) & where.states).bytes_per_element();
    if (width == 0) continue;
    index_t needed = 0, kept = 0;  // elements
    for (rank_t rank = 0; rank < to.ranks(); ++rank) {
      const rank_t was = where.from.rank_of(where.to.device_of(rank));
      for (int f = 0; f < to.families(); ++f) {
        to.held(f, rank, r, [&](int, const family_box& target) {
          needed = checked_add(needed, target.volume());
          if (was < 0) return;
          from.held(f, was, r, [&](int, const family_box& source) {
            kept += intersect(source, target).volume();
          });
        });
      }
    }
    total.retained = checked_add(total.retained, checked_multiply(kept, width));
    total.moved = checked_add(total.moved, checked_multiply(needed - kept, width));
  }
  return total;
}

constexpr switch_volume volume_of_switch(const space& from, const space& to, state_set states = all_states) {
  return volume_of_switch(computed_holding(from, states), computed_holding(to, states),
                          placement{device_map(from.ranks()), device_map(to.ranks()), 0, states});
}

/// Bytes that cross between devices, rank r on device r on both sides.
constexpr bytes_t moved_bytes(const space& from, const space& to, state_set states = all_states) {
  return volume_of_switch(from, to, states).moved;
}
/// Bytes that a device needs and already has.
constexpr bytes_t retained_bytes(const space& from, const space& to, state_set states = all_states) {
  return volume_of_switch(from, to, states).retained;
}

}  // namespace reshard
