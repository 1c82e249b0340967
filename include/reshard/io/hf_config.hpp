// SPDX-License-Identifier: Apache-2.0
// A model from a Hugging Face config.json: three architectures, their keys and defaults. All else is refused in one
// sentence. Source of the keys: transformers' LlamaConfig, Qwen3Config, Qwen3MoeConfig.
// Builds on: io/config_values.hpp, model/presets.hpp.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <reshard/io/config_values.hpp>
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

inline model make_model(const config_values& file, std::string_view name) {
  const std::string& kind = architecture(file);
  const bool moe = kind == "Qwen3MoeForCausalLM";
  if (!moe && kind != "LlamaForCausalLM" && kind != "Qwen3ForCausalLM")
    file.refuse_file("the architecture ", one_line(kind),
                     " is not built; built are LlamaForCausalLM, Qwen3ForCausalLM and Qwen3MoeForCausalLM");
  transformer t{.name = name,
                .layers = file.number("num_hidden_layers"),
                .hidden = file.number("hidden_size"),
                .heads = file.number("num_attention_heads"),
                .qk_norm = kind != "LlamaForCausalLM"};
  if (t.layers > max_config_layers)
    file.refuse_file("num_hidden_layers is ", t.layers, ", but at most ", max_config_layers, " are supported");
  t.groups = file.missing_or_null("num_key_value_heads") ? t.heads : file.number("num_key_value_heads");
  if (!file.missing_or_null("head_dim")) {
    t.head_dim = file.number("head_dim");
  } else {
    if (t.hidden % t.heads != 0)
      file.refuse_file("head_dim is missing, and hidden_size ", t.hidden, " does not divide by num_attention_heads ",
                       t.heads);
    t.head_dim = t.hidden / t.heads;
  }
  t.vocabulary = file.number("vocab_size");
  t.tied = file.truth("tie_word_embeddings", false);
  if (!moe) {
    t.ffn = file.number("intermediate_size");
    return make_transformer(t);
  }
  t.experts = file.number("num_experts");
  if (t.experts > max_config_layers / t.layers)
    file.refuse_file(t.layers, " layers of ", t.experts, " experts, but layers x experts may be at most ",
                     max_config_layers);
  t.expert_ffn = file.number("moe_intermediate_size");
  const index_t step =
      file["decoder_sparse_step"].is == config_value::kind::absent ? 1 : file.number("decoder_sparse_step");
  const std::vector<index_t> dense = dense_only_layers(file);
  const auto is_moe = [&](index_t layer) {
    return (layer + 1) % step == 0 && !std::binary_search(dense.begin(), dense.end(), layer);
  };
  for (index_t layer = 0; layer < t.layers && t.ffn == 0; ++layer)
    if (!is_moe(layer)) t.ffn = file.number("intermediate_size");  // required only where a dense layer exists
  return make_transformer(t, is_moe);
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
