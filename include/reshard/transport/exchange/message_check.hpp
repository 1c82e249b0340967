// SPDX-License-Identifier: Apache-2.0
// What a message says of itself where that is asked for, in its last 16 bytes: a digest of whose it is, and a sum over
// its words whose order of evaluation is free. Both are compared before anything is unpacked.
// Builds on: base/digest.hpp, transport/wire.hpp, base/integer.hpp.
#pragma once

#include <cstdint>
#include <cstring>

#include <reshard/base/digest.hpp>
#include <reshard/transport/wire.hpp>

namespace reshard {

/// The last bytes of a checked message.
struct message_trailer {
  std::uint64_t whose = 0;  // digest of switch, stage, source and destination
  std::uint64_t sum = 0;    // sum over i of mix_word(word i, i) mod 2^64, of the words before the trailer

  friend constexpr bool operator==(const message_trailer&, const message_trailer&) = default;
};
/// 16.
inline constexpr bytes_t trailer_bytes = sizeof(message_trailer);
static_assert(trailer_bytes == 16);

/// The sum over a message's words before its trailer; a word is 8 bytes as the machine reads them.
inline std::uint64_t sum_of_words(const std::byte* data, bytes_t bytes) {
  std::uint64_t sum = 0;
  const auto words = static_cast<std::uint64_t>((bytes - trailer_bytes) / 8);
  for (std::uint64_t i = 0; i < words; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + 8 * i, sizeof word);
    sum += mix_word(word, i);
  }
  return sum;
}

/// Writes the trailer of a packed message.
inline void seal_message(const message& m, std::uint64_t whose) {
  const message_trailer trailer{whose, sum_of_words(m.data, m.bytes)};
  std::memcpy(m.data + m.bytes - trailer_bytes, &trailer, sizeof trailer);
}

/// What a trailer says of the message that has come.
enum class message_is { right, another, changed };
/// What it says where it should be this one.
inline message_is check_message(const message& m, std::uint64_t whose) {
  message_trailer trailer;
  std::memcpy(&trailer, m.data + m.bytes - trailer_bytes, sizeof trailer);
  if (trailer.sum != sum_of_words(m.data, m.bytes)) return message_is::changed;
  return trailer.whose == whose ? message_is::right : message_is::another;
}

}  // namespace reshard
