// SPDX-License-Identifier: Apache-2.0
// How many stages a switch takes, and the least budget that does, against every budget tried.
#include <doctest/doctest.h>

#include <cstdio>
#include <map>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/schedule/stage_count.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;

TEST_CASE("S = max(1, ceil(4 B / budget))") {
  static_assert(stage_count(0, 1) == 1);
  static_assert(stage_count(100, 400) == 1 && stage_count(101, 400) == 2 && stage_count(100, 399) == 2);
  CHECK(stage_count(339'187'712, 64 << 20) == 21);
  CHECK_REFUSED(stage_count(100, 0), "a budget of 0 bytes; it must be at least 1");
}

TEST_CASE(
    "the least budget: no smaller one is kept by the number of stages that it makes, of S = 1, 2, 4 .. 4096, each of "
    "which is tried") {
  testing::dice random(7);
  std::map<index_t, int> won;  // by stages of the least budget
  for (int n = 0; n < 400; ++n) {
    const bytes_t largest = n % 20 == 0 ? random.below(3) : random.within(1, n % 2 == 0 ? 200 : 20000);
    std::map<index_t, bytes_t> excess;
    for (index_t stages = 1; stages <= 4096; stages *= 2)
      excess[stages] = random.below(random.coin() ? 8 * largest + 1 : 4 * largest / stages + 2);
    bytes_t wanted = 1;  // try every budget
    for (index_t stages = 0;; ++wanted) {
      stages = 1;
      while (stages * wanted < 4 * largest) ++stages;
      if (excess.contains(stages) && excess[stages] <= wanted) {
        ++won[stages];
        break;
      }
    }
    std::vector<index_t> tried;
    const bytes_t found = least_budget(largest, [&](index_t stages) {
      tried.push_back(stages);
      return excess.at(stages);
    });
    CAPTURE(largest);
    CHECK(found == wanted);
    CHECK(tried == std::vector<index_t>{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096});
  }
  for (const auto& [stages, times] : won)
    std::printf("least with %d stages: %d times\n", static_cast<int>(stages), times);
  CHECK_DRAWN(won.size() > 5);
}

TEST_CASE("a least budget by hand: each number of stages is the best one for some switch") {
  for (index_t best = 1; best <= 4096; best *= 2) {
    CAPTURE(best);
    const bytes_t largest = 4096 * 25;
    // every number of stages but one needs more than the whole state; `best` needs no more than what makes that many
    // stages
    const bytes_t found = least_budget(largest, [best](index_t stages) { return stages == best ? 1 : 5 * 4096 * 25; });
    CHECK(found == 4 * largest / best);
  }
  CHECK(least_budget(0, [](index_t) { return 0; }) == 1);
  CHECK(least_budget(10, [](index_t) { return 1000; }) == 1000);  // one stage, however large the excess
}

TEST_CASE("stages where a transport holds memory of its own: the first s0, and the powers of two above") {
  static_assert(stage_count({.largest = 100}, 399) == stage_count(100, 399));
  static_assert(stage_count({.largest = 100, .staging = 50, .fixed = 7}, 157) == 3);
  static_assert(stage_count({.largest = 100, .staging = 51, .fixed = 7}, 157) == 4);
  static_assert(stage_count({.staging = 0}, 1) == 1);
  static_assert(memory_demand::stages_after(1) == 2 && memory_demand::stages_after(2) == 4);
  static_assert(memory_demand::stages_after(21) == 32 && memory_demand::stages_after(4096) == 8192);
  CHECK_REFUSED(stage_count({.largest = 100, .fixed = 7}, 7),
                "a budget of 7 bytes, and the transport holds 7 whatever the stages; it must be above that");
  CHECK_REFUSED(stage_count({.largest = 100, .fixed = 7}, 0), "a budget of 0 bytes; it must be at least 1");
}

TEST_CASE("the least budget of a switch is one that it accepts, and none below is, whatever the stages exceed") {
  testing::dice random(7);
  index_t above = 0;  // switches that s0 stages refuse and more accept
  for (int round = 0; round < 200; ++round) {
    const memory_demand demand{random.within(1, 60), random.below(3) * random.below(80), random.below(2) * 9};
    std::map<index_t, bytes_t> excess;
    for (index_t stages = 1; stages <= 4096; stages *= 2)
      excess[stages] = random.below(random.coin() ? 8 * demand.largest + 1 : 4 * demand.largest / stages + 2);
    const auto accepts = [&](bytes_t budget) {  // by powers of two alone
      if (budget <= demand.fixed) return false;
      index_t stages = 1;
      while (stages * (budget - demand.fixed) < 4 * demand.largest + demand.staging) ++stages;
      bool first = true;
      for (index_t s = 1; s <= 4096; s *= 2)
        if (s >= stages) {
          if (excess[s] <= budget - demand.fixed) {
            above += first ? 0 : 1;
            return true;
          }
          first = false;
        }
      return false;
    };
    bytes_t wanted = 1;
    while (!accepts(wanted)) ++wanted;
    CHECK(least_budget(demand, [&](index_t stages) { return excess.at(stages); }) == wanted);
  }
  CHECK_DRAWN(above > 20);
}

TEST_CASE("B: the most that any living device holds on either side") {
  const model m = make_transformer(
      {.name = "tiny", .layers = 4, .hidden = 8, .heads = 4, .groups = 2, .head_dim = 2, .ffn = 8, .vocabulary = 64});
  const space stages(m, parse_degrees("pp=2,dp=2")), whole(m, parse_degrees("tp=4")), halves(m, parse_degrees("tp=2"));
  const bytes_t first = held_bytes(stages, 0), last = held_bytes(stages, 2), quarter = held_bytes(whole, 0);
  CHECK(first != last);
  CHECK(largest_holding(layout_switch(stages, whole)) == greatest(first, last));
  CHECK(largest_holding(layout_switch(whole, halves)) == held_bytes(halves, 0));
  const auto without = [&](std::vector<rank_t> lost) {
    return largest_holding(layout_switch(
        stages, whole, {.to = device_map({4, 5, 6, 7}), .lost = lost, .lost_elements = when_lost::leave_out}));
  };
  CHECK(without({0, 1}) == last);
  CHECK(without({2, 3}) == first);
  CHECK(without({0, 2}) == greatest(first, last));
  CHECK(without({0, 1, 2, 3}) == quarter);
}
