// SPDX-License-Identifier: Apache-2.0
// What stands for a list of numbers where devices compare what they were given.
// Builds on: nothing of the library.
#pragma once

#include <cstdint>

namespace reshard {

/// Digest of a list of numbers, order included: 64 bits, the same on every machine.
class digest {
 public:
  constexpr void add(std::int64_t number) {
    value_ = (value_ ^ static_cast<std::uint64_t>(number)) * 0x9E3779B97F4A7C15u;
    value_ ^= value_ >> 32;
  }
  constexpr std::uint64_t value() const { return value_; }

  friend constexpr bool operator==(const digest&, const digest&) = default;

 private:
  std::uint64_t value_ = 0x243F6A8885A308D3u;
};

}  // namespace reshard
