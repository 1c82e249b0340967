// SPDX-License-Identifier: Apache-2.0
// What is left of holders when ranks are lost, against sets; and of holdings, which stay Holdings by their laws.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/config.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/cover.hpp>
#include <reshard/space/living_holding.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using testing::dice;

static_assert(Holding<living_holding<computed_holding>> && Holding<living_holding<listed_holding>>);

namespace {
/// Random ascending, disjoint intervals that do not touch, below `ranks`.
std::vector<interval> random_runs(dice& random, rank_t ranks) {
  std::vector<interval> runs;
  for (rank_t at = random.below(3); at < ranks; at += 1 + random.below(5)) {
    const rank_t end = std::min(ranks, at + random.within(1, random.coin() ? 1 : 4));
    runs.push_back({at, end});
    at = end;
  }
  return runs;
}

bool lost_in(const std::vector<interval>& lost, rank_t rank) {
  return std::any_of(lost.begin(), lost.end(), [&](const interval& i) { return i.contains(rank); });
}

template <Holders All>
void check_holders(const All& all, const std::vector<interval>& lost, rank_t ranks) {
  std::vector<rank_t> wanted;
  for (index_t i = 0; i < all.count(); ++i)
    if (!lost_in(lost, all[i])) wanted.push_back(all[i]);
  const living_holders living(all, lost);
  REQUIRE(living.count() == static_cast<index_t>(wanted.size()));
  for (index_t i = 0; i < living.count(); ++i) CHECK(living[i] == wanted[static_cast<std::size_t>(i)]);
  for (rank_t rank = 0; rank <= ranks; ++rank) {
    const auto at = std::lower_bound(wanted.begin(), wanted.end(), rank);
    const bool is = at != wanted.end() && *at == rank;
    CHECK(living.count_below(rank) == at - wanted.begin());
    CHECK(living.contains(rank) == is);
    CHECK(living.index_of(rank) == (is ? at - wanted.begin() : -1));
  }
}
}  // namespace

TEST_CASE("living holders are all holders but the lost, in rank order") {
  dice random(21);
  int none = 0, some = 0;
  for (int n = 0; n < 400; ++n) {
    const rank_t ranks = random.within(1, 40);
    std::vector<rank_t> all;
    for (rank_t r = 0; r < ranks; ++r)
      if (random.below(3) != 0) all.push_back(r);
    const std::vector<interval> lost = random_runs(random, ranks);
    check_holders(listed_ranks{&all}, lost, ranks);
    const listed_ranks holders{&all};
    ++(living_holders(holders, lost).count() == 0 ? none : some);
  }
  CHECK_DRAWN(none > 3);
  CHECK_DRAWN(some > 200);
}

TEST_CASE("of products of coordinates too: the holders of what computed layouts hold") {
  const model m = make_transformer(
      {.name = "tiny", .layers = 4, .hidden = 8, .heads = 4, .groups = 2, .head_dim = 2, .ffn = 8, .vocabulary = 8});
  dice random(22);
  for (const char* layout : {"tp=2,pp=2,dp=4,zero=1", "tp=4,dp=8", "tp=2,cp=2,dp=2,pp=4,zero=1,order=tp-dp-cp-pp"}) {
    const computed_holding whole(space(m, parse_degrees(layout)));
    for (int n = 0; n < 10; ++n) {
      const std::vector<interval> lost = random_runs(random, whole.ranks());
      const living_holding living(whole, lost);
      for (const role r : {role::parameter, role::optimizer})
        for (int f = 0; f < whole.families(); ++f) {
          index_t boxes = 0, gone = 0, dead = 0;
          whole.owners(f, r, whole.family_at(f).whole(), [&](const family_box&, const Holders auto& holders) {
            check_holders(holders, lost, whole.ranks());
            ++(living_holders(holders, lost).count() == 0 ? dead : boxes);
          });
          living.owners(f, r, whole.family_at(f).whole(), [&](const family_box&, const Holders auto& holders) {
            CHECK(holders.count() > 0);
            --boxes;
          });
          living.lost(f, r, whole.family_at(f).whole(), [&](const family_box&) { ++gone; });
          CHECK(boxes == 0);
          CHECK(gone == dead);
        }
      CHECK(agrees(living));
      for (rank_t rank = 0; rank < whole.ranks(); ++rank) {
        CHECK(living.lives(rank) == !lost_in(lost, rank));
        CHECK(held_bytes(living, rank) == (lost_in(lost, rank) ? 0 : held_bytes(whole, rank)));
      }
    }
  }
}

TEST_CASE("a tensor comes in memory where it does with all ranks") {
  const computed_holding whole(space(models::gpt3_1_3b, config<pp<2>, dp<2>>{}), parameter_states);
  const living_holding living(whole, {{0, 1}});
  int layers = 0;
  while (whole.family_at(layers).place != home::layers) ++layers;
  CHECK(living.order_of({layers, 5, 0}, 2, role::parameter) == storage_order{1, 5, layers, 0});
  CHECK(living.order_of({layers, 7, 0}, 3, role::parameter) == whole.order_of({layers, 7, 0}, 3, role::parameter));
}

TEST_CASE("whether what lives still covers the model is a question of covers(), at compile time too") {
  constexpr bool answers = [] {
    const computed_holding h(space(models::gpt3_1_3b, config<tp<2>, dp<2>>{}), parameter_states);
    return covers(living_holding(h, {{3, 4}}), parameter_states) &&
           covers(living_holding(h, {{1, 3}}), parameter_states) &&
           !covers(living_holding(h, {{0, 1}, {2, 3}}), parameter_states);
  }();
  static_assert(answers);
  CHECK(answers);
}

TEST_CASE("lost ranks are some that there are, in ascending order, each once") {
  const computed_holding four(space(models::gpt3_1_3b, config<tp<2>, dp<2>>{}), parameter_states);
  const auto said = [&](std::vector<interval> lost) {
    return testing::refused([&] { static_cast<void>(living_holding(four, lost)); });
  };
  for (const std::vector<interval>& lost :
       {std::vector<interval>{}, {{0, 4}}, {{0, 1}, {1, 2}, {3, 4}}, {{2, 2}}, {{0, 0}, {0, 1}}})
    CHECK(said(lost) == "accepted");
  CHECK(said({{3, 5}}) == "reshard: living: ranks [3, 5) are called lost, but ranks are 0 to 3");
  CHECK(said({{-1, 1}}) == "reshard: living: ranks [-1, 1) are called lost, but ranks are 0 to 3");
  CHECK(said({{2, 1}}) == "reshard: living: ranks [2, 1) are called lost, but ranks are 0 to 3");
  CHECK(
      said({{0, 2}, {1, 3}}) ==
      "reshard: living: ranks [1, 3) are called lost after [0, 2); lost ranks are told in ascending order, each once");
  CHECK(said({{1, 2}, {1, 2}}).starts_with("reshard: living: ranks [1, 2) are called lost after [1, 2);"));
  CHECK(said({{2, 3}, {0, 1}}).starts_with("reshard: living: ranks [0, 1) are called lost after [2, 3);"));
}
