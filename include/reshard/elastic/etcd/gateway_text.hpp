// SPDX-License-Identifier: Apache-2.0
// What etcd's JSON gateway reads and writes: keys and values in base64, 64-bit numbers as strings, and what is zero,
// false or empty absent. JSON is read into one kind of value, in which what is absent is zero, false or empty.
// Builds on: base/refusal.hpp.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <reshard/base/refusal.hpp>

namespace reshard::detail {

/// A value of JSON. Of an object, items have names; of a list they have none; anything else is its text.
struct gateway_value {
  std::string text;
  std::vector<std::string> names;
  std::vector<gateway_value> items;

  /// The item of that name; an empty value where there is none.
  const gateway_value& at(std::string_view name) const {
    static const gateway_value none;
    for (std::size_t i = 0; i < names.size(); ++i)
      if (names[i] == name) return items[i];
    return none;
  }
  bool is_true() const { return text == "true"; }
  std::uint64_t number() const {
    std::uint64_t n = 0;
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, n);
    if (!text.empty() && (read.ec != std::errc() || read.ptr != end))
      refuse("etcd: '", text, "' where a number was expected");
    return n;
  }
};

/// Reads one JSON text from its beginning.
class gateway_reader {
 public:
  explicit gateway_reader(std::string_view rest) : rest_(rest) {}

  gateway_value value(int deep = 0) {
    constexpr int deepest = 32;
    if (deep > deepest) bad("is nested too deep");
    gateway_value v;
    const char c = next();
    if (c == '{' || c == '[') {
      const char closes = c == '{' ? '}' : ']';
      rest_.remove_prefix(1);
      if (next() != closes) {
        do {
          if (c == '{') v.names.push_back(text()), take(':');
          v.items.push_back(value(deep + 1));
        } while (takes(','));
      }
      take(closes);
    } else if (c == '"') {
      v.text = text();
    } else {
      const std::size_t end = std::min(rest_.find_first_of(",]} \t\r\n"), rest_.size());
      v.text = rest_.substr(0, end);
      rest_.remove_prefix(end);
      if (v.text.empty()) bad("lacks a value");
    }
    return v;
  }

 private:
  [[noreturn]] void bad(const char* what) const {
    refuse("etcd: an answer ", what, " before '", rest_.substr(0, 40), "'; the address is that of its JSON gateway?");
  }
  char next() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
    return rest_.empty() ? '\0' : rest_.front();
  }
  bool takes(char c) {
    if (next() != c || c == '\0') return false;
    rest_.remove_prefix(1);
    return true;
  }
  void take(char c) {
    if (!takes(c)) bad("is no JSON");
  }
  // Escapes of other characters than these are kept as they are: etcd's sentences have none.
  std::string text() {
    take('"');
    std::string all;
    while (!rest_.empty() && rest_.front() != '"') {
      if (rest_.front() == '\\' && rest_.size() > 1) rest_.remove_prefix(1);
      all.push_back(rest_.front());
      rest_.remove_prefix(1);
    }
    take('"');
    return all;
  }
  std::string_view rest_;
};

inline constexpr std::string_view base64_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

inline std::string to_base64(std::string_view bytes) {
  std::string all;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t k = 0; k < 3; ++k)
      three = three << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k)
      all.push_back(i + k > bytes.size() ? '=' : base64_digits[three >> (18 - 6 * k) & 63]);
  }
  return all;
}
inline std::string from_base64(std::string_view digits) {
  std::string all;
  std::uint32_t bits = 0, count = 0;
  for (const char c : digits) {
    if (c == '=') break;
    const std::size_t digit = base64_digits.find(c);
    if (digit == base64_digits.npos) refuse("etcd: '", digits.substr(0, 40), "' is no base64");
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count >= 8) count -= 8, all.push_back(static_cast<char>(bits >> count & 255));
  }
  return all;
}

/// The first key beyond all with a prefix; "\0" stands for none, and for the first of all keys.
inline std::string beyond_prefix(std::string prefix) {
  while (!prefix.empty() && prefix.back() == '\xFF') prefix.pop_back();
  if (prefix.empty()) return std::string(1, '\0');
  prefix.back() = static_cast<char>(prefix.back() + 1);
  return prefix;
}

/// {"key":..,"range_end":..} of a prefix, without its braces.
inline std::string range_of(const std::string& prefix) {
  return "\"key\":\"" + to_base64(prefix.empty() ? std::string(1, '\0') : prefix) + "\",\"range_end\":\"" +
         to_base64(beyond_prefix(prefix)) + "\"";
}

}  // namespace reshard::detail
