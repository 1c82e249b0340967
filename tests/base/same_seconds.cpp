// SPDX-License-Identifier: Apache-2.0
// When two predicted times are one, by the line above the functions.
#include <doctest/doctest.h>

#include <limits>

#include <reshard/base/same_seconds.hpp>

using reshard::fewer_seconds, reshard::same_seconds;

namespace {
constexpr double none = std::numeric_limits<double>::infinity();

constexpr bool law() {
  const double all[] = {0, 1e-300, 2.82624e-06, 2.826239999999988e-06, 1, 1 + 5e-10, 1 + 2e-9, 7.5, 1e12, none};
  for (const double a : all)
    for (const double b : all) {
      const double more = a > b ? a : b, apart = more == none ? none : a > b ? a - b : b - a;
      const bool one = a == b || (more < none && apart <= 1e-9 * more);
      if (same_seconds(a, b) != one || fewer_seconds(a, b) != (a < b && !one)) return false;
    }
  return true;
}
static_assert(law());
static_assert(same_seconds(0, 0) && fewer_seconds(0, 1e-300) && same_seconds(none, none) && fewer_seconds(1, none));
}  // namespace

TEST_CASE("seconds within 1e-9 of the larger are equal") {
  CHECK(law());
  double sum = 0;
  for (int i = 0; i < 1000; ++i) sum += 0.001;
  CHECK(sum != 1);
  CHECK(same_seconds(sum, 1));
  CHECK_FALSE(fewer_seconds(sum, 1));
  CHECK_FALSE(fewer_seconds(1, sum));
  CHECK(fewer_seconds(1 - 1e-8, 1));
}
