// SPDX-License-Identifier: Apache-2.0
// Products of ranks: each closed formula against a scan.
#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include <reshard/parallelism/rank_product.hpp>

#include "../support/dice.hpp"

using namespace reshard;
using testing::dice;

namespace {
progression random_progression(dice& random, index_t extent) {
  const index_t step = random.within(1, 3), first = random.below(extent);
  return {first, random.within(1, (extent - 1 - first) / step + 1), step};
}

/// All ranks whose every coordinate is in its progression, ascending: what a rank_product means.
std::vector<rank_t> scanned(const rank_product& holders) {
  std::vector<rank_t> ranks;
  for (rank_t rank = 0; rank < holders.on.ranks(); ++rank) {
    index_t c[mesh_ndim];
    holders.on.coordinates(rank, c);
    bool in = true;
    for (int a = 0; a < mesh_ndim; ++a) in &= holders.along[a].index_of(c[a]) >= 0;
    if (in) ranks.push_back(rank);
  }
  return ranks;
}

void check_product(const rank_product& holders) {
  const std::vector<rank_t> ranks = scanned(holders);
  REQUIRE(holders.count() == static_cast<index_t>(ranks.size()));
  for (index_t i = 0; i < holders.count(); ++i) CHECK(holders[i] == ranks[static_cast<std::size_t>(i)]);
  index_t below = 0;
  for (rank_t rank = -1; rank <= 2 * holders.on.ranks() + 1; ++rank) {  // a rank that there is not is no holder
    CHECK(holders.count_below(rank) == below);
    const bool in = below < holders.count() && ranks[static_cast<std::size_t>(below)] == rank;
    CHECK(holders.index_of(rank) == (in ? below : -1));
    CHECK(holders.contains(rank) == in);
    below += in ? 1 : 0;
  }
}
}  // namespace

TEST_CASE("a product of ranks: count, [i] in rank order, index_of, contains and count_below") {
  dice random;
  for (int n = 0; n < 400; ++n) {
    rank_product holders;
    for (int a = 0; a < mesh_ndim; ++a) {
      holders.on.extent[a] = random.within(1, 5);
      holders.along[a] = random_progression(random, holders.on.extent[a]);
    }
    check_product(holders);
  }
  for (int n = 0; n < 200; ++n) {  // where an axis lies elsewhere in the order
    rank_product holders;
    for (int a = mesh_ndim; a > 1; --a) std::swap(holders.on.at[a - 1], holders.on.at[random.below(a)]);
    progression wanted[mesh_ndim];
    for (int a = 0; a < mesh_ndim; ++a) {
      const int place = holders.on.at[a];
      holders.on.extent[place] = random.within(1, 4);
      holders.axis(a) = wanted[a] = random_progression(random, holders.on.extent[place]);
    }
    check_product(holders);
    std::size_t listed = 0;
    for (rank_t rank = 0; rank < holders.on.ranks(); ++rank) {
      bool in = true;
      for (int a = 0; a < mesh_ndim; ++a) in = in && wanted[a].index_of(holders.on.coordinate(a, rank)) >= 0;
      CHECK(holders.contains(rank) == in);
      listed += in ? 1 : 0;
      CHECK(std::as_const(holders).axis(mesh_axis::data).first == wanted[mesh_axis::data].first);
    }
    CHECK(holders.count() == static_cast<index_t>(listed));
  }
  check_product({{{2, 1, 3, 4}}, {{0, 2}, {0, 1}, {0, 3}, {0, 2, 3}}});  // a tied embedding: both ends of the pipeline
}

TEST_CASE("ranks that are listed, since no product has them: the list, whatever the product beside it says") {
  dice random(1);
  int none = 0, all = 0;
  for (int n = 0; n < 400; ++n) {
    rank_product holders;
    for (index_t& extent : holders.on.extent) extent = random.within(1, 3);
    std::vector<rank_t> ranks;
    const index_t seldom = random.within(1, 4);
    for (rank_t rank = 0; rank < holders.on.ranks(); ++rank)
      if (random.below(seldom) == 0) ranks.push_back(rank);
    holders.listed = &ranks;
    REQUIRE(holders.count() == static_cast<index_t>(ranks.size()));
    for (std::size_t i = 0; i < ranks.size(); ++i) CHECK(holders[static_cast<index_t>(i)] == ranks[i]);
    index_t below = 0;
    for (rank_t rank = -1; rank <= holders.on.ranks() + 1; ++rank) {
      const bool in = below < holders.count() && ranks[static_cast<std::size_t>(below)] == rank;
      CHECK(holders.count_below(rank) == below);
      CHECK(holders.index_of(rank) == (in ? below : -1));
      CHECK(holders.contains(rank) == in);
      below += in ? 1 : 0;
    }
    none += ranks.empty() ? 1 : 0, all += holders.count() == holders.on.ranks() ? 1 : 0;
  }
  for (const int seen : {none, all}) CHECK_DRAWN(seen > 5);
}
