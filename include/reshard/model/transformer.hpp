// SPDX-License-Identifier: Apache-2.0
// The families of LLaMA-like, Qwen3 and Qwen3-MoE transformers, as Megatron-core builds them (Transformer Engine spec,
// grouped experts): linear_proj before linear_qkv, norms fused into the linear layer that follows, fc1 = [gate; up],
// the fused qkv rows by query group (its queries, k, v).
// Builds on: model/model.hpp.
#pragma once

#include <reshard/model/model.hpp>

namespace reshard {

/// What a transformer is made of. `moe_layer(l)` below decides per layer; a dense model has experts == 0.
struct transformer {
  std::string_view name;
  index_t layers = 0;
  index_t hidden = 0;
  index_t heads = 0;
  index_t groups = 0;
  index_t head_dim = 0;
  index_t ffn = 0;
  index_t vocabulary = 0;
  bool tied = false;
  bool qk_norm = false;
  index_t experts = 0;
  index_t expert_ffn = 0;
};

namespace detail {

constexpr family matrix(std::string_view name, index_t members, index_t rows, index_t columns, int tensor_axis) {
  return {.name = name, .extent = {members, 1, 1, rows, columns}, .tensor_axis = tensor_axis};
}
constexpr family vector(std::string_view name, index_t members, index_t elements) {
  return {.name = name, .extent = {members, 1, 1, 1, elements}, .shape_ndim = 1};
}
constexpr void require_positive(std::string_view model, std::string_view what, index_t value) {
  if (value < 1) refuse("model ", model, ": ", what, " is ", value, ", but must be at least 1");
}
constexpr void require_heads_in_groups(std::string_view model, index_t heads, index_t groups) {
  if (heads % groups != 0)
    refuse("model ", model, ": ", heads, " attention heads do not divide into ", groups, " query groups");
}

}  // namespace detail

/// The families of a transformer whose layer l is a mixture of experts iff is_moe(l); shapes as in the first comment of
/// model/family.hpp. Refuses a size below 1 and anything that does not fit 64 bits.
template <typename IsMoe>
constexpr model make_transformer(const transformer& t, IsMoe&& is_moe) {
  using namespace axis_of;
  using detail::matrix, detail::require_positive, detail::vector;
  require_positive(t.name, "the number of layers", t.layers);
  require_positive(t.name, "the hidden size", t.hidden);
  require_positive(t.name, "the number of attention heads", t.heads);
  require_positive(t.name, "the number of query groups", t.groups);
  require_positive(t.name, "the head dimension", t.head_dim);
  require_positive(t.name, "the vocabulary", t.vocabulary);
  detail::require_heads_in_groups(t.name, t.heads, t.groups);

  model m{.name = t.name,
          .shape = {t.layers, t.hidden, t.heads, t.groups, t.head_dim, t.ffn, t.vocabulary, t.tied, t.experts, t.expert_ffn}};
  enum { every, dense, moe };
  m.sets[every] = layer_set::all(t.layers);
  index_t moe_layers = 0;
  if (t.experts > 0) {
    if (t.layers > layer_set::capacity) {  // a mask has a capacity, all-alike layers have none
      for (index_t l = 0; l < t.layers; ++l) moe_layers += is_moe(l) ? 1 : 0;
      if (moe_layers != t.layers)
        refuse("model ", t.name, ": ", t.layers, " layers of two kinds; at most ", layer_set::capacity, " are supported");
    } else {
      for (index_t l = 0; l < t.layers; ++l) {
        m.sets[is_moe(l) ? moe : dense].append(l);
        moe_layers += is_moe(l) ? 1 : 0;
      }
    }
  }
  const index_t dense_layers = t.layers - moe_layers;
  if (moe_layers == t.layers) m.sets[moe] = layer_set::all(t.layers), m.sets[dense] = layer_set::none();
  if (moe_layers == 0) m.sets[dense] = layer_set::all(t.layers), m.sets[moe] = layer_set::none();
  if (dense_layers > 0) require_positive(t.name, "the intermediate size of the dense layers", t.ffn);
  if (dense_layers == 0) m.shape.ffn = 0;
  if (moe_layers == 0) m.shape.expert_ffn = 0;

  family embedding = matrix("embedding.word_embeddings.weight", 1, t.vocabulary, t.hidden, row);
  embedding.place = t.tied ? home::both_ends : home::first_stage;
  if (t.tied) embedding.tied_name = "output_layer.weight";
  m.add(embedding);

  m.add(matrix("decoder.layers.{layer}.self_attention.linear_proj.weight", t.layers, t.hidden,
               checked_multiply(t.heads, t.head_dim), column));
  m.add(vector("decoder.layers.{layer}.self_attention.linear_qkv.layer_norm_weight", t.layers, t.hidden));
  m.add(matrix("decoder.layers.{layer}.self_attention.linear_qkv.weight", t.layers, m.shape.qkv_rows(), t.hidden, row));
  if (t.qk_norm) {
    m.add(vector("decoder.layers.{layer}.self_attention.q_layernorm.weight", t.layers, t.head_dim));
    m.add(vector("decoder.layers.{layer}.self_attention.k_layernorm.weight", t.layers, t.head_dim));
  }
  const auto add_to = [&m](int set, family f) {
    f.layers = set;
    m.add(f);
  };
  if (dense_layers > 0) {
    add_to(dense, vector("decoder.layers.{layer}.mlp.linear_fc1.layer_norm_weight", dense_layers, t.hidden));
    family fc1 = matrix("decoder.layers.{layer}.mlp.linear_fc1.weight", dense_layers, t.ffn, t.hidden, row);
    fc1.extent[part] = 2;
    add_to(dense, fc1);
    add_to(dense, matrix("decoder.layers.{layer}.mlp.linear_fc2.weight", dense_layers, t.hidden, t.ffn, column));
  }
  if (moe_layers > 0) {
    require_positive(t.name, "the intermediate size of an expert", t.expert_ffn);
    add_to(moe, vector("decoder.layers.{layer}.pre_mlp_layernorm.weight", moe_layers, t.hidden));
    add_to(moe, matrix("decoder.layers.{layer}.mlp.router.weight", moe_layers, t.experts, t.hidden, none));
    family fc1 = matrix("decoder.layers.{layer}.mlp.experts.linear_fc1.weight{expert}", moe_layers, t.expert_ffn, t.hidden, row);
    fc1.extent[part] = 2;
    fc1.extent[expert] = t.experts;
    fc1.mesh = mesh_kind::expert;
    add_to(moe, fc1);
    family fc2 = matrix("decoder.layers.{layer}.mlp.experts.linear_fc2.weight{expert}", moe_layers, t.hidden, t.expert_ffn, column);
    fc2.extent[expert] = t.experts;
    fc2.mesh = mesh_kind::expert;
    add_to(moe, fc2);
  }

  family norm = vector("decoder.final_layernorm.weight", 1, t.hidden);
  norm.place = home::last_stage;
  m.add(norm);
  if (!t.tied) {
    family output = matrix("output_layer.weight", 1, t.vocabulary, t.hidden, row);
    output.place = home::last_stage;
    m.add(output);
  }
  checked_multiply(m.parameters(), 16);
  return m;
}

/// A transformer whose layers are all alike: MoE where it has experts.
constexpr model make_transformer(const transformer& t) {
  return make_transformer(t, [&t](index_t) { return t.experts > 0; });
}

}  // namespace reshard
