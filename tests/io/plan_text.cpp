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

TEST_CASE(
    "a line for every box of every list: what it is for, its states, its family and place, phase and passing on") {
  const layout_switch change = testing::rows_to_columns();
  const auto box = [](index_t row, index_t columns) {
    return family_box{{{0, 1}, {0, 1}, {0, 1}, {row, row + 1}, {0, columns}}};
  };
  plan p;
  p.device = 5;
  p.sends = {{5, 0, only(0), 0, box(0, 4), 0, purpose::delivered, 0}, {5, 7, only(1), 0, box(1, 8), 2}};
  p.receives = {{3, 5, optimizer_states, 0, box(2, 1), 1, purpose::passed_on, 9}};
  p.retains = {{5, 5, only(0), 0, box(3, 2)}};
  p.creates = {{5, 5, only(0), 0, box(4, 1)}, {5, 5, only(2), 0, box(5, 3)}};
  p.lost = {{5, 5, only(3), 0, box(6, 1)}, {5, 5, only(0) | only(1), 0, box(7, 8)}};
  CHECK(to_text(p, change) ==
        "device 5 sends 2 boxes of 40 B, receives 1 box of 12 B, keeps 1 box of 4 B\n"
        "  to 0  param  wte  [0,1)x[0,1)x[0,1)x[0,1)x[0,4)\n"
        "  to 7  master  wte  [0,1)x[0,1)x[0,1)x[1,2)x[0,8)  phase 2\n"
        "  from 3  master + exp_avg + exp_avg_sq  wte  [0,1)x[0,1)x[0,1)x[2,3)x[0,1)  phase 1  to be passed on\n"
        "  keeps  param  wte  [0,1)x[0,1)x[0,1)x[3,4)x[0,2)\n"
        "  zeros  param  wte  [0,1)x[0,1)x[0,1)x[4,5)x[0,1)\n"
        "  zeros  exp_avg  wte  [0,1)x[0,1)x[0,1)x[5,6)x[0,3)\n"
        "  lost  exp_avg_sq  wte  [0,1)x[0,1)x[0,1)x[6,7)x[0,1)\n"
        "  lost  param + master  wte  [0,1)x[0,1)x[0,1)x[7,8)x[0,8)\n");
}

TEST_CASE("a report says bytes, stages and the peak") {
  switch_report r{.stages = 4, .sent = 1 << 20, .received = 512, .retained = 3, .memory = {100, 200, 1224}};
  CHECK(to_text(r) ==
        "sent 1.00 MiB, received 512 B, kept 3 B in 4 stages; peak 1.20 KiB, 1.00 KiB above max(before, after)");
  r.stages = 1;
  CHECK(to_text(r).find(" in 1 stage; ") != std::string::npos);
  r.phases = 2;
  CHECK(to_text(r).find(" in 1 stage of 2 phases; ") != std::string::npos);
  r.phases = 1, r.stages = 2, r.passed_on = 1;
  CHECK(to_text(r) ==
        "sent 1.00 MiB, received 512 B, 1 B of it to pass it on, kept 3 B in 2 stages; peak 1.20 KiB, 1.00 KiB above "
        "max(before, after)");
  r.stages = 1, r.phases = 3, r.passed_on = 256;
  CHECK(
      to_text(r) ==
      "sent 1.00 MiB, received 512 B, 256 B of it to pass it on, kept 3 B in 1 stage of 3 phases; peak 1.20 KiB, 1.00 "
      "KiB above max(before, after)");
}
