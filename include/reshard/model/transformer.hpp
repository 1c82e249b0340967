// SPDX-License-Identifier: Apache-2.0
// The families of a transformer, as Megatron-core builds them (Transformer Engine spec, grouped experts): embedding,
// layers, final norm, prediction layer, output. LLaMA, Mistral, Mixtral, Qwen2 and 3, DeepSeek-V3 and GPT differ in
// the sizes alone (model/detail/transformer_sizes.hpp).
// Builds on: model/detail/prediction_layer.hpp.
#pragma once

#include <reshard/model/detail/prediction_layer.hpp>

namespace reshard {

namespace detail {

/// Deals the layers to the sets; a mask has a capacity, layers that are all alike have none.
template <typename IsMoe>
constexpr void deal_layers(model& m, IsMoe&& is_moe) {
  const index_t layers = m.shape.layers;
  index_t moe = 0;
  for (index_t l = 0; m.shape.experts > 0 && l < layers; ++l) moe += is_moe(l) ? 1 : 0;
  m.sets[every_layer] = layer_set::all(layers);
  m.sets[dense_layers] = moe == 0 ? layer_set::all(layers) : layer_set::none();
  m.sets[moe_layers] = moe == layers ? layer_set::all(layers) : layer_set::none();
  if (moe == 0 || moe == layers) return;
  if (layers > layer_set::capacity)
    refuse("model ", m.name, ": ", layers, " layers of two kinds; at most ", layer_set::capacity, " are supported");
  m.sets[dense_layers] = m.sets[moe_layers] = {};
  for (index_t l = 0; l < layers; ++l) m.sets[is_moe(l) ? moe_layers : dense_layers].append(l);
}

constexpr void require_sizes(const transformer& t) {
  require_positive(t.name, "the number of layers", t.layers);
  require_positive(t.name, "the hidden size", t.hidden);
  require_positive(t.name, "the number of attention heads", t.heads);
  if (t.has_latent_attention()) {
    require_latent(t);
  } else {
    require_positive(t.name, "the number of query groups", t.groups);
    require_positive(t.name, "the head dimension", t.head_dim);
    require_heads_in_groups(t.name, t.heads, t.groups);
  }
  require_positive(t.name, "the vocabulary", t.vocabulary);
  if (t.predictions < 0 || t.predictions > 1)
    refuse("model ", t.name, ": ", t.predictions, " prediction layers; 0 or 1 is supported");
  if (t.shared_ffn < 0) refuse("model ", t.name, ": the size of the shared experts is ", t.shared_ffn, ", below 0");
}

/// The sizes by which legality is decided; those of a kind of layer that the model has not are 0.
constexpr void keep_sizes_in_use(model& m, const transformer& t) {
  if (m.sets[dense_layers].size() > 0) require_positive(t.name, "the intermediate size of the dense layers", t.ffn);
  else m.shape.ffn = 0;
  if (m.sets[moe_layers].size() > 0 || (t.experts > 0 && t.predictions > 0))
    require_positive(t.name, "the intermediate size of an expert", t.expert_ffn);
  else m.shape.expert_ffn = m.shape.shared_ffn = 0;
}

constexpr dimensions dimensions_of(const transformer& t) {
  const bool latent = t.has_latent_attention();
  return {.layers = t.layers,
          .hidden = t.hidden,
          .heads = t.heads,
          .groups = latent ? 0 : t.groups,
          .head_dim = latent ? checked_add(t.latent.nope, t.latent.rope) : t.head_dim,
          .ffn = t.ffn,
          .vocabulary = t.vocabulary,
          .tied = t.tied,
          .experts = t.experts,
          .expert_ffn = t.expert_ffn,
          .predictions = t.predictions,
          .shared_ffn = t.experts > 0 ? t.shared_ffn : 0,
          .checkpoint = t.is_gpt()                       ? checkpoint_form::transposed
                        : latent && t.latent.q_rank == 0 ? checkpoint_form::without_q_rank
                                                         : t.checkpoint};
}

/// The rows of the vocabulary, which a layout may pad.
constexpr family vocabulary_rows(const transformer& t) {
  family f = matrix(t.vocabulary, t.hidden, axis_of::row);
  f.padded = padded_as::vocabulary;
  return f;
}

constexpr void add_embedding(model& m, const transformer& t) {
  family words = vocabulary_rows(t);
  if (t.tied) words.tied_name = "output_layer.weight";
  add_at(m, home::embedding, "embedding.word_embeddings.weight", words);
  if (t.is_gpt())
    add_at(m, home::first_stage, "embedding.position_embeddings.weight",
           matrix(t.learned_positions, t.hidden, axis_of::none));
}

constexpr void add_final_norm(model& m, const transformer& t) {
  const home place = t.predictions > 0 ? home::last_layer : home::last_stage;
  add_at(m, place, "decoder.final_layernorm.weight", vector(t.hidden));
  if (t.is_gpt()) add_at(m, place, "decoder.final_layernorm.bias", vector(t.hidden));
}

}  // namespace detail

/// The families of a transformer whose layer l is a mixture of experts iff is_moe(l); shapes as in the first comment of
/// model/family.hpp. Refuses a size below 1 and anything that does not fit 64 bits.
template <typename IsMoe>
constexpr model make_transformer(const transformer& t, IsMoe&& is_moe) {
  detail::require_sizes(t);
  model m{.name = t.name, .shape = detail::dimensions_of(t)};
  detail::deal_layers(m, is_moe);
  detail::keep_sizes_in_use(m, t);
  detail::add_embedding(m, t);
  detail::add_any_attention({m, home::layers, detail::every_layer}, t);
  if (m.sets[detail::dense_layers].size() > 0) detail::add_dense_mlp({m, home::layers, detail::dense_layers}, t);
  if (m.sets[detail::moe_layers].size() > 0) detail::add_moe_mlp({m, home::layers, detail::moe_layers}, t);
  detail::add_final_norm(m, t);
  if (t.predictions > 0) detail::add_prediction_layer(m, t);
  if (!t.tied) detail::add_at(m, home::last_stage, "output_layer.weight", detail::vocabulary_rows(t));
  checked_multiply(m.parameters(), 16);
  return m;
}

/// A transformer whose layers are MoE where it has experts, but for its first dense ones.
constexpr model make_transformer(const transformer& t) {
  return make_transformer(t, [&t](index_t layer) { return t.experts > 0 && layer >= t.dense_first; });
}

}  // namespace reshard
