// SPDX-License-Identifier: Apache-2.0
// Numbers that stand for others: 64 bits mixed one to one, and a list or a text by one number, where devices compare.
// Builds on: nothing of the library.
#pragma once

#include <cstdint>
#include <string_view>

namespace reshard {

/// 2^64 over the golden ratio, odd: by it steps what splitmix64 mixes.
inline constexpr std::uint64_t mixing_step = 0x9E3779B97F4A7C15u;

/// The finaliser of splitmix64, of x + 0x9E3779B97F4A7C15: a bijection of 64 bits in which every bit depends on all.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += mixing_step;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// mix64(word + i step): the i-th step of splitmix64 from `word`. A bijection of the word for every i, so a sum over
/// words at their places i, in whatever order it is added up, is another one where one word changed.
constexpr std::uint64_t mix_word(std::uint64_t word, std::uint64_t i) { return mix64(word + i * mixing_step); }

/// What FNV-1a begins with.
inline constexpr std::uint64_t fnv1a_basis = 0xCBF29CE484222325u;

/// FNV-1a of bytes, 64 bits: h_0 = basis, h_i = (h_(i-1) ^ byte i) 0x100000001B3 mod 2^64. A text in two parts is
/// fnv1a(second, fnv1a(first)).
constexpr std::uint64_t fnv1a(std::string_view bytes, std::uint64_t basis = fnv1a_basis) {
  for (const char c : bytes) basis = (basis ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return basis;
}

/// Digest of a list of numbers, order included: d_i = mix64(d_(i-1) ^ number i), the same on every machine.
class digest {
 public:
  constexpr void add(std::int64_t number) { value_ = mix64(value_ ^ static_cast<std::uint64_t>(number)); }
  constexpr std::uint64_t value() const { return value_; }

  friend constexpr bool operator==(const digest&, const digest&) = default;

 private:
  std::uint64_t value_ = 0x243F6A8885A308D3u;
};

}  // namespace reshard
