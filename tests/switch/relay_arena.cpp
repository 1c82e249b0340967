// SPDX-License-Identifier: Apache-2.0
// The arena of what is passed on, where nothing is: no page of it, and the two bindings are the two that were given.
#include <doctest/doctest.h>

#include <reshard/model/presets.hpp>
#include <reshard/switch/detail/relay_arena.hpp>

using namespace reshard;

TEST_CASE("who passes nothing on has no arena") {
  staged_plan plan;
  plan.device = 3;
  plan.stages = 2;
  const binding before("before"), after("after");
  relay_arena arena(plan, before, after, adam, {});
  CHECK(arena.resident_bytes() == 0);
  CHECK(!arena.take_pages());
  CHECK(arena.sent().boxes().empty());
  CHECK(arena.written().boxes().empty());
  CHECK(arena.sent().who() == "before");
  CHECK(arena.written().who() == "after");
}
