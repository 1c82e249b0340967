// SPDX-License-Identifier: Apache-2.0
// Numbers that stand for others: 64 bits mixed one to one, and a list by one number, where devices compare.
// Builds on: nothing of the library.
#pragma once

#include <cstdint>

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

/// Digest of a list of numbers, order included: 64 bits, the same on every machine.
class digest {
 public:
  constexpr void add(std::int64_t number) {
    value_ = (value_ ^ static_cast<std::uint64_t>(number)) * mixing_step;
    value_ ^= value_ >> 32;
  }
  constexpr std::uint64_t value() const { return value_; }

  friend constexpr bool operator==(const digest&, const digest&) = default;

 private:
  std::uint64_t value_ = 0x243F6A8885A308D3u;
};

}  // namespace reshard
