// SPDX-License-Identifier: Apache-2.0
// A prediction layer (multi-token prediction): two norms, the projection of both, a whole layer, and a norm.
//   eh_proj.weight [h, 2h] (rows)
// The layer inside is of the kind of the last decoder layer; but in a model with experts it is a mixture where its
// chunk has no decoder layer, so a model whose last layer is dense has the families of both kinds, and the chunk
// decides which are held.
// Builds on: model/detail/attention.hpp, model/detail/latent_attention.hpp, model/detail/feed_forward.hpp.
#pragma once

#include <reshard/model/detail/attention.hpp>
#include <reshard/model/detail/feed_forward.hpp>
#include <reshard/model/detail/latent_attention.hpp>

namespace reshard::detail {

constexpr void add_any_attention(const layer_families& to, const transformer& t) {
  if (t.has_latent_attention()) add_latent_attention(to, t);
  else add_attention(to, t);
}

constexpr void add_prediction_layer(model& m, const transformer& t) {
  constexpr home here = home::prediction;
  add_at(m, here, "mtp.layers.0.enorm.weight", vector(t.hidden));
  add_at(m, here, "mtp.layers.0.hnorm.weight", vector(t.hidden));
  add_at(m, here, "mtp.layers.0.eh_proj.weight", matrix(t.hidden, checked_multiply(2, t.hidden), axis_of::row));
  add_any_attention({m, here, every_layer}, t);
  if (m.sets[dense_layers].contains(t.layers - 1)) add_dense_mlp({m, here, dense_layers}, t);
  if (t.experts > 0) add_moe_mlp({m, here, moe_layers}, t);
  add_at(m, here, "mtp.layers.0.final_layernorm.weight", vector(t.hidden));
}

}  // namespace reshard::detail
