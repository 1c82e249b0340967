// SPDX-License-Identifier: Apache-2.0
// Text of parts: words as they are, integers of any width in decimal, and numbers with a writer of their own.
#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <reshard/base/text.hpp>

using reshard::detail::joined;
using reshard::detail::text_of;
using reshard::detail::text_part;

TEST_CASE("parts stand one after the other, with nothing between them") {
  CHECK(text_of().empty());
  CHECK(text_of("a", std::string("b"), std::string_view("cd").substr(1), "e") == "abde");
  CHECK(text_of("", "x", "") == "x");
  CHECK(joined({"rank ", 3, std::string(" of FROM")}) == "rank 3 of FROM");
}

TEST_CASE("words are taken whole, with what C would end them at") {
  const std::string words("a\0b", 3);
  CHECK(text_of(words, words) == words + words);
}

TEST_CASE("integers of any width are written in decimal, with their sign") {
  CHECK(text_of(0, " ", -1, " ", 10u) == "0 -1 10");
  CHECK(text_of(std::numeric_limits<std::int64_t>::min()) == "-9223372036854775808");
  CHECK(text_of(std::numeric_limits<std::int64_t>::max()) == "9223372036854775807");
  CHECK(text_of(std::numeric_limits<std::uint64_t>::max()) == "18446744073709551615");
  CHECK(text_of(std::int8_t{-5}, ",", std::uint16_t{65535}) == "-5,65535");
}

TEST_CASE("a number may come with what writes it, which sees what stands before") {
  const auto stars = [](std::string& text, std::int64_t n) {
    text += text.empty() ? "none " : "then ";
    text.append(static_cast<std::size_t>(n), '*');
  };
  CHECK(text_of(text_part(3, stars), " ", text_part(1, stars)) == "none *** then *");
}
