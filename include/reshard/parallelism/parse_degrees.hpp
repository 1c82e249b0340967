// SPDX-License-Identifier: Apache-2.0
// The written form of a configuration: "tp=4,pp=8,dp=2,zero=1,split=account", keys in any order, '' for all defaults.
// Builds on: parallelism/detail/layout_keys.hpp.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include <reshard/parallelism/detail/layout_keys.hpp>

namespace reshard {

namespace detail {
/// "tp, cp, .. split and bucket"
inline std::string every_key() {
  std::string keys;
  for (const key_entry& k : layout_keys) {
    if (&k != std::begin(layout_keys)) keys += &k + 1 == std::end(layout_keys) ? " and " : ", ";
    keys += k.name;
  }
  return keys;
}

/// A decimal number of digits only, 0 <= number < 2^63.
inline index_t parse_number(std::string_view key, std::string_view text) {
  if (text.empty()) refuse("layout: '", key, "=' needs a number");
  index_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') refuse("layout: '", text, "' is not a number, in ", key, "=", text);
    if (RESHARD_MULTIPLY_OVERFLOWS(number, index_t{10}, &number) || RESHARD_ADD_OVERFLOWS(number, c - '0', &number))
      refuse("layout: ", key, "=", text, " does not fit 64 bits");
  }
  return number;
}

/// Sets a key that has words.
inline void parse_word(degrees& d, const key_entry& key, std::string_view text) {
  const word_entry& known = *key.words;
  std::string legal;
  for (int i = 0; i < known.count; ++i) {
    if (text == known.words[i]) return known.set(d, i);
    legal += i == 0 ? "" : i + 1 == known.count ? " or " : ", ";
    legal += known.words[i];
  }
  refuse("layout: ", key.name, "=", text, " is unknown; it is ", legal);
}

/// Sets one key, whatever its kind.
inline void parse_value(degrees& d, const key_entry& key, std::string_view text) {
  if (key.words != nullptr) return parse_word(d, key, text);
  if (key.key == layout_key::order) d.order = parse_rank_order(text);
  else if (key.key == layout_key::string) d.string = parse_pipeline_string(text);
  else if (key.key != layout_key::bucket || text != "none") {  // the default, and bucket=0 is not
    const index_t number = parse_number(key.name, text);
    require_degree(key.key, number);
    assign(d, key.key, number);
  }
}

/// "order" as it is written.
inline std::string text_of(const rank_order& order) {
  std::string text;
  for (int i = 0; i < order.axes; ++i) {
    text += i == 0 ? "" : "-";
    text += name(order.axis[i]);
  }
  return text;
}
/// Whether a key has its default, and the text of its value.
inline bool by_default(const degrees& d, const key_entry& key) {
  const degrees defaults;
  if (key.words != nullptr) return key.words->get(d) == key.words->get(defaults);
  if (key.key == layout_key::order) return d.order == defaults.order;
  if (key.key == layout_key::string) return !d.string.given();
  return d.*key.number == defaults.*key.number;
}
inline std::string text_of(const degrees& d, const key_entry& key) {
  if (key.words != nullptr) return key.words->words[key.words->get(d)];
  if (key.key == layout_key::order) return text_of(d.order);
  if (key.key == layout_key::string) return to_text(d.string);
  return std::to_string(d.*key.number);
}
}  // namespace detail

/// The degrees that a text names; refused: a key that is unknown or given twice, a value that is no number or below its
/// least.
inline degrees parse_degrees(std::string_view text) {
  degrees result;
  bool seen[std::size(layout_keys)] = {};
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    if (comma != std::string_view::npos && comma + 1 == text.size())
      refuse("layout: nothing follows the last comma, after '", item, "'");
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) refuse("layout: '", item, "' is not of the form key=value");
    const std::string_view key = item.substr(0, equals), value = item.substr(equals + 1);
    const key_entry* const found = std::find_if(std::begin(layout_keys), std::end(layout_keys),
                                                [key](const key_entry& k) { return key == k.name; });
    if (found == std::end(layout_keys)) refuse("layout: '", key, "' is no key; keys are ", detail::every_key());
    bool& given = seen[found - std::begin(layout_keys)];
    if (given) refuse("layout: ", key, " is given twice");
    given = true;
    detail::parse_value(result, *found, value);
  }
  detail::settle_chunks(result, seen[static_cast<int>(layout_key::vpp)]);
  return result;
}

/// The shortest text with parse_degrees(to_text(d)) == d.
[[nodiscard]] inline std::string to_text(const degrees& d) {
  std::string text;
  for (const key_entry& k : layout_keys) {
    if (detail::by_default(d, k) || (k.key == layout_key::vpp && d.string.given())) continue;
    text += text.empty() ? "" : ",";
    text += k.name;
    text += '=';
    text += detail::text_of(d, k);
  }
  return text;
}

/// to_text(d), and "tp=1" where that is empty: within a sentence, and where a word is to stand.
[[nodiscard]] inline std::string layout_word(const degrees& d) {
  std::string text = to_text(d);
  return text.empty() ? "tp=1" : text;
}

}  // namespace reshard
