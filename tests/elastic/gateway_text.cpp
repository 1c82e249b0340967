// SPDX-License-Identifier: Apache-2.0
// What etcd's JSON gateway reads and writes: JSON as it is written in many ways, and what is none; base64 against bits
// by hand; and the first key beyond a prefix.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/elastic/etcd/gateway_text.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using detail::beyond_prefix;
using detail::from_base64;
using detail::gateway_reader;
using detail::gateway_value;
using detail::range_of;
using detail::to_base64;

namespace {

gateway_value read(std::string_view json) { return gateway_reader(json).value(); }
gateway_value number_value(const std::string& text) { return {text, {}, {}}; }
std::string is_no_json(const std::string& rest) {
  return "reshard: etcd: an answer is no JSON before '" + rest + "'; the address is that of its JSON gateway?";
}
std::string lacks_a_value(const std::string& rest) {
  return "reshard: etcd: an answer lacks a value before '" + rest + "'; the address is that of its JSON gateway?";
}
std::string refused(std::string_view json) {
  return testing::refused([&] { read(json); });
}

const std::string zero(1, '\0');

/// Base64 by its bits: six at a time, zeros behind the last, and signs of equality to a multiple of four.
std::string base64_of(const std::string& bytes) {
  std::vector<bool> bits;
  for (const char c : bytes)
    for (int k = 7; k >= 0; --k) bits.push_back((static_cast<unsigned char>(c) >> k) % 2 == 1);
  while (bits.size() % 6 != 0) bits.push_back(false);
  std::string digits;
  for (std::size_t i = 0; i < bits.size(); i += 6) {
    int n = 0;
    for (std::size_t k = 0; k < 6; ++k) n = 2 * n + (bits[i + k] ? 1 : 0);
    digits += static_cast<char>(n < 26 ? 'A' + n : n < 52 ? 'a' + n - 26 : n < 62 ? '0' + n - 52 : n == 62 ? '+' : '/');
  }
  while (digits.size() % 4 != 0) digits += '=';
  return digits;
}

}  // namespace

TEST_CASE("an object has names and items, a list items, and anything else a text") {
  const gateway_value v = read(R"({"a":"x","b":[1,"two",{},[]],"c":{"a":true}})");
  CHECK(v.text.empty());
  CHECK(v.names == std::vector<std::string>{"a", "b", "c"});
  REQUIRE(v.items.size() == 3);
  CHECK(v.at("a").text == "x");
  CHECK(v.at("a").names.empty());
  CHECK(v.at("a").items.empty());
  const gateway_value& list = v.at("b");
  CHECK(list.names.empty());
  REQUIRE(list.items.size() == 4);
  CHECK(list.items[0].text == "1");
  CHECK(list.items[1].text == "two");
  CHECK(list.items[2].items.empty());
  CHECK(list.items[3].items.empty());
  CHECK(v.at("c").at("a").is_true());
  CHECK_FALSE(v.at("c").is_true());
  CHECK_FALSE(v.at("none").is_true());
  CHECK(v.at("none").at("none").text.empty());
  CHECK(v.at("none").items.empty());
  CHECK_FALSE(read("false").is_true());
  CHECK(read(R"({"":"empty"})").at("").text == "empty");
}

TEST_CASE("blanks, tabs and ends of lines mean nothing between words; what follows the first text is not read") {
  const gateway_value v = read("\r\n\t { \t\"a\"\n:\r1 ,\n\"b\" : [ \t2\n,\t3 ] \r, \"c\":4\t} and more");
  CHECK(v.names == std::vector<std::string>{"a", "b", "c"});
  CHECK(v.at("a").number() == 1);
  REQUIRE(v.at("b").items.size() == 2);
  CHECK(v.at("b").items[0].number() == 2);
  CHECK(v.at("b").items[1].number() == 3);
  CHECK(v.at("c").number() == 4);
  CHECK(read("{ } ]").items.empty());
  CHECK(read("[ \n]").items.empty());
  for (const char* behind : {"12,", "12]", "12}", "12 ", "12\t", "12\r", "12\n", "12"})
    CHECK(read(behind).number() == 12);
  CHECK(read(R"(" a b ")").text == " a b ");
  gateway_reader two("[1][2]");
  CHECK(two.value().items[0].number() == 1);
  CHECK(two.value().items[0].number() == 2);
}

TEST_CASE("a character behind a backslash is kept as it is") {
  CHECK(read(R"("q\"\\\/n\n")").text == "q\"\\/nn");
  CHECK(read(R"({"a\"b":"c"})").at("a\"b").text == "c");
  CHECK(read(R"("")").text.empty());
  CHECK(refused("\"a\\") == is_no_json(""));
  CHECK(refused("\"a\\\"") == is_no_json(""));
}

TEST_CASE("a number has digits and 64 bits; what is absent is zero") {
  CHECK(gateway_value().number() == 0);
  CHECK(number_value("0").number() == 0);
  CHECK(number_value("9012").number() == 9012);
  CHECK(number_value("18446744073709551615").number() == 18446744073709551615u);
  for (const char* none : {"-1", "1.5", "1e3", "true", " 1", "/", ":", "18446744073709551616", "99999999999999999999",
                           "184467440737095516150"})
    CHECK_REFUSED(number_value(none).number(), "etcd: '" + std::string(none) + "' where a number was expected");
}

TEST_CASE("what is no JSON is refused with what stands there") {
  CHECK(refused("") == lacks_a_value(""));
  CHECK(refused("  ") == lacks_a_value(""));
  CHECK(refused("[1,]") == lacks_a_value("]"));
  CHECK(refused("[,1]") == lacks_a_value(",1]"));
  CHECK(refused("{\"a\":}") == lacks_a_value("}"));
  CHECK(refused("[1 2]") == is_no_json("2]"));
  CHECK(refused("[1") == is_no_json(""));
  CHECK(refused("[") == lacks_a_value(""));
  CHECK(refused("[1}") == is_no_json("}"));
  CHECK(refused("{\"a\":1]") == is_no_json("]"));
  CHECK(refused("{\"a\" 1}") == is_no_json("1}"));
  CHECK(refused("{a:1}") == is_no_json("a:1}"));
  CHECK(refused("{\"a\":1,}") == is_no_json("}"));
  CHECK(refused("{\"a:1}") == is_no_json(""));
  CHECK(refused("\"abc") == is_no_json(""));
  CHECK(refused("[\"a\"  x" + std::string(50, 'y')) == is_no_json("x" + std::string(39, 'y')));
  CHECK(refused(std::string_view("[1\0", 3)) == is_no_json(""));
}

TEST_CASE("values lie in 32 others at most") {
  const auto nested = [](std::size_t deep) { return std::string(deep, '[') + "7" + std::string(deep, ']'); };
  CHECK(read(nested(32)).items.size() == 1);
  CHECK_REFUSED(read(nested(33)), "etcd: an answer is nested too deep before '7]]]");
  std::string objects = "7";
  for (int i = 0; i < 33; ++i) objects = "{\"a\":" + objects + "}";
  CHECK_REFUSED(read(objects), "etcd: an answer is nested too deep before '7}}}");
  CHECK(read(objects.substr(5, objects.size() - 6)).at("a").at("a").names.size() == 1);
}

TEST_CASE("base64 is the bits of bytes, six a digit; read back they are the bytes") {
  for (const auto& [bytes, digits] : std::vector<std::pair<std::string, std::string>>{{"", ""},
                                                                                      {"a", "YQ=="},
                                                                                      {"ab", "YWI="},
                                                                                      {"abc", "YWJj"},
                                                                                      {"abcd", "YWJjZA=="},
                                                                                      {zero, "AA=="},
                                                                                      {"\xFF\xFE\xFD", "//79"},
                                                                                      {"\xFB\xEF\xBE", "++++"}}) {
    CHECK(to_base64(bytes) == digits);
    CHECK(base64_of(bytes) == digits);
    CHECK(from_base64(digits) == bytes);
  }
  testing::dice random(1);
  for (int i = 0; i < 60; ++i) {
    std::string bytes(static_cast<std::size_t>(i), ' ');
    for (char& c : bytes) c = static_cast<char>(random.bits());
    CHECK(to_base64(bytes) == base64_of(bytes));
    CHECK(from_base64(base64_of(bytes)) == bytes);
  }
  CHECK(from_base64("YWJjZA") == "abcd");
  CHECK(from_base64("YWI=YWI=") == "ab");  // what follows the end is not read
  for (const char* none : {"a!", "YW Jj", "-", "_", "@", "[", "`", "{", ":", "."})
    CHECK_REFUSED(from_base64(none), "etcd: '" + std::string(none) + "' is no base64");
  CHECK(testing::refused([] { from_base64("!" + std::string(50, 'x')); }) ==
        "reshard: etcd: '!" + std::string(39, 'x') + "' is no base64");
}

TEST_CASE("the first key beyond a prefix, and the range between them") {
  CHECK(beyond_prefix("a") == "b");
  CHECK(beyond_prefix("job/") == "job0");
  CHECK(beyond_prefix("a\xFE") == "a\xFF");
  CHECK(beyond_prefix("a\x7F") == "a\x80");
  CHECK(beyond_prefix("a\xFF\xFF") == "b");
  CHECK(beyond_prefix("\xFF\xFF") == zero);
  CHECK(beyond_prefix("") == zero);
  CHECK(range_of("ab") == R"("key":"YWI=","range_end":"YWM=")");
  CHECK(range_of("") == R"("key":"AA==","range_end":"AA==")");
  testing::dice random(2);
  long inside = 0;
  for (int i = 0; i < 400; ++i) {
    const auto drawn = [&] {
      std::string key(static_cast<std::size_t>(random.below(4)), ' ');
      for (char& c : key) c = random.coin() ? '\xFF' : random.coin() ? '\xFE' : 'a';
      return key;
    };
    const std::string prefix = drawn(), key = drawn(), end = beyond_prefix(prefix);
    CAPTURE(prefix);
    CAPTURE(key);
    CHECK(key.starts_with(prefix) == (key >= prefix && (end == zero || key < end)));
    inside += key.starts_with(prefix) && !prefix.empty();
  }
  CHECK_DRAWN(inside > 20);
}
