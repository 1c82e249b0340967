// SPDX-License-Identifier: Apache-2.0
// What a device holds over the slots of a switch, against every single thing that comes and goes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include <reshard/schedule/budget.hpp>

#include "../support/dice.hpp"

using namespace reshard;
using testing::dice;

TEST_CASE("no budget may be multiplied, and the excess is beyond the greater of both sides") {
  static_assert(no_budget > 0 && no_budget * 8 > no_budget);
  static_assert(memory_replay{5, 7, 9}.excess() == 2 && memory_replay{7, 5, 9}.excess() == 2);
  static_assert(memory_replay{7, 5, 7}.excess() == 0);
}

TEST_CASE("in a slot there is all that came up to its start and had not gone by the end of the slot before") {
  struct thing {
    index_t comes, goes;  // slots; -1: it was there first; `slots`: it stays
    bytes_t bytes;
  };
  dice random(1);
  int first = 0, stays = 0, within_a_slot = 0;
  for (int n = 0; n < 200; ++n) {
    const index_t slots = random.within(1, 8);
    std::vector<thing> things;
    timeline all(0, slots);
    for (index_t left = random.below(12); left > 0; --left) {
      thing t{random.within(-1, slots - 1), slots, random.within(1, 100)};
      t.goes = random.within(std::max<index_t>(t.comes, 0), slots);
      things.push_back(t);
      (t.comes < 0 ? all.held : all.comes[static_cast<std::size_t>(t.comes)]) += t.bytes;
      if (t.goes < slots) all.goes[static_cast<std::size_t>(t.goes)] += t.bytes;
      first += t.comes < 0 ? 1 : 0, stays += t.goes == slots ? 1 : 0, within_a_slot += t.comes == t.goes ? 1 : 0;
    }
    std::vector<bytes_t> expected;
    for (index_t slot = 0; slot < slots; ++slot) {
      bytes_t there = 0;
      for (const thing& t : things) there += t.comes <= slot && slot <= t.goes ? t.bytes : 0;
      expected.push_back(there);
    }
    CHECK(all.live() == expected);
    const bytes_t floor = random.within(0, 400), most = *std::max_element(expected.begin(), expected.end());
    CHECK(peak_of(all.live(), floor) == std::max(floor, most));
  }
  std::printf("%d there first, %d stay, %d come and go in one slot\n", first, stays, within_a_slot);
  CHECK_DRAWN((first > 50 && stays > 50 && within_a_slot > 50));
}
