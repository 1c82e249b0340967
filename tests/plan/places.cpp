// SPDX-License-Identifier: Apache-2.0
// Which node each block takes and which GPU number each, against every choice of few; and by hand where there are so
// many that a likely start has to find it.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include <reshard/plan/relabel/places.hpp>

#include "../support/dice.hpp"

using namespace reshard;
using detail::node_choice;
using detail::node_trades;
using detail::place_search;
using detail::relabel_bytes;
using detail::relabel_table;
using testing::dice;

namespace {

using numbers = std::vector<std::size_t>;

struct problem {
  problem(std::size_t nodes, std::size_t places) : cost(nodes) {
    for (std::size_t y = 0; y < nodes; ++y) table.nodes.push_back(static_cast<index_t>(y));
    for (std::size_t g = 0; g < places; ++g) table.gpus.push_back(static_cast<index_t>(g));
    bytes.retained.resize(nodes * nodes);
  }
  std::size_t nodes() const { return table.nodes.size(); }
  std::size_t places() const { return table.gpus.size(); }
  std::vector<bytes_t>& tile(std::size_t node, std::size_t block) {
    std::vector<bytes_t>& all = bytes.retained[node * nodes() + block];
    all.resize(places() * places());
    return all;
  }
  bytes_t kept(const numbers& p, const numbers& s) const {
    bytes_t sum = 0;
    for (std::size_t b = 0; b < nodes(); ++b)
      for (std::size_t g = 0; g < places(); ++g)
        if (const std::vector<bytes_t>& all = bytes.retained[p[b] * nodes() + b]; !all.empty())
          sum += all[s[g] * places() + g];
    return sum;
  }
  double seconds(const numbers& p) const {
    double most = table.elsewhere;
    for (std::size_t b = 0; b < nodes(); ++b) most = std::max(most, cost.at(b, p[b]));
    return most;
  }
  node_choice best() const { return place_search(table, bytes, cost, allowed, trades).best(); }

  relabel_table table;
  relabel_bytes bytes;
  square<double> cost;
  double allowed = 1;
  node_trades trades;
};

/// Calls visit(p) with every order in which each cell's members take what they trade.
template <typename Visit>
void each_order(const std::vector<node_trades::trade>& cells, std::size_t cell, numbers& p, const Visit& visit) {
  if (cell == cells.size()) return visit();
  numbers to = cells[cell].second;
  do {
    for (std::size_t i = 0; i < to.size(); ++i) p[cells[cell].first[i]] = to[i];
    each_order(cells, cell + 1, p, visit);
  } while (std::next_permutation(to.begin(), to.end()));
}
bool trades_hold(const std::vector<node_trades::trade>& cells, const numbers& p) {
  for (const auto& [from, to] : cells) {
    numbers taken;
    for (const std::size_t i : from) taken.push_back(p[i]);
    std::sort(taken.begin(), taken.end());
    if (taken != to) return false;
  }
  return true;
}
bytes_t most_kept(const problem& of) {
  bytes_t most = -1;
  numbers p(of.nodes()), s(of.places());
  each_order(of.trades.nodes, 0, p, [&] {
    for (std::size_t b = 0; b < p.size(); ++b)
      if (of.cost.at(b, p[b]) > of.allowed) return;
    each_order(of.trades.places, 0, s, [&] { most = std::max(most, of.kept(p, s)); });
  });
  return most;
}

/// Numbers below n in up to two cells, which trade with as many.
std::vector<node_trades::trade> drawn_cells(dice& random, std::size_t n) {
  numbers from(n), to(n);
  for (std::size_t i = 0; i < n; ++i) from[i] = to[i] = i;
  for (numbers* all : {&from, &to})
    for (std::size_t i = 1; i < n; ++i) std::swap((*all)[i], (*all)[random.bits() % (i + 1)]);
  const std::size_t cut = random.bits() % n;
  std::vector<node_trades::trade> cells;
  for (const interval part :
       {interval{0, static_cast<index_t>(cut)}, interval{static_cast<index_t>(cut), static_cast<index_t>(n)}}) {
    if (part.empty()) continue;
    node_trades::trade cell{{from.begin() + part.begin, from.begin() + part.end},
                            {to.begin() + part.begin, to.begin() + part.end}};
    std::sort(cell.first.begin(), cell.first.end()), std::sort(cell.second.begin(), cell.second.end());
    cells.push_back(cell);
  }
  return cells;
}
problem drawn_problem(dice& random) {
  problem made(random.bits() % 4 + 1, random.bits() % 4 + 1);
  made.trades = {drawn_cells(random, made.nodes()), drawn_cells(random, made.places())};
  for (std::size_t y = 0; y < made.nodes(); ++y)
    for (std::size_t b = 0; b < made.nodes(); ++b) {
      made.cost.at(b, y) = static_cast<double>(random.below(6));
      if (random.below(4) == 0) continue;
      for (bytes_t& cell : made.tile(y, b)) cell = random.below(3) == 0 ? 0 : random.below(50);
    }
  // what some choice costs, so that there is one
  numbers p(made.nodes());
  made.allowed = std::numeric_limits<double>::infinity();
  each_order(made.trades.nodes, 0, p, [&] {
    const double seconds = made.seconds(p);
    if (random.below(3) == 0 || made.allowed > 1e9) made.allowed = seconds;
  });
  made.table.elsewhere = static_cast<double>(random.below(7));
  return made;
}

/// Numbers 0 .. n - 1, each moved on by so many.
numbers shifted(std::size_t n, std::size_t by) {
  numbers s(n);
  for (std::size_t g = 0; g < n; ++g) s[g] = (g + by) % n;
  return s;
}
void add_to(std::vector<bytes_t>& tile, const numbers& s, bytes_t bytes) {
  for (std::size_t g = 0; g < s.size(); ++g) tile[s[g] * s.size() + g] += bytes;
}

}  // namespace

TEST_CASE("of few choices the one that keeps most, among those that are allowed and inside the trades") {
  dice random(71);
  int forbidden = 0, several = 0;
  for (int n = testing::thrown(400); n > 0; --n) {
    const problem of = drawn_problem(random);
    const node_choice found = of.best();
    REQUIRE(found.node_of.size() == of.nodes());
    REQUIRE(found.place_of.size() == of.places());
    CHECK(trades_hold(of.trades.nodes, found.node_of));
    CHECK(trades_hold(of.trades.places, found.place_of));
    for (std::size_t b = 0; b < of.nodes(); ++b) CHECK(of.cost.at(b, found.node_of[b]) <= of.allowed);
    CHECK(found.retained == of.kept(found.node_of, found.place_of));
    CHECK(found.retained == most_kept(of));
    CHECK(found.seconds == of.seconds(found.node_of));
    problem free = of;
    free.allowed = 1000;
    forbidden += most_kept(free) > found.retained ? 1 : 0, several += of.trades.places.size() > 1 ? 1 : 0;
  }
  CHECK_DRAWN(forbidden > 40);
  CHECK_DRAWN(several > 100);
}

TEST_CASE("what costs as much as is allowed but for rounding is allowed") {
  problem of(2, 1);
  of.trades = {{{{0, 1}, {0, 1}}}, {{{0}, {0}}}};
  of.tile(0, 1)[0] = of.tile(1, 0)[0] = 5;
  of.cost.at(0, 1) = 1 + 1e-10;
  CHECK(of.best().node_of == numbers{1, 0});
  CHECK(of.best().retained == 10);
  CHECK(of.best().seconds == 1 + 1e-10);
  of.cost.at(0, 1) = 1 + 1e-8;
  CHECK(of.best().node_of == numbers{0, 1});
  CHECK(of.best().retained == 0);
  CHECK(of.best().seconds == 0);
}

TEST_CASE("weighing adds up what is kept and takes the most seconds") {
  problem of(2, 2);
  of.tile(1, 0) = {1, 20, 300, 4000};
  of.tile(0, 1) = {50000, 6, 7, 8};
  of.cost.at(0, 1) = 3, of.cost.at(1, 0) = 2, of.cost.at(0, 0) = 9;
  node_choice choice{{1, 0}, {1, 0}, 77, 88};
  const auto weigh = [&] { place_search(of.table, of.bytes, of.cost, of.allowed, of.trades).weigh(choice); };
  weigh();
  CHECK(choice.retained == 20 + 300 + 6 + 7);
  CHECK(choice.seconds == 3);
  of.table.elsewhere = 4;
  choice.place_of = {0, 1};
  weigh();
  CHECK(choice.retained == 1 + 4000 + 50000 + 8);
  CHECK(choice.seconds == 4);
}

TEST_CASE("of very many choices what all allowed pairs would keep is a start") {
  constexpr std::size_t many = 13;
  // from numbers as they are the blocks stay, which keeps little; the numbers moved on by one keep most
  problem of(2, many);
  of.trades = {{{{0, 1}, {0, 1}}}, {{shifted(many, 0), shifted(many, 0)}}};
  for (const std::size_t b : {0u, 1u})
    add_to(of.tile(b, b), shifted(many, 0), 10), add_to(of.tile(1 - b, b), shifted(many, 1), 100);
  CHECK(of.best().retained == 2 * 13 * 100);
  CHECK(of.best().node_of == numbers{1, 0});
  CHECK(of.best().place_of == shifted(many, 1));

  // a pair that is not allowed would keep very much, with other numbers
  problem with(3, many);
  with.trades = {{{{0, 1, 2}, {0, 1, 2}}}, of.trades.places};
  for (const std::size_t b : {0u, 1u, 2u}) {
    add_to(with.tile(b, b), shifted(many, 0), 10), add_to(with.tile(b, b), shifted(many, 2), 1);
    add_to(with.tile((b + 1) % 3, b), shifted(many, 1), 100);
  }
  add_to(with.tile(2, 0), shifted(many, 2), 100'000);
  with.cost.at(0, 2) = 2;
  CHECK(with.best().retained == 3 * 13 * 100);
  CHECK(with.best().node_of == numbers{1, 2, 0});
  CHECK(with.best().seconds == 0);
}

TEST_CASE("of very many choices both starts are tried, and numbers are chosen again for the nodes found") {
  constexpr std::size_t many = 13;
  struct entry {
    std::size_t node, block, shift;
    bytes_t bytes;
  };
  const auto best = [](const std::vector<entry>& entries, std::size_t nodes = 2) {
    problem of(nodes, many);
    of.trades = {{{shifted(nodes, 0), shifted(nodes, 0)}}, {{shifted(many, 0), shifted(many, 0)}}};
    for (const entry& e : entries) add_to(of.tile(e.node, e.block), shifted(many, e.shift), e.bytes);
    const node_choice found = of.best();
    CHECK(found.retained == of.kept(found.node_of, found.place_of));
    return found.retained / static_cast<bytes_t>(many);
  };
  // the numbers that all pairs like, moved on by one, are those of nodes that exclude each other
  CHECK(best({{0, 0, 0, 10}, {1, 1, 0, 10}, {0, 0, 1, 9}, {1, 0, 1, 12}}) == 20);
  // from numbers as they are the blocks stay, and then like others better
  CHECK(best({{0, 0, 0, 10}, {1, 1, 0, 10}, {0, 0, 1, 15}, {1, 1, 1, 15}, {1, 0, 2, 20}, {0, 0, 2, 12}}) == 30);
  CHECK(best({{0, 0, 0, 10},
              {1, 1, 0, 10},
              {0, 0, 1, 20},
              {1, 1, 1, 12},
              {0, 0, 3, 2},
              {1, 1, 3, 25},
              {1, 0, 2, 21},
              {0, 0, 2, 19}}) == 32);
  CHECK(best({{0, 0, 0, 10},
              {1, 1, 0, 10},
              {0, 0, 1, 12},
              {1, 1, 1, 20},
              {0, 0, 3, 25},
              {1, 1, 3, 2},
              {1, 0, 2, 21},
              {0, 0, 2, 19}}) == 32);
  // three blocks that move round
  CHECK(best({{1, 0, 0, 20},
              {2, 1, 0, 20},
              {0, 2, 0, 20},
              {1, 0, 1, 30},
              {2, 1, 1, 30},
              {0, 2, 1, 30},
              {0, 0, 2, 35},
              {1, 0, 2, 36},
              {2, 0, 2, 34}},
             3) == 90);
  // what the first block likes on the second node, and what the second likes on the first
  CHECK(best({{0, 0, 0, 10}, {1, 1, 0, 10}, {1, 0, 1, 100}}) == 100);
  CHECK(best({{0, 0, 0, 10}, {1, 1, 0, 10}, {0, 1, 1, 100}}) == 100);
}
