// SPDX-License-Identifier: Apache-2.0
//
// The oracle of trainers' layouts, part 5: names=hf, where a tensor has Hugging Face's name and shape.
// Builds on trainer_tensors.hpp.
#pragma once

#include "trainer_tensors.hpp"

#include <map>
#include <string>
#include <vector>

namespace oracle::trainer {

// A tensor of Hugging Face that is these rows of a Megatron tensor.
inline tensor part_of(const tensor& whole, const std::string& name, const numbers& rows) {
  tensor t = whole;
  t.name = name;
  t.shape[0] = length(rows);
  t.family_rows = rows;
  if (t.how == cut::gate_and_up) t.how = cut::rows;
  return t;
}

// "decoder.layers.3.x": "model.layers.3." and "x". A prediction layer m is layer L+m.
inline void split_name(const model& m, const std::string& name, std::string& prefix, std::string& rest) {
  const auto after = [&](const std::string& head) {  // the number after head, and what follows it
    const std::size_t dot = name.find('.', head.size());
    rest = name.substr(dot + 1);
    return std::stol(name.substr(head.size(), dot - head.size()));
  };
  rest = name;
  prefix = "";
  if (name.rfind("decoder.layers.", 0) == 0) prefix = "model.layers." + text(after("decoder.layers.")) + ".";
  if (name.rfind("mtp.layers.", 0) == 0) prefix = "model.layers." + text(m.layers + after("mtp.layers.")) + ".";
  const std::string inner = "mtp_model_layer.";
  if (rest.rfind(inner, 0) == 0) rest = rest.substr(inner.size());
  else if (!prefix.empty() && rest == "final_layernorm.weight") rest = "shared_head.norm.weight";
}

// What has another name and the same rows.
inline std::string renamed(const model& m, const std::string& rest) {
  static const std::map<std::string, std::string> names = {
      {"embedding.word_embeddings.weight", "model.embed_tokens.weight"},
      {"decoder.final_layernorm.weight", "model.norm.weight"},
      {"output_layer.weight", "lm_head.weight"},
      {"self_attention.linear_proj.weight", "self_attn.o_proj.weight"},
      {"self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight"},
      {"input_layernorm.weight", "input_layernorm.weight"},
      {"self_attention.q_layernorm.weight", "self_attn.q_norm.weight"},
      {"self_attention.k_layernorm.weight", "self_attn.k_norm.weight"},
      {"mlp.linear_fc1.layer_norm_weight", "post_attention_layernorm.weight"},
      {"pre_mlp_layernorm.weight", "post_attention_layernorm.weight"},
      {"mlp.linear_fc2.weight", "mlp.down_proj.weight"},
      {"mlp.router.weight", "mlp.gate.weight"},
      {"mlp.router.expert_bias", "mlp.gate.e_score_correction_bias"},
      {"mlp.shared_experts.linear_fc2.weight", "mlp.shared_experts.down_proj.weight"},
      {"self_attention.linear_q_down_proj.weight", "self_attn.q_a_proj.weight"},
      {"self_attention.linear_q_up_proj.layer_norm_weight", "self_attn.q_a_layernorm.weight"},
      {"self_attention.linear_q_up_proj.weight", "self_attn.q_b_proj.weight"},
      {"self_attention.linear_kv_down_proj.weight", "self_attn.kv_a_proj_with_mqa.weight"},
      {"self_attention.linear_kv_up_proj.layer_norm_weight", "self_attn.kv_a_layernorm.weight"},
      {"self_attention.linear_kv_up_proj.weight", "self_attn.kv_b_proj.weight"},
      {"enorm.weight", "enorm.weight"},
      {"hnorm.weight", "hnorm.weight"},
      {"eh_proj.weight", "eh_proj.weight"},
      {"shared_head.norm.weight", "shared_head.norm.weight"},
  };
  if (m.mixtral() && rest == "mlp.router.weight") return "block_sparse_moe.gate.weight";
  return names.at(rest);
}

inline std::vector<tensor> hf_parts(const model& m, const tensor& t) {
  std::string prefix, rest;
  split_name(m, t.name, prefix, rest);
  const long half = t.rows() / 2;
  const auto gate_and_up = [&](const std::string& gate, const std::string& up) -> std::vector<tensor> {
    return {part_of(t, prefix + gate + ".weight", range(0, half)),
            part_of(t, prefix + up + ".weight", range(half, t.rows()))};
  };

  for (const char* what : {"weight", "bias"})
    if (rest == std::string("self_attention.linear_qkv.") + what) {
      // row (g (Q+2) + j) d + x is: j < Q: row (g Q + j) d + x of q; j = Q: row g d + x of k; j = Q + 1: of v
      const long d = m.head_dim, Q = m.heads / m.groups;
      numbers q, k, v;
      for (long g = 0; g < m.groups; ++g)
        for (long j = 0; j < Q + 2; ++j)
          for (long x = 0; x < d; ++x) (j < Q ? q : j == Q ? k : v).push_back((g * (Q + 2) + j) * d + x);
      const auto part = [&](const std::string& name, const numbers& rows) {
        return part_of(t, prefix + "self_attn." + name + "_proj." + what, rows);
      };
      return {part("q", q), part("k", k), part("v", v)};
    }
  if (rest == "mlp.linear_fc1.weight") return gate_and_up("mlp.gate_proj", "mlp.up_proj");
  if (rest == "mlp.shared_experts.linear_fc1.weight")
    return gate_and_up("mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj");
  if (t.expert >= 0) {
    const std::string own = (m.mixtral() ? "block_sparse_moe.experts." : "mlp.experts.") + text(t.expert) + ".";
    if (t.how == cut::gate_and_up)
      return m.mixtral() ? gate_and_up(own + "w1", own + "w3") : gate_and_up(own + "gate_proj", own + "up_proj");
    return {part_of(t, prefix + own + (m.mixtral() ? "w2" : "down_proj") + ".weight", t.family_rows)};
  }
  return {part_of(t, prefix + renamed(m, rest), t.family_rows)};
}

// Every tensor of the side, in the order of the model.
inline std::vector<tensor> tensors(const model& m, const layout& l) {
  if (!l.hf) return megatron_tensors(m, l);
  std::vector<tensor> list;
  for (const tensor& t : megatron_tensors(m, l))
    for (const tensor& part : hf_parts(m, t)) list.push_back(part);
  return list;
}

}  // namespace oracle::trainer
