// SPDX-License-Identifier: Apache-2.0
// Text made of parts: words as they are, integers in decimal. What writes it is compiled once, whatever the parts.
// Builds on: nothing of the library.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace reshard::detail {

/// Words, which it does not keep; an integer; or a number and what writes it.
class text_part {
 public:
  using writer = void (*)(std::string&, std::int64_t);

  constexpr text_part(std::string_view words) : words_(words) {}
  constexpr text_part(const char* words) : words_(words) {}
  constexpr text_part(const std::string& words) : words_(words) {}
  constexpr text_part(std::signed_integral auto number) : number_(number), write_(write_signed) {}
  constexpr text_part(std::unsigned_integral auto number)
      : number_(static_cast<std::int64_t>(number)), write_(write_unsigned) {}
  constexpr text_part(std::int64_t number, writer how) : number_(number), write_(how) {}

  void append_to(std::string& text) const {
    if (write_ == nullptr) text += words_;
    else write_(text, number_);
  }

 private:
  static void write_signed(std::string& text, std::int64_t number) { text += std::to_string(number); }
  static void write_unsigned(std::string& text, std::int64_t number) {
    text += std::to_string(static_cast<std::uint64_t>(number));
  }

  std::string_view words_;
  std::int64_t number_ = 0;
  writer write_ = nullptr;
};

/// The parts one after the other, with nothing between them.
inline std::string joined(std::initializer_list<text_part> parts) {
  std::string text;
  for (const text_part& part : parts) part.append_to(text);
  return text;
}

/// joined({parts...})
template <typename... Parts>
[[nodiscard]] std::string text_of(const Parts&... parts) {
  return joined({text_part(parts)...});
}

}  // namespace reshard::detail
