// SPDX-License-Identifier: Apache-2.0
// The holders on a node, counted and indexed by arithmetic, are those that a walk over all holders finds.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include <reshard/plan/node_holders.hpp>
#include <reshard/space/listed_holding.hpp>

#include "../support/dice.hpp"

using namespace reshard;
using testing::dice;

TEST_CASE("holders on a node are those whose devices are the node's, in rank order; who is none of them has no index") {
  dice random(11);
  int with = 0, without = 0;
  for (int n = 0; n < 300; ++n) {
    const rank_t ranks = random.within(1, 12), world = ranks + random.below(8);
    std::vector<rank_t> devices(static_cast<std::size_t>(world)), all;
    std::iota(devices.begin(), devices.end(), 0);
    for (rank_t i = world - 1; i > 0 && n % 4 != 0; --i)
      std::swap(devices[static_cast<std::size_t>(i)], devices[static_cast<std::size_t>(random.below(i + 1))]);
    devices.resize(static_cast<std::size_t>(ranks));
    for (rank_t r = 0; r < ranks; ++r)
      if (random.coin()) all.push_back(r);
    const device_map seats(devices);
    const index_t size = random.within(1, 6), node = random.below(world / size + 1);
    const interval of_node{node * size, (node + 1) * size};

    std::vector<rank_t> wanted;
    for (const rank_t r : all)
      if (of_node.contains(seats.device_of(r))) wanted.push_back(r);
    const listed_ranks holders{&all};
    const node_holders near(holders, seats, of_node);
    CHECK(near.count() == static_cast<index_t>(wanted.size()));
    for (index_t i = 0; i < static_cast<index_t>(wanted.size()); ++i) {
      CHECK(near[i] == wanted[static_cast<std::size_t>(i)]);
      CHECK(near.index_of(near[i]) == i);
    }
    CHECK(near[static_cast<index_t>(wanted.size())] == -1);
    for (rank_t r = 0; r < ranks; ++r)
      if (!of_node.contains(seats.device_of(r))) CHECK(near.index_of(r) == -1);
    ++(wanted.empty() ? without : with);
  }
  CHECK_DRAWN(with > 50);
  CHECK_DRAWN(without > 20);
}
