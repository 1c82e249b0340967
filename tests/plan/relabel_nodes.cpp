// SPDX-License-Identifier: Apache-2.0
// Which node each block takes, and which number each GPU, against every permutation of few nodes and numbers that
// leaves TO's devices who they are; and by hand for ten nodes of which no two are alike.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

#include <reshard/plan/relabel/nodes.hpp>

#include "../support/dice.hpp"

using namespace reshard;
using detail::node_choice, detail::node_relabeller, detail::relabel_bytes, detail::relabel_table;
using testing::dice;

namespace {

using numbers = std::vector<std::size_t>;
using rows_of_letters = std::vector<std::string>;

numbers counted_up(std::size_t n) {
  numbers all(n);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

/// What is at stake, with nothing to gain or lose at first. A row for every node, an x for every GPU that TO has there.
struct problem {
  relabel_table table;
  relabel_bytes bytes;

  explicit problem(const rows_of_letters& used) {
    const std::size_t nodes = used.size(), places = used[0].size();
    for (std::size_t y = 0; y < nodes; ++y) {
      table.nodes.push_back(static_cast<index_t>(y)), table.bandwidth.push_back(1);
      for (std::size_t g = 0; g < places; ++g)
        table.devices.push_back(used[y][g] == 'x' ? static_cast<rank_t>(y * places + g) : -1);
    }
    for (std::size_t g = 0; g < places; ++g) table.gpus.push_back(static_cast<index_t>(g));
    table.ranks = table.devices;
    bytes.units = nodes;
    bytes.need.resize(nodes), bytes.alone.resize(nodes);
    bytes.kept.resize(nodes * nodes), bytes.only.resize(nodes * nodes), bytes.retained.resize(nodes * nodes);
  }
  std::size_t nodes() const { return table.nodes.size(); }
  std::size_t places() const { return table.gpus.size(); }
  bool used(std::size_t node, std::size_t place) const { return table.devices[node * places() + place] >= 0; }
  /// Bytes that a block's rank with GPU number g has on a node's device with number `to`.
  bytes_t& kept(std::size_t node, std::size_t block, std::size_t to, std::size_t g) {
    std::vector<bytes_t>& tile = bytes.retained[node * nodes() + block];
    tile.resize(places() * places());
    return tile[to * places() + g];
  }

  bool stays_who_it_is(const numbers& p, const numbers& s) const {
    for (std::size_t b = 0; b < nodes(); ++b)
      for (std::size_t g = 0; g < places(); ++g)
        if (used(b, g) != used(p[b], s[g])) return false;
    return true;
  }
  double seconds(const numbers& p) const {
    double most = table.elsewhere;
    for (std::size_t b = 0; b < nodes(); ++b) {
      const bytes_t in = bytes.need[b] - bytes.kept[p[b] * nodes() + b],
                    out = bytes.alone[p[b]] - bytes.only[p[b] * nodes() + b];
      most = std::max(most, static_cast<double>(std::max(in, out)) / table.bandwidth[p[b]]);
    }
    return most;
  }
  bytes_t retained(const numbers& p, const numbers& s) const {
    bytes_t sum = 0;
    for (std::size_t b = 0; b < nodes(); ++b)
      for (std::size_t g = 0; g < places(); ++g)
        if (const std::vector<bytes_t>& tile = bytes.retained[p[b] * nodes() + b]; !tile.empty())
          sum += tile[s[g] * places() + g];
    return sum;
  }
  node_choice best() const { return node_relabeller(table, bytes).best(); }
  node_choice unchanged() const { return node_relabeller(table, bytes).unchanged(); }
};

/// Of all permutations: the least seconds, and with these the most bytes.
struct best_of_all {
  double seconds = 1e300;
  bytes_t retained = -1;
  int orders = 0;
  explicit best_of_all(const problem& of) {
    numbers p = counted_up(of.nodes());
    do {
      numbers s = counted_up(of.places());
      do {
        if (!of.stays_who_it_is(p, s)) continue;
        ++orders;
        const double these = of.seconds(p);
        if (these < seconds * (1 - 1e-9)) seconds = these, retained = -1;
        if (these <= seconds * (1 + 1e-9)) retained = std::max(retained, of.retained(p, s));
      } while (std::next_permutation(s.begin(), s.end()));
    } while (std::next_permutation(p.begin(), p.end()));
  }
};

/// One to four nodes of one to three GPUs: all of them in use, or some, or one on each node.
rows_of_letters drawn_devices(dice& random) {
  const std::size_t nodes = random.bits() % 4 + 1, places = random.bits() % 3 + 1;
  rows_of_letters used(nodes, std::string(places, '-'));
  const std::int64_t kind = random.below(4);
  for (std::string& row : used) {
    for (char& one : row) one = kind == 0 || (kind != 3 && random.coin()) ? 'x' : '-';
    row[random.bits() % places] = 'x';
  }
  return used;
}
problem drawn_problem(dice& random) {
  problem made(drawn_devices(random));
  const std::size_t nodes = made.nodes(), places = made.places();
  const bytes_t most = random.coin() ? 2 : 40;  // few values: many choices cost as much
  const auto some = [&](bytes_t below) { return random.below(below + 1); };
  for (std::size_t b = 0; b < nodes; ++b) made.bytes.need[b] = some(most), made.bytes.alone[b] = some(most);
  for (std::size_t y = 0; y < nodes; ++y) {
    made.table.bandwidth[y] = static_cast<double>(random.within(1, 3));
    for (std::size_t b = 0; b < nodes; ++b) {
      made.bytes.kept[y * nodes + b] = some(made.bytes.need[b]);
      made.bytes.only[y * nodes + b] = some(made.bytes.alone[y]);
      for (std::size_t to = 0; to < places && random.below(4) != 0; ++to)
        for (std::size_t g = 0; g < places; ++g)
          if (made.used(y, to) && made.used(b, g) && random.coin()) made.kept(y, b, to, g) = some(30);
    }
  }
  if (random.below(4) == 0) made.table.elsewhere = static_cast<double>(some(most));
  return made;
}

/// Every block on the node that follows its own by so many.
numbers turned(std::size_t n, std::size_t by) {
  numbers all = counted_up(n);
  std::rotate(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(by % n), all.end());
  return all;
}

}  // namespace

TEST_CASE("of all permutations that leave devices who they are, the least seconds, and then the most bytes") {
  dice random(75);
  int faster = 0, keeps_more = 0, several = 0, few_orders = 0, busy_elsewhere = 0;
  for (int n = testing::thrown(600); n > 0; --n) {
    const problem of = drawn_problem(random);
    const node_choice found = of.best(), was = of.unchanged();
    const numbers nodes = counted_up(of.nodes()), places = counted_up(of.places());
    CHECK(was.node_of == nodes);
    CHECK(was.place_of == places);
    CHECK(was.seconds == of.seconds(nodes));
    CHECK(was.retained == of.retained(nodes, places));

    numbers p = found.node_of, s = found.place_of;
    REQUIRE(p.size() == nodes.size());
    REQUIRE(s.size() == places.size());
    CHECK(of.stays_who_it_is(p, s));
    CHECK(found.seconds == of.seconds(p));
    CHECK(found.retained == of.retained(p, s));
    std::sort(p.begin(), p.end()), std::sort(s.begin(), s.end());
    CHECK(p == nodes);
    CHECK(s == places);
    const best_of_all best(of);
    CHECK(found.seconds == doctest::Approx(best.seconds).epsilon(1e-12));
    CHECK(found.retained == best.retained);

    faster += found.seconds < was.seconds ? 1 : 0, keeps_more += found.retained > was.retained ? 1 : 0;
    several += best.orders > 1 ? 1 : 0;
    few_orders += best.orders > 1 && of.nodes() > 2 && of.places() > 1 && best.orders < 6 ? 1 : 0;
    busy_elsewhere += of.table.elsewhere > 0 && of.table.elsewhere == found.seconds ? 1 : 0;
  }
  for (const int met : {faster, keeps_more, several, few_orders, busy_elsewhere}) CHECK_DRAWN(met > 20);
}

TEST_CASE("by hand: what a block lacks on a node, and what that node alone has, by the node's bandwidth") {
  problem of({"x", "x"});
  of.bytes.need = {100, 40}, of.bytes.alone = {70, 90};
  of.bytes.kept = {60, 5, 30, 20};  // node 0 has 60 of block 0 and 5 of block 1; node 1 30 and 20
  of.bytes.only = {10, 20, 30, 40};
  of.table.bandwidth = {4, 8};
  CHECK(of.unchanged().seconds == 60.0 / 4);  // node 0: 40 in and 60 out; node 1: 20 and 50
  CHECK(of.best().node_of == numbers{1, 0});
  CHECK(of.best().seconds == 50.0 / 4);  // node 0: 35 and 50; node 1: 70 and 60, which is 70 / 8
  of.bytes.need[1] = 61;
  CHECK(of.unchanged().seconds == 60.0 / 4);
  CHECK(of.best().seconds == 56.0 / 4);
  of.bytes.need[0] = 200;
  CHECK(of.unchanged().seconds == 140.0 / 4);
  CHECK(of.best().seconds == 170.0 / 8);
  of.table.elsewhere = 30;
  CHECK(of.best().seconds == 30);
  CHECK(of.unchanged().seconds == 35);
}

TEST_CASE("by hand: nodes of as many GPUs swap where their numbers can, and others stay") {
  problem of({"xx-", "x-x", "xxx"});
  of.kept(1, 0, 2, 1) = 5, of.kept(0, 1, 1, 2) = 6;  // 1 becomes 2 and 2 becomes 1
  of.kept(2, 0, 0, 0) = of.kept(2, 1, 0, 0) = 1000;  // on the third node, which is not alike
  const node_choice found = of.best();
  CHECK(found.node_of == numbers{1, 0, 2});
  CHECK(found.place_of == numbers{0, 2, 1});
  CHECK(found.retained == 11);
  // two and one of them: to go where the one was, the two would part
  problem torn({"xx--", "xx--", "--xx"});
  torn.kept(2, 0, 2, 0) = 1000;
  CHECK(torn.best().retained == 0);
  // as many of each, and no order of numbers that does for both classes: {0 1} and {1 2} share one, {0 1} and {2 3}
  // none
  problem chain({"xx--", "-xx-", "--xx"});
  chain.bytes.need = {0, 9, 0}, chain.bytes.kept = {0, 9, 0, 0, 0, 0, 0, 9, 0};
  CHECK(chain.best().node_of[1] == 1);
  CHECK(chain.best().seconds == 9);
  chain.kept(2, 0, 3, 0) = 7;  // turned round, each number goes to its opposite
  CHECK(chain.best().node_of == numbers{2, 1, 0});
  CHECK(chain.best().place_of == numbers{3, 2, 1, 0});
}

TEST_CASE("by hand: of ten nodes of which no two are alike each finds the one where it lacks nothing") {
  constexpr std::size_t many = 10;
  for (const std::size_t by : {1u, 3u, 9u}) {
    rows_of_letters used(many, std::string(many, '-'));
    for (std::size_t y = 0; y < many; ++y) used[y][y] = 'x';
    problem of(used);
    for (std::size_t b = 0; b < many; ++b) {
      of.bytes.need[b] = 5, of.bytes.kept[(b + by) % many * many + b] = 5;
      of.kept((b + by) % many, b, (b + by) % many, b) = 2;
    }
    CHECK(of.unchanged().seconds == 5);
    CHECK(of.unchanged().retained == 0);
    const node_choice found = of.best();
    CHECK(found.seconds == 0);
    CHECK(found.node_of == turned(many, by));
    CHECK(found.place_of == turned(many, by));
    CHECK(found.retained == 2 * 10);
  }
}

TEST_CASE("seconds that are equal but for rounding are one, also between nodes that are not alike") {
  problem of({"x-", "-x"});
  of.bytes.need = {9, 9};
  of.table.bandwidth = {1, 1};
  of.kept(1, 0, 1, 0) = of.kept(0, 1, 0, 1) = 4;
  CHECK(of.best().node_of == numbers{1, 0});
  CHECK(of.best().retained == 8);
  of.bytes.kept = {0, 0, 0, 1};  // each a ninth faster where it is, but for the first: no gain
  CHECK(of.best().node_of == numbers{1, 0});
  of.bytes.kept = {1, 0, 0, 1};
  CHECK(of.best().node_of == numbers{0, 1});
  CHECK(of.best().retained == 0);
  of.bytes.kept = {0, 0, 0, 0};
  of.bytes.need = {1'000'000'000'000, 1'000'000'000'000};
  of.bytes.kept = {1, 0, 0, 1};  // by 1e-12 of it
  CHECK(of.best().node_of == numbers{1, 0});
}
