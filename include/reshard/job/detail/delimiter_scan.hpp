// SPDX-License-Identifier: Apache-2.0
// Where documents end in a stretch of tokens: those that are the delimiter, found as fast as memory is read.
// Builds on: base/integer.hpp.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

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

/// Bit i: whether byte i of 64 is the first of a token that is this one.
template <typename Token>
std::uint64_t tokens_among(const std::byte* bytes, Token token) {
#if defined(__SSE2__)
  typedef Token tokens __attribute__((vector_size(16)));  // g++ drops the attribute of a `using` here
  constexpr std::uint64_t firsts = ~std::uint64_t{0} / ((std::uint64_t{1} << (sizeof(Token) - 1) << 1) - 1);
  std::uint64_t found = 0;
  for (int i = 0; i < 4; ++i) {
    tokens these;
    std::memcpy(&these, bytes + 16 * i, sizeof these);
    const auto same = these == token;  // ones in every byte of it
    __m128i ones;
    std::memcpy(&ones, &same, sizeof ones);
    found |= static_cast<std::uint64_t>(static_cast<std::uint32_t>(_mm_movemask_epi8(ones))) << 16 * i;
  }
  return found & firsts;
#else
  std::uint64_t found = 0;
  for (std::size_t i = 0; i < 64; i += sizeof(Token)) {
    Token one;
    std::memcpy(&one, bytes + i, sizeof one);
    found |= std::uint64_t{one == token} << i;
  }
  return found;
#endif
}

/// The tokens of a stretch that are this one, some hundreds at a time: sink(places, how many), ascending; fewer than
/// 2^32 tokens.
template <typename Token, typename Sink>
void each_token(const std::byte* bytes, std::size_t count, Token token, Sink& sink) {
  constexpr std::size_t block = 64 / sizeof(Token), most = 512;
  std::uint32_t places[most];
  std::size_t found = 0, at = 0;
  for (; at + block <= count; at += block) {
    for (std::uint64_t x = tokens_among(bytes + at * sizeof(Token), token); x != 0; x &= x - 1)
      places[found++] = static_cast<std::uint32_t>(at + static_cast<std::size_t>(std::countr_zero(x)) / sizeof(Token));
    if (found + block <= most) continue;
    sink(places, found);
    found = 0;
  }
  for (; at < count; ++at) {
    Token one;
    std::memcpy(&one, bytes + at * sizeof(Token), sizeof one);
    if (one == token) places[found++] = static_cast<std::uint32_t>(at);
  }
  if (found > 0) sink(places, found);
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

  /// sink(places, how many) for those of `count` tokens that are the delimiter, ascending, some at a time.
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
