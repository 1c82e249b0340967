// SPDX-License-Identifier: Apache-2.0
// Names of members: every length and every character, accepted or refused; lists of them as sets, and as text there and
// back.
#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include <reshard/elastic/member_name.hpp>

#include "../support/refused.hpp"

using namespace reshard;

namespace {
constexpr std::string_view longest_name = "123456789012345678901234567890123456789012345678901234567890123";

constexpr bool names_are_values() {
  const member_name a("node3.0#2"), same(std::string_view("node3.0#2")), longer("node3.0#21"), none;
  return a.text() == "node3.0#2" && !a.empty() && a == same && !(a == longer) && a < longer && none < a &&
         none.empty() && none.text().empty() && member_name("Z") < member_name("a") && !(a < same) &&
         member_name("b") > member_name("abc") && member_name(longest_name).text() == longest_name;
}
constexpr bool lists_are_sets() {
  const member_list ab{"a", "b"}, bca{"b", "c", "a"};
  member_list all = ab;
  add_members(all, bca);
  add_members(all, {});
  return has_member(ab, "b") && !has_member(ab, "c") && !has_member({}, "a") && !has_member(ab, {}) &&
         has_members(bca, ab) && !has_members(ab, bca) && has_members(ab, {}) && !has_members({}, ab) &&
         has_members({}, {}) && all == member_list{"a", "b", "c"};
}
constexpr bool lists_are_read() {
  return parse_members("a") == member_list{"a"} && parse_members("c,a,c") == member_list{"c", "a", "c"} &&
         parse_members("node3.0#2,x") == member_list{"node3.0#2", "x"};
}
static_assert(names_are_values());
static_assert(lists_are_sets());
static_assert(lists_are_read());
static_assert(longest_name.size() == 63 && member_name::most_characters == 63);
}  // namespace

TEST_CASE("names are one where their characters are, and ordered as texts; one that is not given is empty") {
  CHECK(names_are_values());
  CHECK(member_name(std::string("x")) == member_name("x"));
}

TEST_CASE("a name has 1 to 63 characters, from ! to ~ without quotes, commas and backslashes") {
  const auto said = [](const std::string& text) { return testing::refused([&] { member_name{text}; }); };
  for (std::size_t size = 0; size <= 200; ++size) {
    const std::string sentence =
        "reshard: name: a name has 1 to 63 characters, and this one has " + std::to_string(size);
    CHECK(said(std::string(size, 'x')) == (size >= 1 && size <= 63 ? "accepted" : sentence));
  }
  int legal = 0;
  for (int c = 0; c < 256; ++c) {
    const bool fits = c >= 33 && c <= 126 && std::string_view("\"',\\").find(static_cast<char>(c)) == std::string::npos;
    legal += fits ? 1 : 0;
    const std::string sentence = "reshard: name: character 2 of a name is number " + std::to_string(c) +
                                 "; a name has visible ASCII characters, without quotes, commas and backslashes";
    CHECK(said("ab" + std::string(1, static_cast<char>(c)) + "d") == (fits ? "accepted" : sentence));
  }
  CHECK(legal == 94 - 4);
}

TEST_CASE("of lists: who is in one, who is in both, and one with those of another that it has not yet") {
  CHECK(lists_are_sets());
}

TEST_CASE("a list is read as it is written, and told as people do; an empty place in it is no name") {
  CHECK(lists_are_read());
  for (const char* text : {"a", "a,b", "c,a,b#2,d"}) CHECK(joined_members(parse_members(text)) == text);
  CHECK(joined_members({}).empty());
  CHECK(members_text({}) == "nobody");
  CHECK(members_text({"a"}) == "a");
  CHECK(members_text({"a", "b"}) == "a and b");
  CHECK(members_text({"a", "b", "c", "d"}) == "a, b, c and d");
  for (const char* text : {"", ",", "a,", ",a", "a,,b"})
    CHECK_REFUSED(parse_members(text), "name: a name has 1 to 63 characters, and this one has 0");
  CHECK_REFUSED(parse_members("a, b"), "name: character 0 of a name is number 32; ");
}
