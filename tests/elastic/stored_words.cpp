// SPDX-License-Identifier: Apache-2.0
// Values of a job as the store keeps them: the words that are written, by hand; what each reads back; and what is
// refused, by whom and with which sentence.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/elastic/detail/stored_words.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using detail::hex_text;
using detail::shown_word;
using detail::stored_layout;
using detail::stored_words;
using detail::whole_number;
using detail::words_to_store;

namespace {

constexpr index_t lowest = std::numeric_limits<index_t>::min(), most = std::numeric_limits<index_t>::max();

/// "form", the digest of words (FNV-1a, by hand), and the words, each with a blank before it.
std::string text_of_words(const std::string& words, const std::string& form = "form") {
  std::uint64_t sum = 14695981039346656037u;
  for (const char c : words) sum = (sum ^ static_cast<unsigned char>(c)) * 1099511628211u;
  std::string digits;
  for (int i = 0; i < 16; ++i, sum /= 16) digits.insert(digits.begin(), "0123456789abcdef"[sum % 16]);
  return form + " " + digits + words;
}
/// What reads words, as `who` does.
stored_words reader(const std::string& text) { return stored_words(text, "form", "who"); }

/// Reads by a call of a reader of these words, that has to be all of them.
template <class Read>
auto read(const std::string& words, Read&& by) {
  const std::string text = text_of_words(words);
  stored_words from = reader(text);
  auto result = by(from);
  from.end();
  return result;
}
index_t number_in(const std::string& words) {
  return read(words, [](stored_words& w) { return w.number("the step"); });
}
std::uint64_t bits_in(const std::string& words) {
  return read(words, [](stored_words& w) { return w.bits("the scalar"); });
}
member_list names_in(const std::string& words) {
  return read(words, [](stored_words& w) { return w.names("the list"); });
}
member_name one_in(const std::string& words) {
  return read(words, [](stored_words& w) { return w.name_or_none("the request"); });
}

}  // namespace

TEST_CASE("a word that is shown has at most 40 characters, and no other than visible ones") {
  CHECK(shown_word("") == "");
  CHECK(shown_word(" az~") == " az~");
  CHECK(shown_word(std::string("\x1F\x7F\n\xC3\0", 5)) == "?????");
  const std::string forty(40, 'x');
  CHECK(shown_word(forty) == forty);
  CHECK(shown_word(forty + "y") == forty + "..");
}

TEST_CASE("64 bits are 16 digits, the highest first") {
  CHECK(hex_text(0) == "0000000000000000");
  CHECK(hex_text(0xFEDCBA9876543210u) == "fedcba9876543210");
  CHECK(hex_text(0x1F) == "000000000000001f");
  CHECK(hex_text(std::uint64_t{1} << 63) == "8000000000000000");
}

TEST_CASE("a layout is a word that says all of it, or is refused") {
  CHECK(stored_layout({}) == "tp=1");
  degrees d;
  d.tp = 2, d.dp = 4;
  CHECK(stored_layout(d) == "tp=2,dp=4");
  degrees other = parse_degrees("pp=2,string=Ett|ttL");
  other.vpp = 5;
  CHECK_REFUSED(stored_layout(other),
                "layout: " + layout_word(other) + " is not all that it says; vpp is what its string makes it");
}

TEST_CASE("a whole number has digits, behind a minus or not, and 64 bits") {
  const std::vector<std::pair<const char*, index_t>> numbers = {{"0", 0},
                                                                {"-0", 0},
                                                                {"7", 7},
                                                                {"-7", -7},
                                                                {"0090", 90},
                                                                {"1234567890", 1234567890},
                                                                {"9223372036854775807", most},
                                                                {"-9223372036854775807", lowest + 1},
                                                                {"-9223372036854775808", lowest}};
  for (const auto& [word, n] : numbers) CHECK(whole_number(word) == n);
  for (const char* none : {"", "-", "--1", "1-", "+1", " 1", "1 ", "1/", "1:", "0x1", "/", ":", "9223372036854775808",
                           "-9223372036854775809", "10000000000000000000", "-10000000000000000000"})
    CHECK_MESSAGE(!whole_number(none), none);
}

TEST_CASE("words are written with a blank before each, behind the form and a digest of them") {
  words_to_store w;
  CHECK(w.text("form") == text_of_words(""));
  CHECK(w.text("form") == "form cbf29ce484222325");
  w.word("word");
  CHECK(w.text("form") == text_of_words(" word"));
  w.number(-12);
  w.number(most);
  w.bits(0xAB);
  w.names({});
  w.names({"a", "b"});
  w.name_or_none({});
  w.name_or_none("c");
  degrees d;
  d.tp = 3;
  w.layout(d);
  w.word("");
  CHECK(w.text("other") == text_of_words(" word -12 9223372036854775807 00000000000000ab , a,b , c tp=3 ", "other"));
}

TEST_CASE("a text of another form, or with a character changed, is refused before a word of it is believed") {
  const std::string text = text_of_words(" a 12");
  CHECK_REFUSED(stored_words(text, "forms", "who"), "who: the text begins with 'form', and a stored one with forms");
  CHECK_REFUSED(stored_words(text, "for", "who"), "who: the text begins with 'form', and a stored one with for");
  CHECK_REFUSED(stored_words("", "form", "who"), "who: the text begins with '', and a stored one with form");
  CHECK_REFUSED(stored_words(std::string(50, 'x'), "form", "who"), "begins with '" + std::string(40, 'x') + "..',");
  CHECK_REFUSED(reader("form"), "who: the text is damaged: the digest of its 0 characters is " +
                                    std::string("cbf29ce484222325, and it says"));
  const std::string right = text.substr(5, 16);
  std::string wrong = text;
  wrong[20] = wrong[20] == '0' ? '1' : '0';  // the last digit of the digest
  CHECK(testing::refused([&] { reader(wrong); }) ==
        "reshard: who: the text is damaged: the digest of its 5 characters is " + right + ", and it says " +
            wrong.substr(5, 16));
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] ^= 1;
    CHECK_REFUSED(reader(changed), "who: the text ");
    CHECK_REFUSED(reader(text.substr(0, at)), "who: the text ");
  }
  reader(text);
}

TEST_CASE("words are read one after the other, and what is left at the end is refused") {
  const std::string text = text_of_words(" one two 3 4");
  stored_words w = reader(text);
  CHECK_FALSE(w.took("two"));
  CHECK_FALSE(w.took("on"));
  CHECK_FALSE(w.took("one two"));
  CHECK(w.took("one"));
  CHECK(w.took("two"));
  CHECK_REFUSED(w.end(), "who: '3' stands behind its end");
  CHECK(w.number("it") == 3);
  CHECK(w.number("it") == 4);
  w.end();
  CHECK_FALSE(w.took("4"));
  CHECK_REFUSED(w.number("it"), "who: it is ''; it is a whole number of 64 bits");
  const std::string left = text_of_words(" a  b ");
  stored_words all = reader(left);
  CHECK(all.took("a"));
  CHECK(all.rest() == std::vector<std::string>{"", "b", ""});
  all.end();
  CHECK(all.rest().empty());
  const std::string long_word = text_of_words(" " + std::string(41, 'y') + " z");
  CHECK_REFUSED(reader(long_word).end(), "who: '" + std::string(40, 'y') + "..' stands behind its end");
}

TEST_CASE("numbers and bits are read, and refused by the name of what stands there") {
  CHECK(number_in(" -5") == -5);
  CHECK(number_in(" 9223372036854775807") == most);
  CHECK_REFUSED(number_in(" 5x"), "who: the step is '5x'; it is a whole number of 64 bits");
  CHECK_REFUSED(number_in(" "), "who: the step is ''; it is a whole number of 64 bits");
  CHECK_REFUSED(number_in(" 1 2"), "who: '2' stands behind its end");
  CHECK(bits_in(" fedcba9876543210") == 0xFEDCBA9876543210u);
  CHECK(bits_in(" 0000000000000001") == 1);
  for (const char* none : {" 1", " 00000000000000001", " FEDCBA9876543210", " 000000000000000g", " "})
    CHECK_REFUSED(bits_in(none), "who: the scalar is '" + std::string(none + 1) + "'; it is 16 digits, 0 to f");
}

TEST_CASE("one of several words is its number among them") {
  const std::array<std::string_view, 3> known = {"idle", "armed", "done"};
  const auto one_of = [&](const std::string& words) {
    return read(words, [&](stored_words& w) { return w.one_of(known, "the phase"); });
  };
  CHECK(one_of(" idle") == 0);
  CHECK(one_of(" armed") == 1);
  CHECK(one_of(" done") == 2);
  CHECK(testing::refused([&] { one_of(" don"); }) == "reshard: who: the phase is 'don'; it is idle, armed, done");
}

TEST_CASE("names are a list, a comma is none; one name or none") {
  CHECK(names_in(" ,").empty());
  CHECK(names_in(" a") == member_list{"a"});
  CHECK(names_in(" b,a,c") == member_list{"b", "a", "c"});
  CHECK(testing::refused([] { names_in(" a,,b"); }) ==
        "reshard: who: the list is 'a,,b': name: a name has 1 to 63 characters, and this one has 0");
  CHECK(one_in(" ,").empty());
  CHECK(one_in(" a") == member_name("a"));
  CHECK_REFUSED(one_in(" a,b"), "who: the request is a and b; it is one name");
  CHECK_REFUSED(one_in(" a'"), "who: the request is 'a'': name: character 1 of a name is number 39");
}

TEST_CASE("a layout is read as degrees") {
  const auto layout_in = [](const std::string& words) {
    return read(words, [](stored_words& w) { return w.layout(); });
  };
  CHECK(layout_in(" tp=2,dp=3") == parse_degrees("tp=2,dp=3"));
  CHECK(layout_in(" tp=1") == degrees());
  CHECK_REFUSED(layout_in(" tp=x"), "layout: 'x' is not a number");
}
