// SPDX-License-Identifier: Apache-2.0
// JSON that a program asks with: every key known and once, every value looked at before it is taken. Whatever else is
// refused in one sentence that begins with what the text is called.
// Builds on: io/detail/json_of.hpp, io/print.hpp, nlohmann-json.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <reshard/io/detail/json_of.hpp>
#include <reshard/io/print.hpp>

namespace reshard::io::detail {

inline constexpr index_t most_whole = std::numeric_limits<index_t>::max();

/// A JSON text, and its objects' values by key.
class strict_json {
 public:
  using value = nlohmann::json;

  strict_json(std::string_view text, std::string_view name) : name_(one_line(name)), root_(json_of(text, name_)) {}

  const value& root() const { return root_; }

  /// Throws the sentence "reshard: NAME: <parts>".
  template <typename... Parts>
  [[noreturn]] void refuse_text(const Parts&... parts) const {
    refuse(name_, ": ", parts...);
  }

  /// Refuses what is no object, and keys that are none of these.
  void require_keys(const value& object, std::initializer_list<std::string_view> keys, std::string_view what) const {
    if (!object.is_object()) refuse_text(what, " is ", described(object), "; it is an object");
    std::string known;
    for (const std::string_view key : keys) known += text_of(known.empty() ? "" : ", ", key);
    for (const auto& [key, unused] : object.items())
      if (std::find(keys.begin(), keys.end(), key) == keys.end())
        refuse_text(what, " has the unknown key '", one_line(key, 40), "'; the keys are ", known);
  }
  /// The value of a key; refused where it is missing.
  const value& at(const value& object, const char* key) const {
    if (!object.contains(key)) refuse_text(key, " is missing");
    return object[key];
  }
  /// A list; `of` says of what.
  const value& list(const value& object, const char* key, const char* of) const {
    const value& v = at(object, key);
    if (!v.is_array()) refuse_text(key, " is ", described(v), "; it is a list of ", of);
    return v;
  }
  /// A whole number of [least, most].
  index_t whole(const value& v, std::string_view what, index_t low, index_t high = most_whole) const {
    const bool negative = v.is_number_integer() && !v.is_number_unsigned();
    const bool fits =
        v.is_number_unsigned() ? v.get<std::uint64_t>() <= static_cast<std::uint64_t>(most_whole) : negative;
    if (!fits || v.get<index_t>() < low || v.get<index_t>() > high)
      refuse_text(what, " is ", described(v), "; it is a whole number from ", low, " to ", high);
    return v.get<index_t>();
  }
  index_t whole(const value& object, const char* key, index_t low, index_t high = most_whole) const {
    return whole(at(object, key), std::string_view(key), low, high);
  }
  index_t whole_or(const value& object, const char* key, index_t otherwise, index_t low) const {
    return object.contains(key) ? whole(object, key, low) : otherwise;
  }
  /// A value inside a sentence.
  static std::string described(const value& v) {
    return one_line(v.dump(-1, ' ', true, value::error_handler_t::replace), 40);
  }

 private:
  std::string name_;
  value root_;
};

}  // namespace reshard::io::detail
