// SPDX-License-Identifier: Apache-2.0
// Models: the families that Megatron-core builds and their order, the sizes of the presets, states, and what is
// refused.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <reshard/model/presets.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using testing::refused;

namespace {
constexpr transformer small{
    .name = "small", .layers = 4, .hidden = 12, .heads = 4, .groups = 2, .head_dim = 5, .ffn = 7, .vocabulary = 9};
constexpr transformer small_moe = [] {
  transformer t = small;
  t.qk_norm = true;
  t.experts = 6;
  t.expert_ffn = 8;
  return t;
}();

template <typename Change>
transformer changed(transformer t, Change&& change) {
  change(t);
  return t;
}

/// "name [extents]" of every family, in order.
std::vector<std::string> families(const model& m) {
  std::vector<std::string> list;
  for (int f = 0; f < m.families; ++f) {
    std::string line(m[f].name);
    for (const index_t e : m[f].extent) line += " " + std::to_string(e);
    list.push_back(line);
  }
  return list;
}

const std::string layer = "decoder.layers.{layer}.", attention = layer + "self_attention.",
                  experts = layer + "mlp.experts.";
}  // namespace

TEST_CASE("a dense model: linear_proj before linear_qkv, fc1 as [gate; up], qkv rows (heads + 2 groups) head_dim") {
  CHECK(families(make_transformer(small)) ==
        std::vector<std::string>{
            "embedding.word_embeddings.weight 1 1 1 9 12", attention + "linear_proj.weight 4 1 1 12 20",
            attention + "linear_qkv.layer_norm_weight 4 1 1 1 12", attention + "linear_qkv.weight 4 1 2 20 12",
            layer + "mlp.linear_fc1.layer_norm_weight 4 1 1 1 12", layer + "mlp.linear_fc1.weight 4 1 2 7 12",
            layer + "mlp.linear_fc2.weight 4 1 1 12 7", "decoder.final_layernorm.weight 1 1 1 1 12",
            "output_layer.weight 1 1 1 9 12"});
}

TEST_CASE("dense layers among MoE ones: each kind's members are numbered on their own, and know their global layers") {
  const model m = make_transformer(small_moe, [](index_t l) { return l % 2 == 1; });
  CHECK(families(m) ==
        std::vector<std::string>{
            "embedding.word_embeddings.weight 1 1 1 9 12", attention + "linear_proj.weight 4 1 1 12 20",
            attention + "linear_qkv.layer_norm_weight 4 1 1 1 12", attention + "linear_qkv.weight 4 1 2 20 12",
            attention + "q_layernorm.weight 4 1 1 1 5", attention + "k_layernorm.weight 4 1 1 1 5",
            layer + "mlp.linear_fc1.layer_norm_weight 2 1 1 1 12", layer + "mlp.linear_fc1.weight 2 1 2 7 12",
            layer + "mlp.linear_fc2.weight 2 1 1 12 7", layer + "pre_mlp_layernorm.weight 2 1 1 1 12",
            layer + "mlp.router.weight 2 1 1 6 12", experts + "linear_fc1.weight{expert} 2 6 2 8 12",
            experts + "linear_fc2.weight{expert} 2 6 1 12 8", "decoder.final_layernorm.weight 1 1 1 1 12",
            "output_layer.weight 1 1 1 9 12"});
  CHECK(m.tensor({6, 1, 0}) == "decoder.layers.2.mlp.linear_fc1.layer_norm_weight");
  CHECK(m.tensor({11, 1, 5}) == "decoder.layers.3.mlp.experts.linear_fc1.weight5");
  CHECK(m[11].mesh == mesh_kind::expert);
  CHECK(m[10].mesh == mesh_kind::dense);  // the router is whole everywhere
  CHECK(m[10].tensor_axis == axis_of::none);
}

TEST_CASE("one kind of layer only: the other has no families, and needs no sizes") {
  CHECK(make_transformer(small_moe).families == 12);
  const model dense = make_transformer(small_moe, [](index_t) { return false; });
  CHECK(dense.families == 11);
  CHECK(dense.shape.expert_ffn == 0);
  CHECK(make_transformer(small_moe).shape.ffn == 0);
}

TEST_CASE("the rows of embedding and output are the vocabulary's, which may be padded; nothing else is") {
  for (const bool tied : {false, true}) {
    const model m = make_transformer(changed(small, [=](transformer& t) { t.tied = tied; }));
    for (int f = 0; f < m.families; ++f) {
      const bool rows = m[f].name == "embedding.word_embeddings.weight" || m[f].name == "output_layer.weight";
      CHECK((m[f].padded == padded_as::vocabulary) == rows);
    }
    CHECK(m[0].place == home::embedding);
  }
}

TEST_CASE("a tied embedding is one family under two names") {
  const model m = make_transformer(changed(small, [](transformer& t) { t.tied = true; }));
  CHECK(m.families == 8);
  CHECK(m[0].place == home::embedding);
  CHECK(m.tensor({0, 0, 0}) == "embedding.word_embeddings.weight");
  CHECK(m[0].tied_name == "output_layer.weight");
}

TEST_CASE("Qwen2 has a bias after the rows of q, k and v, in the same parts; GPT has one everywhere, and no gate") {
  const model qwen = make_transformer(changed(small, [](transformer& t) { t.qkv_bias = true; }));
  CHECK(families(qwen)[4] == attention + "linear_qkv.bias 4 1 2 1 20");
  CHECK(qwen[4].tensor_axis == axis_of::part);
  CHECK(qwen[4].fused == fused_as::qkv);
  CHECK(qwen[4].vector());
  CHECK(qwen.families == 10);
  const model gpt = make_transformer(changed(small, [](transformer& t) {
    t.groups = 4;
    t.tied = true;
    t.learned_positions = 11;
  }));
  CHECK(families(gpt) ==
        std::vector<std::string>{
            "embedding.word_embeddings.weight 1 1 1 9 12", "embedding.position_embeddings.weight 1 1 1 11 12",
            attention + "linear_proj.weight 4 1 1 12 20", attention + "linear_proj.bias 4 1 1 1 12",
            attention + "linear_qkv.layer_norm_weight 4 1 1 1 12", attention + "linear_qkv.layer_norm_bias 4 1 1 1 12",
            attention + "linear_qkv.weight 4 1 4 15 12", attention + "linear_qkv.bias 4 1 4 1 15",
            layer + "mlp.linear_fc1.layer_norm_weight 4 1 1 1 12", layer + "mlp.linear_fc1.layer_norm_bias 4 1 1 1 12",
            layer + "mlp.linear_fc1.weight 4 1 1 7 12", layer + "mlp.linear_fc1.bias 4 1 1 1 7",
            layer + "mlp.linear_fc2.weight 4 1 1 12 7", layer + "mlp.linear_fc2.bias 4 1 1 1 12",
            "decoder.final_layernorm.weight 1 1 1 1 12", "decoder.final_layernorm.bias 1 1 1 1 12"});
  const int axes[] = {axis_of::row,    axis_of::none, axis_of::column, axis_of::none, axis_of::none, axis_of::none,
                      axis_of::part,   axis_of::part, axis_of::none,   axis_of::none, axis_of::row,  axis_of::column,
                      axis_of::column, axis_of::none, axis_of::none,   axis_of::none};
  for (int f = 0; f < gpt.families; ++f) CHECK(gpt[f].tensor_axis == axes[f]);
  CHECK(gpt[0].place == home::embedding);
  CHECK(gpt[1].place == home::first_stage);
  CHECK(gpt[15].place == home::last_stage);
}

TEST_CASE("DeepSeek-V3: latent attention, a first dense layer, expert bias, shared experts, a prediction layer") {
  const transformer t{.name = "deep",
                      .layers = 4,
                      .hidden = 40,
                      .heads = 8,
                      .ffn = 56,
                      .vocabulary = 96,
                      .experts = 8,
                      .expert_ffn = 24,
                      .dense_first = 1,
                      .shared_ffn = 48,
                      .expert_bias = true,
                      .predictions = 1,
                      .latent = {.q_rank = 20, .kv_rank = 12, .nope = 6, .rope = 4, .value = 5}};
  const auto of_attention = [](const std::string& n, const std::string& l) {
    return std::vector<std::string>{l + "input_layernorm.weight" + n + " 1 1 1 40",
                                    l + "self_attention.linear_proj.weight" + n + " 1 1 40 40",
                                    l + "self_attention.linear_q_down_proj.weight" + n + " 1 1 20 40",
                                    l + "self_attention.linear_q_up_proj.layer_norm_weight" + n + " 1 1 1 20",
                                    l + "self_attention.linear_q_up_proj.weight" + n + " 1 1 80 20",
                                    l + "self_attention.linear_kv_down_proj.weight" + n + " 1 1 16 40",
                                    l + "self_attention.linear_kv_up_proj.layer_norm_weight" + n + " 1 1 1 12",
                                    l + "self_attention.linear_kv_up_proj.weight" + n + " 1 1 88 12"};
  };
  const auto of_dense = [](const std::string& n, const std::string& l) {
    return std::vector<std::string>{l + "mlp.linear_fc1.layer_norm_weight" + n + " 1 1 1 40",
                                    l + "mlp.linear_fc1.weight" + n + " 1 2 56 40",
                                    l + "mlp.linear_fc2.weight" + n + " 1 1 40 56"};
  };
  const auto of_moe = [](const std::string& n, const std::string& l) {
    return std::vector<std::string>{l + "pre_mlp_layernorm.weight" + n + " 1 1 1 40",
                                    l + "mlp.router.weight" + n + " 1 1 8 40",
                                    l + "mlp.router.expert_bias" + n + " 1 1 1 8",
                                    l + "mlp.experts.linear_fc1.weight{expert}" + n + " 8 2 24 40",
                                    l + "mlp.experts.linear_fc2.weight{expert}" + n + " 8 1 40 24",
                                    l + "mlp.shared_experts.linear_fc1.weight" + n + " 1 2 48 40",
                                    l + "mlp.shared_experts.linear_fc2.weight" + n + " 1 1 40 48"};
  };
  const std::string inner = "mtp.layers.0.mtp_model_layer.";
  for (const bool dense_last : {false, true}) {
    CAPTURE(dense_last);
    std::vector<std::string> expected{"embedding.word_embeddings.weight 1 1 1 96 40"};
    const auto append = [&](const std::vector<std::string>& more) {
      expected.insert(expected.end(), more.begin(), more.end());
    };
    append(of_attention(" 4", layer));
    append(of_dense(" 1", layer));
    append(of_moe(" 3", layer));
    append({"decoder.final_layernorm.weight 1 1 1 1 40", "mtp.layers.0.enorm.weight 1 1 1 1 40",
            "mtp.layers.0.hnorm.weight 1 1 1 1 40", "mtp.layers.0.eh_proj.weight 1 1 1 40 80"});
    append(of_attention(" 1", inner));
    if (dense_last) append(of_dense(" 1", inner));
    append(of_moe(" 1", inner));
    append({"mtp.layers.0.final_layernorm.weight 1 1 1 1 40", "output_layer.weight 1 1 1 96 40"});
    const model m = make_transformer(t, [=](index_t l) { return dense_last ? l != 3 : l != 0; });
    CHECK(families(m) == expected);
    CHECK(m.shape.groups == 0);
    CHECK(m.shape.shared_ffn == 48);
    CHECK(m.shape.predictions == 1);
    index_t counted = 0;  // a prediction layer of the last layer's kind
    for (int f = 0; f < m.families; ++f) {
      const bool of_experts = m[f].name.find("experts") != m[f].name.npos ||
                              m[f].name.find("router") != m[f].name.npos || m[f].name.find("pre_mlp") != m[f].name.npos;
      const bool predicts = m[f].name.starts_with("mtp.");
      CHECK((m[f].place == home::prediction) == predicts);
      CHECK((m[f].kind == tensor_kind::statistic) == m[f].name.ends_with("expert_bias"));
      CHECK(m.counts(f) == !(predicts && of_experts && dense_last));
      if (m.counts(f)) counted += m[f].tensors() * m[f].tensor_elements();
      if (m[f].name == "decoder.final_layernorm.weight") CHECK(m[f].place == home::last_layer);
    }
    CHECK(m.parameters() == counted);
  }
  const model whole = make_transformer(changed(t, [](transformer& x) { x.latent.q_rank = 0; }));
  CHECK(families(whole)[3] == attention + "linear_q_proj.layer_norm_weight 4 1 1 1 40");
  CHECK(families(whole)[4] == attention + "linear_q_proj.weight 4 1 1 80 40");
  CHECK(families(whole)[5] == attention + "linear_kv_down_proj.weight 4 1 1 16 40");
}

TEST_CASE("a prediction layer has experts where the model has any, and in a dense model none") {
  const transformer predicting = changed(small, [](transformer& t) { t.predictions = 1; });
  const std::string inner = "mtp.layers.0.mtp_model_layer.";
  const std::vector<std::string> dense = families(make_transformer(predicting));
  CHECK(std::vector<std::string>(dense.begin() + 7, dense.end()) ==
        std::vector<std::string>{"decoder.final_layernorm.weight 1 1 1 1 12", "mtp.layers.0.enorm.weight 1 1 1 1 12",
                                 "mtp.layers.0.hnorm.weight 1 1 1 1 12", "mtp.layers.0.eh_proj.weight 1 1 1 12 24",
                                 inner + "self_attention.linear_proj.weight 1 1 1 12 20",
                                 inner + "self_attention.linear_qkv.layer_norm_weight 1 1 1 1 12",
                                 inner + "self_attention.linear_qkv.weight 1 1 2 20 12",
                                 inner + "mlp.linear_fc1.layer_norm_weight 1 1 1 1 12",
                                 inner + "mlp.linear_fc1.weight 1 1 2 7 12", inner + "mlp.linear_fc2.weight 1 1 1 12 7",
                                 "mtp.layers.0.final_layernorm.weight 1 1 1 1 12", "output_layer.weight 1 1 1 9 12"});
  const model one = make_transformer(changed(predicting, [](transformer& t) { t.experts = 1, t.expert_ffn = 8; }));
  const std::vector<std::string> of_one = families(one);
  CHECK(std::vector<std::string>(of_one.end() - 6, of_one.end()) ==
        std::vector<std::string>{inner + "pre_mlp_layernorm.weight 1 1 1 1 12", inner + "mlp.router.weight 1 1 1 1 12",
                                 inner + "mlp.experts.linear_fc1.weight{expert} 1 1 2 8 12",
                                 inner + "mlp.experts.linear_fc2.weight{expert} 1 1 1 12 8",
                                 "mtp.layers.0.final_layernorm.weight 1 1 1 1 12", "output_layer.weight 1 1 1 9 12"});
  CHECK(one.shape.expert_ffn == 8);
}

TEST_CASE("one layer of a kind has its families and needs its sizes; experts that no layer has are the prediction's") {
  const auto third = [](index_t l) { return l == 2; };
  const model m = make_transformer(small_moe, third);
  CHECK(m[6].name == layer + "mlp.linear_fc1.layer_norm_weight");
  CHECK(m[6].extent[0] == 3);
  CHECK(m[9].name == layer + "pre_mlp_layernorm.weight");
  CHECK(m[9].extent[0] == 1);
  CHECK(m.layers_of(9).layer_of(0) == 2);
  CHECK(m.shape.ffn == 7);
  CHECK(m.shape.expert_ffn == 8);
  const auto but_third = [](index_t l) { return l != 2; };
  CHECK(make_transformer(small_moe, but_third).shape.ffn == 7);
  CHECK(refused([&] { make_transformer(changed(small_moe, [](auto& t) { t.ffn = 0; }), but_third); }) ==
        "reshard: model small: the intermediate size of the dense layers is 0, but must be at least 1");
  CHECK(refused([&] { make_transformer(changed(small_moe, [](auto& t) { t.expert_ffn = 0; }), third); }) ==
        "reshard: model small: the intermediate size of an expert is 0, but must be at least 1");
  CHECK(make_transformer(small, [](index_t) { return true; }).families == 9);  // dense: it has no experts
  const transformer of_prediction =
      changed(small, [](auto& t) { t.predictions = 1, t.experts = 1, t.expert_ffn = 8, t.shared_ffn = 5; });
  const dimensions shape = make_transformer(of_prediction, [](index_t) { return false; }).shape;
  CHECK(shape.expert_ffn == 8);
  CHECK(shape.shared_ffn == 5);
  CHECK(shape.ffn == 7);
  CHECK(make_transformer(changed(of_prediction, [](auto& t) { t.experts = 0; })).shape.shared_ffn == 0);
  CHECK(refused([&] {
          make_transformer(changed(of_prediction, [](auto& t) { t.expert_ffn = 0; }), [](index_t) { return false; });
        }) == "reshard: model small: the intermediate size of an expert is 0, but must be at least 1");
}

TEST_CASE("what a checkpoint calls its tensors: as it was said, but of a GPT and of queries that are not compressed") {
  const auto form = [](auto&& change) { return make_transformer(changed(small, change)).shape.checkpoint; };
  CHECK(form([](auto&) {}) == checkpoint_form::usual);
  CHECK(form([](auto& t) { t.checkpoint = checkpoint_form::mixtral; }) == checkpoint_form::mixtral);
  CHECK(form([](auto& t) { t.latent.q_rank = 9; }) == checkpoint_form::usual);
  CHECK(form([](auto& t) { t.latent = {20, 12, 6, 4, 5}; }) == checkpoint_form::usual);
  CHECK(form([](auto& t) { t.latent = {1, 12, 6, 4, 5}; }) == checkpoint_form::usual);
  CHECK(form([](auto& t) { t.latent = {0, 12, 6, 4, 5}; }) == checkpoint_form::without_q_rank);
  CHECK(form([](auto& t) { t.learned_positions = 3; }) == checkpoint_form::transposed);
  CHECK(make_transformer(small)[0].tied_name.empty());
}

TEST_CASE("latent attention of other sizes: heads x value columns, and queries of a rank of 1") {
  const model m = make_transformer(changed(small, [](transformer& t) { t.latent = {1, 12, 6, 4, 3}; }));
  CHECK(families(m)[2] == attention + "linear_proj.weight 4 1 1 12 12");
  CHECK(families(m)[3] == attention + "linear_q_down_proj.weight 4 1 1 1 12");
  const model wide = make_transformer(changed(small, [](transformer& t) { t.latent = {2, 7, 6, 4, 5}; }));
  CHECK(families(wide)[2] == attention + "linear_proj.weight 4 1 1 12 20");
  CHECK(wide[2].tensor_axis == axis_of::column);
  CHECK(wide.shape.groups == 0);
  CHECK(wide.shape.head_dim == 6 + 4);
  CHECK(families(wide)[5] == attention + "linear_q_up_proj.weight 4 1 1 40 2");
  CHECK(families(wide)[6] == attention + "linear_kv_down_proj.weight 4 1 1 11 12");
  CHECK(families(wide)[8] == attention + "linear_kv_up_proj.weight 4 1 1 44 7");
}

TEST_CASE("the least of a transformer is 1 of everything") {
  const transformer least{
      .name = "least", .layers = 1, .hidden = 1, .heads = 1, .groups = 1, .head_dim = 1, .ffn = 1, .vocabulary = 1};
  CHECK(make_transformer(least).parameters() == 1 + (1 + 1 + 3) + (1 + 2 + 1) + 1 + 1);
  const model gpt = make_transformer(changed(least, [](transformer& t) { t.learned_positions = 1; }));
  CHECK(gpt[1].name == "embedding.position_embeddings.weight");
  CHECK(gpt.shape.checkpoint == checkpoint_form::transposed);
  const model mixture = make_transformer(changed(least, [](transformer& t) { t.experts = 1, t.expert_ffn = 1; }));
  CHECK(mixture.parameters() == 1 + (1 + 1 + 3) + (1 + 1 + 2 + 1) + 1 + 1);
  const model latent = make_transformer(changed(least, [](transformer& t) { t.latent = {1, 1, 1, 1, 1}; }));
  CHECK(latent.parameters() == 1 + (1 + 1 + 1 + 1 + 2 + 2 + 1 + 2) + (1 + 2 + 1) + 1 + 1);
}

TEST_CASE("the presets have the sizes of the published models") {
  const struct {
    const char* name;
    index_t parameters, layers;
  } known[] = {{"llama2-7b", 6738415616, 32},      {"llama2-13b", 13015864320, 40},
               {"llama2-70b", 68976648192, 80},    {"llama-32b", 32528943616, 60},
               {"qwen3-30b-a3b", 30532122624, 48}, {"qwen3-235b-a22b", 235093634560, 94},
               {"gpt3-1.3b", 1317654528, 24},      {"gpt3-2.7b", 2653967360, 32},
               {"gpt3-6.7b", 6662266880, 32},      {"deepseek-v3", 682636487424, 61}};
  for (const auto& k : known) {
    CAPTURE(std::string(k.name));
    CHECK(preset(k.name).name == k.name);
    CHECK(preset(k.name).parameters() == k.parameters);
    CHECK(preset(k.name).shape.layers == k.layers);
  }
  CHECK(std::size(known) == std::size(models::presets));
  CHECK(refused([] { preset("gpt-5"); }) ==
        "reshard: no model is called 'gpt-5'; known are llama2-7b, llama2-13b, llama2-70b, llama-32b, qwen3-30b-a3b, "
        "qwen3-235b-a22b, gpt3-1.3b, gpt3-2.7b, gpt3-6.7b, deepseek-v3");
}

TEST_CASE("a model that cannot be is refused with its name and the number") {
  const struct {
    transformer t;
    const char* sentence;
  } cases[] = {
      {changed(small, [](auto& t) { t.layers = 0; }), "model small: the number of layers is 0, but must be at least 1"},
      {changed(small, [](auto& t) { t.hidden = -3; }), "model small: the hidden size is -3, but must be at least 1"},
      {changed(small, [](auto& t) { t.heads = 0; }),
       "model small: the number of attention heads is 0, but must be at least 1"},
      {changed(small, [](auto& t) { t.groups = 0; }),
       "model small: the number of query groups is 0, but must be at least 1"},
      {changed(small, [](auto& t) { t.head_dim = 0; }), "model small: the head dimension is 0, but must be at least 1"},
      {changed(small, [](auto& t) { t.vocabulary = 0; }), "model small: the vocabulary is 0, but must be at least 1"},
      {changed(small, [](auto& t) { t.ffn = 0; }),
       "model small: the intermediate size of the dense layers is 0, but must be at least 1"},
      {changed(small_moe, [](auto& t) { t.expert_ffn = 0; }),
       "model small: the intermediate size of an expert is 0, but must be at least 1"},
      {changed(small, [](auto& t) { t.groups = 3; }),
       "model small: 4 attention heads do not divide into 3 query groups"},
      {changed(small, [](auto& t) { t.predictions = 2; }), "model small: 2 prediction layers; 0 or 1 is supported"},
      {changed(small, [](auto& t) { t.predictions = -1; }), "model small: -1 prediction layers; 0 or 1 is supported"},
      {changed(small_moe, [](auto& t) { t.shared_ffn = -5; }),
       "model small: the size of the shared experts is -5, below 0"},
      {changed(small,
               [](auto& t) {
                 t.latent = {-2, 12, 6, 4, 5};
               }),
       "model small: the rank of the queries is -2, below 0"},
      {changed(small,
               [](auto& t) {
                 t.latent = {20, -12, 6, 4, 5};
               }),
       "model small: the rank of the keys and values is -12, but must be at least 1"},
      {changed(small,
               [](auto& t) {
                 t.latent = {20, 12, 0, 4, 5};
               }),
       "model small: the part of a head without positions is 0, but must be at least 1"},
      {changed(small,
               [](auto& t) {
                 t.latent = {20, 12, 6, -4, 5};
               }),
       "model small: the part of a head with rotary positions is -4, but must be at least 1"},
      {changed(small,
               [](auto& t) {
                 t.latent = {20, 12, 6, 4, 0};
               }),
       "model small: the size of a value head is 0, but must be at least 1"},
  };
  for (const auto& c : cases) CHECK(refused([&] { make_transformer(c.t); }) == std::string("reshard: ") + c.sentence);
  CHECK(refused([] { make_transformer(changed(small, [](auto& t) { t.hidden = index_t{1} << 60; })); }) ==
        "reshard: 9 x 1152921504606846976 does not fit 64 bits");
  CHECK(refused([] {
          make_transformer(small);
          make_transformer(small_moe);
        }) == "accepted");
}

TEST_CASE("more than 1024 layers are fine where they are all alike, and refused where they are of two kinds") {
  const transformer deep = changed(small_moe, [](auto& t) { t.layers = 1025; });
  const model alike = make_transformer(deep);
  for (int f = 0; f < alike.families; ++f)
    if (alike[f].place == home::layers) {
      CHECK(alike[f].extent[0] == 1025);
      CHECK(alike.layers_of(f).size() == 1025);
      CHECK(alike.layers_of(f).layer_of(1024) == 1024);
    }
  CHECK(refused([&] { make_transformer(deep, [](index_t l) { return l > 0; }); }) ==
        "reshard: model small: 1025 layers of two kinds; at most 1024 are supported");
  const model most =
      make_transformer(changed(deep, [](auto& t) { t.layers = 1024; }), [](index_t l) { return l == 1023; });
  CHECK(most.sets[detail::moe_layers].layer_of(0) == 1023);
  CHECK(most.sets[detail::dense_layers].size() == 1023);
}

TEST_CASE("a model has at most 64 families, none of which may leave 64 bits") {
  model m;
  for (int f = 0; f < max_families; ++f) m.add({.name = "x"});
  CHECK(refused([&] { m.add({.name = "x"}); }) == "reshard: a model has at most 64 tensor families");
  CHECK(refused([] {
          model().add({.name = "x", .extent = {1, 1, 1, index_t{1} << 55, 1}});
        }) == "reshard: 36028797018963968 x 1024 does not fit 64 bits");
}

TEST_CASE("states: bf16 weights, fp32 master weights and moments, 14 bytes an element; a statistic's 4") {
  CHECK((states_of(role::parameter) | states_of(role::optimizer)).bytes_per_element() == 14);
  CHECK(states_of(role::statistic).bytes_per_element() == 4);
  CHECK(parameter_states == (only(0) | statistic_states));
  CHECK(all_states == (parameter_states | optimizer_states));
  CHECK(optimizer_states == (only(1) | only(2) | only(3)));
  CHECK(optimizer_states.bytes_per_element() == 12);
  CHECK((optimizer_states & parameter_states).empty());
  CHECK((all_states & only(2)) == only(2));
  for (const int i : all_states) CHECK(states_of(adam[i].placed_as()).contains(i));
  const struct {
    dtype type;
    const char* name;
    bytes_t width;
  } types[] = {{bf16, "bf16", 2},          {fp16, "fp16", 2},         {fp32, "fp32", 4},
               {dtype::fp64, "fp64", 8},   {dtype::fp8, "fp8", 1},    {dtype::int8, "int8", 1},
               {dtype::int32, "int32", 4}, {dtype::int64, "int64", 8}};
  for (const auto& t : types) {
    CHECK(name(t.type) == t.name);
    CHECK(width(t.type) == t.width);
  }
}
