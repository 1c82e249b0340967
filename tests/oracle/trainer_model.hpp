// SPDX-License-Identifier: Apache-2.0
//
// The oracle of trainers' layouts, part 1: a model, read from a Hugging Face config.json.
// Builds on trainer_sets.hpp.
#pragma once

#include "trainer_sets.hpp"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace oracle::trainer {

struct model {
  std::string architecture = "LlamaForCausalLM";
  long layers = 0, hidden = 0, heads = 0, groups = 0, head_dim = 0, ffn = 0, vocab = 0;
  bool tied = false;
  long experts = 0, expert_ffn = 0, shared_ffn = 0;  // shared_ffn: s of the contract
  std::vector<bool> moe;                             // moe[l]: layer l is MoE
  long predictions = 0;                              // M of the contract
  // GPT-2
  long positions = 0;
  // DeepSeek-V3
  long nope = 0, rope = 0, v_head = 0, q_rank = 0, kv_rank = 0;  // n, r, v, a (0: none), b of the contract
  bool expert_bias = false;

  bool gpt() const { return architecture == "GPT2LMHeadModel"; }
  bool mla() const { return architecture == "DeepseekV3ForCausalLM"; }
  bool mixtral() const { return architecture == "MixtralForCausalLM"; }
  bool qkv_bias() const { return architecture == "Qwen2ForCausalLM" || gpt(); }
  bool qk_norm() const { return architecture == "Qwen3ForCausalLM" || architecture == "Qwen3MoeForCausalLM"; }
  long qkv_rows() const { return (heads + 2 * groups) * head_dim; }
};

// One key of a config.json.
class config_reader {
 public:
  explicit config_reader(const nlohmann::json& config) : config_(config) {}

  bool given(const char* key) const { return config_.contains(key) && !config_.at(key).is_null(); }

  long number(const char* key) const {
    must(given(key), std::string("The config has no ") + key + ".");
    must(config_.at(key).is_number_integer(), std::string(key) + " is no number.");
    return config_.at(key).get<long>();
  }
  long number(const char* key, long otherwise) const { return given(key) ? number(key) : otherwise; }

  bool flag(const char* key, bool otherwise) const {
    if (!given(key)) return otherwise;
    must(config_.at(key).is_boolean(), std::string(key) + " is neither true nor false.");
    return config_.at(key).get<bool>();
  }

 private:
  const nlohmann::json& config_;
};

inline void read_gpt2(model& m, const config_reader& key) {
  m.layers = key.number("n_layer");
  m.hidden = key.number("n_embd");
  m.heads = m.groups = key.number("n_head");
  m.head_dim = m.hidden / m.heads;
  m.ffn = key.number("n_inner", 4 * m.hidden);
  m.positions = key.number("n_positions");
  m.tied = key.flag("tie_word_embeddings", true);
  m.moe.assign(at(m.layers), false);
}

inline void read_deepseek(model& m, const config_reader& key) {
  m.nope = key.number("qk_nope_head_dim");
  m.rope = key.number("qk_rope_head_dim");
  m.v_head = key.number("v_head_dim");
  m.q_rank = key.number("q_lora_rank", 0);
  m.kv_rank = key.number("kv_lora_rank");
  m.experts = key.number("n_routed_experts");
  m.expert_ffn = key.number("moe_intermediate_size");
  m.shared_ffn = key.number("n_shared_experts", 0) * m.expert_ffn;
  const long dense = key.number("first_k_dense_replace"), step = key.number("moe_layer_freq", 1);
  for (long l = 0; l < m.layers; ++l) m.moe.push_back(l >= dense && l % step == 0);
}

inline void read_qwen3_moe(model& m, const nlohmann::json& config, const config_reader& key) {
  m.experts = key.number("num_experts");
  m.expert_ffn = key.number("moe_intermediate_size");
  const long step = key.number("decoder_sparse_step", 1);
  for (long l = 0; l < m.layers; ++l) m.moe.push_back((l + 1) % step == 0);
  if (key.given("mlp_only_layers"))
    for (long l : config.at("mlp_only_layers").get<numbers>())
      if (l < m.layers) m.moe[at(l)] = false;
}

inline model read_model(const nlohmann::json& config) {
  const config_reader key(config);
  model m;
  m.architecture = config.at("architectures").at(0).get<std::string>();
  const std::vector<std::string> known = {"LlamaForCausalLM",      "MistralForCausalLM",  "Qwen2ForCausalLM",
                                          "Qwen3ForCausalLM",      "Qwen3MoeForCausalLM", "MixtralForCausalLM",
                                          "DeepseekV3ForCausalLM", "GPT2LMHeadModel"};
  must(std::find(known.begin(), known.end(), m.architecture) != known.end(), m.architecture + " is not known.");
  for (const char* adds : {"attention_bias", "mlp_bias"})
    must(!key.flag(adds, false), std::string(adds) + " would add tensors and is not built.");
  m.vocab = key.number("vocab_size");
  if (m.gpt()) {
    read_gpt2(m, key);
    return m;
  }

  m.layers = key.number("num_hidden_layers");
  m.hidden = key.number("hidden_size");
  m.heads = key.number("num_attention_heads");
  m.tied = key.flag("tie_word_embeddings", false);
  m.predictions = key.number("num_nextn_predict_layers", 0);
  must(m.predictions <= 1, "More than one prediction layer is not built.");
  if (!m.mla()) {
    m.groups = key.number("num_key_value_heads", m.heads);
    m.head_dim = key.number("head_dim", m.hidden / m.heads);
  }
  if (m.mla()) read_deepseek(m, key);
  else if (m.architecture == "Qwen3MoeForCausalLM") read_qwen3_moe(m, config, key);
  else m.moe.assign(at(m.layers), m.mixtral());
  if (m.mixtral()) {
    m.experts = key.number("num_local_experts");
    m.expert_ffn = key.number("intermediate_size");
  } else {
    const bool dense_layers = std::count(m.moe.begin(), m.moe.end(), false) > 0;
    m.ffn = dense_layers ? key.number("intermediate_size") : key.number("intermediate_size", 0);
  }
  m.expert_bias = m.mla() && key.given("topk_method") && config.at("topk_method") == "noaux_tc";
  return m;
}

}  // namespace oracle::trainer
