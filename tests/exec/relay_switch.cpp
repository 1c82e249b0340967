// SPDX-License-Identifier: Apache-2.0
// Switches with relay on real memory, over threads and by messages: nodes of 1 to 8 devices, worlds of up to 16, random
// layouts, one stage and many; every element compared, every page counted, what is passed on included.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>

#include <reshard/exec/mailbox_group.hpp>
#include <reshard/exec/prepared_switch.hpp>
#include <reshard/exec/thread_group.hpp>

#include "../support/dice.hpp"
#include "../support/switches.hpp"
#include "../support/tiny.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice, testing::switch_in_memory, testing::tiny;

namespace {
constexpr patience soon = std::chrono::seconds(60);
constexpr exchange_as ways[] = {exchange_as::asynchronous, exchange_as::buffered, exchange_as::naive};

/// How often something occurred.
struct census {
  std::map<std::string, long> times;
  void add(const std::string& what, bool occurs) { times[what] += occurs ? 1 : 0; }
  void add(const switch_in_memory& s, const switch_options& options) {
    index_t phases = 1, stages = 1;
    for (const switch_report& r : s.reports) phases = std::max(phases, r.phases), stages = std::max(stages, r.stages);
    add("passes bytes on", s.passed > 0);
    add("2 phases", phases == 2), add("3 phases or more", phases > 2);
    add("many stages", stages > 1), add("a budget", options.budget != no_budget);
    add("several chains", options.route.chains > 1);
  }
  void require(long least) const {
    for (const auto& [what, count] : times) {
      MESSAGE(what, ": ", count);
      CHECK_MESSAGE(count >= least, what);
    }
  }
};
}  // namespace

TEST_CASE("random switches with relay over threads and mailboxes") {
  oracle::generator cases(testing::seed() + 11);
  dice random(12);
  census met;
  for (int i = 0; i < testing::tries(120); ++i) {
    const oracle::switch_case c = cases.next_switch();
    const cluster on = nodes_of(random.within(1, 4));
    switch_options options{.route = {relay::always, random.within(1, 3), random.coin() ? 1 : random.within(2, 9)}};
    if (random.coin()) options.budget = 256_KiB;
    INFO(c.describe());
    CAPTURE(on.gpus);
    CAPTURE(options.route.chains);
    CAPTURE(options.route.stages);
    switch_in_memory s(c, on);
    if (i % 2 == 0) {
      if (options.budget != no_budget) s.run_in_stages_by<thread_group>(options);
      else {
        thread_group world(s.change.devices(), soon);
        s.run(world, options);
      }
    } else {
      const exchange_as how = ways[random.below(3)];
      if (options.budget != no_budget) s.run_in_stages_by<mailbox_group>(options, how);
      else {
        mailbox_group world(s.change.devices(), soon, how);
        s.run(world, options);
      }
    }
    met.add(s, options);
  }
  if (!testing::few()) met.require(5);
}
