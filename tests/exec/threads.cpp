// SPDX-License-Identifier: Apache-2.0
// Switches over threads: random layouts of tiny models, in one stage and in many, every element compared and every page counted;
// refusals before anything is touched; failures that reach the caller.
#include <doctest/doctest.h>

#include <reshard/exec/threads.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/switches.hpp"

using namespace reshard;
using testing::refused, testing::switch_in_memory;

namespace {
constexpr patience soon = std::chrono::seconds(60);

}  // namespace

TEST_CASE("random switches in one stage") {
  oracle::generator cases(testing::seed());
  for (int i = 0; i < 120; ++i) {
    const oracle::switch_case c = cases.next_switch();
    INFO(c.describe());
    switch_in_memory s(c);
    threads world(s.change.devices(), soon);
    s.run(world);
  }
}

TEST_CASE("random switches under the least budget that does") {
  oracle::generator cases(testing::seed() + 1);
  int staged = 0;
  for (int i = 0; i < 60; ++i) {
    const oracle::switch_case c = cases.next_switch();
    INFO(c.describe());
    switch_in_memory s(c);
    threads world(s.change.devices(), soon);
    const bytes_t budget = s.least_budget(world, page_bytes);
    if (budget == 0) continue;  // a page is enough
    CHECK(s.untouched());
    threads another(s.change.devices(), soon);
    s.run(another, {.budget = budget});
    staged += s.reports[0].stages > 1 ? 1 : 0;
  }
  CHECK(staged > 10);
}
