// SPDX-License-Identifier: Apache-2.0
// The busiest sender of parameters is at most 1.05 of the busiest of an even split, on one node and at 8 devices a
// node.
#include <doctest/doctest.h>

#include <reshard/model/presets.hpp>
#include <reshard/parallelism/parse_degrees.hpp>

#include "../../tools/lib/even_split.hpp"

using namespace reshard;

TEST_CASE("sources are balanced") {
  for (const testing::balanced_switch& s : testing::balanced_switches)
    for (const index_t node : {index_t{0}, index_t{8}}) {
      const model m = preset(s.model);
      const space from(m, parse_degrees(s.from)), to(m, parse_degrees(s.to));
      const double ratio = testing::balance_ratio(s, node, from, to);
      CAPTURE(s.model);
      CAPTURE(s.from);
      CAPTURE(s.to);
      CAPTURE(node);
      MESSAGE(s.model << " " << s.from << " -> " << s.to << " node " << node << ": " << ratio);
      CHECK(ratio <= 1.05);
      // no split is below the even one's mean of the busiest: a smaller ratio means a wrong oracle
      CHECK(ratio >= 0.9999);
    }
}
