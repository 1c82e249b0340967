// SPDX-License-Identifier: Apache-2.0
// The top level of a config.json: every kind of value, the ends of numbers, what is nested, and where text is wrong.
#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include <reshard/io/detail/config_values.hpp>

#include "../support/refused.hpp"

using namespace reshard;

using namespace reshard::io;
using testing::refused;

namespace {
using io::detail::config_values;
using kind = io::detail::config_value::kind;

io::detail::config_value value(const std::string& written) {
  return config_values("{\"head_dim\": " + written + "}", "m.json")["head_dim"];
}
std::string said(const std::string& text) {
  return refused([&] { config_values(text, "m.json"); });
}
template <typename Ask>
std::string said_of(const std::string& written, Ask&& ask) {
  const config_values file("{\"head_dim\": " + written + "}", "m.json");
  return refused([&] { ask(file); });
}
}  // namespace

TEST_CASE("every kind of value is kept as what it is, and described in a sentence as it is written") {
  const struct {
    const char* written;
    kind is;
    const char* described;
  } cases[] = {{"null", kind::null, "null"},
               {"true", kind::boolean, "true"},
               {"false", kind::boolean, "false"},
               {"0", kind::integer, "0"},
               {"-17", kind::integer, "-17"},
               {"9223372036854775807", kind::integer, "9223372036854775807"},
               {"-9223372036854775808", kind::integer, "-9223372036854775808"},
               {"9223372036854775808", kind::other_number, "9223372036854775808"},
               {"18446744073709551615", kind::other_number, "18446744073709551615"},
               {"18446744073709551616", kind::other_number, "18446744073709551616"},
               {"1.50", kind::other_number, "1.50"},
               {"1e2", kind::other_number, "1e2"},
               {"\"\"", kind::text, "the text ''"},
               {"\"a\\nb\"", kind::text, "the text 'a\\x0ab'"},
               {"[]", kind::list, "a list"},
               {"{}", kind::object, "an object"}};
  for (const auto& c : cases) {
    CAPTURE(std::string(c.written));
    CHECK(value(c.written).is == c.is);
    CHECK(value(c.written).described() == c.described);
    if (c.is == kind::integer) CHECK(std::to_string(value(c.written).integer) == c.written);
  }
  CHECK(value("true").integer == 1);
  CHECK(value("false").integer == 0);
  CHECK(value(std::string(43, '9')).described() == std::string(43, '9'));
  CHECK(value(std::string(44, '9')).described() == std::string(27, '9') + "..." + std::string(13, '9'));
  const config_values after(R"({"vocab_size": 18446744073709551615, "hidden_size": 1.5, "head_dim": 3})", "m.json");
  CHECK(after["vocab_size"].is == kind::other_number);
  CHECK(after.number("head_dim") == 3);
  const config_values nothing("{}", "m.json");
  CHECK(nothing["head_dim"].is == kind::absent);
  CHECK(nothing["head_dim"].described() == "missing");
  CHECK(nothing["no key of ours"].is == kind::absent);
  CHECK(value("\"" + std::string(100, 'x') + "\"").described() ==
        "the text '" + std::string(27, 'x') + "..." + std::string(13, 'x') + "'");
}

TEST_CASE("keys count at the top level alone, each goes to its own value, and none may come twice") {
  const config_values file(
      R"({"a": {"head_dim": 1, "hidden_size": [2]}, "b": [{"head_dim": 3}], "head_dim": 4, "hidden_size": 5,
      "vocab_size": {"head_dim": 6}})",
      "m.json");
  CHECK(file["head_dim"].integer == 4);
  CHECK(file["hidden_size"].integer == 5);
  CHECK(file["vocab_size"].is == kind::object);
  CHECK(file["num_experts"].is == kind::absent);
  CHECK(said(R"({"head_dim": 1, "a": 2, "head_dim": 1})") == "reshard: m.json: head_dim is given twice");
  CHECK(said(R"({"head_dim": null, "head_dim": 1})") == "reshard: m.json: head_dim is given twice");
  CHECK(said(R"({"a": 1, "a": 2})") == "accepted");  // no key of ours
}

TEST_CASE("a list has its items in order, what is inside them left out, up to 65,536") {
  const io::detail::config_value list = value(R"([1, "x", [2, [3]], {"head_dim": 4}, true, null])");
  REQUIRE(list.is == kind::list);
  std::vector<kind> kinds;
  for (const auto& item : list.items) kinds.push_back(item.is);
  CHECK(kinds == std::vector<kind>{kind::integer, kind::text, kind::list, kind::object, kind::boolean, kind::null});
  CHECK(list.items[0].integer == 1);
  CHECK(list.items[2].items.empty());
  const auto zeros = [](int count) {
    std::string text = "[0";
    for (int i = 1; i < count; ++i) text += ",0";
    return text + "]";
  };
  CHECK(value(zeros(65536)).items.size() == 65536);
  CHECK(said("{\"mlp_only_layers\": " + zeros(65537) + "}") ==
        "reshard: m.json: mlp_only_layers has more than 65536 entries");
  CHECK(said("{\"a\": " + zeros(65537) + "}") == "accepted");
}

TEST_CASE("numbers have a least, truths are true or false, and absent is not null") {
  const auto number = [](index_t least) {
    return [least](const config_values& file) { file.number("head_dim", least); };
  };
  CHECK(said_of("1", number(1)) == "accepted");
  CHECK(said_of("0", number(0)) == "accepted");
  CHECK(said_of("0", number(1)) ==
        "reshard: m.json: head_dim is 0, but must be a whole number, at least 1 and below 2^63");
  CHECK(said_of("6", number(7)) ==
        "reshard: m.json: head_dim is 6, but must be a whole number, at least 7 and below 2^63");
  CHECK(said_of("true", number(0)) ==
        "reshard: m.json: head_dim is true, but must be a whole number, at least 0 and below 2^63");
  CHECK(refused([] { config_values("{}", "m.json").number("head_dim"); }) == "reshard: m.json: head_dim is missing");
  const config_values file(R"({"head_dim": null, "vocab_size": false, "hidden_size": true})", "m.json");
  CHECK(file.missing_or_null("head_dim"));
  CHECK(file.missing_or_null("num_experts"));
  CHECK_FALSE(file.missing_or_null("vocab_size"));
  CHECK(file.number_or("head_dim", -3) == -3);
  CHECK(file.number_or("num_experts", 7, 9) == 7);
  CHECK(config_values("{\"head_dim\": 5}", "m.json").number_or("head_dim", 7) == 5);
  CHECK(said_of("5", [](const config_values& f) { f.number_or("head_dim", 7, 6); }) ==
        "reshard: m.json: head_dim is 5, but must be a whole number, at least 6 and below 2^63");
  CHECK(said_of("0", [](const config_values& f) { f.number_or("head_dim", 0); }).find("at least 1") !=
        std::string::npos);
  for (const bool otherwise : {false, true}) {
    CHECK(file.truth("num_experts", otherwise) == otherwise);
    CHECK(file.truth("hidden_size", otherwise));
    CHECK_FALSE(file.truth("vocab_size", otherwise));
  }
  CHECK(said_of("0", [](const config_values& f) { f.truth("head_dim", true); }) ==
        "reshard: m.json: head_dim is 0, but must be true or false");
  CHECK(said_of("null", [](const config_values& f) { f.truth("head_dim", true); }) ==
        "reshard: m.json: head_dim is null, but must be true or false");
}

TEST_CASE("lists and objects may be nested 128 deep, and no deeper") {
  const auto nested = [](int depth, const char* open, const char* close) {  // depth counts the outermost object
    std::string text = "{\"a\": ";
    for (int i = 1; i < depth; ++i) text += open;
    text += "1";
    for (int i = 1; i < depth; ++i) text += close;
    return text + "}";
  };
  CHECK(said(nested(128, "[", "]")) == "accepted");
  CHECK(said(nested(129, "[", "]")) == "reshard: m.json: lists and objects are nested deeper than 128");
  CHECK(said(nested(128, "{\"b\": ", "}")) == "accepted");
  CHECK(said(nested(129, "{\"b\": ", "}")) == "reshard: m.json: lists and objects are nested deeper than 128");
  std::string beside = "{\"a\": [";  // depth is what is open, not what there was
  for (int i = 0; i < 300; ++i) beside += "[],{},";
  CHECK(said(beside + "1]}") == "accepted");
}

TEST_CASE("wrong text is told with its line and column, wherever it stands") {
  const std::string text = "{\n  \"a\": [1,\n\n 2],\n\"b\":null }";
  REQUIRE(said(text) == "accepted");
  int tried = 0;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    const bool inside_a_text = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '"') % 2 == 1;
    const bool inside_a_word = at > 0 && at < text.size() && std::isalpha(text[at - 1]) && std::isalpha(text[at]);
    if (inside_a_text || inside_a_word) continue;
    long line = 1, column = 1;
    for (std::size_t i = 0; i < at; ++i) text[i] == '\n' ? (++line, column = 1) : ++column;
    std::string wrong = text;
    wrong.insert(at, 1, '?');
    CHECK(said(wrong) == "reshard: m.json: not JSON: wrong text at line " + std::to_string(line) + ", column " +
                             std::to_string(column));
    ++tried;
  }
  CHECK(tried > 15);
  for (std::size_t length = 1; length < text.size(); ++length)
    CHECK(said(text.substr(0, length)).find("not JSON: the text ends too early") != std::string::npos);
  for (const char* empty : {"", " ", "\n\t\r "}) CHECK(said(empty) == "reshard: m.json: the file is empty");
}

TEST_CASE("a file that is no object is told as what it is; a hostile name stays on one line") {
  for (const char* text : {"[]", "17", "\"x\"", "null", "true", "1.5"})
    CHECK(said(text).starts_with("reshard: m.json: the file is no JSON object but "));
  CHECK(refused([] { config_values("", "a\nb"); }) == "reshard: a\\x0ab: the file is empty");
}
