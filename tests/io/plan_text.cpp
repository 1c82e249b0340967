// SPDX-License-Identifier: Apache-2.0
// Plans and reports print themselves.
#include <doctest/doctest.h>

#include <string>

#include <reshard/io/plan_text.hpp>

#include "../support/some_switches.hpp"

using namespace reshard;

using namespace reshard::io;

TEST_CASE("a plan says what the device does in all, then every box in order") {
  const layout_switch change = testing::rows_to_columns();
  CHECK(to_text(make_plan(change, 2), change) ==
        "device 2 sends 1 box of 16 B, receives 2 boxes of 64 B, keeps 1 box of 16 B\n"
        "  to 0  param  wte  [0,1)x[0,1)x[0,1)x[8,10)x[0,4)\n"
        "  from 0  param  wte  [0,1)x[0,1)x[0,1)x[0,4)x[4,8)\n"
        "  from 1  param  wte  [0,1)x[0,1)x[0,1)x[4,8)x[4,8)\n"
        "  keeps  param  wte  [0,1)x[0,1)x[0,1)x[8,10)x[4,8)\n");
  CHECK(to_text(make_plan(change, 9), change) ==
        "device 9 sends 0 boxes of 0 B, receives 0 boxes of 0 B, keeps 0 boxes of 0 B\n");
}

TEST_CASE("a report says bytes, stages and the peak") {
  switch_report r{.stages = 4, .sent = 1 << 20, .received = 512, .retained = 3, .memory = {100, 200, 1224}};
  CHECK(to_text(r) ==
        "sent 1.00 MiB, received 512 B, kept 3 B in 4 stages; peak 1.20 KiB, 1.00 KiB above max(before, after)");
  r.stages = 1;
  CHECK(to_text(r).find(" in 1 stage; ") != std::string::npos);
  r.phases = 3, r.passed_on = 256;
  CHECK(
      to_text(r) ==
      "sent 1.00 MiB, received 512 B, 256 B of it to pass it on, kept 3 B in 1 stage of 3 phases; peak 1.20 KiB, 1.00 "
      "KiB above max(before, after)");
}
