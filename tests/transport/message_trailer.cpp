// SPDX-License-Identifier: Apache-2.0
// The last 16 bytes of a checked message by hand: whose it is, then the sum of the words before; and what a trailer
// says of a message whose bytes, or whose name, are others.
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <reshard/transport/exchange/message_check.hpp>

using namespace reshard;

namespace {

/// A message of these words.
struct words_sent {
  std::vector<std::uint64_t> words;
  message sent() { return {1, 2, reinterpret_cast<std::byte*>(words.data()), std::ssize(words) * 8}; }
};

}  // namespace

TEST_CASE("a trailer is two words of eight bytes: a digest of whose it is, and a sum") {
  CHECK(trailer_bytes == 16);
  const message_trailer nothing;
  CHECK((nothing.whose == 0 && nothing.sum == 0));
  CHECK(message_trailer{3, 4} == message_trailer{3, 4});
  CHECK_FALSE(message_trailer{3, 4} == message_trailer{3, 5});
  CHECK_FALSE(message_trailer{3, 4} == message_trailer{4, 4});
}

TEST_CASE("the sum is over the words before the trailer, each with its place") {
  words_sent m{{5, 0, 7, 111, 222}};
  const message sent = m.sent();
  const std::uint64_t by_hand = mix_word(5, 0) + mix_word(0, 1) + mix_word(7, 2);
  CHECK(sum_of_words(sent.data, sent.bytes) == by_hand);
  CHECK(sum_of_words(sent.data, 16) == 0);
  CHECK(sum_of_words(sent.data, 24) == mix_word(5, 0));
  seal_message(sent, 99);
  CHECK(m.words == std::vector<std::uint64_t>{5, 0, 7, 99, by_hand});

  words_sent longer{std::vector<std::uint64_t>(64, 3)};
  std::uint64_t of_62 = 0;
  for (std::uint64_t i = 0; i < 62; ++i) of_62 += mix_word(3, i);
  CHECK(sum_of_words(longer.sent().data, 512) == of_62);
}

TEST_CASE("a message of other bytes is changed, whosever it is; one of another name is another") {
  words_sent m{{5, 0, 7, 0, 0}};
  const message sent = m.sent();
  seal_message(sent, 99);
  CHECK(check_message(sent, 99) == message_is::right);
  CHECK(check_message(sent, 98) == message_is::another);
  for (const std::size_t word : {0u, 1u, 2u, 4u}) {
    m.words[word] ^= 1;
    CHECK(check_message(sent, 99) == message_is::changed);
    CHECK(check_message(sent, 98) == message_is::changed);
    m.words[word] ^= 1;
  }
  m.words[3] ^= 1;
  CHECK(check_message(sent, 99) == message_is::another);
  CHECK(check_message(sent, 98) == message_is::right);
}
