// SPDX-License-Identifier: Apache-2.0
// Published models by name. Sizes: the models' own config.json files; LLaMA-32B as DynaTrain's evaluation has
// it, GPT-3 with Megatron's vocabulary of 51200.
// Builds on: model/transformer.hpp.
#pragma once

#include <reshard/model/transformer.hpp>

namespace reshard {

namespace models {
/// The shapes of the models that preset() knows by name.
inline constexpr transformer presets[] = {
    {.name = "llama2-7b",
     .layers = 32,
     .hidden = 4096,
     .heads = 32,
     .groups = 32,
     .head_dim = 128,
     .ffn = 11008,
     .vocabulary = 32000},
    {.name = "llama2-13b",
     .layers = 40,
     .hidden = 5120,
     .heads = 40,
     .groups = 40,
     .head_dim = 128,
     .ffn = 13824,
     .vocabulary = 32000},
    {.name = "llama2-70b",
     .layers = 80,
     .hidden = 8192,
     .heads = 64,
     .groups = 8,
     .head_dim = 128,
     .ffn = 28672,
     .vocabulary = 32000},
    {.name = "llama-32b",
     .layers = 60,
     .hidden = 6656,
     .heads = 64,
     .groups = 64,
     .head_dim = 104,
     .ffn = 17920,
     .vocabulary = 32000},
    {.name = "qwen3-30b-a3b",
     .layers = 48,
     .hidden = 2048,
     .heads = 32,
     .groups = 4,
     .head_dim = 128,
     .vocabulary = 151936,
     .qk_norm = true,
     .experts = 128,
     .expert_ffn = 768},
    {.name = "qwen3-235b-a22b",
     .layers = 94,
     .hidden = 4096,
     .heads = 64,
     .groups = 4,
     .head_dim = 128,
     .vocabulary = 151936,
     .qk_norm = true,
     .experts = 128,
     .expert_ffn = 1536},
    {.name = "gpt3-1.3b",
     .layers = 24,
     .hidden = 2048,
     .heads = 16,
     .groups = 16,
     .head_dim = 128,
     .ffn = 8192,
     .vocabulary = 51200,
     .tied = true,
     .learned_positions = 2048},
    {.name = "gpt3-2.7b",
     .layers = 32,
     .hidden = 2560,
     .heads = 32,
     .groups = 32,
     .head_dim = 80,
     .ffn = 10240,
     .vocabulary = 51200,
     .tied = true,
     .learned_positions = 2048},
    {.name = "gpt3-6.7b",
     .layers = 32,
     .hidden = 4096,
     .heads = 32,
     .groups = 32,
     .head_dim = 128,
     .ffn = 16384,
     .vocabulary = 51200,
     .tied = true,
     .learned_positions = 2048},
    {.name = "deepseek-v3",
     .layers = 61,
     .hidden = 7168,
     .heads = 128,
     .ffn = 18432,
     .vocabulary = 129280,
     .experts = 256,
     .expert_ffn = 2048,
     .dense_first = 3,
     .shared_ffn = 2048,
     .expert_bias = true,
     .predictions = 1,
     .latent = {.q_rank = 1536, .kv_rank = 512, .nope = 128, .rope = 64, .value = 128}},
};

/// LLaMA 2 7B: 32 layers, hidden size 4096, 32 heads.
inline constexpr model llama2_7b = make_transformer(presets[0]);
/// LLaMA 2 13B: 40 layers, hidden size 5120, 40 heads.
inline constexpr model llama2_13b = make_transformer(presets[1]);
/// LLaMA 2 70B: 80 layers, hidden size 8192, 64 heads in 8 query groups.
inline constexpr model llama2_70b = make_transformer(presets[2]);
/// LLaMA-32B of DynaTrain's evaluation: 60 layers, hidden size 6656, 64 heads.
inline constexpr model llama_32b = make_transformer(presets[3]);
/// Qwen3-30B-A3B: 48 layers, hidden size 2048, 32 heads in 4 query groups, 128 experts a layer.
inline constexpr model qwen3_30b_a3b = make_transformer(presets[4]);
/// Qwen3-235B-A22B: 94 layers, hidden size 4096, 64 heads in 4 query groups, 128 experts a layer.
inline constexpr model qwen3_235b_a22b = make_transformer(presets[5]);
/// GPT-3 1.3B: 24 layers, hidden size 2048, 16 heads, 2048 positions.
inline constexpr model gpt3_1_3b = make_transformer(presets[6]);
/// GPT-3 2.7B: 32 layers, hidden size 2560, 32 heads, 2048 positions.
inline constexpr model gpt3_2_7b = make_transformer(presets[7]);
/// GPT-3 6.7B: 32 layers, hidden size 4096, 32 heads, 2048 positions.
inline constexpr model gpt3_6_7b = make_transformer(presets[8]);
/// DeepSeek-V3: 61 layers, three of them dense, 128 heads, 256 experts and a shared one a layer, a prediction layer.
inline constexpr model deepseek_v3 = make_transformer(presets[9]);
}  // namespace models

/// The preset of that name; refused with the list of names.
inline model preset(std::string_view name) {
  std::string known;
  for (const transformer& t : models::presets) {
    if (t.name == name) return make_transformer(t);
    known += known.empty() ? "" : ", ";
    known += t.name;
  }
  refuse("no model is called '", name, "'; known are ", known);
}

}  // namespace reshard
