// SPDX-License-Identifier: Apache-2.0
// The data: a language of 96 words that is the same on every machine, has a known entropy and never repeats; or the
// bytes of a text.
#pragma once

#include <array>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "numbers.hpp"

namespace trainer {

/// Tokens of one sequence: its inputs, and one more, a target only.
using tokens = std::vector<std::uint8_t>;

/// Four words may follow each, with probabilities 1/2, 1/4, 1/8, 1/8.
class language {
 public:
  static constexpr int words = 96, followers = 4;

  language() {
    for (std::uint64_t w = 0; w < words; ++w) {
      const std::uint64_t h = mix(1000 + w);
      for (std::uint64_t j = 0; j < 2 + h % 5; ++j) word_[w] += static_cast<char>('a' + mix(h + j) % 16);
      word_[w] += ' ';
      for (std::uint64_t k = 0; k < followers; ++k) next_[w][k] = mix(5000 + 4 * w + k) % words;
    }
  }

  /// The first `count` bytes of sample n.
  tokens sample(std::uint64_t seed, index_t n, index_t count) const {
    const std::uint64_t key = mix(mix(seed + 1) ^ static_cast<std::uint64_t>(n));
    tokens text;
    std::size_t word = key % words;
    for (std::uint64_t k = 0; static_cast<index_t>(text.size()) < count; ++k) {
      text.insert(text.end(), word_[word].begin(), word_[word].end());
      constexpr std::size_t choice[] = {0, 0, 0, 0, 1, 1, 2, 3};
      word = next_[word][choice[mix(key + k) % 8]];
    }
    text.resize(static_cast<std::size_t>(count));
    return text;
  }

  /// sum over the bytes after the first of -ln p(byte | those before it): what the best model would lose. Beliefs are
  /// kept of where in which word the text is.
  double surprise(const tokens& text) const {
    std::vector<std::array<double, 8>> belief(words, std::array<double, 8>{});
    for (auto& of_word : belief) of_word[0] = 1.0 / words;
    double sum = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      double likely = 0;
      std::vector<std::array<double, 8>> after(words, std::array<double, 8>{});
      for (std::size_t w = 0; w < words; ++w)
        for (std::size_t at = 0; at < word_[w].size(); ++at) {
          if (belief[w][at] == 0 || static_cast<std::uint8_t>(word_[w][at]) != text[i]) continue;
          likely += belief[w][at];
          if (at + 1 < word_[w].size()) after[w][at + 1] += belief[w][at];
          else
            for (std::size_t k = 0; k < followers; ++k) after[next_[w][k]][0] += belief[w][at] * chance[k];
        }
      if (i > 0) sum -= std::log(likely);
      for (auto& of_word : after)
        for (double& b : of_word) b /= likely;
      belief = std::move(after);
    }
    return sum;
  }

 private:
  static constexpr double chance[] = {0.5, 0.25, 0.125, 0.125};
  std::string word_[words];
  std::size_t next_[words][followers] = {};
};

/// Sequences by number: of the language, or of a text, sequence (n a) mod M of the M that it has.
class dataset {
 public:
  dataset(std::uint64_t seed, index_t length, std::string text = {})
      : seed_(seed), length_(length), text_(std::move(text)) {
    if (text_.empty()) return;
    sequences_ = (static_cast<index_t>(text_.size()) - 1) / length_;
    if (sequences_ < 1) refuse("a text of ", text_.size(), " bytes has no sequence of ", length_, " and one more");
    stride_ = (sequences_ * 618 + 999) / 1000;
    while (std::gcd(stride_, sequences_) != 1) ++stride_;
  }

  tokens sample(index_t n) const {
    if (text_.empty()) return language_.sample(seed_, n, length_ + 1);
    const auto at = text_.begin() + (n % sequences_) * stride_ % sequences_ * length_;
    return {at, at + length_ + 1};
  }
  /// The mean of -ln p(byte) over the targets of [begin, end); 0 where nobody knows it.
  double floor_of(index_t begin, index_t end) const {
    double sum = 0;
    for (index_t n = begin; n < end && text_.empty(); ++n) sum += language_.surprise(sample(n));
    return sum / static_cast<double>(length_ * (end - begin));
  }

 private:
  std::uint64_t seed_;
  index_t length_;
  std::string text_;
  language language_;
  index_t sequences_ = 0, stride_ = 1;
};

}  // namespace trainer
