// SPDX-License-Identifier: Apache-2.0
// Delimiters in a stretch of tokens against a look at every token: each width, each place in a block of 64 bytes and
// behind it, each bit that a token may differ in; and how many are told at once.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <reshard/job/detail/delimiter_scan.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using reshard::detail::delimiter_scan;
using testing::dice;

namespace {

constexpr index_t widths[] = {1, 2, 4, 8};

std::uint64_t greatest_token(index_t width) { return ~std::uint64_t{0} >> (64 - 8 * width); }

/// Tokens as they lie in memory, from a byte on that no wide load is aligned to.
std::vector<std::byte> laid_out(const std::vector<std::uint64_t>& tokens, index_t width) {
  std::vector<std::byte> bytes(1 + tokens.size() * static_cast<std::size_t>(width));
  for (std::size_t i = 0; i < bytes.size() - 1; ++i) {
    const auto token = i / static_cast<std::size_t>(width), byte = i % static_cast<std::size_t>(width);
    bytes[1 + i] = static_cast<std::byte>(tokens[token] >> 8 * byte);
  }
  return bytes;
}

/// The places that a scan tells, by calls.
std::vector<std::vector<std::uint32_t>> told(const std::vector<std::uint64_t>& tokens, const document_form& form) {
  std::vector<std::vector<std::uint32_t>> calls;
  const std::vector<std::byte> bytes = laid_out(tokens, form.width);
  delimiter_scan(form).each(bytes.data() + 1, tokens.size(), [&](const std::uint32_t* places, std::size_t found) {
    calls.emplace_back(places, places + found);
  });
  return calls;
}

/// All that are the delimiter, and none else, some at each call: no more than 512, and as many as surely fit.
void check_told(const std::vector<std::uint64_t>& tokens, const document_form& form) {
  std::vector<std::uint32_t> wanted, got;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] == form.delimiter) wanted.push_back(static_cast<std::uint32_t>(i));
  const auto block = static_cast<std::size_t>(64 / form.width);
  std::size_t wrong = 0, calls = 0;
  for (const std::vector<std::uint32_t>& call : told(tokens, form)) {
    got.insert(got.end(), call.begin(), call.end());
    ++calls;
    const bool last = got.size() == wanted.size();
    wrong += call.empty() || call.size() > 512 || (!last && call.size() + block <= 512) ? 1 : 0;
  }
  CAPTURE(form.width);
  CAPTURE(tokens.size());
  CHECK(wrong == 0);
  CHECK(got == wanted);
  if (wanted.size() <= 512 - block) CHECK(calls == (wanted.empty() ? 0 : 1));
}

}  // namespace

TEST_CASE("a delimiter is found wherever it lies, and no token is that differs in one bit or lies across two") {
  for (const index_t width : widths) {
    const std::uint64_t delimiter = 0x8140C0A05A3C0F69u & greatest_token(width);
    const std::uint64_t halves = delimiter >> 4 * width | delimiter << 4 * width,
                        across = halves & greatest_token(width);
    for (std::size_t count = 0; count <= 3 * 64 / static_cast<std::size_t>(width) + 1; ++count) {
      check_told(std::vector<std::uint64_t>(count, delimiter), {width, delimiter});
      if (width > 1) check_told(std::vector<std::uint64_t>(count, across), {width, delimiter});
      for (std::size_t at = 0; at < count; ++at) {
        std::vector<std::uint64_t> tokens(count,
                                          delimiter ^ std::uint64_t{1} << at % static_cast<std::size_t>(8 * width));
        tokens[at] = delimiter;
        check_told(tokens, {width, delimiter});
      }
    }
    for (index_t bit = 0; bit < 8 * width; ++bit)
      CHECK(told(std::vector<std::uint64_t>(100, delimiter ^ std::uint64_t{1} << bit), {width, delimiter}).empty());
    for (const std::uint64_t end : {std::uint64_t{0}, greatest_token(width)})
      check_told({end, 1, end, end ^ 1, greatest_token(width) - end, end}, {width, end});
  }
}

TEST_CASE("some hundreds are told at a time, in order, none twice") {
  dice random;
  for (const index_t width : widths) {
    const document_form form{width, 7};
    for (std::size_t first = 0; first <= 64; ++first) {  // so many in the first block, then all
      std::vector<std::uint64_t> tokens(1500, 7);
      std::fill_n(tokens.begin(), 64 - first, 8);
      check_told(tokens, form);
    }
    for (int i = 0; i < 20; ++i) {
      std::vector<std::uint64_t> tokens;
      const index_t dense = random.within(1, 100);
      for (index_t count = random.below(3000); count > 0; --count) tokens.push_back(random.below(100) < dense ? 7 : 9);
      check_told(tokens, form);
    }
  }
}

TEST_CASE("which forms there are: tokens of 1, 2, 4 or 8 bytes, and delimiters that fit them") {
  CHECK(document_form{} == document_form{1, '\n'});
  for (index_t width = -9; width <= 17; ++width) {
    const bool legal = width == 1 || width == 2 || width == 4 || width == 8;
    CHECK(testing::refused([&] {
            const delimiter_scan scan({width, 0});
          }) == (legal ? "accepted"
                       : "reshard: documents: tokens of " + std::to_string(width) + " bytes; they have 1, 2, 4 or 8"));
  }
  for (const index_t width : widths)
    for (index_t bits = 0; bits <= 64; ++bits) {
      const std::uint64_t delimiter = bits == 0 ? 0 : ~std::uint64_t{0} >> (64 - bits);
      CHECK(testing::refused([&] {
              const delimiter_scan scan({width, delimiter});
            }) == (bits <= 8 * width ? "accepted"
                                     : "reshard: documents: the delimiter " + std::to_string(delimiter) +
                                           " does not fit tokens of " + std::to_string(width) + " bytes"));
    }
}
