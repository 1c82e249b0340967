// SPDX-License-Identifier: Apache-2.0
// The XOR order: every step pairs devices with each other, and every pair meets exactly once, for every N up to 300.
#include <doctest/doctest.h>

#include <vector>

#include <reshard/schedule/xor_order.hpp>

using namespace reshard;

TEST_CASE("every two devices meet once, and mean each other") {
  for (index_t devices = 1; devices <= 300; ++devices) {
    std::vector<char> met(static_cast<std::size_t>(devices * devices), 0);
    index_t pairs = 0, wrong = 0;  // one CHECK for all: there are nine million
    for (index_t step = 1; step <= xor_steps(devices); ++step)
      for (index_t d = 0; d < devices; ++d) {
        const index_t peer = xor_peer(d, step, devices);
        if (peer < 0) continue;
        ++pairs;
        wrong += peer == d || peer >= devices || xor_peer(peer, step, devices) != d ? 1 : 0;
        if (peer < devices) wrong += met[static_cast<std::size_t>(d * devices + peer)]++;
      }
    CHECK(wrong == 0);
    CHECK(xor_steps(devices) < 2 * devices);  // no step in which nobody could meet
    CHECK((xor_steps(devices) & (xor_steps(devices) + 1)) == 0);
    CHECK(pairs == devices * (devices - 1));
  }
}

TEST_CASE("3 and 4 of 6 meet at step 7, which N - 1 steps would miss") {
  static_assert(xor_steps(6) == 7 && xor_peer(3, 7, 6) == 4);
  static_assert(xor_steps(1) == 0 && xor_steps(2) == 1 && xor_steps(64) == 63 && xor_steps(65) == 127);
  CHECK(xor_peer(5, 7, 6) == 2);
  CHECK(xor_peer(5, 3, 6) == -1);
}
