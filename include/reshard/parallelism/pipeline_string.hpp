// SPDX-License-Identifier: Apache-2.0
// A pipeline layout string of Megatron-core, "Et*3|(tt|)*29m|L": how many decoder layers each pipeline chunk has, and
// where prediction layers sit. Kept as runs of equal chunks, so that a string of any length is a small value.
// Builds on: base/integer.hpp, base/text.hpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <reshard/base/integer.hpp>
#include <reshard/base/text.hpp>

namespace reshard {

/// Equal pipeline chunks in a row.
struct chunk_run {
  index_t chunks = 0;
  index_t layers = 0;  // of each

  friend constexpr bool operator==(const chunk_run&, const chunk_run&) = default;
};

/// The chunks of a layout string; none where no string is given.
struct pipeline_string {
  static constexpr int capacity = 48;                           // runs
  static constexpr std::size_t longest = std::size_t{1} << 20;  // characters, repetitions written out
  chunk_run run[capacity] = {};
  int runs = 0;
  index_t chunks = 0;
  index_t layers = 0;            // letters t
  index_t predictions = 0;       // letters m
  index_t prediction_chunk = 0;  // the one chunk that has them

  constexpr bool given() const { return runs > 0; }
  friend constexpr bool operator==(const pipeline_string&, const pipeline_string&) = default;
};

namespace detail {

/// Expands and reads the text of a layout string.
class pipeline_string_reader {
 public:
  constexpr explicit pipeline_string_reader(std::string_view text) : text_(text) {}

  constexpr pipeline_string read() {
    std::vector<char> letters;
    for (const char c : text_)
      if (c != ',') letters.push_back(c);
    letters = repeated_groups(letters);
    letters = repeated_letters(letters);
    for (const char c : letters) take(c);
    if (first_ != 'E' || embeddings_ != 1)
      refuse("layout: string=", text_, " needs exactly one E, before all other letters");
    if (latest_ != 'L' || outputs_ != 1)
      refuse("layout: string=", text_, " needs exactly one L, after all other letters");
    close();
    return result_;
  }

 private:
  /// The count that follows a '*' at `at`, which moves past it; -1 where none does.
  static constexpr index_t count_after(const std::vector<char>& text, std::size_t& at) {
    std::size_t i = at;
    if (i >= text.size() || text[i] != '*') return -1;
    index_t count = 0;
    const std::size_t digits = ++i;
    for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i)
      count = least(count * 10 + (text[i] - '0'), static_cast<index_t>(pipeline_string::longest) + 1);
    if (i == digits) return -1;
    at = i;
    return count;
  }
  constexpr void append(std::vector<char>& to, const std::vector<char>& from, std::size_t begin, std::size_t end,
                        index_t times) const {
    if (begin == end) return;
    if (times > static_cast<index_t>((pipeline_string::longest - to.size()) / (end - begin)))
      refuse("layout: string=", text_, " stands for more than ", static_cast<index_t>(pipeline_string::longest),
             " characters");
    for (index_t n = 0; n < times; ++n)
      for (std::size_t i = begin; i < end; ++i) to.push_back(from[i]);
  }
  /// Every (X)*n becomes n times X.
  constexpr std::vector<char> repeated_groups(const std::vector<char>& text) const {
    std::vector<char> result;
    for (std::size_t i = 0; i < text.size();) {
      std::size_t close = i + 1;
      while (close < text.size() && text[close] != ')' && text[close] != '(') ++close;
      std::size_t after = close + 1;
      if (text[i] == '(' && close < text.size() && text[close] == ')' && close > i + 1)
        if (const index_t count = count_after(text, after); count >= 0) {
          append(result, text, i + 1, close, count);
          i = after;
          continue;
        }
      append(result, text, i, i + 1, 1);
      ++i;
    }
    return result;
  }
  /// Then every c*n becomes n times c.
  constexpr std::vector<char> repeated_letters(const std::vector<char>& text) const {
    std::vector<char> result;
    for (std::size_t i = 0; i < text.size();) {
      std::size_t after = i + 1;
      const index_t count = count_after(text, after);
      append(result, text, i, i + 1, count < 0 ? 1 : count);
      i = count < 0 ? i + 1 : after;
    }
    return result;
  }

  constexpr void take(char c) {
    if (c == '|') return close();
    if (c != 'E' && c != 't' && c != 'm' && c != 'L')
      refuse("layout: string=", text_, " has the character ", std::string_view(&c, 1), "; E, t, m, L and | are known");
    if (first_ == 0) first_ = c;
    latest_ = c;
    if (c == 'E') ++embeddings_;
    if (c == 'L') ++outputs_;
    if (c == 't') {
      if (result_.predictions > 0) refuse("layout: string=", text_, " has a t after an m");
      ++result_.layers, ++layers_;
    }
    if (c == 'm') {
      if (result_.predictions++ == 0) result_.prediction_chunk = result_.chunks;
      else if (result_.prediction_chunk != result_.chunks)
        refuse("layout: string=", text_, " has m in chunks ", result_.prediction_chunk, " and ", result_.chunks,
               "; all prediction layers sit in one");
    }
  }
  constexpr void close() {
    if (result_.runs > 0 && result_.run[result_.runs - 1].layers == layers_) {
      ++result_.run[result_.runs - 1].chunks;
    } else {
      if (result_.runs == pipeline_string::capacity)
        refuse("layout: string=", text_, " has more than ", pipeline_string::capacity, " runs of equal chunks");
      result_.run[result_.runs++] = {1, layers_};
    }
    ++result_.chunks;
    layers_ = 0;
  }

  std::string_view text_;
  pipeline_string result_;
  index_t layers_ = 0;  // of the open chunk
  index_t embeddings_ = 0;
  index_t outputs_ = 0;
  char first_ = 0;
  char latest_ = 0;
};

}  // namespace detail

/// The chunks that a text describes. Commas are left out; first every (X)*n, then every c*n is written out; `|` ends a
/// chunk. Refused: other characters, not exactly one E in front and one L behind, a t after an m, m in two chunks.
constexpr pipeline_string parse_pipeline_string(std::string_view text) {
  return detail::pipeline_string_reader(text).read();
}

/// A text with parse_pipeline_string(to_text(s)) == s.
[[nodiscard]] inline std::string to_text(const pipeline_string& s) {
  std::string text = "E";
  index_t chunk = 0;
  const auto letters = [](index_t n) {
    return n < 3 ? std::string(static_cast<std::size_t>(n), 't') : detail::text_of("t*", n);
  };
  const auto chunks = [&](index_t count, index_t layers) {
    if (count > 1 && layers > 0) text += detail::text_of("(", letters(layers), "|)*", count);
    else if (count > 1) text += detail::text_of("|*", count);
    else if (count == 1) text += detail::text_of(letters(layers), "|");
    chunk += count;
  };
  for (int r = 0; r < s.runs; ++r) {
    const index_t past = chunk + s.run[r].chunks - (r + 1 == s.runs ? 1 : 0);  // the last chunk ends with L, not with |
    if (s.predictions > 0 && s.prediction_chunk >= chunk && s.prediction_chunk < past) {
      chunks(s.prediction_chunk - chunk, s.run[r].layers);
      text += letters(s.run[r].layers) + std::string(static_cast<std::size_t>(s.predictions), 'm') + "|";
      ++chunk;
    }
    chunks(past - chunk, s.run[r].layers);
  }
  text += letters(s.run[s.runs - 1].layers);
  if (s.predictions > 0 && s.prediction_chunk == s.chunks - 1)
    text.append(static_cast<std::size_t>(s.predictions), 'm');
  return text + "L";
}

}  // namespace reshard
