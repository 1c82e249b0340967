// SPDX-License-Identifier: Apache-2.0
// What a device holds of FROM and neither sends nor retains: redundancy, which lasts until the new copies stand.
// Builds on: plan/layout_switch.hpp, plan/plan.hpp, algebra/region.hpp.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <vector>

#include <reshard/algebra/region.hpp>
#include <reshard/plan/layout_switch.hpp>
#include <reshard/plan/plan.hpp>

namespace reshard::detail {

/// Calls sink(states, tensor, box) with what a device holds of FROM, of the states that move, without those transfers.
/// Transfers are looked for by family, so that a box is compared with its own alone.
template <Holding From, Holding To, typename Sink>
void each_held_but(const layout_switch<From, To>& change, rank_t device,
                   std::initializer_list<const std::vector<transfer>*> without, Sink&& sink) {
  const rank_t rank = change.from_rank(device);
  if (rank < 0) return;
  std::vector<const transfer*> by_family;
  for (const std::vector<transfer>* list : without)
    for (const transfer& t : *list) by_family.push_back(&t);
  std::sort(by_family.begin(), by_family.end(),
            [](const transfer* a, const transfer* b) { return a->family < b->family; });
  for (const role r : roles) {
    const state_set states = change.states().of(r);
    if (states.empty()) continue;
    each_held(change.from(), rank, r, [&](int f, const family_box& b) {
      region<family_ndim> rest(b);
      auto at = std::lower_bound(by_family.begin(), by_family.end(), f,
                                 [](const transfer* t, int family) { return t->family < family; });
      for (; at != by_family.end() && (*at)->family == f && !rest.empty(); ++at)
        if (!((*at)->states & states).empty()) rest.remove((*at)->where);
      for (const family_box& part : rest.boxes())
        each_tensor(f, part, [&](const tensor_id& tensor, const box<3>& where) { sink(states, tensor, where); });
    });
  }
}

}  // namespace reshard::detail
