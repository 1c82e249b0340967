// SPDX-License-Identifier: Apache-2.0
// Numbers that stand for others: the mix against the published numbers of splitmix64, its inverse and its avalanche;
// digests against numbers that are the same on every machine, and against one another.
#include <doctest/doctest.h>

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <set>
#include <vector>

#include <reshard/base/digest.hpp>

using namespace reshard;

namespace {
/// The number whose product with an odd one is 1 modulo 2^64, by Newton.
constexpr std::uint64_t inverse_of(std::uint64_t odd) {
  std::uint64_t x = odd;
  for (int i = 0; i < 6; ++i) x *= 2 - odd * x;
  return x;
}
/// x of y = x ^ (x >> n): the highest n bits are known, and tell the next.
constexpr std::uint64_t unshifted(std::uint64_t y, int n) {
  std::uint64_t x = 0;
  for (int bit = 63; bit >= 0; --bit) x |= ((y >> bit & 1u) ^ (bit + n < 64 ? x >> (bit + n) & 1u : 0)) << bit;
  return x;
}
constexpr std::uint64_t unmixed(std::uint64_t y) {
  y = unshifted(y, 31) * inverse_of(0x94D049BB133111EBu);
  y = unshifted(y, 27) * inverse_of(0xBF58476D1CE4E5B9u);
  return unshifted(y, 30) - 0x9E3779B97F4A7C15u;
}
constexpr bool mixes_one_to_one() {
  for (std::uint64_t x = 1; x != 0; x *= 2)
    for (const std::uint64_t near : {x - 1, x, ~x})
      if (unmixed(mix64(near)) != near || mix64(unmixed(near)) != near) return false;
  return true;
}

constexpr std::uint64_t digest_of(std::initializer_list<std::int64_t> numbers) {
  digest d;
  for (const std::int64_t n : numbers) d.add(n);
  return d.value();
}
constexpr std::int64_t least_number = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t most_number = std::numeric_limits<std::int64_t>::max();
constexpr bool digests_are_those_of_every_machine() {
  return digest_of({}) == 0x243F6A8885A308D3u && digest_of({0}) == 0x2CB0F69F4ABEA221u &&
         digest_of({1, 2}) == 0xC7D360A7E6CCD4B8u && digest_of({2, 1}) == 0x09A538F355D4488Fu &&
         digest_of({-1}) == 0x4E68389F0748AA13u && digest_of({least_number, most_number}) == 0xF374B385A1BEB5B6u &&
         digest_of({3, 1, 4, 1, 5, 9, 2, 6}) == 0xA47A9E37039E42EBu;
}
static_assert(mixes_one_to_one());
static_assert(digests_are_those_of_every_machine());

/// Published vectors of FNV-1a, and a byte above 127; a text in two parts is the whole.
constexpr bool texts_are_hashed_as_published() {
  return fnv1a("") == 0xCBF29CE484222325u && fnv1a("a") == 0xAF63DC4C8601EC8Cu &&
         fnv1a("foobar") == 0x85944171F73967E8u && fnv1a("\xff") == 0xAF64724C8602EB6Eu &&
         fnv1a("bar", fnv1a("foo")) == fnv1a("foobar");
}
static_assert(texts_are_hashed_as_published());
}  // namespace

TEST_CASE("numbers are mixed as splitmix64 from 0 has been printed, and one to one") {
  std::uint64_t x = 0;
  for (const std::uint64_t printed :
       {0xE220A8397B1DCDAFu, 0x6E789E6AA1B965F4u, 0x06C45D188009454Fu, 0xF88BB8A8724C81ECu}) {
    CHECK(mix64(x) == printed);
    x += mixing_step;
  }
  CHECK(mix64(std::uint64_t{0} - mixing_step) == 0);
  CHECK(mixes_one_to_one());
}

TEST_CASE("texts are hashed as FNV-1a's authors print it") { CHECK(texts_are_hashed_as_published()); }

TEST_CASE("every bit of what is mixed depends on every bit: flipped, it flips about half of them") {
  int flipped[64][64] = {};
  for (std::uint64_t n = 0; n < 64; ++n)
    for (int in = 0; in < 64; ++in)
      for (int out = 0; out < 64; ++out)
        flipped[in][out] += static_cast<int>((mix64(n) ^ mix64(n ^ std::uint64_t{1} << in)) >> out & 1u);
  for (const auto& of_in : flipped)
    for (const int times : of_in) CHECK((times > 6 && times < 58));
}

TEST_CASE("a digest is the same on every machine, and another one for every list: of order, length, sign and zeros") {
  CHECK(digests_are_those_of_every_machine());
  const std::vector<std::int64_t> numbers{0, 1, 2, -1, std::int64_t{1} << 32, least_number, most_number};
  std::set<std::uint64_t> values{digest().value()};
  for (const std::int64_t a : numbers) {
    values.insert(digest_of({a}));
    for (const std::int64_t b : numbers) {
      values.insert(digest_of({a, b}));
      for (const std::int64_t c : numbers) values.insert(digest_of({a, b, c}));
    }
  }
  CHECK(values.size() == 1 + 7 + 49 + 343);
  digest one, other;
  one.add(7), other.add(7);
  CHECK(one == other);
  other.add(0);
  CHECK_FALSE(one == other);
}

TEST_CASE("a word at place i is mixed as the i-th step of splitmix64 from it") {
  CHECK(mix_word(0, 0) == 0xE220A8397B1DCDAFu);
  CHECK(mix_word(0, 1) == 0x6E789E6AA1B965F4u);
  CHECK(mix_word(0, 2) == 0x06C45D188009454Fu);
  CHECK(mix_word(1234567, 0) == 6457827717110365317u);
  CHECK(mix_word(1234567, 1) == 3203168211198807973u);
  CHECK(mix_word(1234567, 2) == 9817491932198370423u);
}
