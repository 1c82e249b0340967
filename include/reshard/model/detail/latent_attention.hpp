// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention, as Megatron builds it: q and kv go through a low rank, whose up-projections tensor
// parallelism cuts along rows; the down-projections are whole everywhere. With n, r, v the sizes of a head's parts:
//   linear_q_up_proj [H (n + r), q_rank]    linear_kv_up_proj [H (n + v), kv_rank]    linear_proj [h, H v] (columns)
// Builds on: model/detail/layer_families.hpp.
#pragma once

#include <reshard/model/detail/layer_families.hpp>

namespace reshard::detail {

constexpr void require_latent(const transformer& t) {
  require_positive(t.name, "the rank of the keys and values", t.latent.kv_rank);
  require_positive(t.name, "the part of a head without positions", t.latent.nope);
  require_positive(t.name, "the part of a head with rotary positions", t.latent.rope);
  require_positive(t.name, "the size of a value head", t.latent.value);
  if (t.latent.q_rank < 0) refuse("model ", t.name, ": the rank of the queries is ", t.latent.q_rank, ", below 0");
}

constexpr void add_latent_attention(const layer_families& to, const transformer& t) {
  const latent_sizes& l = t.latent;
  const index_t q_rows = checked_multiply(t.heads, checked_add(l.nope, l.rope));
  to.add<"input_layernorm.weight">(vector(t.hidden));
  to.add<"self_attention.linear_proj.weight">(matrix(t.hidden, checked_multiply(t.heads, l.value), axis_of::column));
  if (l.q_rank > 0) {
    to.add<"self_attention.linear_q_down_proj.weight">(matrix(l.q_rank, t.hidden, axis_of::none));
    to.add<"self_attention.linear_q_up_proj.layer_norm_weight">(vector(l.q_rank));
    to.add<"self_attention.linear_q_up_proj.weight">(matrix(q_rows, l.q_rank, axis_of::row));
  } else {
    to.add<"self_attention.linear_q_proj.layer_norm_weight">(vector(t.hidden));
    to.add<"self_attention.linear_q_proj.weight">(matrix(q_rows, t.hidden, axis_of::row));
  }
  to.add<"self_attention.linear_kv_down_proj.weight">(matrix(checked_add(l.kv_rank, l.rope), t.hidden, axis_of::none));
  to.add<"self_attention.linear_kv_up_proj.layer_norm_weight">(vector(l.kv_rank));
  to.add<"self_attention.linear_kv_up_proj.weight">(
      matrix(checked_multiply(t.heads, checked_add(l.nope, l.value)), l.kv_rank, axis_of::row));
}

}  // namespace reshard::detail
