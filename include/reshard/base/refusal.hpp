// SPDX-License-Identifier: Apache-2.0
// A refusal is a sentence with values: who, what, which numbers, what would be legal. The same check refuses in every
// build; in a constant expression the compiler stops at the line that states the rule.
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

namespace detail {
template <typename... Parts>
[[noreturn]] void throw_refusal(const Parts&... parts) {
  std::string sentence = "reshard: ";
  (append(sentence, parts), ...);
  throw refusal(sentence);
}
}  // namespace detail

/// Throws refusal("reshard: " + parts...), numbers written in decimal. In a constant expression compilers stop inside, and their
/// notes show the call with its words and, from clang, its numbers.
template <typename... Parts>
[[noreturn]] constexpr void refuse(Parts... parts) {
  bool refused = true;  // no constant, or g++ stops before the call
  if (refused) detail::throw_refusal(parts...);
  __builtin_unreachable();
}

}  // namespace reshard
