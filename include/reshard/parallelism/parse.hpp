// SPDX-License-Identifier: Apache-2.0
// The written form of a configuration: "tp=4,pp=8,dp=2,zero=1,split=account", keys in any order, '' for all defaults.
// Builds on: parallelism/config.hpp.
#pragma once

#include <string>
#include <string_view>

#include <reshard/parallelism/config.hpp>

namespace reshard {

namespace detail {
inline constexpr axis written_axes[] = {axis::tp,  axis::cp,   axis::pp,     axis::vpp,  axis::dp,
                                        axis::ep,  axis::etp,  axis::zero,   axis::bucket, axis::split};

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
  if (text == "even") return pipeline_split::even;
  if (text == "account") return pipeline_split::account;
  if (text == "spread") return pipeline_split::spread;
  refuse("layout: split=", text, " is unknown; it is even, account or spread");
}
}  // namespace detail

/// The degrees that a text names; refused: a key that is unknown or given twice, a value that is no number or below its least.
inline degrees parse_degrees(std::string_view text) {
  degrees result;
  bool seen[std::size(detail::written_axes)] = {};
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    if (comma != std::string_view::npos && comma + 1 == text.size())
      refuse("layout: nothing follows the last comma, after '", item, "'");
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) refuse("layout: '", item, "' is not of the form key=value");
    const std::string_view key = item.substr(0, equals), value = item.substr(equals + 1);
    int which = -1;
    for (int i = 0; i < static_cast<int>(std::size(detail::written_axes)); ++i)
      if (key == name(detail::written_axes[i])) which = i;
    if (which < 0)
      refuse("layout: '", key, "' is no key; keys are tp, cp, pp, vpp, dp, ep, etp, zero, split and bucket");
    if (seen[which]) refuse("layout: ", key, " is given twice");
    seen[which] = true;
    const axis named = detail::written_axes[which];
    if (named == axis::split) {
      result.split = detail::parse_split(value);
    } else if (named != axis::bucket || value != "none") {  // bucket=none is the default, and bucket=0 is not
      const index_t number = detail::parse_number(key, value);
      require_degree(named, number);
      detail::assign(result, named, number);
    }
  }
  return result;
}

/// The shortest text with parse_degrees(to_text(d)) == d.
inline std::string to_text(const degrees& d) {
  std::string text;
  const auto put = [&text](const char* key, const std::string& value) {
    if (!text.empty()) text += ',';
    text += key;
    text += '=';
    text += value;
  };
  const degrees defaults;
  const auto number = [&](const char* key, index_t value, index_t usual) {
    if (value != usual) put(key, std::to_string(value));
  };
  number("tp", d.tp, defaults.tp);
  number("cp", d.cp, defaults.cp);
  number("pp", d.pp, defaults.pp);
  number("vpp", d.vpp, defaults.vpp);
  number("dp", d.dp, defaults.dp);
  number("ep", d.ep, defaults.ep);
  number("etp", d.etp, defaults.etp);
  number("zero", d.zero, defaults.zero);
  if (d.split != pipeline_split::even) put("split", d.split == pipeline_split::account ? "account" : "spread");
  number("bucket", d.bucket, defaults.bucket);
  return text;
}

}  // namespace reshard
