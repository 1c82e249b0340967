// SPDX-License-Identifier: Apache-2.0
// Runs: every number is in one, neighbours in common are in one, and two runs have nothing in common.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <reshard/base/each_run.hpp>

#include "../support/dice.hpp"

namespace {
using runs = std::vector<std::pair<int, int>>;
runs runs_of(const std::string& word) {
  runs all;
  reshard::detail::each_run(
      static_cast<int>(word.size()),
      [&](int a, int b) { return word[static_cast<std::size_t>(a)] == word[static_cast<std::size_t>(b)]; },
      [&](int first, int past) { all.emplace_back(first, past); });
  return all;
}
}  // namespace

TEST_CASE("runs of equal letters") {
  CHECK(runs_of("") == runs{});
  CHECK(runs_of("a") == runs{{0, 1}});
  CHECK(runs_of("ab") == runs{{0, 1}, {1, 2}});
  CHECK(runs_of("aabbbc") == runs{{0, 2}, {2, 5}, {5, 6}});
  CHECK(runs_of("abba") == runs{{0, 1}, {1, 3}, {3, 4}});
}

TEST_CASE("a number is compared with the first of its run, and nothing beyond the last is asked about") {
  testing::dice random(1);
  for (int n = 0; n < 200; ++n) {
    const int count = static_cast<int>(random.below(12));
    const int width = static_cast<int>(random.within(1, 4));
    runs all;
    int next = 0, asked = 0;
    reshard::detail::each_run(
        count,
        [&](int a, int b) {
          CHECK(a == next);
          CHECK((a < b && b < count));
          CHECK(b == ++asked);
          return b - a < width;  // with its neighbour every number would do
        },
        [&](int first, int past) {
          CHECK(first == next);
          all.emplace_back(first, past);
          next = past;
        });
    CHECK(next == count);
    CHECK(asked == std::max(count - 1, 0));
    CHECK(static_cast<int>(all.size()) == (count + width - 1) / width);
  }
}

static_assert([] {
  int sum = 0;
  reshard::detail::each_run(
      5, [](int, int) { return true; }, [&](int first, int past) { sum += 10 * first + past; });
  return sum;
}() == 5);
