// SPDX-License-Identifier: Apache-2.0
// What relabelling weighs, against what rows of any tensors come to one by one; and of a few vectors by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

#include <reshard/plan/relabel/bytes.hpp>

#include "../support/any_tensors.hpp"
#include "../support/dice.hpp"
#include "../support/whole_on.hpp"

using namespace reshard;
using detail::relabel_bytes, detail::relabel_table;
using testing::any_tensors, testing::dice;

namespace {

using bytes_list = std::vector<bytes_t>;
using units_of = std::vector<std::size_t>;

/// A vector of so many bytes, on these ranks.
void add_vector(std::vector<shard>& side, const char* name, bytes_t bytes, const std::vector<rank_t>& ranks) {
  for (const rank_t rank : ranks) side.push_back({rank, name, bf16, {bytes / 2}, {0}, {bytes / 2}});
}
using summed_pattern = std::tuple<units_of, bool, units_of, bytes_t>;
std::vector<summed_pattern> list_of(const relabel_bytes& sums) {
  std::vector<summed_pattern> all;
  for (const auto& [seen, bytes] : sums.patterns)
    all.emplace_back(seen.held_on, seen.held_elsewhere, seen.units, bytes);
  return all;
}

/// Five vectors between nodes of two: TO sits on nodes 0 (devices 0, 1) and 2 (device 5); FROM on 0, 2, 3 and 5.
auto five_vectors() {
  std::vector<shard> from, to;  // FROM's ranks 0 to 3 are on devices 0, 2, 3, 5; TO's 0 to 2 on 5, 0, 1
  add_vector(from, "a", 100, {0}), add_vector(to, "a", 100, {0, 2});
  add_vector(from, "b", 20, {0, 3}), add_vector(to, "b", 20, {0, 1});
  add_vector(from, "c", 6, {1, 2}), add_vector(to, "c", 6, {1, 2});
  add_vector(from, "d", 4, {1, 3}), add_vector(to, "d", 4, {0});
  add_vector(from, "e", 1000, {3});  // nobody needs it
  return layout_switch(
      shard_list(from, 4), shard_list(to, 3),
      {.from = device_map({0, 2, 3, 5}), .to = device_map({5, 0, 1}), .on = nodes_of(2), .devices = 6});
}

}  // namespace

TEST_CASE("five vectors by hand, in units of a node each") {
  const auto change = five_vectors();
  relabel_table table = detail::relabel_table_of(change);
  REQUIRE(table.nodes == std::vector<index_t>{0, 2});
  REQUIRE(table.gpus == std::vector<index_t>{0, 1});
  const relabel_bytes sums = relabel_bytes_of(change, table, {1, 0, 0}, 2, true);  // rank 0 is unit 1
  CHECK(sums.units == 2);
  CHECK(sums.need == bytes_list{100 + 20 + 6, 100 + 20 + 4});
  CHECK(sums.alone == bytes_list{100, 0});
  // node 0 holds a and b, node 2 b and d
  CHECK(sums.kept == bytes_list{100 + 20, 100 + 20, 20, 20 + 4});
  CHECK(sums.only == bytes_list{0, 0, 0, 0});
  CHECK(sums.alone_elsewhere == bytes_list{0, 6, 0});
  // by device that has: 0 has a and b, 5 has b and d; by device that needs: 0 b and c, 1 a and c, 5 a, b and d
  REQUIRE(sums.retained.size() == 4);
  CHECK(sums.retained[0] == bytes_list{20, 100, 0, 0});      // node 0 for node 0
  CHECK(sums.retained[1] == bytes_list{0, 100 + 20, 0, 0});  // for node 2
  CHECK(sums.retained[2] == bytes_list{0, 0, 20, 0});        // node 2 for node 0
  CHECK(sums.retained[3] == bytes_list{0, 0, 0, 20 + 4});
  CHECK(list_of(sums) ==
        std::vector<summed_pattern>{
            {{0}, false, {0, 1}, 100}, {{0, 1}, false, {0, 1}, 20}, {{}, true, {0}, 6}, {{1}, true, {1}, 4}});
  CHECK(table.bandwidth == std::vector<double>{2, 1});  // NICs, without speeds
  CHECK(table.elsewhere == 6.0 / 2);
  table.elsewhere = 1000;  // the table is made anew by whoever weighs again
  relabel_bytes_of(change, table, {1, 0, 0}, 2, true);
  CHECK(table.bandwidth == std::vector<double>{2, 1});
  CHECK(table.elsewhere == 6.0 / 2);
}

TEST_CASE("in units of a rank each; patterns only where they are asked for") {
  const auto change = five_vectors();
  relabel_table table = detail::relabel_table_of(change);
  const relabel_bytes sums = relabel_bytes_of(change, table, {2, 1, 0}, 3, false);
  CHECK(sums.need == bytes_list{100 + 6, 20 + 6, 100 + 20 + 4});
  CHECK(sums.kept == bytes_list{100, 20, 100 + 20, 0, 20, 20 + 4});
  CHECK(sums.patterns.empty());
  CHECK(sums.retained[0] == bytes_list{20, 100, 0, 0});
}

TEST_CASE("what a node alone has and a unit alone needs; who is lost has nothing") {
  std::vector<shard> from, to;
  add_vector(from, "a", 100, {0}), add_vector(to, "a", 100, {0});
  add_vector(from, "b", 20, {0, 1}), add_vector(to, "b", 20, {1});
  add_vector(from, "c", 6, {2}), add_vector(to, "c", 6, {0, 1});
  const auto sums_of = [&](const std::vector<rank_t>& lost, relabel_table& table) {
    const layout_switch change(shard_list(from, 3), shard_list(to, 2),
                               {.from = device_map({0, 1, 2}),
                                .to = device_map({0, 1}),
                                .on = nodes_of(1),
                                .lost = lost,
                                .lost_elements = when_lost::leave_out});
    table = detail::relabel_table_of(change);
    return relabel_bytes_of(change, table, {0, 1}, 2, false);
  };
  relabel_table table;
  const relabel_bytes all = sums_of({}, table);
  CHECK(all.only == bytes_list{100, 0, 0, 0});
  CHECK(all.alone == bytes_list{100, 0});
  CHECK(all.need == bytes_list{106, 26});
  CHECK(all.alone_elsewhere == bytes_list{0, 0, 6});
  CHECK(table.elsewhere == 6);
  const relabel_bytes living = sums_of({2}, table);
  CHECK(living.need == bytes_list{100, 20});
  CHECK(living.alone_elsewhere == bytes_list{0, 0, 0});
  CHECK(table.elsewhere == 0);
}

TEST_CASE("TO's devices as nodes and places, also where all share one node or each has its own") {
  CHECK(detail::gpu_of(nodes_of(3), 7) == 1);
  CHECK(detail::gpu_of(nodes_of(1), 5) == 0);
  CHECK(detail::gpu_of(cluster(), 5) == 5);
  const auto on = [](const cluster& nodes) {
    return detail::relabel_table_of(layout_switch(testing::whole_on(1, "w", {4}), testing::whole_on(3, "w", {4}),
                                                  {.to = device_map({5, 1, 4}), .on = nodes, .devices = 9}));
  };
  const relabel_table one = on(cluster()), own = on(nodes_of(1)), pairs = on(nodes_of(2));
  CHECK(one.nodes == std::vector<index_t>{0});
  CHECK(one.gpus == std::vector<index_t>{1, 4, 5});
  CHECK(one.devices == std::vector<rank_t>{1, 4, 5});
  CHECK(one.ranks == std::vector<rank_t>{1, 2, 0});
  CHECK(own.nodes == std::vector<index_t>{1, 4, 5});
  CHECK(own.gpus == std::vector<index_t>{0});
  CHECK(own.devices == one.devices);
  CHECK(own.ranks == one.ranks);
  CHECK(pairs.nodes == std::vector<index_t>{0, 2});
  CHECK(pairs.gpus == std::vector<index_t>{0, 1});
  CHECK(pairs.devices == std::vector<rank_t>{-1, 1, 4, 5});
  CHECK(pairs.ranks == std::vector<rank_t>{-1, 1, 2, 0});
}

TEST_CASE("states of one byte an element count, down to a single byte") {
  const state_list bytes = parse_state_list("param:fp8:3");
  const auto vector_of = [](index_t elements, std::initializer_list<rank_t> ranks, const char* name) {
    std::vector<shard> all;
    for (const rank_t r : ranks) all.push_back({r, name, dtype::fp8, {elements}, {0}, {elements}});
    return all;
  };
  std::vector<shard> from = vector_of(7, {0}, "a"), to = vector_of(7, {0}, "a");
  from.push_back(vector_of(1, {1}, "b")[0]), to.push_back(vector_of(1, {0}, "b")[0]);
  const layout_switch change(
      shard_list(from, 2), shard_list(to, 1),
      {.from = device_map({0, 3}), .to = device_map(std::vector<rank_t>{2}), .on = nodes_of(1), .list = bytes});
  relabel_table table = detail::relabel_table_of(change);
  REQUIRE(table.nodes == std::vector<index_t>{2});
  const relabel_bytes sums = relabel_bytes_of(change, table, {0}, 1, false);
  CHECK(sums.need == bytes_list{8});
  CHECK(sums.alone_elsewhere == bytes_list{7, 0, 0, 1});
  CHECK(table.elsewhere == 7);
  const layout_switch single(shard_list(vector_of(1, {0}, "b")), shard_list(vector_of(1, {0}, "b")),
                             {.from = device_map(std::vector<rank_t>{1}),
                              .to = device_map(std::vector<rank_t>{0}),
                              .on = nodes_of(1),
                              .list = bytes});
  relabel_table of_single = detail::relabel_table_of(single);
  relabel_bytes_of(single, of_single, {0}, 1, false);
  CHECK(of_single.elsewhere == 1);
}

namespace {

/// All of it, row by row.
struct counted {
  std::size_t units, nodes, places;
  std::map<std::tuple<std::size_t, std::size_t>, bytes_t> kept, only;
  std::map<std::size_t, bytes_t> need, alone, patterned;
  std::map<index_t, bytes_t> alone_elsewhere;
  std::map<std::tuple<std::size_t, std::size_t>, bytes_t> retained;  // by places of both, counted over all nodes
  std::map<std::tuple<units_of, bool, units_of>, bytes_t> patterns;

  counted(const any_tensors& given, const relabel_table& table, const units_of& unit_of, std::size_t all_units)
      : units(all_units), nodes(table.nodes.size()), places(table.gpus.size()) {
    for (const any_tensors::row& row : given.rows)
      if (!row.had.empty() && !row.needs.empty()) add(row, given.world, table, unit_of);
  }
  void add(const any_tensors::row& row, const testing::any_world& world, const relabel_table& table,
           const units_of& unit_of) {
    const testing::links_in_words words(world.on);
    std::set<std::size_t> needing, held_on;
    std::set<index_t> held;
    for (const rank_t d : row.had) held.insert(words.node_of(d));
    bool elsewhere = false;
    for (const index_t number : held) {
      const auto at = std::find(table.nodes.begin(), table.nodes.end(), number);
      if (at == table.nodes.end()) elsewhere = true;
      else held_on.insert(static_cast<std::size_t>(at - table.nodes.begin()));
    }
    for (const rank_t d : row.needs) {
      const auto rank = std::find(world.to.begin(), world.to.end(), d) - world.to.begin();
      needing.insert(unit_of[static_cast<std::size_t>(rank)]);
      for (const rank_t had : row.had)
        if (const std::size_t from = place_of(table, had); from < nodes * places)
          retained[{from, place_of(table, d)}] += row.bytes;
    }
    for (const std::size_t u : needing) need[u] += row.bytes;
    for (const std::size_t u : needing)
      for (const std::size_t y : held_on) kept[{y, u}] += row.bytes;
    if (held.size() == 1 && elsewhere) alone_elsewhere[*held.begin()] += row.bytes;
    if (held.size() == 1 && !elsewhere) alone[*held_on.begin()] += row.bytes;
    if (held.size() == 1 && !elsewhere && needing.size() == 1) only[{*held_on.begin(), *needing.begin()}] += row.bytes;
    patterns[{{held_on.begin(), held_on.end()}, elsewhere, {needing.begin(), needing.end()}}] += row.bytes;
  }
  static std::size_t place_of(const relabel_table& table, rank_t device) {
    return static_cast<std::size_t>(std::find(table.devices.begin(), table.devices.end(), device) -
                                    table.devices.begin());
  }
};

template <typename Map, typename Key>
bytes_t at(const Map& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? 0 : found->second;
}

void check_sums(const relabel_bytes& sums, const counted& wanted, bool patterns) {
  REQUIRE(sums.units == wanted.units);
  REQUIRE(sums.kept.size() == wanted.nodes * wanted.units);
  for (std::size_t u = 0; u < wanted.units; ++u) CHECK(sums.need[u] == at(wanted.need, u));
  for (std::size_t y = 0; y < wanted.nodes; ++y) {
    CHECK(sums.alone[y] == at(wanted.alone, y));
    for (std::size_t u = 0; u < wanted.units; ++u) {
      CHECK(sums.kept[y * wanted.units + u] == at(wanted.kept, std::tuple(y, u)));
      CHECK(sums.only[y * wanted.units + u] == at(wanted.only, std::tuple(y, u)));
    }
    for (std::size_t b = 0; b < wanted.nodes; ++b) {
      const bytes_list& tile = sums.retained[y * wanted.nodes + b];
      bytes_t all = 0;
      for (std::size_t i = 0; i < wanted.places; ++i)
        for (std::size_t j = 0; j < wanted.places; ++j) {
          const bytes_t here = at(wanted.retained, std::tuple(y * wanted.places + i, b * wanted.places + j));
          CHECK((tile.empty() ? 0 : tile[i * wanted.places + j]) == here);
          all += here;
        }
      CHECK(tile.empty() == (all == 0));
    }
  }
  for (std::size_t i = 0; i < sums.alone_elsewhere.size(); ++i)
    CHECK(sums.alone_elsewhere[i] == at(wanted.alone_elsewhere, static_cast<index_t>(i)));
  CHECK(sums.patterns.size() == (patterns ? wanted.patterns.size() : 0));
  for (const auto& [seen, bytes] : sums.patterns)
    CHECK(at(wanted.patterns, std::tuple(seen.held_on, seen.held_elsewhere, seen.units)) == bytes);
}

/// Bytes a second of a node, by its NICs that somebody uses.
double bandwidth_of(const testing::any_world& world, index_t node) {
  const testing::links_in_words words(world.on);
  std::set<index_t> nics;
  double each = 0;
  for (const rank_t d : world.part)
    if (words.node_of(d) == node) nics.insert(words.nic_of(d)), each = words.node(d).nic_GBps * 1e9;
  return static_cast<double>(nics.size()) * each;
}

}  // namespace

TEST_CASE("rows of any tensors: each is counted once, whoever has and whoever needs it") {
  dice random(81);
  int alone = 0, elsewhere = 0, kept = 0;
  for (int n = 0; n < 100; ++n) {
    const any_tensors given(random, true);
    const auto change = given.change();
    relabel_table table = detail::relabel_table_of(change);
    const std::size_t units = static_cast<std::size_t>(random.within(1, 4));
    units_of unit_of;
    for (std::size_t r = 0; r < given.world.to.size(); ++r)
      unit_of.push_back(static_cast<std::size_t>(random.below(static_cast<index_t>(units))));
    const bool patterns = random.coin();
    const relabel_bytes sums = relabel_bytes_of(change, table, unit_of, units, patterns);
    const counted wanted(given, table, unit_of, units);
    check_sums(sums, wanted, patterns);
    double most = 0;
    for (const auto& [node, bytes] : wanted.alone_elsewhere)
      most = std::max(most, static_cast<double>(bytes) / bandwidth_of(given.world, node));
    CHECK(table.elsewhere == doctest::Approx(most).epsilon(1e-12));
    REQUIRE(table.bandwidth.size() == table.nodes.size());
    for (std::size_t y = 0; y < table.nodes.size(); ++y)
      CHECK(table.bandwidth[y] == doctest::Approx(bandwidth_of(given.world, table.nodes[y])).epsilon(1e-12));
    alone += wanted.only.empty() ? 0 : 1, elsewhere += most > 0 ? 1 : 0, kept += wanted.retained.empty() ? 0 : 1;
  }
  for (const int met : {alone, elsewhere, kept}) CHECK_DRAWN(met > 10);
}

TEST_CASE("patterns are told apart by what they say, and none comes before itself") {
  using pattern = relabel_bytes::pattern;
  const std::vector<pattern> all = {{{}, false, {0}},  {{0}, false, {0}}, {{0}, false, {0, 1}}, {{0}, false, {1}},
                                    {{1}, false, {0}}, {{}, true, {0}},   {{0}, true, {0}},     {{0}, true, {1}}};
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < all.size(); ++j) CHECK((all[i] < all[j]) == (i < j));
}
