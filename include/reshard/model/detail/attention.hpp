// SPDX-License-Identifier: Apache-2.0
// Attention by query groups, in Megatron's order: linear_proj before linear_qkv, the norm fused into linear_qkv, the
// rows of linear_qkv by group (its queries, k, v).
//   linear_proj.weight [h, heads d] (columns)    linear_qkv.weight [(heads + 2 groups) d, h] (rows)
// Builds on: model/detail/layer_families.hpp.
#pragma once

#include <reshard/model/detail/layer_families.hpp>

namespace reshard::detail {

constexpr void add_attention(const layer_families& to, const transformer& t) {
  const bool gpt = t.is_gpt();
  to.add<"self_attention.linear_proj.weight">(matrix(t.hidden, checked_multiply(t.heads, t.head_dim), axis_of::column));
  if (gpt) to.add<"self_attention.linear_proj.bias">(vector(t.hidden));
  to.add<"self_attention.linear_qkv.layer_norm_weight">(vector(t.hidden));
  if (gpt) to.add<"self_attention.linear_qkv.layer_norm_bias">(vector(t.hidden));
  const index_t rows = to.of.shape.qkv_rows();
  to.add<"self_attention.linear_qkv.weight">(by_group(matrix(rows, t.hidden, axis_of::part), t.groups));
  if (gpt || t.qkv_bias) to.add<"self_attention.linear_qkv.bias">(by_group(vector(rows, axis_of::part), t.groups));
  if (!t.qk_norm) return;
  to.add<"self_attention.q_layernorm.weight">(vector(t.head_dim));
  to.add<"self_attention.k_layernorm.weight">(vector(t.head_dim));
}

}  // namespace reshard::detail
