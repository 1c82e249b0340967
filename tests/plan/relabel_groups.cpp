// SPDX-License-Identifier: Apache-2.0
// Relabelling by groups: units of a layout by hand; and the search against all orders of a few ranks, whose pieces are
// counted one by one.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/relabel/groups.hpp>

#include "../support/dice.hpp"

using namespace reshard;
using detail::group_choice, detail::rank_units, detail::relabel_bytes, detail::relabel_table;
using testing::dice;

namespace {

/// Nodes of so many GPUs with all ranks of TO on them, in this order of devices; -1: no device of TO's.
relabel_table table_of(std::size_t gpus, const std::vector<rank_t>& ranks, std::vector<double> bandwidth = {}) {
  relabel_table table;
  const std::size_t nodes = ranks.size() / gpus;
  table.nodes.resize(nodes), table.gpus.resize(gpus);
  std::iota(table.nodes.begin(), table.nodes.end(), 0), std::iota(table.gpus.begin(), table.gpus.end(), 0);
  table.ranks = ranks;
  for (std::size_t i = 0; i < ranks.size(); ++i) table.devices.push_back(ranks[i] < 0 ? -1 : static_cast<rank_t>(i));
  table.bandwidth = bandwidth.empty() ? std::vector<double>(nodes, 1) : std::move(bandwidth);
  return table;
}

using ranks_of_units = std::vector<std::vector<rank_t>>;
rank_units units_of(const char* layout, const relabel_table& table, rank_t ranks) {
  return detail::tensor_units(parse_degrees(layout), table, ranks);
}

}  // namespace

TEST_CASE("units are what one tensor-parallel group has on one node, in the order of their first ranks") {
  const relabel_table pairs = table_of(2, {0, 1, 2, 3, 4, 5, 6, 7});
  const rank_units by_tp = units_of("tp=2,dp=4", pairs, 8);
  CHECK(by_tp.ranks == ranks_of_units{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(by_tp.unit_of == std::vector<std::size_t>{0, 0, 1, 1, 2, 2, 3, 3});
  CHECK(by_tp.node_of == assignment{0, 1, 2, 3});
  // a group of four on two nodes is two units; ranks sit in any order
  const rank_units mixed = units_of("tp=4,dp=2", table_of(4, {0, 5, 1, 6, 4, 2, 7, 3}), 8);
  CHECK(mixed.ranks == ranks_of_units{{0, 1}, {2, 3}, {4, 7}, {5, 6}});
  CHECK(mixed.unit_of == std::vector<std::size_t>{0, 0, 1, 1, 2, 3, 3, 2});
  CHECK(mixed.node_of == assignment{0, 1, 1, 0});
  // devices that TO has not are nobody's
  const rank_units gaps = units_of("dp=3", table_of(2, {2, -1, -1, 0, 1, -1}), 3);
  CHECK(gaps.ranks == ranks_of_units{{0}, {1}, {2}});
  CHECK(gaps.node_of == assignment{1, 2, 0});
}

TEST_CASE("the larger of tp and etp makes groups, wherever it stands in the order of ranks") {
  const relabel_table one = table_of(8, {0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(units_of("dp=8,ep=2,etp=4", one, 8).ranks == ranks_of_units{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(units_of("tp=2,dp=4,ep=2,etp=1", one, 8).ranks == ranks_of_units{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(units_of("tp=2,dp=4,ep=2,etp=2", one, 8).ranks == ranks_of_units{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(units_of("tp=2,cp=2,dp=2,order=cp-tp-dp", one, 8).ranks == ranks_of_units{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(units_of("tp=2,dp=4,order=dp-tp", one, 8).ranks == ranks_of_units{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
}

TEST_CASE("fewer seconds are better, and of equal ones more bytes retained") {
  const auto kept = [](group_choice a, group_choice b) {
    keep_better(a, std::move(b));
    return a.devices[0];
  };
  CHECK(kept({{0}, 2, 10}, {{1}, 1, 5}) == 1);
  CHECK(kept({{0}, 1, 5}, {{1}, 2, 10}) == 0);
  CHECK(kept({{0}, 1, 5}, {{1}, 1, 6}) == 1);
  CHECK(kept({{0}, 1, 5}, {{1}, 1, 5}) == 0);
  CHECK(kept({{0}, 1, 5}, {{1}, 1 + 1e-12, 6}) == 1);
  CHECK(kept({{0}, 1, 5}, {{1}, 1 - 1e-12, 4}) == 0);
  CHECK(kept({{0}}, {{1}, 0, 0}) == 1);  // a choice that is none keeps nothing
}

namespace {

/// So many bytes that some devices had and some ranks of TO need; perhaps had elsewhere, too.
struct piece {
  std::set<rank_t> had, needs;
  bool elsewhere = false;
  bytes_t bytes = 0;
};

/// A question of any pieces, units and nodes.
struct question {
  relabel_table table;
  rank_units units;
  std::vector<piece> pieces;
  relabel_bytes bytes;

  question(relabel_table on, const std::vector<std::size_t>& unit_of, std::vector<piece> all)
      : table(std::move(on)), pieces(std::move(all)) {
    units.unit_of = unit_of;
    units.ranks.resize(*std::max_element(unit_of.begin(), unit_of.end()) + 1), units.node_of.resize(units.ranks.size());
    for (std::size_t r = 0; r < unit_of.size(); ++r) {
      units.ranks[unit_of[r]].push_back(static_cast<rank_t>(r));
      units.node_of[unit_of[r]] = place_of(static_cast<rank_t>(r)) / table.gpus.size();
    }
    const std::size_t nodes = table.nodes.size(), gpus = table.gpus.size();
    bytes.units = units.ranks.size();
    bytes.retained.resize(nodes * nodes);
    for (const piece& one : pieces) {
      std::set<std::size_t> held, needing;
      for (const rank_t d : one.had) held.insert(static_cast<std::size_t>(d) / gpus);
      for (const rank_t r : one.needs) needing.insert(unit_of[static_cast<std::size_t>(r)]);
      bytes.patterns[{{held.begin(), held.end()}, one.elsewhere, {needing.begin(), needing.end()}}] += one.bytes;
      for (const rank_t d : one.had)
        for (const rank_t r : one.needs) {
          const std::size_t from = static_cast<std::size_t>(d), to = place_of(r);
          std::vector<bytes_t>& tile = bytes.retained[from / gpus * nodes + to / gpus];
          tile.resize(gpus * gpus);
          tile[from % gpus * gpus + to % gpus] += one.bytes;
        }
    }
  }
  std::size_t place_of(rank_t rank) const {
    return static_cast<std::size_t>(std::find(table.ranks.begin(), table.ranks.end(), rank) - table.ranks.begin());
  }
  std::vector<rank_t> given() const {
    std::vector<rank_t> devices;
    for (std::size_t r = 0; r < units.unit_of.size(); ++r)
      devices.push_back(static_cast<rank_t>(place_of(static_cast<rank_t>(r))));
    return devices;
  }
  detail::group_relabeller search() const { return {table, bytes, units}; }

  std::size_t node_of(rank_t device) const { return static_cast<std::size_t>(device) / table.gpus.size(); }
  /// max(what it lacks, what it alone has and is needed elsewhere) / bandwidth, with ranks on these devices.
  double cost(const std::vector<rank_t>& devices, std::size_t y) const {
    bytes_t in = 0, out = 0;
    for (const piece& one : pieces) {
      bool here = false, apart = one.elsewhere, needed = false, away = false;
      for (const rank_t d : one.had) (node_of(d) == y ? here : apart) = true;
      for (const rank_t r : one.needs) (node_of(devices[static_cast<std::size_t>(r)]) == y ? needed : away) = true;
      in += needed && !here ? one.bytes : 0;
      out += away && here && !apart ? one.bytes : 0;
    }
    return static_cast<double>(std::max(in, out)) / table.bandwidth[y];
  }
  double seconds(const std::vector<rank_t>& devices) const {
    double most = table.elsewhere;
    for (std::size_t y = 0; y < table.nodes.size(); ++y) most = std::max(most, cost(devices, y));
    return most;
  }
  bytes_t retained(const std::vector<rank_t>& devices) const {
    bytes_t sum = 0;
    for (const piece& one : pieces)
      for (const rank_t r : one.needs) sum += one.had.count(devices[static_cast<std::size_t>(r)]) == 0 ? 0 : one.bytes;
    return sum;
  }
  /// Each unit on one node, which has as many units of each size as it had.
  bool keeps_units(const std::vector<rank_t>& devices) const {
    std::vector<std::multiset<std::size_t>> had(table.nodes.size()), has(table.nodes.size());
    for (std::size_t u = 0; u < units.ranks.size(); ++u) {
      const std::size_t node = node_of(devices[static_cast<std::size_t>(units.ranks[u][0])]);
      for (const rank_t r : units.ranks[u])
        if (node_of(devices[static_cast<std::size_t>(r)]) != node) return false;
      had[units.node_of[u]].insert(units.ranks[u].size()), has[node].insert(units.ranks[u].size());
    }
    return had == has;
  }
  /// The least seconds, and with them the most bytes, of all orders that keep units together.
  group_choice best_of_all() const {
    std::vector<rank_t> devices = given();
    std::sort(devices.begin(), devices.end());
    group_choice best{given(), seconds(given()), retained(given())};
    do {
      if (keeps_units(devices)) keep_better(best, {devices, seconds(devices), retained(devices)});
    } while (std::next_permutation(devices.begin(), devices.end()));
    return best;
  }
  /// Whether some order with each unit where it is retains more.
  bool could_retain_more(const group_choice& choice) const {
    std::vector<rank_t> devices = given();
    std::sort(devices.begin(), devices.end());
    do {
      bool alike = true;
      for (std::size_t r = 0; r < devices.size(); ++r)
        alike = alike && node_of(devices[r]) == node_of(choice.devices[r]);
      if (alike && retained(devices) > choice.retained) return true;
    } while (std::next_permutation(devices.begin(), devices.end()));
    return false;
  }
};

/// What is told of a choice, and that it is one.
void check_choice(const question& asked, const group_choice& choice) {
  std::vector<rank_t> devices = choice.devices, all = asked.given();
  std::sort(devices.begin(), devices.end()), std::sort(all.begin(), all.end());
  REQUIRE(devices == all);
  CHECK(asked.keeps_units(choice.devices));
  CHECK(choice.seconds == doctest::Approx(asked.seconds(choice.devices)).epsilon(1e-12));
  CHECK(choice.retained == asked.retained(choice.devices));
  CHECK(!asked.could_retain_more(choice));
}

/// Two to five nodes whose ranks sit anywhere, perhaps one device less, and up to two units on each.
question any_question(dice& random, bytes_t most = 1'000'000) {
  const std::size_t gpus = static_cast<std::size_t>(random.within(1, 3));
  const std::size_t nodes = gpus == 1 ? 5 : gpus == 2 ? 3 : 2;
  std::vector<rank_t> ranks(nodes * gpus);
  std::iota(ranks.begin(), ranks.end(), 0);
  for (std::size_t i = ranks.size(); i > 1; --i)
    std::swap(ranks[i - 1], ranks[static_cast<std::size_t>(random.below(static_cast<index_t>(i)))]);
  if (random.below(3) == 0) *std::max_element(ranks.begin(), ranks.end()) = -1;
  const rank_t count = *std::max_element(ranks.begin(), ranks.end()) + 1;
  std::vector<double> bandwidth;
  for (std::size_t y = 0; y < nodes; ++y) bandwidth.push_back(static_cast<double>(random.within(1, 3)));
  relabel_table table = table_of(gpus, ranks, bandwidth);
  std::vector<std::size_t> unit_of(static_cast<std::size_t>(count));
  std::map<std::pair<std::size_t, index_t>, std::size_t> known;  // two colours on each node
  for (rank_t r = 0; r < count; ++r) {
    const std::size_t place = static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), r) - ranks.begin());
    unit_of[static_cast<std::size_t>(r)] =
        known.try_emplace({place / gpus, random.below(2)}, known.size()).first->second;
  }
  std::vector<piece> pieces;
  for (index_t i = random.within(1, 12); i > 0; --i) {
    piece one{{}, {}, random.below(5) == 0, random.within(1, most)};
    for (std::size_t d = 0; d < ranks.size(); ++d)
      if (ranks[d] >= 0 && random.below(3) == 0) one.had.insert(static_cast<rank_t>(d));
    for (rank_t r = 0; r < count; ++r)
      if (random.below(3) == 0) one.needs.insert(r);
    if ((one.had.empty() && !one.elsewhere) || one.needs.empty()) continue;
    pieces.push_back(one);
  }
  return question(std::move(table), unit_of, std::move(pieces));
}

}  // namespace

TEST_CASE("by hand: three units of a rank each go where their bytes are") {
  // devices 0, 1, 2 have what ranks 1, 2, 0 need; what rank 0 needs is most
  const question asked(table_of(1, {0, 1, 2}), {0, 1, 2},
                       {{{0}, {1}, false, 10}, {{1}, {2}, false, 20}, {{2}, {0}, false, 30}});
  CHECK(asked.seconds(asked.given()) == 30);
  const group_choice found = asked.search().best();
  CHECK(found.devices == std::vector<rank_t>{2, 0, 1});
  CHECK(found.seconds == 0);
  CHECK(found.retained == 60);
}

TEST_CASE("where a node elsewhere is busier than any here, nodes are chosen by what is retained alone") {
  question asked(table_of(2, {0, 1, 2, 3}), {0, 0, 1, 1},
                 {{{0}, {2}, false, 10}, {{1}, {3}, false, 20}, {{2}, {0}, false, 5}, {{1}, {1}, false, 1}});
  asked.table.elsewhere = 1000;
  const group_choice given = asked.search().from(asked.units.node_of);
  CHECK(given.seconds == 1000);
  CHECK(given.retained == 1);
  CHECK(given.devices[1] == 1);
  const group_choice found = asked.search().best();
  CHECK(found.seconds == 1000);
  CHECK(found.devices == std::vector<rank_t>{2, 3, 0, 1});
  CHECK(found.retained == 35);
}

TEST_CASE("what could be retained is the sum over a unit's ranks of the most that a device of the node has") {
  question turned(table_of(1, {0, 1, 2}), {0, 1, 2},
                  {{{0}, {1}, false, 10}, {{1}, {2}, false, 20}, {{2}, {0}, false, 30}});
  turned.table.elsewhere = 1000;
  CHECK(turned.search().best().devices == std::vector<rank_t>{2, 0, 1});
  // swapped: 100 of rank 0; where they are: 10 of rank 1 and 10 of rank 3
  question swapped(table_of(2, {0, 1, 2, 3}), {0, 0, 1, 1},
                   {{{2}, {0}, false, 100}, {{1}, {1}, false, 10}, {{3}, {3}, false, 10}});
  swapped.table.elsewhere = 1000;
  CHECK(swapped.search().best().retained == 100);
  question mirrored(table_of(2, {0, 1, 2, 3}), {0, 0, 1, 1},
                    {{{0}, {2}, false, 100}, {{1}, {1}, false, 10}, {{3}, {3}, false, 10}});
  mirrored.table.elsewhere = 1000;
  CHECK(mirrored.search().best().retained == 100);
  // of rank 0 one device of the other node has 6 and another 5: not 11, which would be more than 10
  question one_of_two(table_of(2, {0, 1, 2, 3}), {0, 0, 1, 1},
                      {{{0}, {0}, false, 10}, {{2}, {0}, false, 6}, {{3}, {0}, false, 5}});
  one_of_two.table.elsewhere = 1000;
  CHECK(one_of_two.search().best().retained == 10);
}

TEST_CASE("a single byte that could be retained is more than none") {
  question asked(table_of(1, {0, 1}), {0, 1}, {{{1}, {0}, false, 1}});
  asked.table.elsewhere = 1000;
  CHECK(asked.search().from(asked.units.node_of).retained == 0);
  CHECK(asked.search().best().retained == 1);
  CHECK(asked.search().best().devices == std::vector<rank_t>{1, 0});
}

TEST_CASE("units swap nodes with those of their size only; a unit of two and one of one stay") {
  // nodes {0 1 2} and {3 4 5}: units of two and of one on each; rank 2 and rank 5 want to swap, units of two do not
  const question asked(table_of(3, {0, 1, 2, 3, 4, 5}), {0, 0, 1, 2, 2, 3},
                       {{{0}, {0}, false, 100},
                        {{1}, {1}, false, 100},
                        {{3}, {3}, false, 100},
                        {{2}, {5}, false, 7},
                        {{5}, {2}, false, 9}});
  const group_choice found = asked.search().from(asked.units.node_of);
  CHECK(found.devices[5] == 2);
  CHECK(found.devices[2] == 5);
  CHECK(found.devices[0] == 0);
  CHECK(found.devices[3] == 3);
  CHECK(found.seconds == 0);
  CHECK(found.retained == 300 + 16);
}

TEST_CASE("any pieces: what is told is so, no unit is torn, on its node each rank sits where most stays") {
  dice random(91);
  int least = 0, most = 0, asked_of = 0, improved = 0;
  for (int n = 0; n < 150; ++n) {
    question asked = any_question(random);
    if (random.below(6) == 0) asked.table.elsewhere = static_cast<double>(random.within(1, 1'000'000));
    const auto search = asked.search();
    const group_choice given = search.from(asked.units.node_of), found = search.best();
    check_choice(asked, given), check_choice(asked, found);
    CHECK(given.seconds <= asked.seconds(asked.given()) * (1 + 1e-12));
    group_choice best = given;
    keep_better(best, found);
    CHECK(best.devices == found.devices);
    const group_choice of_all = asked.best_of_all();
    ++asked_of, least += same_seconds(found.seconds, of_all.seconds) ? 1 : 0;
    most += same_seconds(found.seconds, of_all.seconds) && found.retained == of_all.retained ? 1 : 0;
    improved += fewer_seconds(found.seconds, asked.seconds(asked.given())) ? 1 : 0;
  }
  CHECK_DRAWN(least > asked_of - 3);  // a search, which may miss
  CHECK_DRAWN(most > asked_of - 15);
  CHECK_DRAWN(improved > 40);
}

TEST_CASE("pieces of one or two bytes, of which many choices retain as much: no unit is torn, no node is too full") {
  dice random(92);
  int least = 0, asked_of = 0;
  for (int n = 0; n < 100; ++n) {
    question asked = any_question(random, 2);
    if (random.coin()) asked.table.elsewhere = 1000;  // nodes are chosen by what is retained alone
    const group_choice found = asked.search().best();
    check_choice(asked, found);
    ++asked_of, least += same_seconds(found.seconds, asked.best_of_all().seconds) ? 1 : 0;
  }
  CHECK_DRAWN(least > asked_of - 5);  // a search, which may miss
}
