// SPDX-License-Identifier: Apache-2.0
// Lists of shards: a computed layout against a hand-written list, two lists against each other, and what is refused.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/plan/foreign.hpp>
#include <reshard/space/cover.hpp>

#include "../support/refused.hpp"

using namespace reshard;

namespace {
constexpr transformer small{.name = "small", .layers = 1, .hidden = 4, .heads = 2, .groups = 2, .head_dim = 2, .ffn = 4, .vocabulary = 8};
constexpr model tiny = make_transformer(small);

/// Everything of `tiny` on rank 0, but fc1, whose rows two ranks hold as [gate; up] was stored: 3 rows and 5 rows.
std::vector<shard> by_hand() {
  const auto whole = [](std::string name, extents shape) {
    extents zero = shape;
    for (index_t& at : zero.at) at = 0;
    return shard{0, std::move(name), bf16, shape, zero, shape};
  };
  const std::string layer = "decoder.layers.0.";
  return {whole("embedding.word_embeddings.weight", {8, 4}),
          whole(layer + "self_attention.linear_proj.weight", {4, 4}),
          whole(layer + "self_attention.linear_qkv.layer_norm_weight", {4}),
          whole(layer + "self_attention.linear_qkv.weight", {12, 4}),
          whole(layer + "mlp.linear_fc1.layer_norm_weight", {4}),
          {0, layer + "mlp.linear_fc1.weight", bf16, {8, 4}, {0, 0}, {3, 4}},
          {1, layer + "mlp.linear_fc1.weight", bf16, {8, 4}, {3, 0}, {5, 4}},
          whole(layer + "mlp.linear_fc2.weight", {4, 4}),
          whole("decoder.final_layernorm.weight", {4}),
          whole("output_layer.weight", {8, 4})};
}

index_t elements_of(const std::vector<transfer>& list, int family) {
  index_t elements = 0;
  for (const transfer& t : list) elements += t.family == family ? t.where.volume() : 0;
  return elements;
}
}  // namespace

TEST_CASE("from a hand-written list to tp=2: fc1's gate and up halves come from whoever has their rows") {
  const std::vector<shard> shards = by_hand();
  const space target(tiny, config<tp<2>>{});
  int fc1 = 0;
  while (tiny[fc1].name != "decoder.layers.{layer}.mlp.linear_fc1.weight") ++fc1;
  // tp rank 0 needs gate rows 0, 1 (stored rows 0, 1 on rank 0) and up rows 0, 1 (stored rows 4, 5 on rank 1)
  const plan first = make_plan(shard_list{shards}, target, 0), second = make_plan(shard_list{shards}, target, 1);
  CHECK(elements_of(first.retains, fc1) == 2 * 4);
  CHECK(elements_of(first.receives, fc1) == 2 * 4);
  // tp rank 1 needs gate rows 2 (rank 0), 3 (itself) and up rows 2, 3 (itself)
  CHECK(elements_of(second.retains, fc1) == 3 * 4);
  CHECK(elements_of(second.receives, fc1) == 1 * 4);
  CHECK(second.receives.front().states == parameter_states);
  CHECK(total_bytes(first.sends) == total_bytes(second.receives));
  const plan back = make_plan(target, shard_list{shards}, 1);
  CHECK(elements_of(back.receives, fc1) == 2 * 4);
}

TEST_CASE("two lists need no model: any tensors of up to five dimensions") {
  const std::vector<shard> rows = {{0, "wte", bf16, {6, 4}, {0, 0}, {3, 4}}, {1, "wte", bf16, {6, 4}, {3, 0}, {3, 4}},
                                   {0, "conv", fp32, {2, 3, 2, 2}, {0, 0, 0, 0}, {2, 3, 2, 2}}};
  const std::vector<shard> columns = {{0, "wte", bf16, {6, 4}, {0, 0}, {6, 2}}, {1, "wte", bf16, {6, 4}, {0, 2}, {6, 2}},
                                      {1, "conv", fp32, {2, 3, 2, 2}, {0, 0, 0, 0}, {2, 3, 2, 2}}};
  const tensor_table table{&rows, &columns};
  const listed_holding from(table, rows, 2), to(table, columns, 2);
  CHECK(covers(from, parameter_states));
  CHECK(covers(to, parameter_states));
  const placement where{device_map(2), device_map(2), 0, parameter_states};
  const plan p = make_plan(from, to, 1, where);
  REQUIRE(p.receives.size() == 2);
  CHECK(table.family_at(p.receives[0].family).name == "conv");
  CHECK(p.receives[0].where == family_box{{{0, 1}, {0, 2}, {0, 3}, {0, 2}, {0, 2}}});
  CHECK(p.receives[1].where == family_box{{{0, 1}, {0, 1}, {0, 1}, {0, 3}, {2, 4}}});
  CHECK(p.retains.size() == 1);
}

TEST_CASE("what no tensor admits is refused with its values") {
  const tensor_table table(tiny);
  const auto list = [&](const shard& s) { return listed_holding(table, {s}, 2); };
  CHECK_REFUSED(list((shard{2, "output_layer.weight", bf16, {8, 4}, {0, 0}, {8, 4}})), "shard of 'output_layer.weight': rank 2 of a world of 2 ranks");
  CHECK_REFUSED(list((shard{0, "wte", bf16, {8, 4}, {0, 0}, {8, 4}})), "no tensor is called 'wte'");
  CHECK_REFUSED(list((shard{0, "output_layer.weight", bf16, {9, 4}, {0, 0}, {8, 4}})),
                "shard of 'output_layer.weight': dimension 0 is said to have extent 9; the tensor's is 8");
  CHECK_REFUSED(list((shard{0, "output_layer.weight", bf16, {8, 4}, {4, 0}, {5, 4}})),
                "shard of 'output_layer.weight' on rank 0: [4, 4 + 5) reaches outside the extent 8 of dimension 0");
  CHECK_REFUSED(list((shard{0, "output_layer.weight", bf16, {8, 4}, {0, 9'223'372'036'854'775'807}, {8, 4}})), "reaches outside the extent 4");
  CHECK_REFUSED(list((shard{0, "output_layer.weight", bf16, {8, 4}, {0, 0}, {8, 4}, "momentum"})), "no state is called 'momentum'");
  CHECK_REFUSED(list((shard{0, "decoder.layers.1.mlp.linear_fc2.weight", bf16, {4, 4}, {0, 0}, {4, 4}})), "no tensor is called");
  const std::vector<shard> overlapping = {{0, "output_layer.weight", bf16, {8, 4}, {0, 0}, {5, 4}}, {1, "output_layer.weight", bf16, {8, 4}, {4, 0}, {4, 4}}};
  CHECK_REFUSED(listed_holding(table, overlapping, 2), "overlap without being equal");
  std::vector<shard> incomplete = by_hand();
  incomplete.pop_back();
  const space target(tiny, config<tp<2>>{});
  CHECK_REFUSED(make_plan(shard_list{incomplete}, target, 0), "needs 16 elements of output_layer.weight, and no rank of FROM holds 16 of them");
}

TEST_CASE("two lists in one call are planned like their holdings") {
  const std::vector<shard> rows = {{0, "wte", bf16, {6, 4}, {0, 0}, {3, 4}}, {1, "wte", bf16, {6, 4}, {3, 0}, {3, 4}}};
  const std::vector<shard> columns = {{0, "wte", bf16, {6, 4}, {0, 0}, {6, 2}}, {1, "wte", bf16, {6, 4}, {0, 2}, {6, 2}}};
  const plan p = make_plan(shard_list{rows}, shard_list{columns}, 1);
  REQUIRE(p.receives.size() == 1);
  CHECK(p.receives[0].where == family_box{{{0, 1}, {0, 1}, {0, 1}, {0, 3}, {2, 4}}});
  CHECK(total_bytes(p.receives) == total_bytes(make_plan(shard_list{rows}, shard_list{columns}, 0).sends));
}

namespace {
std::vector<shard> one_tensor(rank_t rank, const std::vector<std::string>& states) {
  std::vector<shard> list;
  for (const std::string& state : states)
    list.push_back({rank, "w", state == "param" ? bf16 : fp32, {6, 4}, {0, 0}, {6, 4}, state});
  return list;
}
state_set states_of_plan(const plan& p) {
  state_set all;
  for (const transfer& t : p.receives) all = all | t.states;
  return all;
}
}  // namespace

TEST_CASE("a list planned to a list has the states of TO, where FROM has them too") {
  const std::vector<std::string> every = {"param", "master", "exp_avg", "exp_avg_sq"};
  const std::vector<shard> all = one_tensor(0, every);
  for (const std::vector<std::string>& wanted : std::vector<std::vector<std::string>>{
           {"param"}, {"master"}, {"exp_avg", "exp_avg_sq"}, {"param", "exp_avg"}, every}) {
    const std::vector<shard> to = one_tensor(1, wanted);
    state_set named;
    for (int s = 0; s < state_count; ++s)
      for (const std::string& state : wanted)
        if (adam_states[s].name == state) named = named | only(s);
    const plan arriving = make_plan(shard_list{all}, shard_list{to}, 1),
               leaving = make_plan(shard_list{all}, shard_list{to}, 0);
    CHECK(states_of_plan(arriving) == named);
    CHECK(arriving.receives == leaving.sends);
    CHECK(total_bytes(arriving.receives) == 24 * named.bytes_per_element());
  }
  const std::vector<shard> parameters = one_tensor(0, {"param"}), some = one_tensor(0, {"param", "master"}),
                           to = one_tensor(1, every);
  CHECK_REFUSED(make_plan(shard_list{parameters}, shard_list{to}, 1),
                "plan: rank 1 needs 24 elements of w, and no rank of FROM holds 24 of them");
  CHECK_REFUSED(make_plan(shard_list{some}, shard_list{to}, 1),
                "plan: FROM lists states that lie like exp_avg, but not that one");
  CHECK_REFUSED(make_plan(shard_list{some}, shard_list{to}, 0),
                "plan: FROM lists states that lie like exp_avg, but not that one");
}

TEST_CASE("between a list and a space, the states are the list's, on whichever side it is") {
  std::vector<shard> shards = by_hand();  // parameters, of which rank 1 has a part
  for (shard& s : shards) s.state = "exp_avg";
  const space other(tiny, config<dp<3>, zero<1>>{});
  for (rank_t device = 0; device < 3; ++device) {
    for (const transfer& t : make_plan(shard_list{shards}, other, device).receives) CHECK(t.states == only(2));
    for (const transfer& t : make_plan(other, shard_list{shards}, device).sends) CHECK(t.states == only(2));
  }
  CHECK_FALSE(make_plan(shard_list{shards}, other, 2).receives.empty());
  CHECK_FALSE(make_plan(other, shard_list{shards}, 2).sends.empty());
}

TEST_CASE("the world of a list is that of the highest rank it names") {
  std::vector<shard> shards;
  CHECK(shard_list(shards).ranks() == 0);
  for (const rank_t rank : {0, 5, 3}) {
    shards.push_back({rank, "w", bf16, {4}, {0}, {4}});
    CHECK(shard_list(shards).ranks() == (rank == 0 ? 1 : 6));
  }
  shards[1].rank = 9'223'372'036'854'775'807;
  CHECK_REFUSED(shard_list(shards).ranks(), "9223372036854775807 + 1 does not fit 64 bits");
}
