// SPDX-License-Identifier: Apache-2.0
// A text as the words that a command line would have.
#pragma once

#include <string>
#include <vector>

namespace testing {

/// What lies between single spaces.
inline std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text)
    if (c == ' ') words.emplace_back();
    else words.back() += c;
  return words;
}

}  // namespace testing
