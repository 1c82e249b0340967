// SPDX-License-Identifier: Apache-2.0
// What a rank keeps of optimizer buffers: the oracle says how long each array is; its parts lie inside it, apart, and
// are, element by element, what the holding says that the rank has. That each lies where the oracle packs it,
// tests/memory/binding.cpp says.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <reshard/algebra/region.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/buffer_slices.hpp>

#include "../oracle/random_layouts.hpp"
#include "../support/dice.hpp"
#include "../support/expand.hpp"
#include "../support/tries.hpp"

using namespace reshard;

namespace {
/// The disjoint boxes of one tensor that the rank holds, and those that its slices hold.
using boxes_by_tensor = std::map<tensor_id, region<3>>;
}  // namespace

TEST_CASE("slices hold, tensor by tensor, what the holding says that the rank has") {
  oracle::generator cases(testing::seed() + 61);
  int sharded = 0, in_two_buckets = 0, experts_apart = 0, parts_of_parameters = 0;
  for (int n = 0; n < testing::tries(300); ++n) {
    const oracle::layout_case c = cases.next_layout();
    if (c.parsed.zero == 0) continue;
    INFO(c.describe());
    const space s(testing::to_model(c.m), parse_degrees(c.text));
    const computed_holding h(s);
    const rank_t rank = static_cast<rank_t>(n) % h.ranks();
    const oracle::coordinates at = oracle::coordinates_of(c.parsed, rank);
    boxes_by_tensor held, sliced;
    each_held(h, rank, role::optimizer, [&](int f, const family_box& b) {
      each_tensor(f, b, [&](const tensor_id& t, const box<3>& part) { held[t] = unite(held[t], region<3>(part)); });
    });
    each_buffer(h, rank, [&](const buffer_slices& kept) {
      const bool of_experts = kept.mesh == mesh_kind::expert;
      REQUIRE(kept.chunk % c.parsed.pp == at.pp);
      const long chunk = static_cast<long>(kept.chunk) / c.parsed.pp;
      const oracle::optimizer_buffer buffer = of_experts ? oracle::expert_buffer(c.m, c.parsed, at.pp, chunk, at.ep)
                                                         : oracle::dense_buffer(c.m, c.parsed, at.pp, chunk);
      const long group = of_experts ? c.parsed.edp : c.parsed.dp * c.parsed.cp;
      index_t elements = 0;
      for (const auto& [begin, end] : buffer.buckets) elements += (end - begin) / group;
      CHECK(kept.elements == elements);
      in_two_buckets += buffer.buckets.size() > 1 ? 1 : 0;
      experts_apart += of_experts ? 1 : 0;
      std::vector<interval> taken;
      each_slice_part(h, rank, kept, [&](const slice_part& p) {
        CHECK_FALSE(p.range.empty());
        CHECK(interval{0, p.local.volume()}.contains(p.range));
        parts_of_parameters += p.range.size() < p.local.volume() ? 1 : 0;
        const index_t extent[] = {p.local.dim[0].size(), p.local.dim[1].size(), p.local.dim[2].size()};
        const index_t corner[] = {p.local.dim[0].begin, p.local.dim[1].begin, p.local.dim[2].begin};
        invert_flat(extent, p.range, [&](const box<3>& part) {
          const region<3> one(translate(part, corner));
          CHECK(intersect(sliced[p.tensor], one).empty());
          sliced[p.tensor] = unite(sliced[p.tensor], one);
        });
        taken.push_back({p.begin, p.begin + p.range.size()});
        CHECK(interval{0, kept.elements}.contains(taken.back()));
      });
      std::sort(taken.begin(), taken.end(), [](interval a, interval b) { return a.begin < b.begin; });
      for (std::size_t i = 1; i < taken.size(); ++i) CHECK(taken[i - 1].end <= taken[i].begin);
    });
    CHECK(sliced.size() == held.size());
    for (const auto& [tensor, region] : held) CHECK(same_set(region, sliced[tensor]));
    ++sharded;
  }
  MESSAGE("layouts with buffers ", sharded, ", arrays over several buckets ", in_two_buckets, ", arrays of experts ",
          experts_apart, ", parts of parameters ", parts_of_parameters);
  CHECK_DRAWN(sharded > testing::tries(300) / 8);
  CHECK_DRAWN(in_two_buckets > 0);
  CHECK_DRAWN(experts_apart > 0);
  CHECK_DRAWN(parts_of_parameters > 0);
}

TEST_CASE("a slice may be a single element") {
  const space s(make_transformer({.name = "least",
                                  .layers = 1,
                                  .hidden = 2,
                                  .heads = 1,
                                  .groups = 1,
                                  .head_dim = 2,
                                  .ffn = 2,
                                  .vocabulary = 4}),
                parse_degrees("dp=1024,zero=1"));
  const computed_holding h(s);
  index_t slices = 0, elements = 0, parts = 0;
  for (rank_t rank = 0; rank < s.ranks(); ++rank)
    each_buffer(h, rank, [&](const buffer_slices& kept) {
      ++slices;
      CHECK(kept.elements == 1);
      each_slice_part(h, rank, kept, [&](const slice_part& p) { ++parts, elements += p.range.size(); });
    });
  CHECK(slices == 1024);
  CHECK(parts == elements);
  CHECK(elements == s.model().parameters());
}

TEST_CASE("a rank's buffers come chunk by chunk, of each chunk that of dense tensors before that of experts") {
  const space s(make_transformer({.name = "m",
                                  .layers = 4,
                                  .hidden = 4,
                                  .heads = 2,
                                  .groups = 2,
                                  .head_dim = 2,
                                  .vocabulary = 8,
                                  .experts = 2,
                                  .expert_ffn = 4}),
                parse_degrees("dp=2,ep=2,pp=2,vpp=2,zero=1"));
  const computed_holding h(s);
  std::vector<std::pair<index_t, mesh_kind>> met;
  each_buffer(h, 2, [&](const buffer_slices& kept) { met.emplace_back(kept.chunk, kept.mesh); });
  CHECK(met == std::vector<std::pair<index_t, mesh_kind>>{
                   {1, mesh_kind::dense}, {1, mesh_kind::expert}, {3, mesh_kind::dense}, {3, mesh_kind::expert}});
}
