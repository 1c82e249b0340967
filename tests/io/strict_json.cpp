// SPDX-License-Identifier: Apache-2.0
// JSON that a program asks with: keys, lists and whole numbers as they are asked for, and what is said of each that is
// not as it should be, by hand.
#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <string_view>

#include <reshard/io/detail/strict_json.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using io::detail::most_whole;
using io::detail::strict_json;
using nlohmann::json;

namespace {
const strict_json& file() {
  static const strict_json read(R"({"n": 7, "list": [1, 2], "text": "x", "object": {"a": 1}, "none": null,
      "negative": -7, "real": 1.0, "most": 9223372036854775807, "beyond": 9223372036854775808,
      "least": -9223372036854775808, "truth": true, "zero": 0})",
                                "q.json");
  return read;
}
constexpr index_t lowest = std::numeric_limits<index_t>::min();
}  // namespace

TEST_CASE("a text is read under the name that its refusals begin with, on one line") {
  CHECK(file().root().size() == 12);
  CHECK_REFUSED(strict_json("{", "a\nb"), "reshard: a\\x0ab: not JSON");
  CHECK_REFUSED(file().refuse_text("so ", 5, " and ", "so"), "reshard: q.json: so 5 and so");
  CHECK_REFUSED(strict_json("{\"a\":1,\"a\":1}", "q"), "q: the key 'a' is there twice");
}

TEST_CASE("an object has known keys alone, not all of them") {
  const auto require = [](const json& object) { file().require_keys(object, {"a", "b", "cc"}, "a thing"); };
  CHECK(testing::refused([&] { require(json::object()); }) == "accepted");
  CHECK(testing::refused([&] { require({{"b", 1}}); }) == "accepted");
  CHECK(testing::refused([&] { require({{"a", 1}, {"b", 1}, {"cc", 1}}); }) == "accepted");
  CHECK_REFUSED(require({{"a", 1}, {"c", 1}}),
                "reshard: q.json: a thing has the unknown key 'c'; the keys are a, b, cc");
  CHECK_REFUSED(require({{"b", 1}, {"zz", 1}, {"zzz", 2}}), "has the unknown key 'zz'");
  CHECK_REFUSED(require({{"a\tb", 1}}), "has the unknown key 'a\\x09b'");
  CHECK_REFUSED(require({{std::string(50, 'k'), 1}}), "'" + std::string(27, 'k') + "..." + std::string(13, 'k') + "'");
  CHECK_REFUSED(require(json::array({1, 2})), "q.json: a thing is [1,2]; it is an object");
  CHECK_REFUSED(require(nullptr), "a thing is null; it is an object");
}

TEST_CASE("a value is that of its key, a list one of lists") {
  CHECK(file().at(file().root(), "text") == json("x"));
  CHECK(file().at(file().root(), "none").is_null());
  CHECK_REFUSED(file().at(file().root(), "absent"), "reshard: q.json: absent is missing");
  CHECK(file().list(file().root(), "list", "numbers") == json::array({1, 2}));
  CHECK(&file().list(file().root(), "list", "numbers") == &file().root()["list"]);
  CHECK_REFUSED(file().list(file().root(), "absent", "numbers"), "q.json: absent is missing");
  CHECK_REFUSED(file().list(file().root(), "object", "numbers"),
                "q.json: object is {\"a\":1}; it is a list of numbers");
  CHECK_REFUSED(file().list(file().root(), "text", "texts"), "text is \"x\"; it is a list of texts");
}

TEST_CASE("a whole number lies between two bounds, both of them included") {
  const json& root = file().root();
  CHECK(file().whole(root, "n", 0) == 7);
  CHECK(file().whole(root, "n", 7, 7) == 7);
  CHECK(file().whole(root, "n", lowest, 8) == 7);
  CHECK(file().whole(root, "zero", 0, 0) == 0);
  CHECK(file().whole(root, "negative", -7) == -7);
  CHECK(file().whole(root, "negative", lowest, -7) == -7);
  CHECK(file().whole(root, "most", 0) == most_whole);
  CHECK(file().whole(root, "least", lowest) == lowest);
  CHECK(file().whole(root["n"], std::string_view("it"), 0, 9) == 7);
  CHECK_REFUSED(file().whole(root, "n", 8, 10), "reshard: q.json: n is 7; it is a whole number from 8 to 10");
  CHECK_REFUSED(file().whole(root, "n", 0, 6), "n is 7; it is a whole number from 0 to 6");
  CHECK_REFUSED(file().whole(root, "n", 8), "n is 7; it is a whole number from 8 to 9223372036854775807");
  CHECK_REFUSED(file().whole(root["n"], std::string_view("it"), 8, 10),
                "q.json: it is 7; it is a whole number from 8 to 10");
  CHECK_REFUSED(file().whole(root, "negative", -6), "negative is -7; it is a whole number from -6 to");
  CHECK_REFUSED(file().whole(root, "negative", lowest, -8), "negative is -7");
  CHECK_REFUSED(file().whole(root, "absent", 0), "absent is missing");
}

TEST_CASE("what is no whole number of 64 bits is none, however wide the bounds") {
  const json& root = file().root();
  CHECK_REFUSED(file().whole(root, "real", lowest), "real is 1.0; it is a whole number from");
  CHECK_REFUSED(file().whole(root, "text", lowest), "text is \"x\"; it is");
  CHECK_REFUSED(file().whole(root, "none", lowest), "none is null; it is");
  CHECK_REFUSED(file().whole(root, "truth", lowest), "truth is true; it is");
  CHECK_REFUSED(file().whole(root, "list", lowest), "list is [1,2]; it is");
  CHECK_REFUSED(file().whole(root, "beyond", lowest), "beyond is 9223372036854775808; it is");
}

TEST_CASE("where the key is missing, something else may stand for it") {
  const json& root = file().root();
  CHECK(file().whole_or(root, "n", 3, 0) == 7);
  CHECK(file().whole_or(root, "most", 3, 7) == most_whole);
  CHECK(file().whole_or(root, "absent", 3, 5) == 3);
  CHECK_REFUSED(file().whole_or(root, "n", 3, 8), "n is 7; it is a whole number from 8 to 9223372036854775807");
  CHECK_REFUSED(file().whole_or(root, "none", 3, 0), "none is null; it is");
}

TEST_CASE("a value inside a sentence is short, one line and ASCII") {
  CHECK(strict_json::described(json{{"b", 1}, {"a", {1, 2}}}) == R"({"a":[1,2],"b":1})");
  CHECK(strict_json::described("a\nb") == "\"a\\nb\"");
  CHECK(strict_json::described("\xc3\xa9") == "\"\\u00e9\"");
  CHECK(strict_json::described("\xff") == "\"\\ufffd\"");
  CHECK(strict_json::described(std::string(41, 'x')) == "\"" + std::string(41, 'x') + "\"");
  CHECK(strict_json::described(std::string(42, 'x')) ==
        "\"" + std::string(26, 'x') + "..." + std::string(12, 'x') + "\"");
}
