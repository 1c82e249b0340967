// SPDX-License-Identifier: Apache-2.0
// What a switch is told: sizes as they are written, and defaults.
#include <doctest/doctest.h>

#include <reshard/switch/options.hpp>

using namespace reshard;

static_assert(3_KiB == 3'072 && 3_MiB == 3'145'728 && 3_GiB == 3'221'225'472);
static_assert(no_budget == 1'152'921'504'606'846'975);  // an eighth of what 64 bits hold: it may be multiplied
static_assert(switch_report{}.stages == 1 && switch_report{}.sent == 0 && switch_report{}.memory.excess() == 0);

TEST_CASE("options are read by name") {
  const switch_options usual;
  CHECK(usual.budget == no_budget);
  CHECK(usual.after_use == sources::release);
  CHECK(!usual.checks);
  CHECK(!usual.on_stage);
  const switch_options small{.budget = 5, .after_use = sources::keep};
  CHECK(small.budget == 5);
  CHECK(small.after_use == sources::keep);
}
