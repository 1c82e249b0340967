// SPDX-License-Identifier: Apache-2.0
// How many stages a switch takes, and the least budget that does, against every budget tried.
#include <doctest/doctest.h>

#include <cstdio>
#include <map>
#include <vector>

#include <reshard/schedule/stage_count.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;

TEST_CASE("S: the least of 1, 2, 4 .. 4096 that keeps the budget, by hand") {
  constexpr auto halving = [](index_t stages) { return 1000 / stages; };
  static_assert(stages_within(1000, 0, halving).stages == 1);
  static_assert(stages_within(999, 0, halving).stages == 2 && stages_within(999, 0, halving).excess == 500);
  static_assert(stages_within(249, 0, halving).stages == 8);
  static_assert(stages_within(249 + 7, 7, halving).stages == 8);  // what the transport holds is beside it
  static_assert(!stages_within(7 + 4, 7, [](index_t) { return 5; }).kept);
  static_assert(stages_within(7 + 4, 7, [](index_t s) { return s == 64 ? 5 : 6; }).least_budget == 12);
  static_assert(stages_within(7 + 5, 7, [](index_t s) { return s == 64 ? 5 : 6; }).stages == 64);
  static_assert(stages_within(1, 0, [](index_t) { return 0; }).stages == 1);
  static_assert(stages_named(3, 8, 8).kept && stages_named(3, 8, 8).stages == 3);
  static_assert(!stages_named(3, 8, 7).kept && stages_named(3, 8, 7).least_budget == 8);
  const stages_found none = stages_within(3, 0, [](index_t s) { return s == 1 ? 9 : 4; });
  CHECK(none.stages == 1);
  CHECK(none.excess == 9);
  CHECK(none.least_budget == 4);
  CHECK_REFUSED(static_cast<void>(stages_within(0, 0, halving)), "a budget of 0 bytes; it must be at least 1");
  CHECK_REFUSED(static_cast<void>(stages_within(0, 7, halving)), "a budget of 0 bytes; it must be at least 1");
  CHECK_REFUSED(static_cast<void>(stages_within(5, 7, halving)),
                "a budget of 5 bytes, and the transport holds 7 whatever the stages; it must be above that");
  CHECK_REFUSED(static_cast<void>(stages_within(7, 7, halving)),
                "a budget of 7 bytes, and the transport holds 7 whatever the stages; it must be above that");
}

TEST_CASE("S against every power of two, and the least budget against every budget, whatever the stages exceed") {
  testing::dice random(7);
  std::map<index_t, int> won;  // by stages of the least budget
  for (int n = 0; n < 400; ++n) {
    const bytes_t largest = n % 20 == 0 ? random.below(3) : random.within(1, n % 2 == 0 ? 200 : 2000);
    const bytes_t fixed = random.below(2) * 9;
    std::map<index_t, bytes_t> excess;  // not monotone
    for (index_t stages = 1; stages <= 4096; stages *= 2)
      excess[stages] = random.below(random.coin() ? 8 * largest + 1 : 4 * largest / stages + 2);
    bytes_t least = -1;
    for (bytes_t budget = fixed + 1; least < 0; ++budget) {
      index_t wanted = 0;
      for (index_t stages = 4096; stages >= 1; stages /= 2)
        if (excess[stages] <= budget - fixed) wanted = stages;
      std::vector<index_t> tried;
      const stages_found found = stages_within(budget, fixed, [&](index_t stages) {
        tried.push_back(stages);
        return excess.at(stages);
      });
      if (found.kept != (wanted > 0)) FAIL_CHECK("kept");
      if (wanted == 0) {
        if (tried.size() != 13) FAIL_CHECK("tried");
        continue;
      }
      CHECK(found.stages == wanted);
      CHECK(found.excess == excess[wanted]);
      CHECK(tried.back() == wanted);
      ++won[wanted];
      least = budget;
    }
    if (least > fixed + 1)
      CHECK(stages_within(least - 1, fixed, [&](index_t stages) { return excess.at(stages); }).least_budget == least);
  }
  for (const auto& [stages, times] : won)
    std::printf("least with %d stages: %d times\n", static_cast<int>(stages), times);
  CHECK_DRAWN(won.size() > 5);
}
