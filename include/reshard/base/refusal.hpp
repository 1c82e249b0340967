// SPDX-License-Identifier: Apache-2.0
// A refusal is a sentence with values: who, what, which numbers, what would be legal. The same check refuses in every
// build; in a constant expression the call below is not constexpr, so the compiler stops at the line that states the rule.
// Builds on: nothing of the library.
#pragma once

#include <concepts>
#include <stdexcept>
#include <string>
#include <string_view>

#ifndef __cpp_exceptions
#error "reshard: a refusal is an exception; compile without -fno-exceptions"
#endif

namespace reshard {

/// What every check of the library throws: `what()` is one sentence beginning "reshard: ".
class refusal : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

namespace detail {
inline void append(std::string& sentence, std::string_view text) { sentence += text; }
inline void append(std::string& sentence, std::integral auto number) { sentence += std::to_string(number); }
}  // namespace detail

/// Throws refusal("reshard: " + parts...), numbers written in decimal.
template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  std::string sentence = "reshard: ";
  (detail::append(sentence, parts), ...);
  throw refusal(sentence);
}

}  // namespace reshard
