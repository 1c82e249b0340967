// SPDX-License-Identifier: Apache-2.0
// covers() against a count of every element, for boxes that tile, overlap, miss, repeat or reach outside; agrees()
// against holdings that lie; and bytes held.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/cover.hpp>
#include <reshard/space/listed_holding.hpp>

#include "../support/points.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using testing::dice;

namespace {
/// Boxes of one family, box i on rank i: the least that is a Holding. owners() says what told() wrote down, or what a
/// test made of it.
struct boxes_of_ranks {
  struct named_box {
    family_box where;
    std::vector<rank_t> ranks;
  };
  family which;
  std::vector<family_box> boxes;
  std::vector<named_box> named = {};
  bool silent = false;  // held() says nothing, shared() all

  boxes_of_ranks& told() {
    named.clear();
    for (rank_t rank = 0; rank < ranks(); ++rank) {
      const family_box& b = boxes[static_cast<std::size_t>(rank)];
      const auto at = std::find_if(named.begin(), named.end(), [&b](const named_box& n) { return n.where == b; });
      if (at == named.end()) named.push_back({b, {rank}});
      else at->ranks.push_back(rank);
    }
    return *this;
  }
  rank_t ranks() const { return static_cast<rank_t>(boxes.size()); }
  int families() const { return 1; }
  const family& family_at(int) const { return which; }
  template <typename Sink>
  void held(int f, rank_t rank, role, Sink&& sink) const {
    if (const family_box& b = boxes[static_cast<std::size_t>(rank)]; !b.empty() && !silent) sink(f, b);
  }
  template <typename Sink>
  void shared(int f, rank_t rank, role, Sink&& sink) const {
    const family_box& b = boxes[static_cast<std::size_t>(rank)];
    if (b.empty()) return;
    std::vector<rank_t> with;
    for (rank_t other = 0; other < ranks(); ++other)
      if (boxes[static_cast<std::size_t>(other)] == b) with.push_back(other);
    sink(f, b, listed_ranks{&with});
  }
  template <typename Sink>
  void owners(int, role, const family_box& within, Sink&& sink) const {
    for (const named_box& n : named)
      if (intersects(n.where, within)) sink(n.where, listed_ranks{&n.ranks});
  }
  storage_order order_of(const tensor_id&, rank_t, role) const { return {}; }
  state_set states() const { return all_states; }
};
static_assert(Holding<boxes_of_ranks>);

/// The same, but shared() says of rank 0 that the last rank holds the box too, in place of the last that does.
struct lying_holders : boxes_of_ranks {
  template <typename Sink>
  void shared(int f, rank_t rank, role r, Sink&& sink) const {
    boxes_of_ranks::shared(f, rank, r, [&](int, const family_box& b, const listed_ranks& holders) {
      std::vector<rank_t> with = *holders.ranks;
      if (rank == 0) with.back() = ranks() - 1;
      sink(f, b, listed_ranks{&with});
    });
  }
};

family_box columns(index_t begin, index_t end) { return {{{0, 1}, {0, 1}, {0, 1}, {0, 1}, {begin, end}}}; }

/// Cuts a box in two at random, again and again: a tiling, mostly no grid.
void cut(dice& random, const family_box& b, int depth, std::vector<family_box>& parts) {
  const int i = static_cast<int>(random.below(family_ndim));
  if (depth == 0 || b.dim[i].size() < 2) {
    parts.push_back(b);
    return;
  }
  family_box low = b, high = b;
  low.dim[i].end = high.dim[i].begin = random.within(b.dim[i].begin + 1, b.dim[i].end - 1);
  cut(random, low, depth - 1, parts);
  cut(random, high, depth - 1, parts);
}

/// The same cuts everywhere: a grid.
std::vector<family_box> grid(dice& random, const family& which) {
  std::vector<family_box> parts{which.whole()};
  for (int i = 0; i < family_ndim; ++i) {
    const index_t pieces = random.within(1, which.extent[i]);
    std::vector<family_box> finer;
    for (const family_box& b : parts)
      for (index_t p = 0; p < pieces; ++p) {
        finer.push_back(b);
        finer.back().dim[i] = even_part({0, which.extent[i]}, p, pieces);
      }
    parts = finer;
  }
  return parts;
}

void spoil(dice& random, const family& which, std::vector<family_box>& boxes) {
  family_box& b = boxes[static_cast<std::size_t>(random.below(static_cast<index_t>(boxes.size())))];
  interval& i = b.dim[random.below(family_ndim)];
  switch (random.below(6)) {
    case 0: b = boxes.back(), boxes.pop_back(); break;  // one is missing, or it was the same one
    case 1: ++i.end; break;                             // overlaps, or reaches outside
    case 2: --i.begin; break;
    case 3: i.begin += 1; break;        // a gap, or nothing left
    case 4: boxes.push_back(b); break;  // a second holder of a box: as good as before
    case 5: boxes.push_back(testing::random_part(random, which.extent)); break;
  }
}

/// Every element is in exactly one distinct non-empty box, and nothing lies outside.
bool covered(const boxes_of_ranks& h) {
  std::vector<family_box> distinct;
  for (const family_box& b : h.boxes) {
    if (!h.which.whole().contains(b)) return false;
    if (std::find(distinct.begin(), distinct.end(), b) == distinct.end()) distinct.push_back(b);
  }
  const std::vector<int> times = testing::occurrences(h.which.whole(), distinct);
  return std::all_of(times.begin(), times.end(), [](int n) { return n == 1; });
}
}  // namespace

TEST_CASE("covers is true iff the distinct boxes are disjoint and hold every element") {
  dice random;
  int yes = 0, no = 0;
  for (int n = 0; n < 4000; ++n) {
    boxes_of_ranks h{{.name = "x"}, {}};
    for (index_t& e : h.which.extent) e = random.within(1, 3);
    if (random.coin()) h.boxes = grid(random, h.which);
    else cut(random, h.which.whole(), static_cast<int>(random.below(5)), h.boxes);
    for (index_t times = random.below(3); times > 0 && !h.boxes.empty(); --times) spoil(random, h.which, h.boxes);
    const bool wanted = covered(h);
    // a box that lies outside has no owner
    CHECK((covers(h.told(), parameter_states) && agrees(h, parameter_states)) == wanted);
    ++(wanted ? yes : no);
  }
  CHECK_DRAWN(yes > 500);
  CHECK_DRAWN(no > 500);
}

TEST_CASE("spaces are covered, the optimizer's shards too") {
  const struct {
    const model& m;
    const char* layout;
  } cases[] = {{models::llama2_7b, "tp=4,pp=2,dp=3,zero=1,bucket=40000000"},
               {models::llama2_70b, "tp=16,pp=3,dp=3,zero=1,split=spread"},
               {models::qwen3_30b_a3b, "tp=2,cp=2,pp=4,vpp=3,dp=4,ep=8,etp=2,zero=1"},
               {models::qwen3_235b_a22b, "tp=4,pp=8,dp=4,ep=16,zero=1,split=account"}};
  for (const auto& c : cases) {
    CAPTURE(std::string(c.layout));
    CHECK(covers(space(c.m, parse_degrees(c.layout))));
  }
}

TEST_CASE("bytes held are elements times width; all ranks together hold every state once per replica") {
  const space s(models::llama2_7b, config<tp<2>, pp<2>, dp<4>, zero<1>>{});
  const computed_holding h(s);
  bytes_t param = 0, optimizer = 0, most = 0;
  for (rank_t rank = 0; rank < s.ranks(); ++rank) {
    param += held_bytes(h, rank, only(0));
    optimizer += held_bytes(h, rank, optimizer_states);
    CHECK(held_bytes(h, rank, only(1)) == held_bytes(h, rank, only(2)));
    CHECK(held_bytes(h, rank) == held_bytes(h, rank, only(0)) + held_bytes(h, rank, optimizer_states));
    most = greatest(most, held_bytes(h, rank));
  }
  const index_t norms = (2 * 32 + 1) * 4096;  // whole on both tensor-parallel ranks
  CHECK(param == 2 * 4 * (models::llama2_7b.parameters() + norms));
  CHECK(optimizer == 12 * (models::llama2_7b.parameters() + norms));
  CHECK(max_bytes_per_rank(s) == most);
  CHECK(max_bytes_per_rank(s, state_set{}) == 0);
}

TEST_CASE(
    "the most that any rank holds is looked for among all ranks and no others, also where each holds another part") {
  dice random(5);
  for (int n = 0; n < 50; ++n) {
    const family which{
        .name = "x", .extent = {random.within(1, 4), random.within(1, 4), 1, random.within(1, 6), random.within(1, 6)}};
    boxes_of_ranks h{which, {}};
    cut(random, which.whole(), 4, h.boxes);
    bytes_t most = 0;
    for (const family_box& b : h.boxes) most = greatest(most, b.volume() * 14);
    CHECK(max_bytes_per_rank(h) == most);
    for (std::size_t largest = 0; largest < h.boxes.size(); ++largest) {  // wherever it stands
      std::swap(h.boxes[0], h.boxes[largest]);
      CHECK(max_bytes_per_rank(h) == most);
    }
  }
}

TEST_CASE("boxes that come neighbour by neighbour are joined into the family, in any other order they are counted") {
  dice random(6);
  std::size_t most_cells = 0;
  for (int n = 0; n < 300; ++n) {
    const family which{.name = "x",
                       .extent = {random.within(1, 4), random.within(1, 3), random.within(1, 2), random.within(1, 6),
                                  random.within(1, 6)}};
    std::vector<family_box> cells;
    if (random.coin()) cells = grid(random, which);
    else cut(random, which.whole(), 4, cells);
    const auto joined = [](const std::vector<family_box>& boxes) {
      detail::joined_boxes all;
      for (const family_box& b : boxes) all.add(b);
      return all;
    };
    CHECK(joined(cells).count == 1);
    std::reverse(cells.begin(), cells.end());
    CHECK(joined(cells).count == 1);
    for (std::size_t i = cells.size(); i > 1; --i)
      std::swap(cells[i - 1], cells[static_cast<std::size_t>(random.below(static_cast<index_t>(i)))]);
    CHECK(joined(cells).are(which.whole()));
    most_cells = std::max(most_cells, cells.size());
    cells.push_back(cells.front());
    CHECK(!joined(cells).are(which.whole()));
    cells.pop_back(), cells.pop_back();
    CHECK(!joined(cells).are(which.whole()));
  }
  CHECK_DRAWN(most_cells > 20);
}

TEST_CASE("a space, a list and a side of a switch are asked alike, each of the states that it has") {
  const space s(models::llama2_7b, config<tp<2>, dp<2>, zero<1>>{});
  const computed_holding parameters(s, parameter_states);
  CHECK(held_bytes(parameters, 1) == held_bytes(s, 1, parameter_states));
  CHECK(covers(parameters));
  CHECK(agrees(parameters));  // and is not asked for the states that it was made without
  CHECK(held_bytes(s, 1) == held_bytes(computed_holding(s), 1));
  CHECK(max_bytes_per_rank(parameters) == max_bytes_per_rank(s, parameter_states));
  CHECK(covers(parameters));
  std::vector<shard> rows = {{0, "wte", bf16, {6, 4}, {0, 0}, {4, 4}}, {1, "wte", bf16, {6, 4}, {4, 0}, {2, 4}}};
  CHECK(held_bytes(rows, 0) == 32);
  CHECK(held_bytes(shard_list(rows), 1) == 16);
  CHECK(max_bytes_per_rank(rows) == 32);
  CHECK(covers(rows));
  rows[1].shape = {1, 4};
  CHECK_FALSE(covers(rows));
}

TEST_CASE("where there is no rank, nothing is held") {
  const space alone(models::llama2_7b, config<>{}), many(models::llama2_7b, config<tp<2>, pp<2>, dp<2>>{});
  for (const rank_t none : {-1, -2, -9}) {
    CHECK(held_bytes(alone, none) == 0);
    CHECK(held_bytes(many, none) == 0);
  }
  CHECK(held_bytes(alone, 0) > 0);
}

TEST_CASE("of a longer list, adam's states are counted where they are named, and all where none are") {
  const state_list longer = with_gradients(adam);
  const computed_holding h(space(models::llama2_7b, config<dp<2>, zero<2>>{}), longer);
  CHECK(held_bytes(h, 1) == held_bytes(h, 1, longer.all()));
  CHECK(held_bytes(h, 1) == held_bytes(h, 1, all_states) + held_bytes(h, 1, longer.only(4)));
  CHECK(held_bytes(h, 1, longer.only(4)) > 0);
  CHECK(max_bytes_per_rank(h, all_states) ==
        max_bytes_per_rank(h, parameter_states) + max_bytes_per_rank(h, optimizer_states));
}

TEST_CASE("a state that the layout has with another width or level is refused, not left out") {
  const state_list own = parse_state_list("param:fp32:3,master:fp32:1,exp_avg:fp32:2");
  const computed_holding h(space(models::llama2_7b, config<dp<2>, zero<1>>{}), own);
  CHECK_REFUSED(held_bytes(h, 0, only(0)),
                "state 0 is asked for with 2 bytes and level 3, and the layout has it with 4 bytes and level 3; name "
                "states by the list of the layout");
  CHECK_REFUSED(covers(h, only(2)),
                "state 2 is asked for with 4 bytes and level 1, and the layout has it with 4 bytes "
                "and level 2;");
  CHECK_REFUSED(agrees(h, optimizer_states), "state 2 is asked for");
  CHECK_REFUSED(max_bytes_per_rank(h, all_states), "state 0 is asked for");
  CHECK(held_bytes(h, 0, only(1)) > 0);                                              // alike in both
  CHECK(held_bytes(h, 0, only(3)) == 0);                                             // not there
  CHECK(held_bytes(space(models::llama2_7b, config<dp<2>>{}), 0, own.only(0)) > 0);  // a space has what it is asked for
}

TEST_CASE("boxes that overlap as much as they miss are no cover, nor where one turned inside out would join them") {
  const family which{.name = "x", .extent = {1, 1, 1, 1, 4}};
  for (const std::vector<family_box>& boxes : {std::vector<family_box>{columns(0, 2), columns(1, 3)},
                                               std::vector<family_box>{columns(0, 3), columns(3, 2), columns(2, 4)},
                                               std::vector<family_box>{columns(3, 2), columns(0, 3), columns(2, 4)}}) {
    detail::joined_boxes all;
    for (const family_box& b : boxes) all.add(b);
    CHECK(!all.are(which.whole()));
  }
}

TEST_CASE("boxes that overlap as much as they miss are no cover along whichever axis they are cut") {
  for (int axis = 0; axis < family_ndim; ++axis) {
    family which{.name = "x", .extent = {1, 1, 1, 1, 1}};
    which.extent[axis] = 8;
    family_box first = which.whole(), second = first, third = first;
    first.dim[axis] = {0, 4}, second.dim[axis] = {3, 7}, third.dim[axis] = {4, 8};
    for (const family_box& other : {second, third}) {
      detail::joined_boxes all;
      all.add(other), all.add(first);
      CHECK(all.are(which.whole()) == (other.dim[axis].begin == 4));
    }
  }
}

TEST_CASE("boxes that overlap as much as they miss are no cover, in whatever order they come") {
  const family_box whole{{{0, 8}, {0, 1}, {0, 1}, {0, 1}, {0, 3}}};
  std::vector<interval> layers{{0, 3}, {1, 3}, {5, 8}};
  do {
    detail::joined_boxes all;
    for (const interval& i : layers) {
      family_box b = whole;
      b.dim[axis_of::layer] = i;
      all.add(b);
    }
    CHECK_FALSE(all.are(whole));
  } while (std::next_permutation(layers.begin(), layers.end(),
                                 [](const interval& a, const interval& b) { return a.begin < b.begin; }));
}

TEST_CASE("boxes that are alike are not joined, whatever lies behind them") {
  const family_box whole{{{0, 2}, {0, 1}, {0, 3}, {0, 4}, {0, 5}}};
  family_box row[4] = {whole, whole, whole, whole};
  row[1].dim[0] = {0, 3}, row[3].dim[0] = {3, 7};  // two that would be
  CHECK_FALSE(detail::join(row[0], row[2]));
  CHECK((row[0] == whole && row[2] == whole));
  CHECK((row[1].dim[0] == interval{0, 3} && row[3].dim[0] == interval{3, 7}));
  CHECK(detail::join(row[1], row[3]));
  CHECK(row[1].dim[0] == interval{0, 7});
}

TEST_CASE("an empty box takes nothing from those before and after it") {
  const family_box whole = family{.name = "x", .extent = {1, 1, 1, 1, 4}}.whole();
  const auto columns = [&](index_t begin, index_t end) {
    family_box b = whole;
    b.dim[axis_of::column] = {begin, end};
    return b;
  };
  const auto cover = [&](std::initializer_list<family_box> boxes) {
    detail::joined_boxes all;
    for (const family_box& b : boxes) all.add(b);
    return all.are(whole);
  };
  for (const index_t at : {0, 2, 4}) {
    CHECK(cover({columns(0, 2), columns(at, at), columns(2, 4)}));
    CHECK(cover({columns(at, at), columns(0, 2), columns(2, 4)}));
    CHECK(cover({columns(0, 2), columns(2, 4), columns(at, at)}));
    CHECK_FALSE(cover({columns(0, 2), columns(at, at), columns(3, 4)}));
  }
}

TEST_CASE("a box that owners() names twice covers no more than one that overlaps") {
  boxes_of_ranks h{{.name = "x", .extent = {1, 1, 1, 1, 2}}, {}};
  h.boxes = {h.which.whole(), h.which.whole()};
  CHECK(covers(h.told()));
  h.named = {{h.which.whole(), {0}}, {h.which.whole(), {1}}};
  CHECK(!covers(h));
  CHECK(!agrees(h));
  h.named.assign(100, h.named[0]);  // sorting has an order for equal ones too
  CHECK(!covers(h));
}

TEST_CASE("held() and owners() agree in every holding of the library") {
  const struct {
    const model& m;
    const char* layout;
  } cases[] = {{models::llama2_7b, "tp=4,pp=2,dp=3,zero=1,bucket=40000000"},
               {models::llama2_70b, "tp=16,pp=2,dp=2,zero=1,cp=2"},
               {models::qwen3_30b_a3b, "tp=2,cp=2,pp=4,vpp=3,dp=4,ep=8,etp=2,zero=1"},
               {models::qwen3_30b_a3b, "tp=4,dp=2,pp=3"}};
  for (const auto& c : cases) {
    CAPTURE(std::string(c.layout));
    const space s(c.m, parse_degrees(c.layout));
    CHECK(agrees(s));
    const computed_holding h(s);
    for (const role r : roles)  // of a whole family owners() names what it names of each box
      for (int f = 0; f < h.families(); ++f)
        h.owners(f, r, h.family_at(f).whole(), [&](const family_box& b, const rank_product& holders) {
          int named = 0;
          h.owners(f, r, b, [&](const family_box& alone, const rank_product& its) {
            ++named;
            CHECK(alone == b);
            REQUIRE(its.count() == holders.count());
            for (index_t i = 0; i < its.count(); ++i) CHECK(its[i] == holders[i]);
          });
          CHECK(named == 1);
        });
  }
  const std::vector<shard> shards = {{0, "w", dtype::bf16, {4, 4}, {0, 0}, {2, 4}, "param"},
                                     {2, "w", dtype::bf16, {4, 4}, {0, 0}, {2, 4}, "param"},
                                     {1, "w", dtype::bf16, {4, 4}, {2, 0}, {2, 4}, "param"}};
  const tensor_table table({&shards});
  const listed_holding listed(table, shards, 3);
  CHECK(covers(listed, parameter_states));
  CHECK(agrees(listed, parameter_states));
}

TEST_CASE("a holding whose two answers differ is found out, whatever the lie") {
  dice random(7);
  int lies[7] = {};
  for (int n = 0; n < 600; ++n) {
    boxes_of_ranks h{{.name = "x", .extent = {random.within(1, 3), 2, 1, 2, random.within(2, 3)}}, {}};
    h.boxes = grid(random, h.which);
    const std::size_t distinct = h.boxes.size();
    for (index_t copies = random.below(4); copies > 0; --copies)
      h.boxes.push_back(h.boxes[static_cast<std::size_t>(random.below(static_cast<index_t>(distinct)))]);
    REQUIRE(agrees(h.told(), parameter_states));
    REQUIRE(covers(h, parameter_states));
    boxes_of_ranks::named_box& one = h.named[static_cast<std::size_t>(random.below(static_cast<index_t>(distinct)))];
    boxes_of_ranks::named_box& other = h.named[static_cast<std::size_t>(random.below(static_cast<index_t>(distinct)))];
    const auto lie = static_cast<std::size_t>(random.below(7));
    switch (lie) {
      case 0: one.ranks.push_back(h.ranks()), h.boxes.push_back({}); break;  // it does not hold the box
      case 1: one.ranks.pop_back(); break;                                   // it does
      case 2:
        if (&one != &other) std::swap(one.ranks, other.ranks);
        break;  // each holds the other one
      case 3:
        if (&one != &other)
          std::swap(h.boxes[static_cast<std::size_t>(one.ranks[0])], h.boxes[static_cast<std::size_t>(other.ranks[0])]);
        break;
      case 4: ++one.where.dim[4].end; break;                                    // another box
      case 5: h.named.erase(h.named.begin() + (&one - h.named.data())); break;  // nobody owns it
      case 6:                                                                   // nobody holds it
        for (const rank_t rank : one.ranks) h.boxes[static_cast<std::size_t>(rank)] = {};
        break;
    }
    if ((lie == 2 || lie == 3) && &one == &other) continue;
    ++lies[lie];
    CAPTURE(lie);
    CHECK(!agrees(h, parameter_states));
    CHECK((lie == 4 || lie == 5) != covers(h, parameter_states));  // covers() asks owners() alone
  }
  for (const int times : lies) CHECK_DRAWN(times > 20);
  lying_holders pairs{{{.name = "x", .extent = {1, 1, 1, 1, 4}}, {columns(0, 2), columns(0, 2), columns(2, 4)}}};
  CHECK(agrees(pairs.told()));  // as boxes_of_ranks
  CHECK(!agrees(pairs));        // rank 0 is said to share with rank 2, as many as there are
  boxes_of_ranks beside{{.name = "x", .extent = {1, 1, 1, 1, 3}}, {columns(0, 2)}};
  CHECK(agrees(beside.told()));
  beside.named = {{columns(1, 3), {0}}};  // as large, and the same rank's
  CHECK(!agrees(beside));
  boxes_of_ranks apart{{.name = "x", .extent = {1, 1, 1, 1, 3}}, {columns(0, 2), columns(2, 3)}};
  CHECK(agrees(apart.told()));
  apart.silent = true;  // shared() says it, held() does not
  CHECK(!agrees(apart));
}
