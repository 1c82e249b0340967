// SPDX-License-Identifier: Apache-2.0
// Values of a job as the store keeps them: words, behind the name of their form and a digest, so that a text of another
// program, of another version or with a byte changed is told from one of ours before a word of it is believed.
// Builds on: base/digest.hpp, elastic/member_name.hpp, parallelism/parse_degrees.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <reshard/base/digest.hpp>
#include <reshard/elastic/member_name.hpp>
#include <reshard/parallelism/parse_degrees.hpp>

namespace reshard::detail {

/// Up to 40 characters of a word that is to be shown in a sentence; what is not visible ASCII is a question mark.
inline std::string shown_word(std::string_view word) {
  std::string shown(word.substr(0, 40));
  for (char& c : shown)
    if (c < ' ' || c > '~') c = '?';
  return word.size() > shown.size() ? shown + ".." : shown;
}

/// 16 digits, 0 to f.
inline std::string hex_text(std::uint64_t bits) {
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; bits >>= 4) text[i] = "0123456789abcdef"[bits & 15];
  return text;
}

/// The layout as a word that is read again. Refused is a layout that no text is of.
inline std::string stored_layout(const degrees& d) {
  const std::string text = layout_word(d);
  if (parse_degrees(text) != d) refuse("layout: ", text, " is not all that it says; vpp is what its string makes it");
  return text;
}

/// A number of decimal digits, behind a minus or not; nothing where a word is no such, or leaves 64 bits.
inline std::optional<index_t> whole_number(std::string_view word) {
  const bool minus = word.starts_with('-');
  index_t n = 0;
  if (word.size() == (minus ? 1u : 0u)) return {};
  for (const char c : word.substr(minus ? 1 : 0))
    if (c < '0' || c > '9' || RESHARD_MULTIPLY_OVERFLOWS(n, index_t{10}, &n) ||
        RESHARD_ADD_OVERFLOWS(n, minus ? '0' - c : c - '0', &n))
      return {};
  return n;
}

/// Writes words with a blank before each; a list of members is a,b,c, and a comma where it has none.
class words_to_store {
 public:
  void word(std::string_view text) {
    words_ += ' ';
    words_ += text;
  }
  void number(index_t n) { word(std::to_string(n)); }
  void bits(std::uint64_t n) { word(hex_text(n)); }
  void names(const member_list& list) { word(list.empty() ? "," : joined_members(list)); }
  void name_or_none(const member_name& one) { word(one.empty() ? "," : one.text()); }
  void layout(const degrees& d) { word(stored_layout(d)); }
  /// FORM DIGEST WORDS
  std::string text(std::string_view form) const {
    return text_of(form, " ", hex_text(fnv1a(words_)), std::string_view(words_));
  }

 private:
  std::string words_;
};

/// Reads what words_to_store wrote; `who` begins its refusals. What is no word of the kind that is to stand there is
/// refused by the name of what stands there.
class stored_words {
 public:
  stored_words(std::string_view text, std::string_view form, std::string_view who) : who_(who) {
    const std::size_t blank = text.find(' ');
    if (text.substr(0, blank) != form)
      refuse(who_, ": the text begins with '", shown_word(text.substr(0, blank)), "', and a stored one with ", form);
    const std::string_view behind = text.substr(form.size());
    const std::string said(behind.substr(0, 17));
    rest_ = behind.substr(said.size());
    if (const std::string is = " " + hex_text(fnv1a(rest_)); said != is)
      refuse(who_, ": the text is damaged: the digest of its ", rest_.size(), " characters is", is, ", and it says",
             shown_word(said));
  }

  /// Takes the next word if it is this one.
  bool took(std::string_view word) {
    if (next() != word) return false;
    static_cast<void>(take());
    return true;
  }
  void end() const {
    if (!rest_.empty()) refuse(who_, ": '", shown_word(next()), "' stands behind its end");
  }
  index_t number(std::string_view what) {
    const std::string_view word = take();
    const std::optional<index_t> n = whole_number(word);
    if (!n) refuse_word(what, word, "a whole number of 64 bits");
    return *n;
  }
  std::uint64_t bits(std::string_view what) {
    const std::string_view word = take();
    std::uint64_t n = 0;
    for (const char c : word) n = n << 4 | std::string_view("0123456789abcdef").find(c);
    if (hex_text(n) != word) refuse_word(what, word, "16 digits, 0 to f");
    return n;
  }
  /// The number of a word among those that it may be.
  int one_of(std::span<const std::string_view> words, std::string_view what) {
    const std::string_view word = take();
    for (std::size_t i = 0; i < words.size(); ++i)
      if (words[i] == word) return static_cast<int>(i);
    std::string known;
    for (const std::string_view one : words) known += (known.empty() ? "" : ", ") + std::string(one);
    refuse_word(what, word, known);
  }
  member_list names(std::string_view what) {
    const std::string_view word = take();
    if (word == ",") return {};
    try {
      return parse_members(word);
    } catch (const refusal& why) {
      refuse(who_, ": ", what, " is '", shown_word(word), "': ", without_prefix(why.what()));
    }
  }
  /// A name, or an empty one.
  member_name name_or_none(std::string_view what) {
    const member_list list = names(what);
    if (list.size() > 1) refuse(who_, ": ", what, " is ", members_text(list), "; it is one name");
    return list.empty() ? member_name() : list[0];
  }
  degrees layout() { return parse_degrees(take()); }
  /// All words that are left.
  std::vector<std::string> rest() {
    std::vector<std::string> words;
    while (!rest_.empty()) words.emplace_back(take());
    return words;
  }

 private:
  std::string_view next() const { return rest_.empty() ? rest_ : rest_.substr(1, rest_.find(' ', 1) - 1); }
  std::string_view take() {
    const std::string_view word = next();
    rest_.remove_prefix(least_of(rest_.size(), word.size() + 1));
    return word;
  }
  static std::size_t least_of(std::size_t a, std::size_t b) { return a < b ? a : b; }
  [[noreturn]] void refuse_word(std::string_view what, std::string_view word, std::string_view legal) const {
    refuse(who_, ": ", what, " is '", shown_word(word), "'; it is ", legal);
  }
  std::string_view who_, rest_;
};

}  // namespace reshard::detail
