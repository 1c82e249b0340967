// SPDX-License-Identifier: Apache-2.0
// The families of LLaMA-like, Qwen3 and Qwen3-MoE transformers, as Megatron-core builds them (Transformer Engine spec,
// grouped experts): linear_proj before linear_qkv, norms fused into the linear layer that follows, fc1 = [gate; up],
// the fused qkv rows by query group (its queries, k, v).
// Builds on: model/model.hpp.
#pragma once

#include <reshard/model/model.hpp>

namespace reshard {

/// What a transformer is made of. `is_moe(l)` below decides per layer, and is asked more than once; a dense model has
/// experts == 0.
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

/// The layer sets of a transformer, by number: all layers, dense ones, mixtures of experts.
enum : int { every_layer, dense_layers, moe_layers };

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

constexpr void add_to(model& m, int set, family f) {
  f.layers = set;
  m.add(f);
}
constexpr void add_at(model& m, home place, family f) {
  f.place = place;
  m.add(f);
}
constexpr family of_experts(family f, index_t experts) {
  f.extent[axis_of::expert] = experts;
  f.mesh = mesh_kind::expert;
  return f;
}
constexpr family gate_and_up(family f) {
  f.extent[axis_of::part] = 2;
  f.fused = fused_as::gate_up;
  return f;
}
/// The fused rows (a bias: columns) of q, k and v, a part for each query group: its queries, its k, its v.
constexpr family by_group(family f, index_t groups) {
  f.extent[axis_of::part] = groups;
  f.extent[f.inner_axis()] /= groups;
  f.tensor_axis = axis_of::part;
  f.fused = fused_as::qkv;
  return f;
}

constexpr void add_attention(model& m, const transformer& t) {
  using namespace axis_of;
  m.add(matrix("decoder.layers.{layer}.self_attention.linear_proj.weight", t.layers, t.hidden,
               checked_multiply(t.heads, t.head_dim), column));
  m.add(vector("decoder.layers.{layer}.self_attention.linear_qkv.layer_norm_weight", t.layers, t.hidden));
  m.add(by_group(matrix("decoder.layers.{layer}.self_attention.linear_qkv.weight", t.layers, m.shape.qkv_rows(),
                        t.hidden, part),
                 t.groups));
  if (!t.qk_norm) return;
  m.add(vector("decoder.layers.{layer}.self_attention.q_layernorm.weight", t.layers, t.head_dim));
  m.add(vector("decoder.layers.{layer}.self_attention.k_layernorm.weight", t.layers, t.head_dim));
}

constexpr void add_mlp(model& m, const transformer& t) {
  using namespace axis_of;
  if (const index_t n = m.sets[dense_layers].size(); n > 0) {
    add_to(m, dense_layers, vector("decoder.layers.{layer}.mlp.linear_fc1.layer_norm_weight", n, t.hidden));
    add_to(m, dense_layers,
           gate_and_up(matrix("decoder.layers.{layer}.mlp.linear_fc1.weight", n, t.ffn, t.hidden, row)));
    add_to(m, dense_layers, matrix("decoder.layers.{layer}.mlp.linear_fc2.weight", n, t.hidden, t.ffn, column));
  }
  if (const index_t n = m.sets[moe_layers].size(); n > 0) {
    add_to(m, moe_layers, vector("decoder.layers.{layer}.pre_mlp_layernorm.weight", n, t.hidden));
    add_to(m, moe_layers, matrix("decoder.layers.{layer}.mlp.router.weight", n, t.experts, t.hidden, none));
    const family fc1 =
        matrix("decoder.layers.{layer}.mlp.experts.linear_fc1.weight{expert}", n, t.expert_ffn, t.hidden, row);
    const family fc2 =
        matrix("decoder.layers.{layer}.mlp.experts.linear_fc2.weight{expert}", n, t.hidden, t.expert_ffn, column);
    add_to(m, moe_layers, of_experts(gate_and_up(fc1), t.experts));
    add_to(m, moe_layers, of_experts(fc2, t.experts));
  }
}

}  // namespace detail

/// The families of a transformer whose layer l is a mixture of experts iff is_moe(l); shapes as in the first comment of
/// model/family.hpp. Refuses a size below 1 and anything that does not fit 64 bits.
template <typename IsMoe>
constexpr model make_transformer(const transformer& t, IsMoe&& is_moe) {
  using detail::require_positive;
  require_positive(t.name, "the number of layers", t.layers);
  require_positive(t.name, "the hidden size", t.hidden);
  require_positive(t.name, "the number of attention heads", t.heads);
  require_positive(t.name, "the number of query groups", t.groups);
  require_positive(t.name, "the head dimension", t.head_dim);
  require_positive(t.name, "the vocabulary", t.vocabulary);
  detail::require_heads_in_groups(t.name, t.heads, t.groups);

  model m{.name = t.name,
          .shape = {t.layers, t.hidden, t.heads, t.groups, t.head_dim, t.ffn, t.vocabulary, t.tied, t.experts,
                    t.expert_ffn}};
  detail::deal_layers(m, is_moe);
  if (m.sets[detail::dense_layers].size() > 0)
    require_positive(t.name, "the intermediate size of the dense layers", t.ffn);
  else m.shape.ffn = 0;
  if (m.sets[detail::moe_layers].size() > 0)
    require_positive(t.name, "the intermediate size of an expert", t.expert_ffn);
  else m.shape.expert_ffn = 0;

  family vocabulary = detail::matrix("embedding.word_embeddings.weight", 1, t.vocabulary, t.hidden, axis_of::row);
  vocabulary.padded = padded_as::vocabulary;
  family embedding = vocabulary, output = vocabulary;
  output.name = "output_layer.weight";
  if (t.tied) embedding.tied_name = output.name;
  detail::add_at(m, home::embedding, embedding);
  detail::add_attention(m, t);
  detail::add_mlp(m, t);
  detail::add_at(m, home::last_stage, detail::vector("decoder.final_layernorm.weight", 1, t.hidden));
  if (!t.tied) detail::add_at(m, home::last_stage, output);
  checked_multiply(m.parameters(), 16);
  return m;
}

/// A transformer whose layers are all alike: MoE where it has experts.
constexpr model make_transformer(const transformer& t) {
  return make_transformer(t, [&t](index_t) { return t.experts > 0; });
}

}  // namespace reshard
