// SPDX-License-Identifier: Apache-2.0
// config.json -> model: what is read, every default, and every refusal's sentence.
#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/io/hf_config.hpp>

#include "process.hpp"

using namespace reshard;

using namespace reshard::io;

namespace {

/// A config.json text, as keys and raw JSON values.
using entries = std::vector<std::pair<std::string, std::string>>;

std::string json(const entries& from) {
  std::string text = "{";
  for (const auto& [key, value] : from) text += (text.size() > 1 ? ", \"" : "\"") + key + "\": " + value;
  return text + "}";
}
/// With a key's value changed or added; removed where the value is empty.
entries with(entries base, std::string_view key, const std::string& value) {
  for (std::size_t i = 0; i < base.size(); ++i)
    if (base[i].first == key) {
      if (value.empty()) base.erase(base.begin() + static_cast<std::ptrdiff_t>(i));
      else base[i].second = value;
      return base;
    }
  if (!value.empty()) base.emplace_back(key, value);
  return base;
}

const entries llama = {{"architectures", R"(["LlamaForCausalLM"])"},
                       {"num_hidden_layers", "4"},
                       {"hidden_size", "64"},
                       {"num_attention_heads", "8"},
                       {"intermediate_size", "96"},
                       {"vocab_size", "128"}};
const entries moe = {{"architectures", R"(["Qwen3MoeForCausalLM"])"},
                     {"num_hidden_layers", "6"},
                     {"hidden_size", "64"},
                     {"num_attention_heads", "8"},
                     {"num_key_value_heads", "4"},
                     {"head_dim", "16"},
                     {"vocab_size", "128"},
                     {"num_experts", "8"},
                     {"moe_intermediate_size", "24"}};

model read(const entries& from) { return parse_config(json(from), "m.json"); }

std::string refusal_of(const std::string& text) {
  try {
    parse_config(text, "m.json");
  } catch (const refusal& stopped) {
    return stopped.what();
  }
  return "accepted";
}
std::string refusal_of(const entries& from) { return refusal_of(json(from)); }

std::vector<std::string> names(const model& m) {
  std::vector<std::string> result;
  for (int f = 0; f < m.families; ++f) result.emplace_back(m[f].name);
  return result;
}
std::vector<index_t> moe_layers(const model& m) {
  std::vector<index_t> result;
  for (int f = 0; f < m.families; ++f)
    if (m[f].name == "decoder.layers.{layer}.mlp.router.weight")
      for (index_t i = 0; i < m[f].extent[0]; ++i) result.push_back(m.layers_of(f).layer_of(i));
  return result;
}

}  // namespace

TEST_CASE("LLaMA: sizes and defaults") {
  const model m = read(llama);
  CHECK(m.name == "m.json");
  CHECK(m.shape.layers == 4);
  CHECK(m.shape.groups == 8);
  CHECK(m.shape.head_dim == 8);
  CHECK(m.shape.ffn == 96);
  CHECK_FALSE(m.shape.tied);
  CHECK(names(m) == std::vector<std::string>{
                        "embedding.word_embeddings.weight", "decoder.layers.{layer}.self_attention.linear_proj.weight",
                        "decoder.layers.{layer}.self_attention.linear_qkv.layer_norm_weight",
                        "decoder.layers.{layer}.self_attention.linear_qkv.weight",
                        "decoder.layers.{layer}.mlp.linear_fc1.layer_norm_weight",
                        "decoder.layers.{layer}.mlp.linear_fc1.weight", "decoder.layers.{layer}.mlp.linear_fc2.weight",
                        "decoder.final_layernorm.weight", "output_layer.weight"});
}

TEST_CASE("absent and null mean the default") {
  for (const char* value : {"", "null"}) {
    CHECK(read(with(llama, "num_key_value_heads", value)).shape.groups == 8);
    CHECK(read(with(llama, "head_dim", value)).shape.head_dim == 8);
    CHECK(moe_layers(read(with(moe, "mlp_only_layers", value))).size() == 6);
  }
  CHECK(read(with(llama, "num_key_value_heads", "2")).shape.groups == 2);
  CHECK(read(with(llama, "head_dim", "24")).shape.head_dim == 24);
  CHECK(read(with(llama, "tie_word_embeddings", "true")).shape.tied);
}

TEST_CASE(
    "every default, of every architecture: untied, as many groups as heads, head_dim hidden / heads, all layers MoE, "
    "none dense") {
  const entries qwen3 = with(llama, "architectures", R"(["Qwen3ForCausalLM"])");
  const entries bare_moe = with(with(moe, "num_key_value_heads", ""), "head_dim", "");
  for (const entries& base : {llama, qwen3, moe, bare_moe}) {
    CAPTURE(json(base));
    const model m = read(base);
    CHECK_FALSE(m.shape.tied);
    CHECK(names(m).back() == "output_layer.weight");
    const model tied = read(with(base, "tie_word_embeddings", "true")),
                untied = read(with(base, "tie_word_embeddings", "false"));
    CHECK(tied.shape.tied);
    CHECK(tied[0].tied_name == "output_layer.weight");
    CHECK(names(tied).back() == "decoder.final_layernorm.weight");
    CHECK(names(untied) == names(m));
  }
  CHECK(read(bare_moe).shape.groups == 8);
  CHECK(read(bare_moe).shape.head_dim == 8);
  CHECK(read(moe).shape.groups == 4);
  CHECK(read(moe).shape.head_dim == 16);
  CHECK(moe_layers(read(moe)) ==
        moe_layers(read(with(with(moe, "decoder_sparse_step", "1"), "mlp_only_layers", "[]"))));
  CHECK(read(moe).shape.experts == 8);
  CHECK(read(moe).shape.expert_ffn == 24);
  CHECK(read(llama).shape.experts == 0);
  CHECK(read(with(llama, "num_experts", "4")).shape.experts == 0);  // no key of LLaMA's
}

TEST_CASE("each number goes where its key says") {
  const model m = read({{"architectures", R"(["Qwen3MoeForCausalLM"])"},
                        {"num_hidden_layers", "3"},
                        {"hidden_size", "10"},
                        {"num_attention_heads", "6"},
                        {"num_key_value_heads", "2"},
                        {"head_dim", "7"},
                        {"vocab_size", "13"},
                        {"num_experts", "5"},
                        {"moe_intermediate_size", "9"},
                        {"intermediate_size", "11"},
                        {"decoder_sparse_step", "2"}});
  CHECK(m.shape.layers == 3);
  CHECK(m.shape.hidden == 10);
  CHECK(m.shape.heads == 6);
  CHECK(m.shape.groups == 2);
  CHECK(m.shape.head_dim == 7);
  CHECK(m.shape.vocabulary == 13);
  CHECK(m.shape.experts == 5);
  CHECK(m.shape.expert_ffn == 9);
  CHECK(m.shape.ffn == 11);
  CHECK(moe_layers(m) == std::vector<index_t>{1});
}

TEST_CASE("Qwen3 has q and k norms, LLaMA has none") {
  const model m = read(with(llama, "architectures", R"(["Qwen3ForCausalLM", "Other"])"));
  CHECK(names(m)[4] == "decoder.layers.{layer}.self_attention.q_layernorm.weight");
  CHECK(names(m)[5] == "decoder.layers.{layer}.self_attention.k_layernorm.weight");
  CHECK(m.families == read(llama).families + 2);
}

TEST_CASE("which layers are MoE") {
  CHECK(moe_layers(read(moe)) == std::vector<index_t>{0, 1, 2, 3, 4, 5});
  const entries dense_too = with(moe, "intermediate_size", "32");
  CHECK(moe_layers(read(with(dense_too, "decoder_sparse_step", "2"))) == std::vector<index_t>{1, 3, 5});
  CHECK(moe_layers(read(with(dense_too, "decoder_sparse_step", "3"))) == std::vector<index_t>{2, 5});
  CHECK(moe_layers(read(with(dense_too, "decoder_sparse_step", "7"))).empty());
  CHECK(moe_layers(read(with(dense_too, "mlp_only_layers", "[5, 0, 5]"))) == std::vector<index_t>{1, 2, 3, 4});
  CHECK(moe_layers(read(with(with(dense_too, "mlp_only_layers", "[1]"), "decoder_sparse_step", "2"))) ==
        std::vector<index_t>{3, 5});
  CHECK(read(moe).shape.ffn == 0);
  CHECK(read(dense_too).shape.ffn == 0);  // not in use
  CHECK(read(with(dense_too, "mlp_only_layers", "[3]")).shape.ffn == 32);
  CHECK(read(with(dense_too, "mlp_only_layers", "[0]")).shape.ffn == 32);
  CHECK(read(with(dense_too, "mlp_only_layers", "[5]")).shape.ffn == 32);
  CHECK(read(with(moe, "mlp_only_layers", "[6]")).shape.ffn == 0);         // there is no such layer
  CHECK(read(with(moe, "intermediate_size", "null")).shape.experts == 8);  // not looked at
}

TEST_CASE("other keys are ignored, whatever they hold") {
  CHECK(read(with(llama, "rope_scaling", R"({"a": [1.5, {"hidden_size": 3}], "b": null})")).shape.hidden == 64);
  CHECK(read(with(llama, "num_experts", "-3")).shape.experts == 0);
  CHECK(read(with(llama, "mlp_only_layers", "\"x\"")).shape.layers == 4);
  CHECK(read(with(llama, "x", "[[[[[[[[]]]]]]]]")).shape.layers == 4);
  CHECK(parse_config("\xEF\xBB\xBF\n" + json(llama) + "\n", "m.json").shape.layers == 4);
}

TEST_CASE("required keys, missing, null, of a wrong type or out of range") {
  const auto sentence = [](std::string_view key, const std::string& value) {
    return "reshard: m.json: " + std::string(key) + " is " + value +
           ", but must be a whole number, at least 1 and below 2^63";
  };
  for (const entries& base : {llama, moe})
    for (const auto& entry : base) {
      const std::string& key = entry.first;
      if (key == "architectures" || key == "num_key_value_heads" || key == "head_dim") continue;
      CAPTURE(key);
      CHECK(refusal_of(with(base, key, "")) == "reshard: m.json: " + key + " is missing");
      const std::pair<const char*, const char*> wrong[] = {{"null", "null"},
                                                           {"true", "true"},
                                                           {"\"64\"", "the text '64'"},
                                                           {"[64]", "a list"},
                                                           {"{\"a\":64}", "an object"},
                                                           {"0", "0"},
                                                           {"-0", "0"},
                                                           {"-64", "-64"},
                                                           {"64.0", "64.0"},
                                                           {"6.4e1", "6.4e1"},
                                                           {"0.5", "0.5"},
                                                           {"9223372036854775808", "9223372036854775808"},
                                                           {"18446744073709551616", "18446744073709551616"},
                                                           {"-9223372036854775809", "-9223372036854775809"}};
      for (const auto& [value, shown] : wrong) CHECK(refusal_of(with(base, key, value)) == sentence(key, shown));
    }
  for (const char* key : {"num_key_value_heads", "head_dim"}) {
    CHECK(refusal_of(with(llama, key, "0")) == sentence(key, "0"));
    CHECK(refusal_of(with(llama, key, "\"\"")) == sentence(key, "the text ''"));
  }
  CHECK(refusal_of(with(moe, "decoder_sparse_step", "0")) == sentence("decoder_sparse_step", "0"));
  CHECK(refusal_of(with(moe, "decoder_sparse_step", "null")) == sentence("decoder_sparse_step", "null"));
}

TEST_CASE("the other sentences") {
  const std::pair<entries, std::string> cases[] = {
      {with(llama, "architectures", ""), "architectures is missing"},
      {with(llama, "architectures", "[]"), "architectures is a list, but must be a list that begins with a name"},
      {with(llama, "architectures", "null"), "architectures is null, but must be a list that begins with a name"},
      {with(llama, "architectures", "[3]"), "architectures is a list, but must be a list that begins with a name"},
      {with(llama, "architectures", "\"LlamaForCausalLM\""),
       "architectures is the text 'LlamaForCausalLM', but must be a list that begins with a name"},
      {with(llama, "architectures", "[\"PhiForCausalLM\"]"),
       "the architecture PhiForCausalLM is not built; built are LlamaForCausalLM, MistralForCausalLM, "
       "Qwen2ForCausalLM, Qwen3ForCausalLM, "
       "Qwen3MoeForCausalLM, MixtralForCausalLM, DeepseekV3ForCausalLM and GPT2LMHeadModel"},
      {with(llama, "architectures", "[\"A\\nB\"]"),
       "the architecture A\\x0aB is not built; built are LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, "
       "Qwen3ForCausalLM, "
       "Qwen3MoeForCausalLM, MixtralForCausalLM, DeepseekV3ForCausalLM and GPT2LMHeadModel"},
      {with(llama, "tie_word_embeddings", "1"), "tie_word_embeddings is 1, but must be true or false"},
      {with(llama, "tie_word_embeddings", "null"), "tie_word_embeddings is null, but must be true or false"},
      {with(llama, "num_attention_heads", "7"),
       "head_dim is missing, and hidden_size 64 does not divide by num_attention_heads 7"},
      {with(llama, "num_hidden_layers", "1000001"), "num_hidden_layers is 1000001, but at most 1000000 are supported"},
      {with(moe, "num_experts", "1000000000000"),
       "6 layers of 1000000000000 experts, but layers x experts may be at most 1000000"},
      {with(moe, "mlp_only_layers", "[1]"), "intermediate_size is missing"},
      {with(moe, "mlp_only_layers", "3"), "mlp_only_layers is 3, but must be a list of layers"},
      {with(moe, "mlp_only_layers", "[1, -1]"),
       "an entry of mlp_only_layers is -1, but must be a whole number, at least 0 and below 2^63"},
      {with(moe, "mlp_only_layers", "[[1]]"),
       "an entry of mlp_only_layers is a list, but must be a whole number, at least 0 and below 2^63"},
  };
  for (const auto& [config, sentence] : cases) CHECK(refusal_of(config) == "reshard: m.json: " + sentence);
  CHECK(refusal_of(with(llama, "num_key_value_heads", "3")) ==
        "reshard: model m.json: 8 attention heads do not divide into 3 query groups");
}

namespace {
const entries deepseek = {{"architectures", R"(["DeepseekV3ForCausalLM"])"},
                          {"num_hidden_layers", "6"},
                          {"hidden_size", "40"},
                          {"num_attention_heads", "8"},
                          {"num_key_value_heads", "8"},
                          {"q_lora_rank", "20"},
                          {"kv_lora_rank", "12"},
                          {"qk_nope_head_dim", "6"},
                          {"qk_rope_head_dim", "4"},
                          {"v_head_dim", "5"},
                          {"intermediate_size", "56"},
                          {"vocab_size", "96"},
                          {"n_routed_experts", "8"},
                          {"moe_intermediate_size", "24"},
                          {"n_shared_experts", "2"},
                          {"first_k_dense_replace", "1"},
                          {"topk_method", R"("noaux_tc")"}};
const entries gpt2 = {{"architectures", R"(["GPT2LMHeadModel"])"},
                      {"n_layer", "3"},
                      {"n_embd", "32"},
                      {"n_head", "4"},
                      {"n_positions", "24"},
                      {"vocab_size", "80"}};
/// The extents [experts, parts, rows, columns] of the family of that name; empty where there is none.
std::vector<index_t> extents(const model& m, std::string_view name) {
  for (int f = 0; f < m.families; ++f)
    if (m[f].name == name) return {m[f].extent[1], m[f].extent[2], m[f].extent[3], m[f].extent[4]};
  return {};
}
}  // namespace

TEST_CASE("Mistral is LLaMA; Qwen2 adds a bias of q, k and v; Mixtral is a mixture in every layer") {
  CHECK(names(read(with(llama, "architectures", R"(["MistralForCausalLM"])"))) == names(read(llama)));
  std::vector<std::string> biased = names(read(llama));
  biased.insert(biased.begin() + 4, "decoder.layers.{layer}.self_attention.linear_qkv.bias");
  CHECK(names(read(with(llama, "architectures", R"(["Qwen2ForCausalLM"])"))) == biased);
  const entries mixtral = with(with(llama, "architectures", R"(["MixtralForCausalLM"])"), "num_local_experts", "5");
  const model m = read(mixtral);
  CHECK(moe_layers(m).size() == 4);
  CHECK(m.shape.experts == 5);
  CHECK(m.shape.expert_ffn == 96);
  CHECK(m.shape.ffn == 0);
  CHECK(m.shape.checkpoint == checkpoint_form::mixtral);
  CHECK(read(llama).shape.checkpoint == checkpoint_form::usual);
  CHECK(extents(m, "decoder.layers.{layer}.self_attention.q_layernorm.weight").empty());
  CHECK(refusal_of(with(mixtral, "num_local_experts", "")) == "reshard: m.json: num_local_experts is missing");
}

TEST_CASE("DeepSeek-V3: which layers are mixtures, and each number in its place") {
  const model m = read(deepseek);
  CHECK(moe_layers(m) == std::vector<index_t>{1, 2, 3, 4, 5});
  CHECK(moe_layers(read(with(deepseek, "moe_layer_freq", "2"))) == std::vector<index_t>{2, 4});
  CHECK(moe_layers(read(with(deepseek, "first_k_dense_replace", "0"))).size() == 6);
  CHECK(moe_layers(read(with(deepseek, "first_k_dense_replace", "9"))).empty());
  const std::string attention = "decoder.layers.{layer}.self_attention.", mlp = "decoder.layers.{layer}.mlp.";
  CHECK(extents(m, attention + "linear_proj.weight") == std::vector<index_t>{1, 1, 40, 8 * 5});
  CHECK(extents(m, attention + "linear_q_down_proj.weight") == std::vector<index_t>{1, 1, 20, 40});
  CHECK(extents(m, attention + "linear_q_up_proj.weight") == std::vector<index_t>{1, 1, 8 * (6 + 4), 20});
  CHECK(extents(m, attention + "linear_kv_down_proj.weight") == std::vector<index_t>{1, 1, 12 + 4, 40});
  CHECK(extents(m, attention + "linear_kv_up_proj.weight") == std::vector<index_t>{1, 1, 8 * (6 + 5), 12});
  CHECK(extents(m, mlp + "linear_fc1.weight") == std::vector<index_t>{1, 2, 56, 40});
  CHECK(extents(m, mlp + "experts.linear_fc1.weight{expert}") == std::vector<index_t>{8, 2, 24, 40});
  CHECK(extents(m, mlp + "shared_experts.linear_fc1.weight") == std::vector<index_t>{1, 2, 48, 40});
  CHECK(extents(m, mlp + "router.expert_bias") == std::vector<index_t>{1, 1, 1, 8});
  for (const char* method : {"", "null", R"("greedy")"})
    CHECK(extents(read(with(deepseek, "topk_method", method)), mlp + "router.expert_bias").empty());
  for (const char* none : {"", "null", "0"})
    CHECK(extents(read(with(deepseek, "n_shared_experts", none)), mlp + "shared_experts.linear_fc1.weight").empty());
  const model whole = read(with(deepseek, "q_lora_rank", "null"));
  CHECK(extents(whole, attention + "linear_q_proj.weight") == std::vector<index_t>{1, 1, 80, 40});
  CHECK(whole.shape.checkpoint == checkpoint_form::without_q_rank);
  CHECK(refusal_of(with(deepseek, "q_lora_rank", "")) ==
        "reshard: m.json: q_lora_rank is missing; null says that queries are not compressed");
  CHECK(refusal_of(with(deepseek, "topk_method", "3")) == "reshard: m.json: topk_method is 3, but must be a text");
  const entries all_moe = with(with(deepseek, "intermediate_size", ""), "first_k_dense_replace", "0");
  CHECK(refusal_of(all_moe) == "accepted");
  CHECK(refusal_of(with(all_moe, "moe_layer_freq", "2")) == "reshard: m.json: intermediate_size is missing");
  for (const char* needed : {"kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "n_routed_experts",
                             "moe_intermediate_size", "first_k_dense_replace"})
    CHECK(refusal_of(with(deepseek, needed, "")) == std::string("reshard: m.json: ") + needed + " is missing");
}

TEST_CASE("GPT-2: its own keys; tied and four times as wide unless it says else") {
  const model m = read(gpt2);
  CHECK(m.shape.layers == 3);
  CHECK(m.shape.hidden == 32);
  CHECK(m.shape.heads == 4);
  CHECK(m.shape.groups == 4);
  CHECK(m.shape.head_dim == 8);
  CHECK(m.shape.ffn == 128);
  CHECK(m.shape.tied);
  CHECK(m.shape.checkpoint == checkpoint_form::transposed);
  CHECK(read(with(gpt2, "n_inner", "null")).shape.ffn == 128);
  CHECK(read(with(gpt2, "n_inner", "50")).shape.ffn == 50);
  CHECK_FALSE(read(with(gpt2, "tie_word_embeddings", "false")).shape.tied);
  CHECK(extents(m, "embedding.position_embeddings.weight") == std::vector<index_t>{1, 1, 24, 32});
  CHECK(refusal_of(with(gpt2, "n_head", "5")) == "reshard: m.json: n_embd 32 does not divide by n_head 5");
  for (const char* needed : {"n_layer", "n_embd", "n_head", "n_positions", "vocab_size"})
    CHECK(refusal_of(with(gpt2, needed, "")) == std::string("reshard: m.json: ") + needed + " is missing");
  CHECK(refusal_of(with(gpt2, "add_cross_attention", "true")) ==
        "reshard: m.json: add_cross_attention is true, but the tensors that it adds are not built; false is");
  CHECK(refusal_of(with(gpt2, "num_nextn_predict_layers", "7")) == "accepted");  // no key of GPT-2's
}

TEST_CASE("prediction layers of every architecture but GPT-2: none or one") {
  for (const entries& base : {llama, moe, deepseek}) {
    for (const char* none : {"", "null", "0"})
      CHECK(read(with(base, "num_nextn_predict_layers", none)).shape.predictions == 0);
    CHECK(read(with(base, "num_nextn_predict_layers", "1")).shape.predictions == 1);
    CHECK(refusal_of(with(base, "num_nextn_predict_layers", "2")) ==
          "reshard: m.json: num_nextn_predict_layers is 2, but at most 1 is supported");
  }
  CHECK(read(gpt2).shape.predictions == 0);
}

TEST_CASE("a key that would add tensors is refused by name, unless it says that there are none") {
  for (const entries& base : {llama, moe, deepseek, gpt2})
    for (const std::string key : {"attention_bias", "mlp_bias"}) {
      CHECK(refusal_of(with(base, key, "true")) ==
            "reshard: m.json: " + key + " is true, but the tensors that it adds are not built; false is");
      CHECK(refusal_of(with(base, key, "1")) == "reshard: m.json: " + key + " is 1, but must be true or false");
      for (const char* none : {"", "null", "false"}) CHECK(refusal_of(with(base, key, none)) == "accepted");
    }
}

TEST_CASE("text that is no JSON object") {
  const std::pair<std::string, std::string> cases[] = {
      {"", "the file is empty"},
      {" \n ", "the file is empty"},
      {"{", "not JSON: the text ends too early at line 1, column 2"},
      {"{\n  \"a\": NaN}", "not JSON: wrong text at line 2, column 8"},
      {"{\"a\": Infinity}", "not JSON: wrong text at line 1, column 7"},
      {"{} {}", "not JSON: wrong text at line 1, column 4"},
      {"PK\x03\x04", "not JSON: wrong text at line 1, column 1"},
      {"{\"a\": \"\xff\"}", "not JSON: wrong text at line 1, column 8"},
      {"{\"a\": 1e999}", "not JSON: wrong text at line 1, column 11"},
      {"[]", "the file is no JSON object but a list"},
      {"17", "the file is no JSON object but 17"},
      {"\"x\"", "the file is no JSON object but the text 'x'"},
      {"null", "the file is no JSON object but null"},
      {"{\"hidden_size\": 64, \"hidden_size\": 64}", "hidden_size is given twice"},
      {"{\"a\": " + std::string(200, '['), "lists and objects are nested deeper than 128"},
      {std::string(100000, '['), "the file is no JSON object but a list"},
      {"{\"mlp_only_layers\": [0" + std::string(200000, ' ') + ",0" +
           [] {
             std::string zeros;
             for (int i = 0; i < 70000; ++i) zeros += ",0";
             return zeros;
           }() +
           "]}",
       "mlp_only_layers has more than 65536 entries"},
  };
  for (const auto& [text, sentence] : cases) CHECK(refusal_of(text) == "reshard: m.json: " + sentence);
}

TEST_CASE("sizes that do not fit 64 bits are refused, whatever they are") {
  for (const auto& entry : moe) {
    const std::string& key = entry.first;
    if (key == "architectures") continue;
    for (const char* value : {"9223372036854775807", "4611686018427387904", "3037000500"}) {
      CAPTURE(key);
      CAPTURE(value);
      const std::string said = refusal_of(with(moe, key, value));
      CHECK((said == "accepted" || said.starts_with("reshard: ")));
    }
    CHECK(refusal_of(with(moe, key, "9223372036854775807")) != "accepted");
  }
}

TEST_CASE("a million layers, and a million layers times experts, are the most") {
  CHECK(refusal_of(with(llama, "num_hidden_layers", "1000000")) == "accepted");
  const entries ten = with(moe, "num_hidden_layers", "10");
  CHECK(refusal_of(with(ten, "num_experts", "100000")) == "accepted");
  CHECK(refusal_of(with(ten, "num_experts", "100001")) ==
        "reshard: m.json: 10 layers of 100001 experts, but layers x experts may be at most 1000000");
}

TEST_CASE("Qwen3 norms q and k of every head, as a mixture too; LLaMA and Mixtral do not") {
  for (const char* which : {"q", "k"}) {
    const std::string norm = "decoder.layers.{layer}.self_attention." + std::string(which) + "_layernorm.weight";
    CHECK(extents(read(moe), norm) == std::vector<index_t>{1, 1, 1, 16});
    CHECK(extents(read(with(llama, "architectures", R"(["Qwen3ForCausalLM"])")), norm) ==
          std::vector<index_t>{1, 1, 1, 8});
    CHECK(extents(read(llama), norm).empty());
  }
}

TEST_CASE("GPT-2 too has a million layers at most") {
  CHECK(refusal_of(with(gpt2, "n_layer", "1000000")) == "accepted");
  CHECK(refusal_of(with(gpt2, "n_layer", "1000001")) ==
        "reshard: m.json: n_layer is 1000001, but at most 1000000 are supported");
}

TEST_CASE("presets by name, files by path") {
  for (const transformer& t : models::presets) CHECK(load_model(t.name).name == t.name);
  CHECK(read_config(RESHARD_TEST_DATA "/tiny_qwen3_moe.config.json").shape.experts == 8);
  CHECK(load_model("llama2-7b").shape.ffn == 11008);
  CHECK(load_model(RESHARD_TEST_DATA "/tiny_qwen3_moe.config.json").shape.experts == 8);
  const auto said = [](std::string_view name) -> std::string {
    try {
      load_model(name);
    } catch (const refusal& stopped) {
      return stopped.what();
    }
    return "accepted";
  };
  CHECK(said("llama3").starts_with("reshard: no model is called 'llama3'; known are llama2-7b, "));
  CHECK(said("./none") == "reshard: ./none cannot be read: No such file or directory");
  CHECK(said("none.json") == "reshard: none.json cannot be read: No such file or directory");
  CHECK(said("/") == "reshard: / cannot be read: Is a directory");
  CHECK(said("/dev/null") == "reshard: /dev/null: the file is empty");
  CHECK(said("/dev/zero") == "reshard: /dev/zero is larger than 16777216 bytes, so it is no config.json");
  CHECK(said(".") == "reshard: . cannot be read: Is a directory");  // there is such a file
  const std::string longest(5000, 'a');
  CHECK(said(longest) == "reshard: " + one_line(longest) + " cannot be read: File name too long");
}

TEST_CASE("a preset is itself also where a file has its name; a file has 16 MiB at most") {
  const testing::scratch room;
  const std::filesystem::path before = std::filesystem::current_path();
  room.file("llama2-7b", json(llama));
  room.file("other", json(llama));
  const std::string large = room.file("large.json", "");  // of zeros
  std::filesystem::current_path(room.folder);
  CHECK(load_model("llama2-7b").shape.ffn == 11008);
  CHECK(load_model("other").shape.ffn == 96);
  std::filesystem::current_path(before);
  for (const std::uintmax_t more : {0u, 1u}) {
    std::filesystem::resize_file(large, (std::uintmax_t{1} << 24) + more);
    try {
      read_config(large);
      CHECK(false);
    } catch (const refusal& stopped) {
      CHECK(std::string(stopped.what()) == "reshard: " + one_line(large) +
                                               (more == 0 ? ": not JSON: wrong text at line 1, column 1"
                                                          : " is larger than 16777216 bytes, so it is no config.json"));
    }
  }
}
