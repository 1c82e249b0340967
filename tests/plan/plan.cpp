// SPDX-License-Identifier: Apache-2.0
// Plans as data: equal where every list is, and the bytes of a list.
#include <doctest/doctest.h>

#include <vector>

#include <reshard/model/state_list.hpp>
#include <reshard/plan/plan.hpp>

#include "../support/refused.hpp"

using namespace reshard;

TEST_CASE("bytes of a list are the sum of its transfers'; what leaves 64 bits is refused") {
  transfer t{0, 1, only(0), 0, {{{0, 2}, {0, 3}, {0, 1}, {1, 5}, {2, 7}}}};
  static_assert(total_bytes({}) == 0);
  CHECK(total_bytes({t, t, t}) == 3 * t.bytes());
  transfer other = t;
  other.where.dim[1] = {0, 1};
  CHECK(total_bytes({t, other}) == t.bytes() + other.bytes());
  t.where = {{{0, index_t{1} << 61}, {0, 1}, {0, 1}, {0, 1}, {0, 1}}};
  CHECK(t.bytes() == index_t{1} << 62);
  CHECK_REFUSED(total_bytes({t, t}), "4611686018427387904 + 4611686018427387904 does not fit 64 bits");
}

TEST_CASE("plans are equal where device and all five lists are") {
  const transfer t{0, 0, only(0), 0, {{{0, 2}, {0, 3}, {0, 1}, {1, 5}, {2, 7}}}};
  const plan none;
  CHECK(none == plan{});
  plan other;
  other.device = 1;
  CHECK_FALSE(other == none);
  for (std::vector<transfer> plan::*const list :
       {&plan::sends, &plan::receives, &plan::retains, &plan::creates, &plan::lost}) {
    plan one;
    (one.*list).push_back(t);
    CHECK_FALSE(one == none);
    plan same = one;
    CHECK(same == one);
    (same.*list)[0].dst = 1;
    CHECK_FALSE(same == one);
  }
}
