// SPDX-License-Identifier: Apache-2.0
// Switches from copies: some ranks are dead, their neighbours keep what they alone held, and a layout on who lives,
// some of them new, is filled with every value as it was.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include <reshard/memory/rank_storage.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/copied_holding.hpp>
#include <reshard/space/cover.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/testing/known_values.hpp>
#include <reshard/transport/thread_group.hpp>

#include "../support/copied_sets.hpp"
#include "../support/states.hpp"

using namespace reshard;

namespace {
struct deaths {
  std::string from, to;
  std::vector<rank_t> dead, onto;
};
}  // namespace

TEST_CASE("after deaths a switch from copies fills a layout on who lives, with every value as it was") {
  const model m = testing::copied_model(true, false);
  for (const deaths& w : {deaths{"dp=4,zero=1", "dp=3,zero=1", {2}, {0, 1, 3}},
                          {"tp=2,dp=2,zero=1", "tp=2", {3}, {0, 2}},
                          {"pp=2,dp=2,zero=2", "dp=3,zero=1", {3}, {2, 0, 4}},
                          {"dp=4,ep=2,zero=1", "tp=2", {1}, {0, 3}},
                          {"dp=5,zero=3,shard=rows", "tp=2,dp=2,zero=1,shard=rows", {0, 2}, {1, 3, 4, 5}}}) {
    CAPTURE(w.from);
    const computed_holding from(space(m, parse_degrees(w.from))), to(space(m, parse_degrees(w.to)));
    const rank_t n = from.ranks();
    rank_copies copies = rank_copies::none(n);
    const auto dead = [&](rank_t r) { return std::find(w.dead.begin(), w.dead.end(), r) != w.dead.end(); };
    for (rank_t r = 0; r < n; ++r) {
      copies.own[static_cast<std::size_t>(r)] = !dead(r);
      if (const rank_t next = (r + 1) % n; !dead(next)) copies.keeper[static_cast<std::size_t>(r)] = next;
    }
    const copied_holding left(from, copies);
    REQUIRE(uncovered_bytes(left) == 0);
    const auto change = layout_switch(left, to, {.to = device_map(w.onto), .lost = w.dead});
    thread_group world(change.devices(), std::chrono::seconds(20));
    std::atomic<index_t> wrong = 0, elements = 0, kept = 0;
    world.run([&](auto& here) {
      const rank_t d = here.device(), was = change.from_rank(d), becomes = change.to_rank(d);
      rank_storage before("no rank"), after("no rank");
      if (was >= 0) before = rank_storage(change.from(), was, "copies");
      if (becomes >= 0) after = rank_storage(change.to(), becomes, "after");
      reshard::fill(before.tensors(), change.from());
      for (const bound_box& b : before.tensors().boxes()) kept += b.where.volume();
      if (was >= 0)
        for (const state& s : testing::each_state())
          each_held(from, was, s.placed_as(), [&](int, const family_box& b) { kept -= b.volume(); });
      switch_state(change, before.tensors(), after.tensors(), here);
      const comparison found = reshard::compare(after.tensors(), change.to());
      wrong += found.wrong, elements += found.elements;
    });
    index_t shall = 0;
    for (rank_t r = 0; r < to.ranks(); ++r)
      for (const state& s : testing::each_state())
        each_held(to, r, s.placed_as(), [&](int, const family_box& b) { shall += b.volume(); });
    CHECK(wrong == 0);
    CHECK(elements == shall);
    for (const rank_t d : w.dead) CHECK(held_bytes(left, d) == 0);
    CHECK(kept > 0);  // neighbours had more than their own
  }
}
