// SPDX-License-Identifier: Apache-2.0
// The space of published models: where families are cut, who holds what, and exact cover at sizes that no scan of
// elements could check.
#include <doctest/doctest.h>

#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/computed_holding.hpp>
#include <reshard/space/cover.hpp>

#include "../support/refused.hpp"
#include "../support/tiny.hpp"

using namespace reshard;
using testing::refused;

namespace {
/// A family of a model by the end of its name.
int find(const model& m, std::string_view ending) {
  for (int f = 0; f < m.families; ++f)
    if (m[f].name.ends_with(ending)) return f;
  FAIL("no such family");
  return -1;
}

model tied_dense() {
  return make_transformer({.name = "tied",
                           .layers = 6,
                           .hidden = 8,
                           .heads = 4,
                           .groups = 2,
                           .head_dim = 2,
                           .ffn = 12,
                           .vocabulary = 16,
                           .tied = true});
}

/// The stages that each_stage_holding names.
std::vector<index_t> stages_holding(const space& s, int f, index_t k) {
  std::vector<index_t> stages;
  s.each_stage_holding(f, k, [&](index_t stage) { stages.push_back(stage); });
  return stages;
}

/// Every distinct box counted once, by its first holder: the volumes are the family's.
void check_volumes(const space& s) {
  const computed_holding h(s);
  for (const role r : roles) {
    std::vector<index_t> held(static_cast<std::size_t>(s.families()), 0);
    for (rank_t rank = 0; rank < s.ranks(); ++rank)
      each_shared(h, rank, r, [&](int f, const family_box& b, const rank_product& holders) {
        CHECK(s.family_at(f).whole().contains(b));
        if (holders[0] == rank) held[static_cast<std::size_t>(f)] += b.volume();
      });
    for (int f = 0; f < s.families(); ++f)
      CHECK(held[static_cast<std::size_t>(f)] ==
            (has_states_of(s.family_at(f).kind, r) ? s.family_at(f).whole().volume() : 0));
  }
}
}  // namespace

TEST_CASE("LLaMA-2-70B at tp=4, pp=8, dp=2, zero=1: cuts, chunks and sharding groups") {
  const space s(models::llama2_70b, config<tp<4>, pp<8>, dp<2>, zero<1>>{});
  CHECK(s.ranks() == 64);
  const int qkv = find(s.model(), "linear_qkv.weight"), fc1 = find(s.model(), "linear_fc1.weight"),
            proj = find(s.model(), "linear_proj.weight"), norm = find(s.model(), "final_layernorm.weight"),
            embedding = find(s.model(), "word_embeddings.weight");
  CHECK(s.shard_box(qkv, 3, 0, 1) == family_box{{{30, 40}, {0, 1}, {2, 4}, {0, 1280}, {0, 8192}}});
  CHECK(s.shard_box(fc1, 0, 0, 3) == family_box{{{0, 10}, {0, 1}, {0, 2}, {21504, 28672}, {0, 8192}}});
  CHECK(s.shard_box(proj, 7, 0, 0) == family_box{{{70, 80}, {0, 1}, {0, 1}, {0, 8192}, {0, 2048}}});
  CHECK(s.shard_box(norm, 7, 0, 0) == family_box{{{0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 8192}}});
  CHECK(s.shard_box(norm, 6, 0, 0).empty());
  CHECK(s.shard_box(embedding, 0, 0, 1) == family_box{{{0, 1}, {0, 1}, {0, 1}, {8000, 16000}, {0, 8192}}});
  CHECK(s.shard_box(embedding, 7, 0, 1).empty());
  CHECK(s.local_elements(fc1) == 2 * 7168 * 8192);
  CHECK(s.local_elements(norm) == 8192);
  CHECK(s.tensor_parts(norm) == 1);
  CHECK(s.chunks_of_members(qkv, {9, 31}) == interval{0, 4});
  CHECK(s.chunks_of_members(norm, {0, 1}) == interval{7, 8});
  CHECK(stages_holding(s, qkv, 3) == std::vector<index_t>{3});
  CHECK(s.sharding_group(mesh_kind::dense) == 2);
  CHECK_FALSE(s.holds_tied_copy(embedding, 63));
}

TEST_CASE("Qwen3-235B-A22B: experts are cut by ep, their own mesh and buffers; layers accounted") {
  const space s(models::qwen3_235b_a22b, parse_degrees("tp=4,pp=8,dp=4,ep=16,zero=1,split=account"));
  const int fc2 = find(s.model(), "experts.linear_fc2.weight{expert}"), router = find(s.model(), "router.weight");
  CHECK(s.expert_parts(fc2) == 16);
  CHECK(s.tensor_parts(fc2) == 1);  // etp is 1 where ep > 1
  CHECK(s.shard_box(fc2, 0, 15, 0) == family_box{{{0, 11}, {120, 128}, {0, 1}, {0, 4096}, {0, 1536}}});
  CHECK(s.shard_box(fc2, 7, 1, 0) == family_box{{{83, 94}, {8, 16}, {0, 1}, {0, 4096}, {0, 1536}}});
  CHECK(s.shard_kind(fc2) == mesh_kind::expert);
  CHECK(s.shard_kind(router) == mesh_kind::dense);
  CHECK(s.sharding_group(mesh_kind::dense) == 4);
  CHECK(s.sharding_group(mesh_kind::expert) == 1);
  const space in_dense(models::qwen3_30b_a3b, config<tp<2>, dp<2>, zero<1>>{});
  CHECK(in_dense.shard_kind(find(in_dense.model(), "linear_fc2.weight{expert}")) == mesh_kind::dense);
}

TEST_CASE("a tied embedding: both ends of a pipeline hold it, and the last stage calls it by its other name") {
  const model m = tied_dense();
  const space split(m, config<pp<3>, dp<2>>{}), whole(m, config<dp<2>>{});
  CHECK(stages_holding(split, 0, 0) == std::vector<index_t>{0, 2});
  CHECK(stages_holding(split, 0, 2) == std::vector<index_t>{0, 2});
  CHECK(stages_holding(whole, 0, 0) == std::vector<index_t>{0});
  for (rank_t rank = 0; rank < 6; ++rank) CHECK(split.holds_tied_copy(0, rank) == (rank >= 4));
  for (rank_t rank = 0; rank < 2; ++rank) CHECK_FALSE(whole.holds_tied_copy(0, rank));
  CHECK_FALSE(split.holds_tied_copy(1, 5));
  CHECK(split.tensor_on({0, 0, 0}, 3) == "embedding.word_embeddings.weight");
  CHECK(split.tensor_on({0, 0, 0}, 4) == "output_layer.weight");
}

TEST_CASE("a holding keeps a copy of its space, and tabulates buffers only where they are wanted") {
  const space s(tied_dense(), config<dp<2>, zero<1>>{}), unsharded(tied_dense(), config<dp<2>>{});
  CHECK(computed_holding(s).sharded(role::optimizer));
  CHECK_FALSE(computed_holding(s).sharded(role::parameter));
  CHECK_FALSE(computed_holding(unsharded).sharded(role::optimizer));
  const computed_holding of_temporary(space(tied_dense(), config<dp<2>>{}), only(2));
  CHECK(of_temporary.ranks() == 2);
  CHECK(of_temporary.states() == only(2));
  CHECK(computed_holding(s).states() == all_states);
}

TEST_CASE("buckets that are too many to be listed are no matter to a holding of parameters") {
  transformer deep{.name = "deep", .hidden = 2, .heads = 1, .groups = 1, .head_dim = 2, .ffn = 2, .vocabulary = 2};
  deep.layers = 200'000;  // of 6 tensors each
  const space s(make_transformer(deep), config<dp<2>, zero<1>, bucket<1>>{});
  CHECK(computed_holding(s, parameter_states).states() == parameter_states);
  CHECK_REFUSED(computed_holding(s), "bucket=1 cuts an optimizer buffer into more than 1048576 buckets");
}

TEST_CASE("exact cover by volume: every distinct box once, over all ranks, for published models") {
  const struct {
    const model& m;
    const char* layout;
  } cases[] = {
      {models::llama2_70b, "tp=4,pp=8,dp=2,zero=1"},
      {models::llama2_70b, "tp=8,pp=16,zero=1,cp=2"},
      {models::llama2_70b, "tp=16,pp=3,dp=3,zero=1,split=spread,bucket=40000000"},  // tp exceeds the query groups
      {models::llama_32b, "tp=2,pp=5,vpp=3,dp=3,zero=1,bucket=40000000"},
      {models::qwen3_235b_a22b, "tp=4,pp=8,dp=4,ep=16,zero=1,split=account"},
      {models::qwen3_30b_a3b, "tp=4,pp=4,vpp=2,cp=2,dp=3,ep=4,etp=2,zero=1,bucket=40000000"},
      {models::qwen3_30b_a3b, "tp=2,dp=6,zero=1,bucket=1000000"},  // experts in the dense buffer
  };
  for (const auto& c : cases) {
    CAPTURE(std::string(c.layout));
    check_volumes(space(c.m, parse_degrees(c.layout)));
  }
}

TEST_CASE("a space refuses what its model does not admit") {
  CHECK(refused([] { space(models::llama2_70b, config<tp<3>>{}); }) ==
        "reshard: 64 attention heads do not divide by tp=3; legal are tp in {1,2,4,8,16,32,64}");
  CHECK(refused([] { space(models::llama2_70b, config<tp<64>, pp<80>>{}); }) == "accepted");
}

TEST_CASE("a space refuses a model that is none") {
  model own = tied_dense();
  own.family_at[1].extent[axis_of::layer] += 1;
  CHECK_REFUSED(space(own, config<dp<2>>{}), "model tied: family 1 '");
}

TEST_CASE("experts are cut where there are some, on a mesh of their own; all else has one part") {
  const transformer moe{.name = "moe",
                        .layers = 2,
                        .hidden = 8,
                        .heads = 4,
                        .groups = 2,
                        .head_dim = 2,
                        .vocabulary = 16,
                        .experts = 4,
                        .expert_ffn = 4};
  const model four = make_transformer(moe);
  const space s(four, parse_degrees("tp=2,cp=2,dp=2,ep=2,etp=1"));
  for (int f = 0; f < four.families; ++f) {
    const bool expert = four[f].mesh == mesh_kind::expert;
    CHECK(s.expert_parts(f) == (expert ? 2 : 1));
    for (index_t e = 0; e < s.expert_parts(f); ++e)
      CHECK(s.expert_part(f, e) == (expert ? interval{2 * e, 2 * e + 2} : interval{0, 1}));
    CHECK(s.mesh_for(f).extent[mesh_axis::tensor] == (expert ? 1 : 2));
  }
  transformer one_expert = moe;
  one_expert.experts = 1;
  const space one(make_transformer(one_expert), parse_degrees("tp=2,dp=2,etp=1"));  // one expert is an expert
  CHECK(one.mesh_for(mesh_kind::expert).extent[mesh_axis::tensor] == 1);
  CHECK(one.mesh_for(mesh_kind::expert).extent[mesh_axis::data] == 4);
  for (int f = 0; f < one.families(); ++f) CHECK(one.expert_part(f, 0) == interval{0, 1});
  one_expert.experts = 2;
  const model two = make_transformer(one_expert);
  const space uncut(two, parse_degrees("dp=2")), cut(two, parse_degrees("dp=2,ep=2"));
  for (int f = 0; f < two.families; ++f)
    if (two[f].mesh == mesh_kind::expert && two[f].extent[axis_of::expert] == 2) {
      CHECK(uncut.expert_part(f, 0) == interval{0, 2});
      CHECK(cut.expert_part(f, 1) == interval{1, 2});
    }
  const space dense(tied_dense(), parse_degrees("tp=2,cp=2,dp=2"));  // a dense model's ranks are read in one way
  for (int axis = 0; axis < mesh_ndim; ++axis)
    CHECK(dense.mesh_for(mesh_kind::expert).extent[axis] == dense.mesh_for(mesh_kind::dense).extent[axis]);
  for (int f = 0; f < dense.families(); ++f) CHECK(dense.expert_parts(f) == 1);
  model own = two;  // on the experts' mesh, and no expert
  own.add(
      {.name = "scale{layer}", .extent = {own[1].extent[0], 1, 1, 1, 4}, .mesh = mesh_kind::expert, .shape_ndim = 1});
  const space with_scale(own, parse_degrees("dp=2,ep=2"));
  const int scale = own.families - 1;
  CHECK_FALSE(with_scale.deals_experts(scale));
  CHECK(with_scale.expert_parts(scale) == 1);
  CHECK(with_scale.expert_index(scale, 1) == 0);
  for (const index_t e : {0, 1}) CHECK(with_scale.expert_part(scale, e) == interval{0, 1});
}

TEST_CASE(
    "a prediction layer alone in its chunk has experts, even of a model whose decoder has none; after a layer it is "
    "its like") {
  const model m = testing::tiny_predicting();
  const auto members = [](const space& s, std::string_view ending) {
    index_t sum = 0;
    for (int f = 0; f < s.families(); ++f)
      if (s.family_at(f).place == home::prediction && s.family_at(f).name.ends_with(ending))
        sum += s.family_at(f).extent[axis_of::layer];
    return sum;
  };
  const space alone(m, parse_degrees(testing::prediction_alone)), after(m, parse_degrees("dp=2"));
  CHECK(alone.pipeline().chunk(alone.pipeline().prediction_chunk()).empty());
  for (const auto& row :
       {std::tuple("mlp.router.weight", 1, 0), std::tuple("experts.linear_fc1.weight{expert}", 1, 0),
        std::tuple("mlp.linear_fc1.weight", 0, 1), std::tuple("self_attention.linear_qkv.weight", 1, 1)}) {
    const std::string ending = std::get<0>(row);
    CAPTURE(ending);
    CHECK(members(alone, ending) == std::get<1>(row));
    CHECK(members(after, ending) == std::get<2>(row));
  }
  CHECK(covers(alone));
  CHECK(covers(after));
}
