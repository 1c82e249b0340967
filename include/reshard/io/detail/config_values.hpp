// SPDX-License-Identifier: Apache-2.0
// The top level of a config.json. The text is read as a stream of events, of which only the keys that a reader asks for
// are kept, so neither a large nor a deeply nested file costs memory or stack. What cannot be read is refused in one
// sentence.
// Builds on: io/print.hpp, nlohmann-json.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/io/print.hpp>

namespace reshard::io {

namespace detail {

inline constexpr int max_config_depth = 128;
inline constexpr std::size_t max_config_items = 65536;  // of a list we read

/// One JSON value, as far as it is ever looked at.
struct config_value {
  enum class kind { absent, null, boolean, integer, other_number, text, list, object };
  kind is = kind::absent;
  index_t integer = 0;    // an integer; 0 or 1 for a boolean
  std::string text = {};  // a string; or a number that is no 64-bit integer, as it is written
  std::vector<config_value> items = {};

  /// The value inside a sentence.
  std::string described() const {
    switch (is) {
      case kind::absent: return "missing";
      case kind::null: return "null";
      case kind::boolean: return integer != 0 ? "true" : "false";
      case kind::integer: return std::to_string(integer);
      case kind::other_number: return one_line(text, 40);
      case kind::text: return text_of("the text '", one_line(text, 40), "'");
      case kind::list: return "a list";
      case kind::object: return "an object";
    }
    return {};
  }
};

/// The top level of a config.json: the keys that any reader below asks for. `name` is what sentences call the file.
class config_values {
 public:
  using kind = config_value::kind;

  config_values(std::string_view text, std::string_view name) : name_(one_line(name)) {
    events listener(*this, text);
    nlohmann::json::sax_parse(text.begin(), text.end(), &listener);
  }

  /// Throws the sentence "reshard: <file>: <parts>".
  template <typename... Parts>
  [[noreturn]] void refuse_file(const Parts&... parts) const {
    refuse(name_, ": ", parts...);
  }

  const config_value& operator[](std::string_view key) const { return values_[index_of(key)]; }

  /// A number from `least` to 2^63 - 1; refused where it is missing or anything else.
  index_t number(std::string_view key, index_t least = 1) const {
    if ((*this)[key].is == kind::absent) refuse_file(key, " is missing");
    require_number(key, (*this)[key], least);
    return (*this)[key].integer;
  }
  void require_number(std::string_view key, const config_value& v, index_t least) const {
    if (v.is != kind::integer || v.integer < least)
      refuse_file(key, " is ", v.described(), ", but must be a whole number, at least ", least, " and below 2^63");
  }

  bool missing_or_null(std::string_view key) const {
    return (*this)[key].is == kind::absent || (*this)[key].is == kind::null;
  }

  /// A number from `least`, or `otherwise` where it is missing or null.
  index_t number_or(std::string_view key, index_t otherwise, index_t least = 1) const {
    return missing_or_null(key) ? otherwise : number(key, least);
  }

  /// A true or false; `otherwise` where it is missing.
  bool truth(std::string_view key, bool otherwise) const {
    const config_value& v = (*this)[key];
    if (v.is == kind::absent) return otherwise;
    if (v.is != kind::boolean) refuse_file(key, " is ", v.described(), ", but must be true or false");
    return v.integer != 0;
  }

 private:
  static constexpr std::string_view keys[] = {"architectures",
                                              "num_hidden_layers",
                                              "hidden_size",
                                              "num_attention_heads",
                                              "num_key_value_heads",
                                              "head_dim",
                                              "intermediate_size",
                                              "vocab_size",
                                              "tie_word_embeddings",
                                              "num_experts",
                                              "moe_intermediate_size",
                                              "mlp_only_layers",
                                              "decoder_sparse_step",
                                              "num_nextn_predict_layers",
                                              "attention_bias",
                                              "mlp_bias",
                                              "num_local_experts",
                                              "q_lora_rank",
                                              "kv_lora_rank",
                                              "qk_nope_head_dim",
                                              "qk_rope_head_dim",
                                              "v_head_dim",
                                              "first_k_dense_replace",
                                              "moe_layer_freq",
                                              "n_routed_experts",
                                              "n_shared_experts",
                                              "topk_method",
                                              "n_layer",
                                              "n_embd",
                                              "n_head",
                                              "n_inner",
                                              "n_positions",
                                              "add_cross_attention"};

  static std::size_t index_of(std::string_view key) {
    return static_cast<std::size_t>(std::find(std::begin(keys), std::end(keys), key) - std::begin(keys));
  }

  /// What nlohmann-json's parser calls. `depth_` counts the lists and objects that are open.
  class events {
   public:
    events(config_values& file, std::string_view text) : file_(file), text_(text) {}

    bool null() { return take({.is = kind::null}); }
    bool boolean(bool value) { return take({.is = kind::boolean, .integer = value ? 1 : 0}); }
    bool number_integer(std::int64_t value) { return take({.is = kind::integer, .integer = value}); }
    bool number_unsigned(std::uint64_t value) {
      if (value > static_cast<std::uint64_t>(std::numeric_limits<index_t>::max()))
        return take({.is = kind::other_number, .text = std::to_string(value)});
      return number_integer(static_cast<std::int64_t>(value));
    }
    bool number_float(double, const std::string& written) { return take({.is = kind::other_number, .text = written}); }
    bool string(std::string& value) { return take({.is = kind::text, .text = value}); }
    template <typename Binary>
    bool binary(Binary&) {
      return false;
    }  // not in JSON text
    bool start_object(std::size_t) { return open(kind::object); }
    bool start_array(std::size_t) { return open(kind::list); }
    bool end_object() { return --depth_, true; }
    bool end_array() { return --depth_, true; }

    bool key(const std::string& name) {
      if (depth_ != 1) return true;
      const std::size_t which = index_of(name);
      slot_ = which < std::size(keys) ? &file_.values_[which] : nullptr;
      if (slot_ != nullptr && slot_->is != kind::absent) file_.refuse_file(name, " is given twice");
      return true;
    }

    template <typename Exception>
    bool parse_error(std::size_t position, const std::string&, const Exception&) {
      if (text_.find_first_not_of(" \t\r\n") == text_.npos) file_.refuse_file("the file is empty");
      const std::string_view before = text_.substr(0, std::min(position > 0 ? position - 1 : 0, text_.size()));
      const auto line = std::count(before.begin(), before.end(), '\n') + 1;
      const auto column = before.size() - (before.rfind('\n') + 1) + 1;  // npos + 1 == 0
      file_.refuse_file("not JSON: ", position > text_.size() ? "the text ends too early" : "wrong text", " at line ",
                        line, ", column ", column);
    }

   private:
    bool take(config_value&& value) {
      if (depth_ == 0) file_.refuse_file("the file is no JSON object but ", value.described());
      if (depth_ == 1 && slot_ != nullptr) *slot_ = std::move(value);
      if (depth_ == 2 && slot_ != nullptr && slot_->is == kind::list) {
        if (slot_->items.size() == max_config_items)
          file_.refuse_file(keys[static_cast<std::size_t>(slot_ - file_.values_)], " has more than ", max_config_items,
                            " entries");
        slot_->items.push_back(std::move(value));
      }
      return true;
    }
    bool open(kind what) {
      if (depth_ > 0 || what == kind::list) take({.is = what});
      if (++depth_ > max_config_depth) file_.refuse_file("lists and objects are nested deeper than ", max_config_depth);
      return true;
    }

    config_values& file_;
    std::string_view text_;
    int depth_ = 0;
    config_value* slot_ = nullptr;  // where the value of the last key of the top level goes
  };

  std::string name_;
  config_value values_[std::size(keys) + 1];  // the last one stays absent
};

}  // namespace detail

}  // namespace reshard::io
