// SPDX-License-Identifier: Apache-2.0
// Hugging Face's names, written out for small models, and that each name means what it was made of.
#include <doctest/doctest.h>

#include <set>
#include <string>
#include <utility>

#include <reshard/model/hf_names.hpp>
#include <reshard/model/presets.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using testing::refused;

namespace {
constexpr transformer small{
    .name = "small", .layers = 2, .hidden = 12, .heads = 4, .groups = 2, .head_dim = 5, .ffn = 7, .vocabulary = 9};

template <typename Change>
transformer changed(transformer t, Change&& change) {
  change(t);
  return t;
}

/// Every name of a model. Each is found again as what it was made of.
std::set<std::string> all_names(const model& m) {
  const hf_names names(m);
  std::set<std::string> all;
  for (int f = 0; f < m.families; ++f)
    for (index_t member = 0; member < m[f].extent[0]; ++member)
      for (index_t expert = 0; expert < m[f].extent[1]; ++expert)
        for (int piece = 0; piece < pieces(m[f]); ++piece) {
          const tensor_piece p{{f, member, expert}, piece};
          const std::string name = names[p];
          CAPTURE(name);
          REQUIRE(names.find(name).has_value());
          if (m.counts(f)) CHECK(*names.find(name) == p);
          CHECK((all.insert(name).second || !m.counts(f)));
        }
  return all;
}
std::set<std::string> of_layer(const std::string& layer, std::initializer_list<const char*> rest) {
  std::set<std::string> names;
  for (const char* each : rest) names.insert("model.layers." + layer + "." + each + ".weight");
  return names;
}
void operator+=(std::set<std::string>& a, const std::set<std::string>& b) { a.insert(b.begin(), b.end()); }
}  // namespace

TEST_CASE("LLaMA's names; Qwen3 has norms, Qwen2 biases; a tied copy's name means the embedding") {
  std::set<std::string> expected{"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"};
  for (const char* l : {"0", "1"})
    expected +=
        of_layer(l, {"input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                     "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"});
  CHECK(all_names(make_transformer(small)) == expected);
  std::set<std::string> normed = expected, biased = expected;
  for (const std::string l : {"0", "1"}) {
    normed += of_layer(l, {"self_attn.q_norm", "self_attn.k_norm"});
    for (const std::string x : {"q", "k", "v"}) biased.insert("model.layers." + l + ".self_attn." + x + "_proj.bias");
  }
  CHECK(all_names(make_transformer(changed(small, [](auto& t) { t.qk_norm = true; }))) == normed);
  CHECK(all_names(make_transformer(changed(small, [](auto& t) { t.qkv_bias = true; }))) == biased);
  const model tied = make_transformer(changed(small, [](auto& t) { t.tied = true; }));
  expected.erase("lm_head.weight");
  CHECK(all_names(tied) == expected);
  CHECK(hf_tied_name(tied, 0) == "lm_head.weight");
  CHECK(hf_tied_name(tied, 1).empty());
  CHECK(hf_names(tied).find("lm_head.weight") == tensor_piece{{0, 0, 0}, 0});
}

TEST_CASE("which piece is which") {
  const model m = make_transformer(small);
  const hf_names names(m);
  CHECK(names[{{3, 1, 0}, 0}] == "model.layers.1.self_attn.q_proj.weight");
  CHECK(names[{{3, 1, 0}, 1}] == "model.layers.1.self_attn.k_proj.weight");
  CHECK(names[{{3, 1, 0}, 2}] == "model.layers.1.self_attn.v_proj.weight");
  CHECK(names[{{5, 0, 0}, 0}] == "model.layers.0.mlp.gate_proj.weight");
  CHECK(names[{{5, 0, 0}, 1}] == "model.layers.0.mlp.up_proj.weight");
  CHECK(refused([&] { names[{{3, 0, 0}, 3}]; }) == "reshard: model small: family 3 has no piece 3");
}

TEST_CASE(
    "a piece is the rows that unfused checkpoints have of it: k after the queries of every group, up after gate") {
  const hf_names names(make_transformer(small));  // groups of 2 queries, of 5 rows each
  CHECK(names.box_of({{3, 1, 0}, 0}) == box<3>{{{0, 2}, {0, 10}, {0, 12}}});
  CHECK(names.box_of({{3, 1, 0}, 1}) == box<3>{{{0, 2}, {10, 15}, {0, 12}}});
  CHECK(names.box_of({{3, 0, 0}, 2}) == box<3>{{{0, 2}, {15, 20}, {0, 12}}});
  CHECK(names.box_of({{5, 1, 0}, 1}) == box<3>{{{1, 2}, {0, 7}, {0, 12}}});
  CHECK(names.box_of({{6, 0, 0}, 0}) == box<3>{{{0, 1}, {0, 12}, {0, 7}}});
}

TEST_CASE("the name of a tied copy means the family that is tied, wherever it stands") {
  model m = make_transformer(changed(small, [](auto& t) { t.tied = true; }));
  std::swap(m.family_at[0], m.family_at[2]);
  CHECK(hf_names(m).find("lm_head.weight") == tensor_piece{{2, 0, 0}, 0});
  CHECK(hf_names(m).find("model.embed_tokens.weight") == tensor_piece{{2, 0, 0}, 0});
  CHECK(hf_names(m)[{{2, 0, 0}, 0}] == "model.embed_tokens.weight");
}

TEST_CASE("Mixtral's experts are w1 (gate), w3 (up) and w2 (down) of a block_sparse_moe; others' are mlp.experts") {
  const transformer two = changed(small, [](auto& t) {
    t.experts = 2;
    t.expert_ffn = 8;
  });
  const model mixtral = make_transformer(changed(two, [](auto& t) { t.checkpoint = checkpoint_form::mixtral; }));
  const hf_names names(mixtral);
  all_names(mixtral);
  CHECK(names[{{5, 1, 0}, 0}] == "model.layers.1.block_sparse_moe.gate.weight");
  CHECK(names[{{6, 0, 1}, 0}] == "model.layers.0.block_sparse_moe.experts.1.w1.weight");
  CHECK(names[{{6, 0, 1}, 1}] == "model.layers.0.block_sparse_moe.experts.1.w3.weight");
  CHECK(names[{{7, 0, 1}, 0}] == "model.layers.0.block_sparse_moe.experts.1.w2.weight");
  CHECK_FALSE(names.find("model.layers.0.mlp.gate.weight").has_value());
  const hf_names usual(make_transformer(two));
  CHECK(usual[{{5, 1, 0}, 0}] == "model.layers.1.mlp.gate.weight");
  CHECK(usual[{{6, 0, 1}, 1}] == "model.layers.0.mlp.experts.1.up_proj.weight");
  CHECK(usual[{{7, 0, 1}, 0}] == "model.layers.0.mlp.experts.1.down_proj.weight");
}

TEST_CASE("DeepSeek-V3's names, with the prediction layer after the last; both kinds of it where the last is dense") {
  const transformer deep{.name = "deep",
                         .layers = 2,
                         .hidden = 40,
                         .heads = 8,
                         .ffn = 56,
                         .vocabulary = 96,
                         .experts = 2,
                         .expert_ffn = 24,
                         .dense_first = 1,
                         .shared_ffn = 48,
                         .expert_bias = true,
                         .predictions = 1,
                         .latent = {.q_rank = 20, .kv_rank = 12, .nope = 6, .rope = 4, .value = 5}};
  std::set<std::string> expected{"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"};
  for (const char* l : {"0", "1", "2"})
    expected += of_layer(l, {"input_layernorm", "self_attn.o_proj", "self_attn.q_a_proj", "self_attn.q_a_layernorm",
                             "self_attn.q_b_proj", "self_attn.kv_a_proj_with_mqa", "self_attn.kv_a_layernorm",
                             "self_attn.kv_b_proj", "post_attention_layernorm"});
  expected += of_layer("0", {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"});
  for (const std::string l : {"1", "2"}) {
    expected +=
        of_layer(l, {"mlp.gate", "mlp.experts.0.gate_proj", "mlp.experts.0.up_proj", "mlp.experts.0.down_proj",
                     "mlp.experts.1.gate_proj", "mlp.experts.1.up_proj", "mlp.experts.1.down_proj",
                     "mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj", "mlp.shared_experts.down_proj"});
    expected.insert("model.layers." + l + ".mlp.gate.e_score_correction_bias");
  }
  expected += of_layer("2", {"enorm", "hnorm", "eh_proj", "shared_head.norm"});
  CHECK(all_names(make_transformer(deep)) == expected);
  model both = make_transformer(deep, [](index_t l) { return l == 0; });
  all_names(both);
  int dense = 0, mixture = 0;  // the norms before either
  for (int f = 0; f < both.families; ++f) {
    if (both[f].name == "mtp.layers.0.mtp_model_layer.mlp.linear_fc1.layer_norm_weight") dense = f;
    if (both[f].name == "mtp.layers.0.mtp_model_layer.pre_mlp_layernorm.weight") mixture = f;
  }
  const char* norm = "model.layers.2.post_attention_layernorm.weight";
  CHECK(hf_names(both).find(norm) == tensor_piece{{dense, 0, 0}, 0});
  both.family_at[dense].extent[axis_of::layer] = 0;  // as a space says that it has none
  CHECK(hf_names(both).find(norm) == tensor_piece{{mixture, 0, 0}, 0});
}

TEST_CASE("what is no name of a tensor is not found") {
  const hf_names names(make_transformer(changed(small,
                                                [](auto& t) {
                                                  t.experts = 2;
                                                  t.expert_ffn = 8;
                                                }),
                                        [](index_t l) { return l == 1; }));
  CHECK(names.find("model.layers.1.mlp.experts.1.up_proj.weight").has_value());
  for (const char* name : {"", "model.layers.2.input_layernorm.weight", "model.layers.01.input_layernorm.weight",
                           "model.layers.-1.input_layernorm.weight", "model.layers..input_layernorm.weight",
                           "model.layers.1.input_layernorm.weightx", "model.layers.1.input_layernorm.weigh",
                           "model.layers.99999999999999999999.input_layernorm.weight", "model.layers.",
                           "model.layers.0.mlp.experts.1.up_proj.weight", "model.layers.1.mlp.up_proj.weight",
                           "model.layers.1.mlp.experts.2.up_proj.weight", "lm_head.weight.", "output_layer.weight"}) {
    CAPTURE(std::string(name));
    CHECK_FALSE(names.find(name).has_value());
  }
}

TEST_CASE("models whose checkpoints have no such names, each with its reason") {
  static_assert(has_hf_names(models::deepseek_v3) && !has_hf_names(models::gpt3_1_3b));
  CHECK_FALSE(names_all_tensors(models::gpt3_1_3b));
  CHECK(names_all_tensors(models::deepseek_v3));
  CHECK(refused([] { hf_names names(models::gpt3_1_3b); }) ==
        "reshard: names=hf is not built for model gpt3-1.3b: GPT-2's checkpoints store matrices transposed");
  model m = make_transformer(small);
  CHECK(refused([&] { require_hf_names(m); }) == "accepted");
  CHECK(names_all_tensors(m));
  m.shape.checkpoint = checkpoint_form::without_q_rank;
  CHECK(refused([&] { require_hf_names(m); }) ==
        "reshard: names=hf is not built for model small: its queries are not compressed (q_lora_rank is null)");
  m.shape.checkpoint = checkpoint_form::none;
  CHECK_FALSE(has_hf_names(m));
  CHECK(refused([&] { require_hf_names(m); }) ==
        "reshard: names=hf is not built for model small: its checkpoint's form is not said; usual and mixtral have "
        "names");
  CHECK_FALSE(names_all_tensors(m));
  m.shape.checkpoint = checkpoint_form::usual;
  CHECK(names_all_tensors(m));
  model first = m;
  first.family_at[0].name = "wte";
  CHECK_FALSE(names_all_tensors(first));
  m.family_at[1].name = "decoder.layers.{layer}.own";
  CHECK(has_hf_names(m));
  CHECK_FALSE(names_all_tensors(m));
  CHECK(refused([&] { hf_names names(m); }) ==
        "reshard: model small: piece 0 of 'decoder.layers.{layer}.own' has no name of Hugging Face's");
}
