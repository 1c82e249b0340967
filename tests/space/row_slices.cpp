// SPDX-License-Identifier: Apache-2.0
// Rows in chunks as torch cuts them: each row of a shard in the chunk that its number says, by brute force.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include <reshard/space/row_slices.hpp>

#include "../support/dice.hpp"
#include "../support/points.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice;

namespace {
/// The chunk that a coordinate of the shard lies in: its row's number over ceil(rows / chunks).
index_t chunk_of(const family& f, const family_box& shard, const index_t (&x)[family_ndim], index_t chunks,
                 bool together) {
  const int inner = f.vector() ? 4 : 3;
  const bool by_expert = together && f.mesh == mesh_kind::expert;
  const index_t width = shard.dim[inner].size();
  const index_t rows = by_expert ? shard.dim[1].size() : shard.dim[2].size() * width;
  const index_t row =
      by_expert ? x[1] - shard.dim[1].begin : (x[2] - shard.dim[2].begin) * width + x[inner] - shard.dim[inner].begin;
  return row / ((rows + chunks - 1) / chunks);
}

constexpr bool seven_rows_in_four() {
  const family f{.name = "w", .extent = {1, 1, 1, 7, 2}};
  const detail::row_slices rows(f, f.whole(), 4, false);
  interval got[4] = {};
  for (index_t i = 0; i < 4; ++i) rows.boxes(i, [&](const family_box& b) { got[i] = b.dim[3]; });
  index_t met = 0;
  family_box within = f.whole();
  within.dim[3] = {3, 5};
  rows.meeting(within, [&](index_t i) { met = met * 10 + i + 1; });
  return got[0] == interval{0, 2} && got[1] == interval{2, 4} && got[2] == interval{4, 6} && got[3] == interval{6, 7} &&
         met == 23;
}
constexpr bool five_rows_in_four_leave_the_last_one_empty() {
  const family f{.name = "w", .extent = {1, 1, 1, 5, 2}};
  int boxes = 0;
  detail::row_slices(f, f.whole(), 4, false).boxes(3, [&](const family_box&) { ++boxes; });
  return boxes == 0;
}
static_assert(seven_rows_in_four() && five_rows_in_four_leave_the_last_one_empty());
}  // namespace

TEST_CASE("by hand, at run time") {
  CHECK(seven_rows_in_four());
  CHECK(five_rows_in_four_leave_the_last_one_empty());
}

TEST_CASE("boxes of a chunk hold its rows and no others; meeting() names the chunks that have an element of a box") {
  dice random;
  int empty = 0, of_three = 0, grouped = 0, vectors = 0;
  for (int n = 0; n < testing::tries(1500); ++n) {
    family f{.name = "w"};
    for (index_t& e : f.extent) e = random.within(1, 4);
    f.extent[3] = random.within(1, 7), f.extent[2] = random.within(1, 9);
    if (random.below(4) == 0) f.shape_ndim = 1, f.extent[3] = 1, f.extent[2] = 1, f.extent[4] = random.within(1, 9);
    if (random.coin()) f.mesh = mesh_kind::expert;
    family_box shard;
    for (int i = 0; i < family_ndim; ++i) {
      const index_t begin = random.coin() ? 0 : random.below(f.extent[i]);
      shard.dim[i] = {begin, random.within(begin + 1, f.extent[i])};
    }
    index_t chunks = random.within(1, 6);
    if (n % 8 == 0) {  // 45 rows of 9 parts in 12s: some end and begin inside a part, with a whole one between
      f = {.name = "w", .extent = {2, 1, 9, 5, 2}};
      shard = f.whole(), chunks = 4;
    }
    const bool together = random.coin();
    const detail::row_slices rows(f, shard, chunks, together);
    grouped += together && f.mesh == mesh_kind::expert ? 1 : 0;
    vectors += f.vector() ? 1 : 0;
    family_box within = shard;
    for (interval& side : within.dim) {
      const index_t begin = random.within(side.begin, side.end - 1);
      side = {begin, random.within(begin + 1, side.end)};
    }
    std::vector<index_t> wanted, met;
    rows.meeting(within, [&](index_t i) { met.push_back(i); });
    for (index_t i = 0; i < chunks; ++i) {
      std::vector<family_box> boxes;
      rows.boxes(i, [&](const family_box& b) { boxes.push_back(b); });
      empty += boxes.empty() ? 1 : 0;
      of_three += boxes.size() == 3 ? 1 : 0;
      bool meets = false;
      testing::each_point(shard, [&](const index_t(&x)[family_ndim]) {
        const bool mine = chunk_of(f, shard, x, chunks, together) == i;
        const auto times =
            std::count_if(boxes.begin(), boxes.end(), [&](const family_box& b) { return b.contains(x); });
        CHECK(times == (mine ? 1 : 0));
        meets = meets || (mine && within.contains(x));
      });
      for (const family_box& b : boxes) CHECK(shard.contains(b));
      if (meets) wanted.push_back(i);
    }
    CHECK(met == wanted);
  }
  MESSAGE(empty, " empty, ", of_three, " of three boxes, ", grouped, " of experts together, ", vectors, " of vectors");
  for (const int seen : {empty, of_three, grouped, vectors}) CHECK_DRAWN(seen > 0);
}
