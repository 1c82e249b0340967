// SPDX-License-Identifier: Apache-2.0
//
// Tiny random models of every architecture, as Hugging Face config.json.
// Builds on random_keys_census.hpp.
#pragma once

#include "random_keys_census.hpp"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace oracle::trainer {

inline nlohmann::json random_gpt2(key_dice& dice, bool tied) {
  const long heads = dice.one_of({2, 4, 4, 8});
  nlohmann::json c = {{"architectures", {"GPT2LMHeadModel"}},     {"n_layer", dice.one_of({1, 2, 3, 4, 4, 6, 8})},
                      {"n_embd", heads * dice.one_of({2, 3, 4})}, {"n_head", heads},
                      {"n_positions", dice.one_of({5, 16, 20})},  {"vocab_size", dice.one_of({24, 33, 48})}};
  if (dice.below(2) == 0) c["n_inner"] = dice.one_of({16, 24});
  if (!tied || dice.below(2) == 0) c["tie_word_embeddings"] = tied;
  return c;
}

inline void random_experts(key_dice& dice, nlohmann::json& c, const std::string& architecture, long layers) {
  const long experts = dice.one_of({4, 4, 6, 8}), ffn = dice.one_of({4, 8, 12});
  if (architecture == "MixtralForCausalLM") {
    c["num_local_experts"] = experts;
    c["intermediate_size"] = ffn;
  } else if (architecture == "Qwen3MoeForCausalLM") {
    c["num_experts"] = experts;
    c["moe_intermediate_size"] = ffn;
    if (dice.below(3) == 0) c["decoder_sparse_step"] = dice.one_of({1, 2});
    if (dice.below(3) == 0) c["mlp_only_layers"] = numbers{dice.below(layers)};
  } else {
    c["n_routed_experts"] = experts;
    c["moe_intermediate_size"] = ffn;
    if (const long shared = dice.below(3); shared > 0) c["n_shared_experts"] = shared;
    c["first_k_dense_replace"] = dice.below(std::min(3L, layers));
    if (dice.below(4) == 0) c["moe_layer_freq"] = 2;
    c["topk_method"] = dice.below(2) == 0 ? "noaux_tc" : "greedy";
    c["qk_nope_head_dim"] = dice.one_of({2, 3, 4});
    c["qk_rope_head_dim"] = dice.one_of({2, 3});
    c["v_head_dim"] = dice.one_of({2, 3, 5});
    c["kv_lora_rank"] = dice.one_of({3, 6});
    if (dice.below(4) != 0) c["q_lora_rank"] = dice.one_of({5, 8});
    else c["q_lora_rank"] = nullptr;
  }
}

// A model that has what the features need.
inline nlohmann::json random_config(key_dice& dice, const feature_set& wanted) {
  const auto on = [&](const char* f) { return wanted.count(f) > 0; };
  const bool experts = on("ep") || on("etp") || on("experts");
  std::vector<std::string> possible = {"Qwen3MoeForCausalLM", "MixtralForCausalLM", "DeepseekV3ForCausalLM"};
  if (!experts)
    for (const char* dense : {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})
      possible.push_back(dense);
  if (!experts && !on("names") && !on("predictions")) possible.push_back("GPT2LMHeadModel");
  const std::string architecture = dice.one_of(possible);
  if (architecture == "GPT2LMHeadModel") return random_gpt2(dice, on("tied"));

  const long heads = dice.one_of({2, 4, 4, 6, 8}), layers = dice.one_of({1, 2, 3, 4, 4, 4, 6, 6, 7, 8, 10});
  nlohmann::json c = {{"architectures", {architecture}},
                      {"num_hidden_layers", layers},
                      {"hidden_size", heads * dice.one_of({2, 3, 4})},
                      {"num_attention_heads", heads},
                      {"intermediate_size", dice.one_of({8, 12, 16, 24})},
                      {"vocab_size", dice.one_of({24, 24, 31, 48, 50, 64})}};
  long groups = heads;
  while (dice.below(2) == 0 && groups % 2 == 0) groups /= 2;
  if (groups != heads || dice.below(2) == 0) c["num_key_value_heads"] = groups;
  if (dice.below(2) == 0) c["head_dim"] = dice.one_of({2, 3, 4});
  if (on("tied") || dice.below(2) == 0) c["tie_word_embeddings"] = on("tied");
  if (on("predictions")) c["num_nextn_predict_layers"] = 1;
  else if (dice.below(8) == 0) c["num_nextn_predict_layers"] = 0;
  if (possible[0] == architecture || possible[1] == architecture || possible[2] == architecture)
    random_experts(dice, c, architecture, layers);
  return c;
}

}  // namespace oracle::trainer
