// SPDX-License-Identifier: Apache-2.0
// Boxes of optimizer buffers: the slices of a buffer cover a shard, each element once; the slices that meet a box are
// those whose boxes do.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/detail/buffer_boxes.hpp>

#include "../support/dice.hpp"
#include "../support/points.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice;

namespace {
constexpr model small(index_t experts) {
  return make_transformer({.name = "m",
                           .layers = 4,
                           .hidden = 6,
                           .heads = 2,
                           .groups = 2,
                           .head_dim = 3,
                           .ffn = 10,
                           .vocabulary = 20,
                           .experts = experts,
                           .expert_ffn = experts > 0 ? 4 : 0});
}

/// The slices of all buckets of a buffer, as (stretch, part).
std::vector<interval> slices_of(const optimizer_buffers& buffers, index_t k, mesh_kind kind, index_t shards) {
  std::vector<interval> all;
  for (index_t b = 0; b < buffers.bucket_count(k, kind); ++b)
    for (index_t i = 0; i < shards; ++i) all.push_back(even_part(buffers.bucket(k, kind, b), i, shards));
  return all;
}

/// By entry, the slices that meet what lies between the first and the last element that a tensor of its has in a box.
std::vector<std::pair<index_t, index_t>> slices_meeting_hulls(const optimizer_buffers& buffers, index_t k,
                                                              mesh_kind kind, int f, const family_box& shard,
                                                              const family_box& within,
                                                              const std::vector<interval>& slices) {
  const auto place = [&](index_t part, index_t row, index_t column) {  // of an element in a local tensor
    return ((part - shard.dim[2].begin) * shard.dim[3].size() + row - shard.dim[3].begin) * shard.dim[4].size() +
           column - shard.dim[4].begin;
  };
  const interval hull{place(within.dim[2].begin, within.dim[3].begin, within.dim[4].begin),
                      place(within.dim[2].end - 1, within.dim[3].end - 1, within.dim[4].end - 1) + 1};
  std::vector<std::pair<index_t, index_t>> result;
  for (const buffer_entry& entry : buffers.entries(k, kind, f))
    for (const interval slice : slices) {
      bool meets = false;
      for (index_t m = 0; m < entry.outer.count; ++m)
        for (index_t x = 0; x < entry.experts; ++x)
          if (within.dim[0].contains(entry.member_last - m) &&
              within.dim[1].contains(shard.dim[1].begin + entry.expert_last - x))
            meets =
                meets ||
                intersects(slice, translate(hull, entry.outer.begin + m * entry.outer.pitch + x * entry.inner_pitch));
      if (meets) result.emplace_back(entry.outer.begin, slice.begin);
    }
  return result;
}

constexpr bool one_vector_in_two() {  // the final norm of 6 elements comes first in a buffer of 128 x 2 at least
  const model m = small(0);
  degrees d;
  d.dp = 2, d.zero = 1;
  const space s(m, d);
  const optimizer_buffers buffers(s);
  int f = 0;
  while (m[f].name != "decoder.final_layernorm.weight") ++f;
  const auto entries = buffers.entries(0, mesh_kind::dense, f);
  const family_box shard = s.shard_box(f, 0, 0, 0);
  bool right = false;
  detail::boxes_in(*entries.begin(), shard, {entries.begin()->outer.begin + 2, entries.begin()->outer.begin + 5},
                   [&](const family_box& b) {
                     right = b.dim[4] == interval{2, 5};
                   });
  return right;
}
static_assert(one_vector_in_two());
}  // namespace

TEST_CASE("by hand, at run time") { CHECK(one_vector_in_two()); }

TEST_CASE("slices cover a shard once, and meeting() names those that have an element of a box") {
  dice random;
  int several = 0, cut = 0, of_experts = 0, hulls = 0;
  for (int n = 0; n < testing::tries(480); ++n) {
    const bool experts = random.coin();
    const model m = small(experts ? 4 : 0);
    degrees d;
    d.tp = random.coin() ? 1 : 2, d.dp = random.within(1, 4), d.pp = random.coin() ? 1 : 2, d.zero = 1;
    if (experts && random.coin()) d.ep = 2;
    if (random.coin()) d.bucket = random.within(1, 400);
    if (!is_legal(m, d)) continue;
    CAPTURE(to_text(d));
    const space s(m, d);
    const optimizer_buffers buffers(s);
    const index_t k = random.below(s.pipeline().chunks());
    const int f = static_cast<int>(random.below(s.families()));
    const family_box shard = s.shard_box(f, k, random.below(s.expert_parts(f)), random.below(s.tensor_parts(f)));
    if (shard.empty()) continue;
    const mesh_kind kind = s.shard_kind(f);
    const index_t shards = s.shards(kind);
    of_experts += kind == mesh_kind::expert ? 1 : 0;
    std::vector<family_box> boxes, with_slices;
    std::set<index_t> begins, wanted;
    family_box within = shard;
    for (interval& side : within.dim) {
      const index_t begin = random.within(side.begin, side.end - 1);
      side = {begin, random.within(begin + 1, side.end)};
    }
    for (const interval slice : slices_of(buffers, k, kind, shards)) {
      const std::size_t before = boxes.size();
      for (const buffer_entry& entry : buffers.entries(k, kind, f))
        detail::boxes_in(entry, shard, slice, [&](const family_box& b) { boxes.push_back(b); });
      for (std::size_t i = before; i < boxes.size(); ++i) {
        CHECK_FALSE(boxes[i].empty());
        if (intersects(boxes[i], within)) wanted.insert(slice.begin);
      }
      several += boxes.size() - before > 1 ? 1 : 0;
    }
    const std::vector<int> times = testing::occurrences(shard, boxes);
    CHECK(std::all_of(times.begin(), times.end(), [](int t) { return t == 1; }));
    for (const family_box& b : boxes) CHECK(shard.contains(b));
    cut += boxes.size() > 1 ? 1 : 0;
    std::vector<std::pair<index_t, index_t>> met;  // where the entry's first member begins, and the slice
    detail::meeting(buffers, k, kind, shards, f, shard, within,
                    [&](const buffer_entry& entry, interval stretch, index_t i) {
                      met.emplace_back(entry.outer.begin, stretch.begin);
                      begins.insert(stretch.begin);
                      CHECK(i >= 0);
                      CHECK(i < shards);
                    });
    // the hull of a box in a member may meet a slice that has none of its elements, never the other way round
    for (const index_t begin : wanted) CHECK(begins.count(begin) == 1);
    CHECK(met == slices_meeting_hulls(buffers, k, kind, f, shard, within, slices_of(buffers, k, kind, shards)));
    hulls += static_cast<int>(met.size());
    if (within == shard) CHECK(begins == wanted);
  }
  for (const int seen : {several, cut, of_experts, hulls}) CHECK_DRAWN(seen > testing::tries(480) / 60);
}

namespace {
std::vector<std::pair<index_t, index_t>> met_by(const optimizer_buffers& buffers, const space& s, index_t k, int f,
                                                const family_box& shard, const family_box& within) {
  std::vector<std::pair<index_t, index_t>> met;
  const mesh_kind kind = s.shard_kind(f);
  detail::meeting(buffers, k, kind, s.shards(kind), f, shard, within,
                  [&](const buffer_entry& entry, interval stretch, index_t) {
                    met.emplace_back(entry.outer.begin, stretch.begin);
                  });
  return met;
}
std::vector<interval> parts_of(interval whole) {
  std::vector<interval> all;
  for (index_t begin = whole.begin; begin < whole.end; ++begin)
    for (index_t end = begin + 1; end <= whole.end; ++end) all.push_back({begin, end});
  return all;
}
}  // namespace

TEST_CASE("whatever layers and experts are asked for, in buckets of every length, the slices are met, each once") {
  int met = 0;
  std::ptrdiff_t entries = 0;
  for (const char* layout : {"dp=2,zero=1", "dp=4,zero=1,ep=2", "tp=2,dp=3,zero=1,etp=1,pp=2"})
    for (const index_t bucket : {0, 50, 100, 130, 200, 350, 500}) {
      degrees d = parse_degrees(layout);
      d.bucket = bucket;
      CAPTURE(to_text(d));
      const space s(small(4), d);
      const optimizer_buffers buffers(s);
      for (int f = 0; f < s.families(); ++f) {
        if (s.family_at(f).mesh != mesh_kind::expert) continue;
        const family_box shard = s.shard_box(f, 0, s.expert_parts(f) - 1, 0);
        const mesh_kind kind = s.shard_kind(f);
        const auto of_family = buffers.entries(0, kind, f);
        entries = std::max(entries, of_family.end() - of_family.begin());
        const std::vector<interval> slices = slices_of(buffers, 0, kind, s.shards(kind));
        for (const interval members : parts_of(shard.dim[0]))
          for (const interval experts : parts_of(shard.dim[1]))
            for (const interval rows : {shard.dim[3], {0, 1}, {shard.dim[3].end - 1, shard.dim[3].end}}) {
              family_box within = shard;
              within.dim[0] = members, within.dim[1] = experts, within.dim[3] = rows;
              const auto found = met_by(buffers, s, 0, f, shard, within);
              CHECK(found == slices_meeting_hulls(buffers, 0, kind, f, shard, within, slices));
              met += static_cast<int>(found.size());
            }
        for (int axis = 0; axis < family_ndim; ++axis) {
          family_box none = shard;
          none.dim[axis].end = none.dim[axis].begin;
          CHECK(met_by(buffers, s, 0, f, shard, none).empty());
        }
      }
    }
  CHECK(met > 5000);
  CHECK(entries > 8);  // experts of a layer are in several
}

TEST_CASE("one element, or two in a row, are in the slices that have them, the first and the last of a slice too") {
  index_t first = 0, last = 0, over_an_end = 0;
  for (const index_t dp : {2, 3, 4, 7}) {
    degrees d;
    d.dp = dp, d.zero = 1;
    const space s(small(0), d);
    const optimizer_buffers buffers(s);
    const index_t length = buffers.bucket(0, mesh_kind::dense, 0).size() / dp;
    for (int f = 0; f < s.families(); ++f) {
      const family& of = s.family_at(f);
      const family_box shard = s.shard_box(f, 0, 0, 0);
      const buffer_entry& entry = *buffers.entries(0, mesh_kind::dense, f).begin();
      testing::each_point(shard, [&](const index_t(&x)[family_ndim]) {
        const index_t at = entry.outer.begin + (entry.member_last - x[0]) * entry.outer.pitch +
                           (x[2] * of.extent[3] + x[3]) * of.extent[4] + x[4];
        first += at % length == 0 ? 1 : 0, last += at % length == length - 1 ? 1 : 0;
        family_box run;
        for (int axis = 0; axis < family_ndim; ++axis) run.dim[axis] = {x[axis], x[axis] + 1};
        for (const index_t more : {0, 1}) {
          if (x[4] + more == of.extent[4]) continue;
          run.dim[4].end = x[4] + 1 + more;
          std::vector<std::pair<index_t, index_t>> wanted;
          for (index_t i = at / length; i <= (at + more) / length; ++i)
            wanted.emplace_back(entry.outer.begin, i * length);
          over_an_end += wanted.size() > 1 ? 1 : 0;
          if (met_by(buffers, s, 0, f, shard, run) != wanted) FAIL(of.name, " in its place ", at);
        }
      });
    }
  }
  for (const index_t met : {first, last, over_an_end}) CHECK(met > 2);
}
