// SPDX-License-Identifier: Apache-2.0
// covers() against a count of every element, for boxes that tile, overlap, miss, repeat or reach outside; and bytes held.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/parallelism/parse.hpp>
#include <reshard/space/cover.hpp>

#include "../support/points.hpp"

using namespace reshard;
using testing::dice;

namespace {
/// Boxes of one family, box i on rank i: the least that is a Holding.
struct boxes_of_ranks {
  family which;
  std::vector<family_box> boxes;

  rank_t ranks() const { return static_cast<rank_t>(boxes.size()); }
  int families() const { return 1; }
  const family& family_at(int) const { return which; }
  template <typename Sink>
  void held(rank_t rank, role r, Sink&& sink) const {
    held(0, rank, r, sink);
  }
  template <typename Sink>
  void held(int f, rank_t rank, role, Sink&& sink) const {
    const family_box& b = boxes[static_cast<std::size_t>(rank)];
    if constexpr (std::invocable<Sink, int, const family_box&>) sink(f, b);
    else sink(f, b, rank_product{});
  }
  template <typename Sink>
  void owners(int, role, const family_box& within, Sink&& sink) const {
    for (const family_box& b : boxes)
      if (intersects(b, within)) sink(b, rank_product{});
  }
  storage_order address(int, rank_t, role, index_t, index_t) const { return {}; }
  state_set states() const { return all_states; }
};
static_assert(Holding<boxes_of_ranks>);

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
    case 3: i.begin += 1; break;                        // a gap, or nothing left
    case 4: boxes.push_back(b); break;                  // a second holder of a box: as good as before
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
    CHECK(covers(h, parameter_states) == wanted);
    ++(wanted ? yes : no);
  }
  CHECK(yes > 500);
  CHECK(no > 500);
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
  CHECK(bytes_per_rank(s) == most);
  CHECK(bytes_per_rank(s, {}) == 0);
}

TEST_CASE("the most that any rank holds is looked for among all ranks and no others, also where each holds another part") {
  dice random(5);
  for (int n = 0; n < 50; ++n) {
    const family which{.name = "x", .extent = {random.within(1, 4), random.within(1, 4), 1, random.within(1, 6), random.within(1, 6)}};
    boxes_of_ranks h{which, {}};
    cut(random, which.whole(), 4, h.boxes);
    bytes_t most = 0;
    for (const family_box& b : h.boxes) most = greatest(most, b.volume() * 14);
    CHECK(bytes_per_rank(h) == most);
    for (std::size_t largest = 0; largest < h.boxes.size(); ++largest) {  // wherever it stands
      std::swap(h.boxes[0], h.boxes[largest]);
      CHECK(bytes_per_rank(h) == most);
    }
  }
}

TEST_CASE("a grid is recognised as one, whatever its cells' order and however often they occur, and only while none is missing") {
  dice random(6);
  index_t most_cells = 0;
  for (int n = 0; n < 300; ++n) {
    const family which{.name = "x", .extent = {random.within(1, 4), random.within(1, 3), random.within(1, 2), random.within(1, 6), random.within(1, 6)}};
    std::vector<family_box> cells = grid(random, which);
    for (std::size_t i = cells.size(); i > 1; --i) std::swap(cells[i - 1], cells[static_cast<std::size_t>(random.below(static_cast<index_t>(i)))]);
    const auto is_grid = [&which](const std::vector<family_box>& boxes) {
      detail::grid_of_boxes found;
      for (const family_box& b : boxes) found.add(b);
      return found.covers(which);
    };
    CHECK(is_grid(cells));
    std::vector<family_box> twice = cells;
    twice.insert(twice.end(), cells.begin(), cells.end());
    CHECK(is_grid(twice));
    twice.erase(twice.begin());  // its twin is still there
    CHECK(is_grid(twice));
    most_cells = greatest(most_cells, static_cast<index_t>(cells.size()));
    if (cells.size() == 1) continue;
    std::vector<family_box> without = cells;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(random.below(static_cast<index_t>(cells.size()))));
    CHECK(!is_grid(without));
    without.push_back(without.front());  // as many boxes as cells, one of them twice
    CHECK(!is_grid(without));
  }
  CHECK(most_cells > 20);
}

TEST_CASE("a space, a list and a side of a switch are asked alike, each of the states that it has") {
  const space s(models::llama2_7b, config<tp<2>, dp<2>, zero<1>>{});
  const computed_holding parameters(s, parameter_states);
  CHECK(held_bytes(parameters, 1) == held_bytes(s, 1, parameter_states));
  CHECK(held_bytes(s, 1) == held_bytes(computed_holding(s), 1));
  CHECK(bytes_per_rank(parameters) == bytes_per_rank(s, parameter_states));
  CHECK(covers(parameters));
  std::vector<shard> rows = {{0, "wte", bf16, {6, 4}, {0, 0}, {4, 4}}, {1, "wte", bf16, {6, 4}, {4, 0}, {2, 4}}};
  CHECK(held_bytes(rows, 0) == 32);
  CHECK(held_bytes(shard_list(rows), 1) == 16);
  CHECK(bytes_per_rank(rows) == 32);
  CHECK(covers(rows));
  rows[1].shape = {1, 4};
  CHECK_FALSE(covers(rows));
}
