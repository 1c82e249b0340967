// SPDX-License-Identifier: Apache-2.0
// The feed-forward part of a layer: dense (fc1 = [gate; up], or plain and biased in a GPT), or a mixture of experts:
// norm, router, the router's bias, all fc1 of the experts by number, all fc2, the shared experts.
// Builds on: model/detail/layer_families.hpp.
#pragma once

#include <reshard/model/detail/layer_families.hpp>

namespace reshard::detail {

constexpr void add_dense_mlp(const layer_families& to, const transformer& t) {
  using namespace axis_of;
  const bool gpt = t.is_gpt();
  const family fc1 = matrix(t.ffn, t.hidden, row);
  to.add<"mlp.linear_fc1.layer_norm_weight">(vector(t.hidden));
  if (gpt) to.add<"mlp.linear_fc1.layer_norm_bias">(vector(t.hidden));
  to.add<"mlp.linear_fc1.weight">(gpt ? fc1 : gate_and_up(fc1));
  if (gpt) to.add<"mlp.linear_fc1.bias">(vector(t.ffn, column));
  to.add<"mlp.linear_fc2.weight">(matrix(t.hidden, t.ffn, column));
  if (gpt) to.add<"mlp.linear_fc2.bias">(vector(t.hidden));
}

constexpr void add_moe_mlp(const layer_families& to, const transformer& t) {
  using namespace axis_of;
  to.add<"pre_mlp_layernorm.weight">(vector(t.hidden));
  to.add<"mlp.router.weight">(matrix(t.experts, t.hidden, none));
  if (t.expert_bias) to.add<"mlp.router.expert_bias">(statistic(vector(t.experts)));
  const family fc1 = gate_and_up(matrix(t.expert_ffn, t.hidden, row)), fc2 = matrix(t.hidden, t.expert_ffn, column);
  to.add<"mlp.experts.linear_fc1.weight{expert}">(of_experts(fc1, t.experts));
  to.add<"mlp.experts.linear_fc2.weight{expert}">(of_experts(fc2, t.experts));
  if (t.shared_ffn == 0) return;
  to.add<"mlp.shared_experts.linear_fc1.weight">(gate_and_up(matrix(t.shared_ffn, t.hidden, row)));
  to.add<"mlp.shared_experts.linear_fc2.weight">(matrix(t.hidden, t.shared_ffn, column));
}

}  // namespace reshard::detail
