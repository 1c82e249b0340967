// SPDX-License-Identifier: Apache-2.0
// The written form of a configuration: "tp=4,pp=8,dp=2,zero=1,split=account", keys in any order, '' for all defaults.
// Builds on: parallelism/layout_keys.hpp.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include <reshard/parallelism/layout_keys.hpp>

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
    if (__builtin_mul_overflow(number, index_t{10}, &number) || __builtin_add_overflow(number, c - '0', &number))
      refuse("layout: ", key, "=", text, " does not fit 64 bits");
  }
  return number;
}

inline pipeline_split parse_split(std::string_view text) {
  for (const split_entry& s : pipeline_splits)
    if (text == s.name) return s.split;
  refuse("layout: split=", text, " is unknown; it is even, account or spread");
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
    if (found->key == layout_key::split) {
      result.split = detail::parse_split(value);
      // bucket=none is the default, and bucket=0 is not
    } else if (found->key != layout_key::bucket || value != "none") {
      const index_t number = detail::parse_number(key, value);
      require_degree(found->key, number);
      detail::assign(result, found->key, number);
    }
  }
  return result;
}

/// The shortest text with parse_degrees(to_text(d)) == d.
[[nodiscard]] inline std::string to_text(const degrees& d) {
  std::string text;
  const degrees defaults;
  for (const key_entry& k : layout_keys) {
    const bool by_word = k.key == layout_key::split;
    if (by_word ? d.split == defaults.split : d.*k.number == defaults.*k.number) continue;
    text += text.empty() ? "" : ",";
    text += k.name;
    text += '=';
    text += by_word ? name(d.split) : std::to_string(d.*k.number);
  }
  return text;
}

}  // namespace reshard
