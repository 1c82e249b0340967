// SPDX-License-Identifier: Apache-2.0
// Boxes of optimizer buffers: the slices of a buffer cover a shard, each element once; the slices that meet a box are
// those whose boxes do.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
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
  int several = 0, cut = 0, of_experts = 0;
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
    std::multiset<index_t> met;
    detail::meeting(buffers, k, kind, shards, f, shard, within, [&](const buffer_entry&, interval stretch, index_t i) {
      met.insert(stretch.begin);
      CHECK(i >= 0);
      CHECK(i < shards);
    });
    // the hull of a box in a member may meet a slice that has none of its elements, never the other way round
    for (const index_t begin : wanted) CHECK(met.count(begin) >= 1);
    begins.insert(met.begin(), met.end());
    const std::vector<interval> slices = slices_of(buffers, k, kind, shards);
    for (const index_t begin : begins)
      CHECK(std::any_of(slices.begin(), slices.end(), [&](interval slice) { return slice.begin == begin; }));
    if (within == shard) CHECK(begins == wanted);
  }
  for (const int seen : {several, cut, of_experts}) CHECK_DRAWN(seen > testing::tries(480) / 60);
}
