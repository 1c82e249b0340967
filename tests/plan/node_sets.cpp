// SPDX-License-Identifier: Apache-2.0
// Sets of nodes, small: products of ranks that are drawn, lifted to nodes by arithmetic and as a list, against the
// nodes of each holder's device; and which products are a progression.
#include <doctest/doctest.h>

#include <numeric>
#include <optional>
#include <set>
#include <vector>

#include <reshard/plan/relay/node_sets.hpp>

#include "../support/dice.hpp"

using namespace reshard;
using testing::dice;

namespace {

using numbers = std::vector<index_t>;

template <typename Set>
numbers list_of(const Set& set) {
  numbers list;
  for (index_t i = 0; i < set.count(); ++i) list.push_back(set[i]);
  return list;
}

/// A mesh of the extents and of each place the progression.
rank_product product(numbers extents, std::vector<progression> along) {
  rank_product all;
  for (std::size_t a = 0; a < extents.size(); ++a) all.on.extent[a] = extents[a], all.along[a] = along[a];
  return all;
}
rank_product drawn_product(dice& random) {
  rank_product all;
  for (int a = 0; a < mesh_ndim; ++a) {
    const index_t extent = random.within(1, 4);
    progression& p = all.along[a];
    all.on.extent[a] = extent;
    p.first = random.below(3) == 0 ? random.below(extent) : 0;
    p.step = random.below(3) == 0 ? random.within(1, 3) : 1;
    const index_t most = (extent - 1 - p.first) / p.step + 1;
    p.count = random.coin() ? most : random.within(1, most);
  }
  return all;
}
device_map drawn_seats(dice& random, rank_t ranks) {
  std::vector<rank_t> devices(static_cast<std::size_t>(ranks));
  std::iota(devices.begin(), devices.end(), random.below(9));
  const std::int64_t kind = random.below(5);
  if (kind == 0)
    for (std::size_t i = 1; i < devices.size(); ++i) std::swap(devices[i], devices[random.bits() % (i + 1)]);
  if (kind == 1)
    for (std::size_t i = 0, gap = 0; i < devices.size(); ++i)
      devices[i] += static_cast<rank_t>(gap += random.bits() % 3);
  if (kind == 2) return device_map(ranks);
  return device_map(devices);
}

/// Every answer of the set is that of the list.
void check_set(const node_set& set, const numbers& list) {
  CHECK(list_of(set) == list);
  for (index_t node = -2; node < (list.empty() ? 0 : list.back()) + 3; ++node) {
    index_t below = 0, at = -1;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i] < node) ++below;
      if (list[i] == node) at = static_cast<index_t>(i);
    }
    CHECK(set.count_below(node) == below);
    CHECK(set.index_of(node) == at);
    CHECK(set.contains(node) == (at >= 0));
  }
}

std::optional<progression> lifted(const rank_product& all, rank_t shift, index_t gpus) {
  return detail::node_progression(all, shift, gpus);
}

}  // namespace

TEST_CASE("a set of nodes is a progression or a list, and says the same of both") {
  check_set(node_set(progression{2, 3, 4}), {2, 6, 10});
  check_set(node_set(progression{5, 1, 1}), {5});
  check_set(node_set(numbers{1, 2, 7, 9}), {1, 2, 7, 9});
  check_set(node_set(numbers{0}), {0});
  check_set(node_set(numbers{}), {});
}

TEST_CASE("nodes of one set that are not in the other, with their places") {
  const node_set all(progression{10, 6, 2});  // 10 12 14 16 18 20
  const needing_nodes some(all, node_set(numbers{9, 10, 14, 15, 16, 22}));
  CHECK(list_of(some) == numbers{12, 18, 20});
  CHECK(some.index_of(12) == 0);
  CHECK(some.index_of(18) == 1);
  CHECK(some.index_of(20) == 2);
  CHECK(list_of(needing_nodes(all, node_set(numbers{}))) == numbers{10, 12, 14, 16, 18, 20});
  CHECK(list_of(needing_nodes(all, node_set(numbers{20}))) == numbers{10, 12, 14, 16, 18});
  CHECK(needing_nodes(all, all).count() == 0);
  const node_set listed(numbers{0, 3, 4, 8});
  CHECK(list_of(needing_nodes(listed, node_set(progression{3, 2, 1}))) == numbers{0, 8});
}

TEST_CASE("which products are a progression of nodes") {
  // all of an axis on one node; every second node; nodes one after the other
  CHECK(lifted(product({4, 2}, {{0, 4, 1}, {1, 1, 1}}), 0, 4) == progression{1, 1, 1});
  CHECK(lifted(product({4, 6}, {{1, 1, 1}, {1, 3, 2}}), 0, 4) == progression{1, 3, 2});
  CHECK(lifted(product({4, 6}, {{0, 4, 1}, {1, 3, 2}}), 0, 4) == progression{1, 3, 2});
  CHECK(lifted(product({12}, {{0, 12, 1}}), 8, 4) == progression{2, 3, 1});
  CHECK(lifted(product({12}, {{0, 6, 2}}), 0, 4) == progression{0, 3, 1});
  CHECK(lifted(product({2, 8}, {{1, 1, 1}, {0, 8, 1}}), 4, 4) == progression{1, 4, 1});
  CHECK(lifted(product({2, 8}, {{0, 2, 1}, {0, 8, 1}}), 4, 4) == progression{1, 4, 1});
  // two axes in a row continue each other
  CHECK(lifted(product({2, 3, 2}, {{0, 1, 1}, {0, 3, 1}, {0, 2, 1}}), 0, 2) == progression{0, 6, 1});
  CHECK(lifted(product({2, 6, 2}, {{0, 1, 1}, {0, 3, 2}, {0, 2, 1}}), 0, 2) == progression{0, 6, 2});
  CHECK(lifted(product({8, 2, 2}, {{0, 8, 1}, {0, 2, 1}, {0, 2, 1}}), 0, 4) == progression{0, 8, 1});
  // a shift inside a node that keeps all on it, and one that does not
  CHECK(lifted(product({2, 3}, {{0, 2, 1}, {1, 1, 1}}), 1, 4) == std::nullopt);
  CHECK(lifted(product({2, 3}, {{0, 2, 1}, {1, 1, 1}}), 4, 4) == progression{1, 1, 1});
  CHECK(lifted(product({4, 3}, {{0, 2, 1}, {0, 3, 1}}), 2, 4) == progression{0, 3, 1});
  CHECK(lifted(product({4, 3}, {{0, 2, 1}, {0, 3, 1}}), 3, 4) == std::nullopt);
  CHECK(lifted(product({2, 4}, {{0, 2, 1}, {0, 4, 1}}), 1, 4) == std::nullopt);
  CHECK(lifted(product({12}, {{0, 12, 1}}), 1, 4) == std::nullopt);
  CHECK(lifted(product({2, 6}, {{0, 1, 1}, {0, 6, 1}}), 1, 4) == progression{0, 3, 1});
  CHECK(lifted(product({2, 6}, {{1, 1, 1}, {0, 6, 1}}), 1, 4) == std::nullopt);
  // axes with a gap between them, parts of nodes, steps that do not divide
  CHECK(lifted(product({2, 6, 2}, {{0, 1, 1}, {0, 2, 2}, {0, 2, 1}}), 0, 2) == std::nullopt);
  CHECK(lifted(product({6}, {{0, 6, 1}}), 0, 4) == std::nullopt);
  CHECK(lifted(product({12}, {{0, 4, 3}}), 0, 4) == std::nullopt);
  CHECK(lifted(product({8}, {{0, 8, 1}}), 0, 8) == progression{0, 1, 1});
  CHECK(lifted(product({2, 2, 4}, {{0, 2, 1}, {0, 2, 1}, {0, 4, 1}}), 0, 4) == progression{0, 4, 1});
}

TEST_CASE("a list of ranks is no progression, any holders are one where their product is") {
  const std::vector<rank_t> ranks = {1, 2, 9, 10, 11};
  rank_product listed = product({12}, {{0, 12, 1}});
  listed.listed = &ranks;
  CHECK(!lifted(listed, 0, 4));
  CHECK(list_of(nodes_of_holders(listed, device_map(12), 4)) == numbers{0, 2});
  CHECK(list_of(nodes_of_holders(listed, device_map({9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 11, 10}), 4)) == numbers{0, 1, 2});
  const rank_product whole = product({12}, {{0, 12, 1}});
  CHECK(detail::node_progression(any_holders(whole), 4, 4) == progression{1, 3, 1});
  CHECK(!detail::node_progression(any_holders(listed), 4, 4));
  const node_set some(progression{1, 3, 1});
  CHECK(!detail::node_progression(any_holders(some), 0, 4));
  CHECK(!detail::node_progression(some, 0, 4));
}

TEST_CASE("drawn products: the nodes of holders are those of their devices") {
  dice random(66);
  int progressions = 0, lists = 0, several = 0;
  for (int n = testing::thrown(2000); n > 0; --n) {
    const rank_product all = drawn_product(random);
    const device_map seats = drawn_seats(random, all.on.ranks());
    const index_t gpus = random.within(1, 9);
    std::set<index_t> nodes;
    for (index_t i = 0; i < all.count(); ++i) nodes.insert(seats.device_of(all[i]) / gpus);
    const numbers list(nodes.begin(), nodes.end());
    CHECK(list_of(nodes_of_holders(all, seats, gpus)) == list);
    CHECK(list_of(nodes_of_holders(any_holders(all), seats, gpus)) == list);
    if (!seats.one_run()) continue;
    const auto found = lifted(all, seats.device_of(0), gpus);
    if (found) CHECK(list_of(node_set(*found)) == list);
    progressions += found ? 1 : 0, lists += found ? 0 : 1, several += found && found->count > 1 ? 1 : 0;
  }
  CHECK_DRAWN(progressions > 300);
  CHECK_DRAWN(several > 100);
  CHECK_DRAWN(lists > 300);
}
