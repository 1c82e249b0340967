// SPDX-License-Identifier: Apache-2.0
// The sizes that a transformer is made of: what a config.json says, in numbers.
// Builds on: model/model.hpp.
#pragma once

#include <reshard/model/model.hpp>

namespace reshard {

/// Multi-head latent attention (DeepSeek): the ranks that queries, keys and values are compressed to, and the sizes of
/// a head's parts. There is none where kv_rank is 0.
struct latent_sizes {
  index_t q_rank = 0;   // 0: queries are not compressed
  index_t kv_rank = 0;  // 0: attention by query groups instead
  index_t nope = 0;     // of a head of q and k, the elements without rotary positions
  index_t rope = 0;     // and those with
  index_t value = 0;    // elements of a head of v
};

/// What a transformer is made of. `is_moe(l)` of make_transformer decides per layer, and is asked more than once; a
/// dense model has experts == 0.
struct transformer {
  std::string_view name;
  index_t layers = 0;
  index_t hidden = 0;
  index_t heads = 0;
  index_t groups = 0;    // unused by latent attention
  index_t head_dim = 0;  // unused by latent attention
  index_t ffn = 0;
  index_t vocabulary = 0;
  bool tied = false;
  bool qk_norm = false;
  index_t experts = 0;
  index_t expert_ffn = 0;
  bool qkv_bias = false;          // Qwen2
  index_t dense_first = 0;        // the first layers that are dense in a model with experts
  index_t shared_ffn = 0;         // size of the shared experts together; 0: none
  bool expert_bias = false;       // the router has a bias for each expert
  index_t predictions = 0;        // prediction layers: 0 or 1
  latent_sizes latent = {};       // DeepSeek
  index_t learned_positions = 0;  // > 0: a GPT: positions, LayerNorm with bias, biased linears, fc1 without a gate
  checkpoint_form checkpoint = checkpoint_form::usual;

  constexpr bool has_latent_attention() const { return latent.kv_rank != 0; }
  constexpr bool is_gpt() const { return learned_positions > 0; }
};

namespace detail {
constexpr void require_positive(std::string_view model, std::string_view what, index_t value) {
  if (value < 1) refuse("model ", model, ": ", what, " is ", value, ", but must be at least 1");
}
constexpr void require_heads_in_groups(std::string_view model, index_t heads, index_t groups) {
  if (heads % groups != 0)
    refuse("model ", model, ": ", heads, " attention heads do not divide into ", groups, " query groups");
}
}  // namespace detail

}  // namespace reshard
