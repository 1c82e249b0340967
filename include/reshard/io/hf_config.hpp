// SPDX-License-Identifier: Apache-2.0
// A model from a Hugging Face config.json: the architectures that are built, their keys and defaults. All else is
// refused in one sentence, a key that would add a tensor that is not built included. Source of the keys: transformers'
// configurations of these architectures.
// Builds on: io/detail/config_values.hpp, model/presets.hpp.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <reshard/io/detail/config_values.hpp>
#include <reshard/model/presets.hpp>

namespace reshard::io {

/// The largest config.json that is read; published ones have a few KiB.
inline constexpr bytes_t max_config_bytes = bytes_t{16} << 20;

namespace detail {

inline constexpr index_t max_config_layers = 1'000'000;  // times the experts of each

/// The name in architectures[0].
inline const std::string& architecture(const config_values& file) {
  const config_value& v = file["architectures"];
  if (v.is == config_value::kind::absent) file.refuse_file("architectures is missing");
  if (v.is != config_value::kind::list || v.items.empty() || v.items[0].is != config_value::kind::text)
    file.refuse_file("architectures is ", v.described(), ", but must be a list that begins with a name");
  return v.items[0].text;
}

/// mlp_only_layers: the listed layers, ascending.
inline std::vector<index_t> dense_only_layers(const config_values& file) {
  std::vector<index_t> layers;
  if (file.missing_or_null("mlp_only_layers")) return layers;
  const config_value& v = file["mlp_only_layers"];
  if (v.is != config_value::kind::list)
    file.refuse_file("mlp_only_layers is ", v.described(), ", but must be a list of layers");
  for (const config_value& item : v.items) {
    file.require_number("an entry of mlp_only_layers", item, 0);
    layers.push_back(item.integer);
  }
  std::sort(layers.begin(), layers.end());
  return layers;
}

/// The architectures that are built, as the sentence that refuses another lists them.
inline constexpr std::string_view architectures[] = {
    "LlamaForCausalLM",    "MistralForCausalLM", "Qwen2ForCausalLM",      "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM", "MixtralForCausalLM", "DeepseekV3ForCausalLM", "GPT2LMHeadModel"};

/// What says true would add tensors that are not built.
inline void refuse_tensors_of(const config_values& file, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys)
    if (file[key].is != config_value::kind::null && file.truth(key, false))
      file.refuse_file(key, " is true, but the tensors that it adds are not built; false is");
}

inline void limit_layers(const config_values& file, std::string_view key, index_t layers) {
  if (layers > max_config_layers)
    file.refuse_file(key, " is ", layers, ", but at most ", max_config_layers, " are supported");
}

/// What every architecture but GPT-2 has.
inline transformer read_sizes(const config_values& file, std::string_view name) {
  transformer t{.name = name,
                .layers = file.number("num_hidden_layers"),
                .hidden = file.number("hidden_size"),
                .heads = file.number("num_attention_heads")};
  limit_layers(file, "num_hidden_layers", t.layers);
  t.vocabulary = file.number("vocab_size");
  t.tied = file.truth("tie_word_embeddings", false);
  t.predictions = file.number_or("num_nextn_predict_layers", 0, 0);
  if (t.predictions > 1)
    file.refuse_file("num_nextn_predict_layers is ", t.predictions, ", but at most 1 is supported");
  refuse_tensors_of(file, {"attention_bias", "mlp_bias"});
  return t;
}

inline void read_groups(const config_values& file, transformer& t) {
  t.groups = file.number_or("num_key_value_heads", t.heads);
  const bool stated = !file.missing_or_null("head_dim");
  if (!stated && t.hidden % t.heads != 0)
    file.refuse_file("head_dim is missing, and hidden_size ", t.hidden, " does not divide by num_attention_heads ",
                     t.heads);
  t.head_dim = stated ? file.number("head_dim") : t.hidden / t.heads;
}

inline void read_experts(const config_values& file, std::string_view key, std::string_view ffn_key, transformer& t) {
  t.experts = file.number(key);
  if (t.experts > max_config_layers / t.layers)
    file.refuse_file(t.layers, " layers of ", t.experts, " experts, but layers x experts may be at most ",
                     max_config_layers);
  t.expert_ffn = file.number(ffn_key);
}

/// intermediate_size is required only where a dense layer exists.
template <typename IsMoe>
model make_mixed(const config_values& file, transformer t, IsMoe&& is_moe) {
  for (index_t layer = 0; layer < t.layers && t.ffn == 0; ++layer)
    if (!is_moe(layer)) t.ffn = file.number("intermediate_size");
  return make_transformer(t, is_moe);
}

inline model make_qwen_moe(const config_values& file, transformer t) {
  read_groups(file, t);
  t.qk_norm = true;
  read_experts(file, "num_experts", "moe_intermediate_size", t);
  const index_t step =
      file["decoder_sparse_step"].is == config_value::kind::absent ? 1 : file.number("decoder_sparse_step");
  const std::vector<index_t> dense = dense_only_layers(file);
  return make_mixed(file, t, [&](index_t layer) {
    return (layer + 1) % step == 0 && !std::binary_search(dense.begin(), dense.end(), layer);
  });
}

inline model make_deepseek(const config_values& file, transformer t) {
  if (file["q_lora_rank"].is == config_value::kind::absent)
    file.refuse_file("q_lora_rank is missing; null says that queries are not compressed");
  t.latent = {.q_rank = file.number_or("q_lora_rank", 0),
              .kv_rank = file.number("kv_lora_rank"),
              .nope = file.number("qk_nope_head_dim"),
              .rope = file.number("qk_rope_head_dim"),
              .value = file.number("v_head_dim")};
  read_experts(file, "n_routed_experts", "moe_intermediate_size", t);
  t.shared_ffn = checked_multiply(file.number_or("n_shared_experts", 0, 0), t.expert_ffn);
  const config_value& method = file["topk_method"];
  if (!file.missing_or_null("topk_method") && method.is != config_value::kind::text)
    file.refuse_file("topk_method is ", method.described(), ", but must be a text");
  t.expert_bias = method.text == "noaux_tc" && method.is == config_value::kind::text;
  const index_t first = file.number("first_k_dense_replace", 0), step = file.number_or("moe_layer_freq", 1);
  return make_mixed(file, t, [=](index_t layer) { return layer >= first && layer % step == 0; });
}

inline model make_gpt2(const config_values& file, std::string_view name) {
  refuse_tensors_of(file, {"attention_bias", "mlp_bias", "add_cross_attention"});
  transformer t{
      .name = name, .layers = file.number("n_layer"), .hidden = file.number("n_embd"), .heads = file.number("n_head")};
  limit_layers(file, "n_layer", t.layers);
  t.groups = t.heads;
  if (t.hidden % t.heads != 0) file.refuse_file("n_embd ", t.hidden, " does not divide by n_head ", t.heads);
  t.head_dim = t.hidden / t.heads;
  t.ffn = file.missing_or_null("n_inner") ? checked_multiply(4, t.hidden) : file.number("n_inner");
  t.vocabulary = file.number("vocab_size");
  t.tied = file.truth("tie_word_embeddings", true);
  t.learned_positions = file.number("n_positions");
  return make_transformer(t);
}

inline model make_model(const config_values& file, std::string_view name) {
  const std::string& kind = architecture(file);
  if (std::find(std::begin(architectures), std::end(architectures), kind) == std::end(architectures)) {
    std::string built;
    for (const std::string_view each : architectures)
      built += text_of(built.empty() ? "" : each == std::end(architectures)[-1] ? " and " : ", ", each);
    file.refuse_file("the architecture ", one_line(kind), " is not built; built are ", built);
  }
  if (kind == "GPT2LMHeadModel") return make_gpt2(file, name);
  transformer t = read_sizes(file, name);
  if (kind == "DeepseekV3ForCausalLM") return make_deepseek(file, t);
  if (kind == "Qwen3MoeForCausalLM") return make_qwen_moe(file, t);
  read_groups(file, t);
  if (kind == "MixtralForCausalLM") {
    read_experts(file, "num_local_experts", "intermediate_size", t);
    t.checkpoint = checkpoint_form::mixtral;
    return make_transformer(t);
  }
  t.ffn = file.number("intermediate_size");
  t.qk_norm = kind == "Qwen3ForCausalLM";
  t.qkv_bias = kind == "Qwen2ForCausalLM";
  return make_transformer(t);
}

}  // namespace detail

/// The model that the text of a config.json describes. `name` is what sentences call it, and must outlive the model.
inline model parse_config(std::string_view text, std::string_view name) {
  return detail::make_model(detail::config_values(text, name), name);
}

namespace detail {
using file_handle = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

inline file_handle open_to_read(std::string_view path) {
  return {std::fopen(std::string(path).c_str(), "rb"), std::fclose};
}

[[noreturn]] inline void refuse_unreadable(std::string_view path) {
  refuse(one_line(path), " cannot be read: ", std::strerror(errno));
}

inline std::string read_all(const file_handle& file, std::string_view path, bytes_t limit) {
  if (file == nullptr) refuse_unreadable(path);
  std::string text;
  constexpr std::size_t step = std::size_t{1} << 16;
  for (std::size_t read = step; read == step;) {
    const std::size_t before = text.size();
    text.resize(before + step);
    read = std::fread(text.data() + before, 1, step, file.get());
    if (std::ferror(file.get()) != 0) refuse_unreadable(path);
    text.resize(before + read);
    if (static_cast<bytes_t>(text.size()) > limit)
      refuse(one_line(path), " is larger than ", limit, " bytes, so it is no config.json");
  }
  return text;
}
}  // namespace detail

/// The model of a config.json. `path` must outlive it.
inline model read_config(std::string_view path) {
  return parse_config(detail::read_all(detail::open_to_read(path), path, max_config_bytes), path);
}

/// A preset by its name, or else the model of the config.json at that path; the text must outlive a model from a file.
inline model load_model(std::string_view preset_or_path) {
  for (const transformer& t : models::presets)
    if (t.name == preset_or_path) return make_transformer(t);
  const detail::file_handle file = detail::open_to_read(preset_or_path);
  const bool path = preset_or_path.find('/') != preset_or_path.npos || preset_or_path.ends_with(".json");
  // refuses with the known names
  if (file == nullptr && errno == ENOENT && !path) return preset(one_line(preset_or_path));
  return parse_config(detail::read_all(file, preset_or_path, max_config_bytes), preset_or_path);
}

}  // namespace reshard::io
