// SPDX-License-Identifier: Apache-2.0
// JSON of somebody else: what is read as values, and each thing that is refused, by hand.
#include <doctest/doctest.h>

#include <string>

#include <reshard/io/detail/json_of.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using io::detail::json_of;
using nlohmann::json;

namespace {
/// So many lists in each other.
std::string lists(int depth) {
  return std::string(static_cast<std::size_t>(depth), '[') + std::string(static_cast<std::size_t>(depth), ']');
}
/// Objects and lists by turns.
std::string mixed(int depth) {
  std::string text = "1";
  for (int i = 0; i < depth; ++i) text = i % 2 == 0 ? "{\"a\":" + text + "}" : "[" + text + "]";
  return text;
}
bool accepted(const std::string& text) {
  return testing::refused([&] { static_cast<void>(json_of(text, "f")); }) == "accepted";
}
}  // namespace

TEST_CASE("values of every kind are read") {
  const json read =
      json_of(R"({"a": null, "b": [true, false, -5, 18446744073709551615, 1.5e3, "x\n"], "c": {"a": {}}})", "f");
  CHECK(read.size() == 3);
  CHECK(read["a"].is_null());
  CHECK(read["b"] == json::array({true, false, -5, 18446744073709551615u, 1500.0, "x\n"}));
  CHECK(read["b"][3].is_number_unsigned());
  CHECK(read["c"]["a"] == json::object());
  CHECK(json_of("7", "f") == json(7));
  CHECK(json_of("[]", "f") == json::array());
  CHECK(json_of(" \"\" ", "f") == json(""));
}

TEST_CASE("a key is there once in an object; others may have it again") {
  CHECK_REFUSED(json_of(R"({"a": 1, "b": 2, "a": 3})", "t.json"), "t.json: the key 'a' is there twice");
  CHECK_REFUSED(json_of(R"([{"x": {"k": 1, "k": 1}}])", "t.json"), "the key 'k' is there twice");
  CHECK_REFUSED(json_of(R"({"z": 1, "y": {}, "z": []})", "t.json"), "the key 'z' is there twice");
  CHECK_REFUSED(json_of(R"({"b": 1, "a": 2, "b": 1, "a": 2})", "t.json"), "the key 'a' is there twice");
  CHECK_REFUSED(json_of(R"({"a\nb": 1, "a\nb": 1})", "t.json"), "the key 'a\\x0ab' is there twice");
  const std::string key(50, 'k');
  CHECK_REFUSED(json_of("{\"" + key + "\":1,\"" + key + "\":1}", "f"),
                "key '" + std::string(27, 'k') + "..." + std::string(13, 'k') + "'");
  CHECK(accepted(R"({"a": {"a": {"a": 1}}, "b": {"a": 1}})"));
  CHECK(accepted(R"([{"a": 1}, {"a": 1}])"));
  CHECK(accepted(R"({"a": [{"b": 1}, {"b": 1}], "b": 1})"));
  CHECK(accepted(R"({"a": 1, "A": 1, "aa": 1, "": 1})"));
  CHECK_REFUSED(json_of(R"({"a": {"b": 1}, "c": [1], "a": 1})", "f"), "the key 'a' is there twice");
}

TEST_CASE("the look does not end behind a value of any kind") {
  for (const std::string value : {"null", "true", "false", "-5", "5", "1.5", "\"x\"", "[]", "{}", "[[1]]"}) {
    CAPTURE(value);
    CHECK_REFUSED(json_of("{\"v\": " + value + ", \"a\": 1, \"a\": 2}", "f"), "the key 'a' is there twice");
    CHECK_REFUSED(json_of("[" + value + ", " + lists(32) + "]", "f"), "nested deeper than 32");
  }
}

TEST_CASE("bytes, which a text has none of but other forms of JSON have, are looked past too") {
  const std::string name = "f";
  io::detail::json_looker look(name);
  nlohmann::json::binary_t bytes({1, 2});
  CHECK(look.binary(bytes));
}

TEST_CASE("thirty-two lists and objects may be open in each other, and no more") {
  CHECK(accepted(lists(32)));
  CHECK(accepted(mixed(32)));
  CHECK_REFUSED(json_of(lists(33), "d.json"), "d.json: lists and objects are nested deeper than 32");
  CHECK_REFUSED(json_of(mixed(33), "d.json"), "d.json: lists and objects are nested deeper than 32");
  CHECK_REFUSED(json_of(std::string(100'000, '['), "d.json"), "nested deeper than 32");
  std::string wide = "[";
  for (int i = 0; i < 40; ++i) wide += "[],{},";
  CHECK(accepted(wide + lists(31) + "]"));
  CHECK_REFUSED(json_of(wide + lists(32) + "]", "d.json"), "nested deeper than 32");
}

TEST_CASE("what is no JSON is refused by name, with where it stops being one") {
  for (const char* text : {"", "{", "[1,", "{\"a\"}", "[1] 2", "nul", "{a: 1}", "[1,]", "\"\xff\"", "01", "\"\n\""}) {
    CAPTURE(text);
    CHECK_REFUSED(json_of(text, "w.json"), "w.json: not JSON: ");
  }
  CHECK_REFUSED(json_of("[1, x]", "w.json"), "last read: '1, x'");
}
