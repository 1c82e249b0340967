// SPDX-License-Identifier: Apache-2.0
// Where documents end in a stretch of tokens: those that are the delimiter, found as fast as memory is read.
// Builds on: base/integer.hpp.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <reshard/base/integer.hpp>

namespace reshard {

/// What documents of a file are: tokens of `width` bytes (1, 2, 4 or 8, little-endian); the token `delimiter` is the
/// last of its document. {1, '\n'} are the lines of a text.
struct document_form {
  index_t width = 1;
  std::uint64_t delimiter = '\n';

  friend constexpr bool operator==(const document_form&, const document_form&) = default;
};

namespace detail {

/// Sixteen bytes, which the machine compares at once where it can; and as two words.
template <typename Token>
struct sixteen_bytes {
  typedef Token tokens __attribute__((vector_size(16)));  // g++ drops the attribute of a `using` here
  typedef std::uint64_t words __attribute__((vector_size(16)));

  /// Ones in every token that is this one, else zeros.
  static words equal(const std::byte* bytes, Token token) {
    tokens these;
    std::memcpy(&these, bytes, sizeof these);
    const auto same = these == token;
    words result;
    std::memcpy(&result, &same, sizeof result);
    return result;
  }
};

/// The tokens of a stretch that are this one: sink(i) for each, ascending. Of 128 bytes at a time, most have none.
template <typename Token, typename Sink>
void each_token(const std::byte* bytes, std::size_t count, Token token, Sink& sink) {
  using sixteen = sixteen_bytes<Token>;
  constexpr std::size_t many = 128 / sizeof(Token), few = 8 / sizeof(Token);
  std::size_t at = 0;
  for (; at + many <= count; at += many) {
    const std::byte* const here = bytes + at * sizeof(Token);
    const auto found = [&](std::size_t i) { return sixteen::equal(here + 16 * i, token); };
    const typename sixteen::words any =
        (found(0) | found(1) | found(2) | found(3)) | (found(4) | found(5) | found(6) | found(7));
    if ((any[0] | any[1]) == 0) continue;
    for (std::size_t i = 0; i < 8; ++i) {
      const typename sixteen::words of_this = found(i);
      for (std::size_t half = 0; half < 2; ++half)
        for (std::uint64_t x = of_this[half]; x != 0;) {
          const auto lane = static_cast<std::size_t>(std::countr_zero(x)) / (8 * sizeof(Token));
          sink(at + (2 * i + half) * few + lane);
          x &= few == 1 ? 0 : ~std::uint64_t{0} << (8 * sizeof(Token) * (lane + 1) - 1) << 1;
        }
    }
  }
  for (; at < count; ++at) {
    Token one;
    std::memcpy(&one, bytes + at * sizeof(Token), sizeof one);
    if (one == token) sink(at);
  }
}

/// Finds delimiters.
class delimiter_scan {
 public:
  explicit delimiter_scan(const document_form& form) : form_(form) {
    if (form.width != 1 && form.width != 2 && form.width != 4 && form.width != 8)
      refuse("documents: tokens of ", form.width, " bytes; they have 1, 2, 4 or 8");
    if (form.width < 8 && form.delimiter >> 8 * form.width != 0)
      refuse("documents: the delimiter ", form.delimiter, " does not fit tokens of ", form.width, " bytes");
  }

  /// sink(i) for each of `count` tokens that is the delimiter, ascending.
  template <typename Sink>
  void each(const std::byte* bytes, std::size_t count, Sink&& sink) const {
    if (form_.width == 1) each_token(bytes, count, static_cast<std::uint8_t>(form_.delimiter), sink);
    else if (form_.width == 2) each_token(bytes, count, static_cast<std::uint16_t>(form_.delimiter), sink);
    else if (form_.width == 4) each_token(bytes, count, static_cast<std::uint32_t>(form_.delimiter), sink);
    else each_token(bytes, count, form_.delimiter, sink);
  }

 private:
  document_form form_;
};

}  // namespace detail

}  // namespace reshard
