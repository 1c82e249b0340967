// SPDX-License-Identifier: Apache-2.0
// A refusal is a sentence with values: who, what, which numbers, what would be legal. The same check refuses in every
// build; a constant expression stops at the throw, and the compiler's notes lead from the rule's words to the line at
// fault.
// Builds on: base/text.hpp.
#pragma once

#include <exception>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

#include <reshard/base/text.hpp>

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
[[noreturn]] inline void throw_refusal(std::initializer_list<text_part> parts) {
  throw refusal("reshard: " + joined(parts));
}

/// What a refusal says inside another sentence: without "reshard: ".
inline std::string_view without_prefix(std::string_view sentence) {
  constexpr std::string_view prefix = "reshard: ";
  return sentence.starts_with(prefix) ? sentence.substr(prefix.size()) : sentence;
}
}  // namespace detail

/// Throws refusal("reshard: " + parts...), numbers written in decimal. Parts are values, as clang's notes print no
/// references; the throw is called through a pointer, as g++ does not enter a function that it sees to be no constant
/// expression.
template <typename... Parts>
[[noreturn, gnu::cold, gnu::noinline]] constexpr void refuse(Parts... parts) {
  void (*const stop)(std::initializer_list<detail::text_part>) = detail::throw_refusal;
  stop({detail::text_part(parts)...});
  __builtin_unreachable();
}

/// what() of an exception, and a sentence that says so where it has none: what other devices are told of it.
[[nodiscard]] inline std::string sentence_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& e) {
    return *e.what() != 0 ? e.what() : "reshard: an exception that says nothing";
  } catch (...) {
    return "reshard: an exception of no standard kind";
  }
}

}  // namespace reshard
