// SPDX-License-Identifier: Apache-2.0
// What a member of a job, and a request, is called: up to 63 visible characters. A fixed array, so that a record is a
// value that constant expressions work on.
// Builds on: base/refusal.hpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <reshard/base/refusal.hpp>

namespace reshard {

/// A name that is never used twice: a process that starts again has another, node3.0#2. Characters are those from ! to
/// ~ but quotes, commas and backslashes, so that it stands in lists, keys and JSON as it is.
class member_name {
 public:
  static constexpr std::size_t most_characters = 63;

  constexpr member_name() = default;
  constexpr member_name(std::string_view text) {
    if (text.empty() || text.size() > most_characters)
      refuse("name: a name has 1 to ", most_characters, " characters, and this one has ", text.size());
    for (const char c : text) {
      if (c < '!' || c > '~' || c == '"' || c == '\'' || c == ',' || c == '\\')
        refuse("name: character ", size_, " of a name is number ", static_cast<int>(static_cast<unsigned char>(c)),
               "; a name has visible ASCII characters, without quotes, commas and backslashes");
      text_[size_++] = c;
    }
  }
  constexpr member_name(const char* text) : member_name(std::string_view(text)) {}
  constexpr member_name(const std::string& text) : member_name(std::string_view(text)) {}

  constexpr std::string_view text() const { return {text_, size_}; }
  constexpr bool empty() const { return size_ == 0; }

  friend constexpr bool operator==(const member_name&, const member_name&) = default;
  friend constexpr auto operator<=>(const member_name& a, const member_name& b) { return a.text() <=> b.text(); }

 private:
  char text_[most_characters + 1] = {};
  std::size_t size_ = 0;
};

/// Members in an order that means something: of a world, their ranks.
using member_list = std::vector<member_name>;

/// Whether a list has a member.
constexpr bool has_member(const member_list& list, const member_name& who) {
  for (const member_name& one : list)
    if (one == who) return true;
  return false;
}
/// { m in all : m not in some } is empty
constexpr bool has_members(const member_list& some, const member_list& all) {
  for (const member_name& one : all)
    if (!has_member(some, one)) return false;
  return true;
}
/// Adds those that are not in it yet, in their order.
constexpr void add_members(member_list& to, const member_list& more) {
  for (const member_name& one : more)
    if (!has_member(to, one)) to.push_back(one);
}
/// The members of "a,b,c", of which there is at least one.
constexpr member_list parse_members(std::string_view text) {
  member_list list;
  for (;;) {
    const std::size_t comma = text.find(',');
    list.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return list;
    text.remove_prefix(comma + 1);
  }
}
/// "a,b,c", as parse_members reads it.
inline std::string joined_members(const member_list& list) {
  std::string text;
  for (const member_name& one : list) {
    if (&one != list.data()) text += ',';
    text += one.text();
  }
  return text;
}
/// "a, b and c"; "nobody" of none.
inline std::string members_text(const member_list& list) {
  if (list.empty()) return "nobody";
  std::string text;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i > 0) text += i + 1 == list.size() ? " and " : ", ";
    text += list[i].text();
  }
  return text;
}

}  // namespace reshard
