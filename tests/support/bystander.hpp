// SPDX-License-Identifier: Apache-2.0
// An end as a user derives one from forwarding, to watch one call; and the switches that go through it.
#pragma once

#include <string>
#include <vector>

#include <reshard/job/exchange_small_state.hpp>
#include <reshard/memory/rank_storage.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/testing/known_values.hpp>
#include <reshard/transport/forwarding.hpp>

#include "tiny.hpp"

namespace testing {

/// It counts the slots that are moved.
template <typename Endpoint>
struct bystander : reshard::forwarding<Endpoint> {
  using typename reshard::forwarding<Endpoint>::moves;
  using reshard::forwarding<Endpoint>::inner;
  reshard::index_t slots = 0;

  void move(moves& prepared, reshard::index_t slot) {
    ++slots;
    inner.move(prepared, slot);
  }
};

/// What one of four devices finds wrong after these switches, in one stage and in several, checked, under a budget and
/// relayed, and after small state: elements, slots that were not moved, and blobs that are not there.
template <typename Endpoint>
reshard::index_t wrong_through_bystander(Endpoint& here) {
  using namespace reshard;
  const computed_switch direct = tiny_switch(8, "tp=2,pp=2,zero=1", "dp=4,zero=1"),
                        relayed(direct.from(), direct.to(), {.on = nodes_of(2)});
  const rank_t d = here.device();
  index_t wrong = 0;
  for (const switch_options& options :
       {switch_options{}, switch_options{.budget = 1_MiB}, switch_options{.checks = true, .route = {.stages = 5}},
        switch_options{.after_use = sources::keep, .route = {relay::always, 1, 3}}}) {
    const computed_switch& change = options.route.how == relay::never ? direct : relayed;
    rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
    fill(before.tensors(), change.from());
    bystander<Endpoint> through{{here}};
    const switch_report report = switch_state(change, before.tensors(), after.tensors(), through, options);
    wrong += compare(after.tensors(), change.to()).wrong;
    wrong += through.slots == slot_times{report.stages, report.phases, here.facts().lag}.slots() ? 0 : 1;
  }
  bystander<Endpoint> through{{here}};
  small_state mine;
  mine.add({{"seed", std::to_string(d)}, std::vector<std::byte>(100, static_cast<std::byte>(d))});
  const blob_id next{"seed", std::to_string((d + 1) % 4)};
  wrong += exchange_small_state(mine, {next}, through).has(next) ? 0 : 1;
  return wrong;
}

}  // namespace testing
