// SPDX-License-Identifier: Apache-2.0
// Holders lifted to nodes: every node that a holder is on, once, ascending, by arithmetic as by a list; and keys that
// tell sets apart.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/relay/holder_key.hpp>
#include <reshard/plan/relay/node_sets.hpp>
#include <reshard/space/computed_holding.hpp>

#include "../support/dice.hpp"

using namespace reshard;
using testing::dice;

namespace {
constexpr const char* layouts[] = {"tp=8,dp=4",
                                   "tp=16,dp=2",
                                   "tp=2,pp=4,dp=5",
                                   "cp=2,dp=6,zero=1",
                                   "tp=4,pp=2,dp=4,zero=1",
                                   "order=tp-dp-cp-pp,tp=2,cp=2,dp=3",
                                   "dp=31",
                                   "tp=32,pp=2"};

/// Of some sets of ranks that boxes of a layout have.
template <typename Visit>
void some_holders(const char* layout, Visit&& visit) {
  const computed_holding h(space(models::llama2_7b, parse_degrees(layout)));
  for (rank_t rank = 0; rank < h.ranks(); rank += 1 + h.ranks() / 7)
    for (const role r : {role::parameter, role::optimizer})
      each_shared(h, rank, r, [&](int, const family_box&, const rank_product& holders) { visit(h.ranks(), holders); });
}
}  // namespace

TEST_CASE("the nodes of holders are those of their devices") {
  dice random(4);
  long listed = 0, all = 0;
  for (const char* layout : layouts)
    for (const index_t gpus : {1, 2, 3, 4, 8, 72})
      for (int map = 0; map < 3; ++map)
        some_holders(layout, [&](rank_t ranks, const rank_product& holders) {
          std::vector<rank_t> devices(static_cast<std::size_t>(ranks));
          std::iota(devices.begin(), devices.end(), random.below(10));
          if (map == 1)
            for (rank_t& d : devices) d += d > ranks / 2 ? 5 : 0;
          if (map == 2) std::reverse(devices.begin(), devices.end());
          const device_map seats(devices);
          std::set<index_t> wanted;
          for (index_t i = 0; i < holders.count(); ++i) wanted.insert(seats.device_of(holders[i]) / gpus);
          const node_set found = nodes_of_holders(holders, seats, gpus);
          const std::vector<index_t> list(wanted.begin(), wanted.end());
          bool same = found.count() == static_cast<index_t>(list.size());
          for (index_t i = 0; same && i < found.count(); ++i) same = found[i] == list[static_cast<std::size_t>(i)];
          CHECK(same);
          for (index_t node = -1; node < list.back() + 2; ++node) {
            const auto at = std::lower_bound(list.begin(), list.end(), node);
            CHECK(found.count_below(node) == at - list.begin());
            CHECK(found.contains(node) == (wanted.count(node) > 0));
          }
          const auto by_arithmetic = detail::node_progression(holders, seats.device_of(0), gpus);
          listed += map == 0 && !by_arithmetic ? 1 : 0, all += map == 0 ? 1 : 0;
        });
  std::printf("%ld of %ld sets on consecutive devices are listed\n", listed, all);
  CHECK_DRAWN(listed > 0);
  CHECK(2 * listed < all);
}

TEST_CASE("nodes that need are those of one set that are not in the other") {
  dice random(5);
  for (int n = 0; n < 200; ++n) {
    std::vector<index_t> all, without, wanted;
    for (index_t node = 0; node < 20; ++node) {
      const bool needs = random.coin(), holds = random.below(4) == 0;
      if (needs) all.push_back(node);
      if (holds) without.push_back(node);
      if (needs && !holds) wanted.push_back(node);
    }
    const node_set needs(all), holds(without);
    const needing_nodes found(needs, holds);
    REQUIRE(found.count() == static_cast<index_t>(wanted.size()));
    for (index_t i = 0; i < found.count(); ++i) {
      CHECK(found[i] == wanted[static_cast<std::size_t>(i)]);
      CHECK(found.index_of(found[i]) == i);
    }
  }
}

TEST_CASE("sets have one key if and only if they are equal") {
  std::map<std::vector<rank_t>, std::uint64_t> key_of;
  std::set<std::uint64_t> keys;
  const char* one_model = "tp=2,pp=4,dp=5";
  some_holders(one_model, [&](rank_t, const rank_product& holders) {
    std::vector<rank_t> ranks;
    for (index_t i = 0; i < holders.count(); ++i) ranks.push_back(holders[i]);
    const std::uint64_t key = holder_key(holders);
    const auto found = key_of.emplace(ranks, key).first;
    CHECK(found->second == key);
    keys.insert(key);
  });
  CHECK(keys.size() == key_of.size());
  CHECK(keys.size() > 5);
  CHECK(mixed_key(5, 5) != mixed_key(7, 7));
  CHECK(mixed_key(5, 7) != mixed_key(7, 5));
}

TEST_CASE("products that differ in one number have different keys, but for a step that takes nobody further") {
  std::set<std::uint64_t> keys;
  std::size_t products = 0;
  const auto add = [&](int axis, const progression& p, index_t extent) {
    rank_product one{.on = {}, .along = {}};
    one.on.extent[axis] = extent;
    one.along[axis] = p;
    keys.insert(holder_key(one));
    ++products;
  };
  for (int axis = 0; axis < mesh_ndim; ++axis)
    for (const index_t extent : {64, 128})
      for (const index_t first : {0, 1})
        for (const index_t count : {2, 4})
          for (const index_t step : {1, 2, 8}) add(axis, {first, count, step}, extent);
  CHECK(keys.size() == products);
  rank_product a{.on = {}, .along = {}}, b = a;
  a.along[1] = {3, 1, 1}, b.along[1] = {3, 1, 4};  // one rank each, and that is the same
  CHECK(holder_key(a) == holder_key(b));
}
