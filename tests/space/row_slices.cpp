// SPDX-License-Identifier: Apache-2.0
// Rows in chunks as torch cuts them: each row of a shard in the chunk that its number says, by brute force.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include <reshard/space/detail/row_slices.hpp>

#include "../support/dice.hpp"
#include "../support/points.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice;

namespace {
/// The chunk that a coordinate of the shard lies in: its row's number over ceil(rows / chunks), or its expert's; -1
/// where the shard does not have the row.
index_t chunk_of(const family& f, const family_box& shard, interval rows, const index_t (&x)[family_ndim],
                 index_t chunks, bool together) {
  const int inner = f.shape_ndim == 1 ? 4 : 3;
  const index_t width = f.shape_ndim == 3 ? 1 : shard.dim[inner].size();
  const index_t in_part = f.shape_ndim == 3 ? 0 : x[inner] - shard.dim[inner].begin;
  const index_t row = (x[2] - shard.dim[2].begin) * width + in_part;
  if (row < rows.begin || row >= rows.end) return -1;
  const bool by_expert = together && f.mesh == mesh_kind::expert;
  const index_t numbers = by_expert ? shard.dim[1].size() : rows.size();
  return (by_expert ? x[1] - shard.dim[1].begin : row - rows.begin) / ((numbers + chunks - 1) / chunks);
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
  int empty = 0, of_three = 0, grouped = 0, vectors = 0, stacked = 0, of_some_rows = 0, together_in_three = 0;
  for (int n = 0; n < testing::tries(1500); ++n) {
    family f{.name = "w"};
    for (index_t& e : f.extent) e = random.within(1, 4);
    f.extent[3] = random.within(1, 7), f.extent[2] = random.within(1, 9);
    if (random.below(4) == 0) f.shape_ndim = 1, f.extent[3] = 1, f.extent[2] = 1, f.extent[4] = random.within(1, 9);
    if (!f.vector() && random.below(5) == 0) f.shape_ndim = 3;
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
    if (n % 8 == 4) {  // of experts that are dealt together rows that begin and end inside a part
      f = {.name = "w", .extent = {1, 3, 9, 5, 2}, .mesh = mesh_kind::expert};
      shard = f.whole();
    }
    const bool together = n % 8 == 4 || random.coin();
    interval of_shard = detail::row_slices::all_rows(f, shard);
    if (n % 8 == 4) {
      of_shard = {random.within(1, 4), random.within(41, 44)};
    } else if (f.shape_ndim < 3 && random.coin()) {
      of_shard.begin = random.below(of_shard.end), of_shard.end = random.within(of_shard.begin + 1, of_shard.end);
      ++of_some_rows;
    }
    const detail::row_slices rows(f, shard, of_shard, chunks, together);
    const bool by_expert = together && f.mesh == mesh_kind::expert;
    grouped += by_expert ? 1 : 0;
    vectors += f.vector() ? 1 : 0, stacked += f.shape_ndim == 3 ? 1 : 0;
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
      of_three += boxes.size() == 3 ? 1 : 0, together_in_three += by_expert && boxes.size() == 3 ? 1 : 0;
      bool meets = false;
      testing::each_point(shard, [&](const index_t(&x)[family_ndim]) {
        const bool mine = chunk_of(f, shard, of_shard, x, chunks, together) == i;
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
  MESSAGE(empty, " empty, ", of_three, " of three boxes, ", grouped, " of experts together, ", together_in_three,
          " of these in three boxes, ", vectors, " of vectors, ", stacked, " stacked, ", of_some_rows, " of some rows");
  for (const int seen : {empty, of_three, grouped, vectors, stacked, of_some_rows, together_in_three})
    CHECK_DRAWN(seen > 0);
}
