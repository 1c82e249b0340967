// SPDX-License-Identifier: Apache-2.0
// What Hugging Face's checkpoints call the tensors of a model: q_proj, k_proj, v_proj for the pieces of linear_qkv,
// gate_proj and up_proj for those of linear_fc1, and every other family by one name; prediction layer m is layer L + m.
// Builds on: model/pieces.hpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <reshard/model/pieces.hpp>

namespace reshard {

/// Whether the checkpoints of a model have Hugging Face's names, each tensor or piece of one stored as it is.
constexpr bool has_hf_names(const model& m) {
  return m.shape.checkpoint == checkpoint_form::usual || m.shape.checkpoint == checkpoint_form::mixtral;
}
/// Refuses a model whose checkpoints have no such names, with the reason.
constexpr void require_hf_names(const model& m) {
  switch (m.shape.checkpoint) {
    case checkpoint_form::usual:
    case checkpoint_form::mixtral: return;
    case checkpoint_form::transposed:
      refuse("names=hf is not built for model ", m.name, ": GPT-2's checkpoints store matrices transposed");
    case checkpoint_form::without_q_rank:
      refuse("names=hf is not built for model ", m.name, ": its queries are not compressed (q_lora_rank is null)");
    case checkpoint_form::none:
      refuse("names=hf is not built for model ", m.name,
             ": its checkpoint's form is not said; usual and mixtral have names");
  }
}

namespace detail {

/// What a family is called in a checkpoint, without what its name begins with: a name for each piece.
struct hf_entry {
  std::string_view family;
  std::string_view piece[3];
};

inline constexpr hf_entry hf_layer_names[] = {
    {"input_layernorm.weight", {"input_layernorm.weight"}},
    {"self_attention.linear_proj.weight", {"self_attn.o_proj.weight"}},
    {"self_attention.linear_qkv.layer_norm_weight", {"input_layernorm.weight"}},
    {"self_attention.linear_qkv.weight",
     {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"}},
    {"self_attention.linear_qkv.bias", {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"}},
    {"self_attention.q_layernorm.weight", {"self_attn.q_norm.weight"}},
    {"self_attention.k_layernorm.weight", {"self_attn.k_norm.weight"}},
    {"self_attention.linear_q_down_proj.weight", {"self_attn.q_a_proj.weight"}},
    {"self_attention.linear_q_up_proj.layer_norm_weight", {"self_attn.q_a_layernorm.weight"}},
    {"self_attention.linear_q_up_proj.weight", {"self_attn.q_b_proj.weight"}},
    {"self_attention.linear_kv_down_proj.weight", {"self_attn.kv_a_proj_with_mqa.weight"}},
    {"self_attention.linear_kv_up_proj.layer_norm_weight", {"self_attn.kv_a_layernorm.weight"}},
    {"self_attention.linear_kv_up_proj.weight", {"self_attn.kv_b_proj.weight"}},
    {"mlp.linear_fc1.layer_norm_weight", {"post_attention_layernorm.weight"}},
    {"mlp.linear_fc1.weight", {"mlp.gate_proj.weight", "mlp.up_proj.weight"}},
    {"mlp.linear_fc2.weight", {"mlp.down_proj.weight"}},
    {"pre_mlp_layernorm.weight", {"post_attention_layernorm.weight"}},
    {"mlp.router.weight", {"mlp.gate.weight"}},
    {"mlp.router.expert_bias", {"mlp.gate.e_score_correction_bias"}},
    {"mlp.experts.linear_fc1.weight{expert}",
     {"mlp.experts.{expert}.gate_proj.weight", "mlp.experts.{expert}.up_proj.weight"}},
    {"mlp.experts.linear_fc2.weight{expert}", {"mlp.experts.{expert}.down_proj.weight"}},
    {"mlp.shared_experts.linear_fc1.weight",
     {"mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight"}},
    {"mlp.shared_experts.linear_fc2.weight", {"mlp.shared_experts.down_proj.weight"}},
};
/// Mixtral's, before those.
inline constexpr hf_entry hf_mixtral_names[] = {
    {"mlp.router.weight", {"block_sparse_moe.gate.weight"}},
    {"mlp.experts.linear_fc1.weight{expert}",
     {"block_sparse_moe.experts.{expert}.w1.weight", "block_sparse_moe.experts.{expert}.w3.weight"}},
    {"mlp.experts.linear_fc2.weight{expert}", {"block_sparse_moe.experts.{expert}.w2.weight"}},
};
/// Names in a prediction layer, beside those of the layer inside.
inline constexpr hf_entry hf_prediction_names[] = {
    {"enorm.weight", {"enorm.weight"}},
    {"hnorm.weight", {"hnorm.weight"}},
    {"eh_proj.weight", {"eh_proj.weight"}},
    {"final_layernorm.weight", {"shared_head.norm.weight"}},
};
/// Names of what lies in no layer.
inline constexpr hf_entry hf_pinned_names[] = {
    {"embedding.word_embeddings.weight", {"model.embed_tokens.weight"}},
    {"decoder.final_layernorm.weight", {"model.norm.weight"}},
    {"output_layer.weight", {"lm_head.weight"}},
};

/// The name of a piece in a table, or nothing.
template <std::size_t N>
constexpr std::string_view look_up(const hf_entry (&table)[N], std::string_view family, int piece) {
  for (const hf_entry& entry : table)
    if (entry.family == family) return entry.piece[piece];
  return {};
}

constexpr bool cut_prefix(std::string_view& name, std::string_view prefix) {
  const bool begins = name.starts_with(prefix);
  if (begins) name.remove_prefix(prefix.size());
  return begins;
}

/// What a checkpoint calls piece `piece` of a family's tensors; empty where it has no name for it.
inline std::string find_hf_name(const model& m, int family, int piece) {
  std::string_view rest = m[family].name, found;
  const bool decoder = cut_prefix(rest, "decoder.layers.{layer}.");
  const bool prediction = !decoder && cut_prefix(rest, "mtp.layers.0.");
  const bool inner = prediction && cut_prefix(rest, "mtp_model_layer.");
  if (decoder || inner) {
    if (m.shape.checkpoint == checkpoint_form::mixtral) found = look_up(hf_mixtral_names, rest, piece);
    if (found.empty()) found = look_up(hf_layer_names, rest, piece);
  } else {
    found = prediction ? look_up(hf_prediction_names, rest, piece) : look_up(hf_pinned_names, rest, piece);
  }
  if (found.empty()) return {};
  return (decoder || prediction ? "model.layers.{layer}." : "") + std::string(found);
}

}  // namespace detail

/// Whether checkpoints of a model have a name for each of its tensors: of a model of one's own they may not.
inline bool names_all_tensors(const model& m) {
  if (!has_hf_names(m)) return false;
  for (int f = 0; f < m.families; ++f)
    for (int piece = 0; piece < pieces(m[f]); ++piece)
      if (detail::find_hf_name(m, f, piece).empty()) return false;
  return true;
}

/// What a checkpoint calls piece `piece` of a family's tensors: a pattern, as the family's name is one. Refuses a
/// family that it has no name for.
inline std::string hf_name(const model& m, int family, int piece) {
  require_hf_names(m);
  std::string name = detail::find_hf_name(m, family, piece);
  if (name.empty())
    refuse("model ", m.name, ": piece ", piece, " of '", m[family].name, "' has no name of Hugging Face's");
  return name;
}

/// What a checkpoint calls the copy that a tied family has under another name; empty where there is none.
inline std::string hf_tied_name(const model& m, int family) {
  return std::string(m[family].tied_name.empty() ? ""
                                                 : detail::look_up(detail::hf_pinned_names, m[family].tied_name, 0));
}

/// A tensor of a model and which piece of it.
struct tensor_piece {
  tensor_id tensor;
  int piece = 0;

  friend constexpr auto operator<=>(const tensor_piece&, const tensor_piece&) = default;
  friend constexpr bool operator==(const tensor_piece&, const tensor_piece&) = default;
};

/// The names of a model's tensors in its checkpoints, both ways: of a tensor's piece, and the piece that a name means.
class hf_names {
 public:
  explicit hf_names(const model& m) : model_(m) {
    for (int f = 0; f < m.families; ++f) {
      for (int piece = 0; piece < pieces(m[f]); ++piece) patterns_.push_back({f, piece, hf_name(m, f, piece)});
      if (const std::string tied = hf_tied_name(m, f); !tied.empty()) patterns_.push_back({f, 0, tied});
    }
  }

  /// The name of a piece of a tensor.
  std::string operator[](const tensor_piece& p) const {
    for (const pattern& each : patterns_)
      if (each.family == p.tensor.family && each.piece == p.piece)
        return tensor_name(each.text, model_.layer_of(p.tensor), p.tensor.expert);
    refuse("model ", model_.name, ": family ", p.tensor.family, " has no piece ", p.piece);
  }

  /// Which parts, rows and columns of its tensor a piece is.
  box<3> box_of(const tensor_piece& p) const { return piece_box(model_, p.tensor.family, p.piece); }

  /// What a name means: (*this)[*find(name)] == name, but for a tied copy, whose name means the tensor that it copies;
  /// nothing where no tensor has it. Of a prediction layer's norm that layers of both kinds have, the family that
  /// counts is meant.
  std::optional<tensor_piece> find(std::string_view name) const {
    std::optional<tensor_piece> found;
    for (const pattern& each : patterns_) {
      index_t layer = 0, expert = 0;
      if (!detail::matches(each.text, name, layer, expert)) continue;
      const std::optional<index_t> member = member_of(each.family, layer);
      const family& tensors = model_[each.family];
      if (!member || *member >= tensors.extent[axis_of::layer] || expert >= tensors.extent[axis_of::expert]) continue;
      if (!found || model_.counts(each.family)) found = tensor_piece{{each.family, *member, expert}, each.piece};
    }
    return found;
  }

 private:
  struct pattern {
    int family;
    int piece;
    std::string text;
  };

  std::optional<index_t> member_of(int family, index_t layer) const {
    switch (model_[family].place) {
      case home::layers:
        if (layer >= model_.shape.layers || !model_.layers_of(family).contains(layer)) return std::nullopt;
        return model_.layers_of(family).members_below(layer);
      case home::prediction:
        if (layer != model_.shape.layers) return std::nullopt;
        return 0;
      default: return 0;
    }
  }

  model model_;
  std::vector<pattern> patterns_;
};

}  // namespace reshard
