// SPDX-License-Identifier: Apache-2.0
// Switches in which some devices live and hold nothing of FROM that may be used: stale ones, whose memory is full of
// other values, and ones that have just come. All hold what they shall afterwards, and nothing of the stale is
// anywhere; who is called empty and binds something is refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include <reshard/memory/rank_storage.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/transport/mailbox_group.hpp>
#include <reshard/transport/thread_group.hpp>

#include "../support/judged.hpp"
#include "../support/refused.hpp"
#include "../support/tiny.hpp"

using namespace reshard;

namespace {

constexpr patience soon = std::chrono::seconds(20);

struct world_of {
  const char *from, *to;
  std::vector<rank_t> to_devices, empty;
};
/// What no element shall have afterwards.
const known_values stale{77};

struct found {
  std::atomic<index_t> wrong = 0, elements = 0, of_empty = 0, kept = 0;
};

template <typename World>
void move_all(const world_of& w, const switch_options& options, bool binds, bool called_empty, found& all) {
  const space from(testing::tiny(4), parse_degrees(w.from)), to(testing::tiny(4), parse_degrees(w.to));
  const computed_switch change = layout_switch(
      from, to,
      {.to = device_map(w.to_devices), .on = nodes_of(2), .empty = called_empty ? w.empty : std::vector<rank_t>()});
  World world(change.devices(), soon);
  world.run([&](auto& here) {
    const rank_t d = here.device();
    const bool is_empty = std::find(w.empty.begin(), w.empty.end(), d) != w.empty.end();
    const rank_t was = d < from.ranks() ? d : -1;
    rank_storage before("no rank"), after("no rank");
    if (was >= 0 && (!is_empty || binds)) before = rank_storage(change.from(), was, "before");
    if (is_empty) reshard::fill(before.tensors(), change.from(), stale);
    else reshard::fill(before.tensors(), change.from());
    if (change.to_rank(d) >= 0) after = rank_storage(change.to(), change.to_rank(d), "after");
    const switch_report report = switch_state(change, before.tensors(), after.tensors(), here, options);
    const comparison c = reshard::compare(after.tensors(), change.to());
    all.wrong += c.wrong, all.elements += c.elements;
    if (is_empty) all.of_empty += c.elements, all.kept += report.retained;
  });
}

}  // namespace

TEST_CASE_TEMPLATE("stale and new devices are destinations alone, whatever their memory holds", World, thread_group,
                   mailbox_group) {
  const std::vector<world_of> worlds = {{"tp=2,dp=2", "tp=2,dp=2", {0, 1, 2, 3}, {1}},
                                        {"tp=2,dp=2", "dp=4,zero=1", {0, 1, 2, 3}, {2, 3}},
                                        {"tp=2,dp=2", "pp=2,dp=2,zero=1", {0, 1, 3, 4}, {1, 4}},
                                        {"pp=2,dp=3", "tp=2,pp=2", {0, 5, 6, 7}, {0, 3, 6, 7}},
                                        {"dp=4", "tp=2,zero=1", {3, 4}, {0, 1, 3, 4}}};
  int cases = 0;
  for (const world_of& w : worlds)
    for (const switch_options& options :
         {switch_options{.after_use = sources::keep},
          switch_options{.budget = 2_MiB, .after_use = sources::release, .route = {.stages = 1}},
          switch_options{.after_use = sources::keep, .route = {.how = relay::always, .stages = 3}}}) {
      const std::string from = w.from, to = w.to;
      CAPTURE(from);
      CAPTURE(to);
      found all;
      move_all<World>(w, options, false, true, all);
      CHECK(all.wrong == 0);
      CHECK(all.elements > 0);
      CHECK(all.of_empty > 0);
      CHECK(all.kept == 0);
      ++cases;
    }
  CHECK(cases == 15);
  found otherwise;  // not called empty, a stale one's values are taken for the state
  move_all<World>(worlds[0], {.after_use = sources::keep}, true, false, otherwise);
  CHECK(otherwise.wrong > 0);
}

TEST_CASE("an empty device that binds something of FROM is refused on all, and nothing is touched") {
  found all;
  const std::string said = testing::refused([&] {
    move_all<thread_group>({"tp=2,dp=2", "tp=2,dp=2", {0, 1, 2, 3}, {1}}, {.after_use = sources::keep}, true, true,
                           all);
  });
  const rank_storage bound(space(testing::tiny(4), parse_degrees("tp=2,dp=2")), 1, "before");
  CHECK(said == "reshard: device 1 is called empty, and binds " + std::to_string(bound.tensors().boxes().size()) +
                    " boxes of FROM; one that holds nothing of it binds none");
  CHECK(all.elements == 0);
}
