// SPDX-License-Identifier: Apache-2.0
// Blocks of pages: whose function gives them back, which bytes those are, and who commits.
#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include <reshard/memory/page_block.hpp>

using namespace reshard;

TEST_CASE("pages of a range are committed and given back by the range") {
  page_range range(6 * page_bytes);
  const page_block block{range.data(), 6, pages_are::reserved, &range, {}};
  CHECK(block.end() == range.data() + range.bytes());
  block.commit({1, 4});
  CHECK(range.resident_bytes() == 3 * page_bytes);
  range.data()[page_bytes] = range.data()[2 * page_bytes] = std::byte{5};
  block.release({2, 3});
  CHECK(range.resident_bytes() == 2 * page_bytes);
  CHECK(range.data()[page_bytes] == std::byte{5});
  block.release({0, 6});
  CHECK(range.resident_bytes() == 0);
}

TEST_CASE("pages that are committed beforehand are not committed again") {
  page_range range(2 * page_bytes);
  const page_block block{range.data(), 2, pages_are::committed, &range, {}};
  block.commit({0, 2});
  CHECK(range.resident_bytes() == 0);
}

TEST_CASE("memory of an owner's is given back by its function, by the byte, and committed by nobody") {
  page_range range(8 * page_bytes);
  std::vector<std::pair<std::byte*, bytes_t>> given;
  const page_block block{range.data() + page_bytes, 5, pages_are::reserved, nullptr,
                         [&](std::byte* at, bytes_t n) { given.emplace_back(at, n); }};
  CHECK(block.end() == range.data() + 6 * page_bytes);
  block.commit({0, 5});
  CHECK(range.resident_bytes() == 0);
  CHECK(given.empty());
  block.release({2, 5});
  CHECK(given == std::vector<std::pair<std::byte*, bytes_t>>{{range.data() + 3 * page_bytes, 3 * page_bytes}});
}
