// SPDX-License-Identifier: Apache-2.0
// Published models by name. Sizes: the models' own config.json files; LLaMA-32B as DynaTrain's evaluation has it.
// Builds on: model/transformer.hpp.
#pragma once

#include <reshard/model/transformer.hpp>

namespace reshard {

namespace models {
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
};

inline constexpr model llama2_7b = make_transformer(presets[0]);
inline constexpr model llama2_13b = make_transformer(presets[1]);
inline constexpr model llama2_70b = make_transformer(presets[2]);
inline constexpr model llama_32b = make_transformer(presets[3]);
inline constexpr model qwen3_30b_a3b = make_transformer(presets[4]);
inline constexpr model qwen3_235b_a22b = make_transformer(presets[5]);
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
