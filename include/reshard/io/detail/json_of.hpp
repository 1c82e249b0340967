// SPDX-License-Identifier: Apache-2.0
// A JSON text of somebody else as values: looked through once before it is kept, in time that grows with its length
// whatever it says. What is no JSON, says a key twice or goes too deep is refused in one sentence.
// Builds on: io/print.hpp, nlohmann-json.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/io/print.hpp>

namespace reshard::io::detail {

/// How many lists and objects may be open in each other: what keeps or prints values calls itself for each.
inline constexpr std::size_t most_json_depth = 32;

/// Looks a JSON text through before it is kept: refuses what is no JSON, a key that an object has twice, and lists and
/// objects in each other that are more than most_json_depth.
class json_looker : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit json_looker(const std::string& name) : name_(&name) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(std::int64_t) override { return true; }
  bool number_unsigned(std::uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool start_array(std::size_t) override { return opened(); }
  bool end_array() override { return closed(); }
  bool start_object(std::size_t) override { return opened(); }
  bool end_object() override {
    std::vector<std::string>& keys = open_.back();
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end()) refuse(*name_, ": the key '", one_line(*twice, 40), "' is there twice");
    return closed();
  }
  bool key(std::string& text) override {
    open_.back().push_back(text);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& wrong) override {
    refuse(*name_, ": not JSON: ", one_line(wrong.what()));
  }

 private:
  bool opened() {
    if (open_.size() == most_json_depth) refuse(*name_, ": lists and objects are nested deeper than ", most_json_depth);
    open_.emplace_back();
    return true;
  }
  bool closed() {
    open_.pop_back();
    return true;
  }
  const std::string* name_;
  std::vector<std::vector<std::string>> open_;  // keys of what is open, none of lists
};

/// The values of a text, `name` being what sentences call it.
inline nlohmann::json json_of(std::string_view text, const std::string& name) {
  json_looker look(name);
  nlohmann::json::sax_parse(text, &look);
  return nlohmann::json::parse(text);
}

}  // namespace reshard::io::detail
