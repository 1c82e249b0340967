// SPDX-License-Identifier: Apache-2.0
// The source formula and its inverse by brute force; the cut of a piece; and that no holder sends more parts than
// another by two.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <reshard/plan/detail/source.hpp>

#include "../support/dice.hpp"

using namespace reshard;

TEST_CASE("destinations_of_holder is { (k, q) : (k m + q) mod n == holder }") {
  for (index_t holders = 1; holders <= 13; ++holders)
    for (index_t parts = 0; parts <= 15; ++parts)
      for (const index_t destinations : {1, 2, 5, 12, 31})
        for (index_t holder = 0; holder < holders; ++holder) {
          std::set<std::pair<index_t, index_t>> found, wanted;
          destinations_of_holder(holder, holders, destinations, parts, [&](index_t k, index_t q) {
            CHECK(found.insert({k, q}).second);
          });
          for (index_t k = 0; k < destinations; ++k)
            for (index_t q = 0; q < parts; ++q)
              if (holder_of_part(k, q, parts, holders) == holder) wanted.insert({k, q});
          CHECK(found == wanted);
        }
}

TEST_CASE("the parts of a piece tile it; m = min(b ceil(min(n, 4) / b), E)") {
  testing::dice random(4);
  for (int n = 0; n < 2000; ++n) {
    family_box piece;
    for (interval& i : piece.dim) i.begin = random.below(5), i.end = i.begin + random.within(1, random.coin() ? 3 : 40);
    const index_t holders = random.within(1, 9), destinations = random.within(1, 9);
    const piece_cut cut =
        cut_piece(piece, family{.name = {}, .shape_ndim = random.coin() ? 1 : 2}, holders, destinations);
    const index_t b = holders / gcd(holders, destinations);
    CHECK(cut.parts == least(b * ceil_divide(least(holders, 4), b), piece.dim[cut.along].size()));
    index_t at = piece.dim[cut.along].begin;
    for (index_t q = 0; q < cut.parts; ++q) {
      const family_box part = cut.part(piece, q);
      CHECK_FALSE(part.empty());
      CHECK(part.dim[cut.along].begin == at);
      at = part.dim[cut.along].end;
    }
    CHECK(at == piece.dim[cut.along].end);
  }
  constexpr family_box layers{{{0, 16}, {0, 1}, {0, 1}, {0, 8}, {0, 64}}},
      rows{{{0, 15}, {0, 1}, {0, 1}, {0, 32}, {0, 64}}};
  constexpr family matrix{.name = "matrix", .shape_ndim = 2}, vector{.name = "vector", .shape_ndim = 1};
  static_assert(cut_piece(layers, matrix, 4, 1).along == axis_of::layer &&
                cut_piece(rows, matrix, 4, 1).along == axis_of::row);
  static_assert(cut_piece(rows, vector, 4, 1).along == axis_of::column);
}

TEST_CASE(
    "m as the contract has it: 4 parts at most but for what b needs, so that every destination meets the holders "
    "evenly") {
  const family_box large{{{0, 1000}, {0, 1}, {0, 1}, {0, 8}, {0, 64}}};
  constexpr family matrix{.name = "matrix", .shape_ndim = 2};
  const struct {
    index_t holders, destinations, parts;
  } cases[] = {{1, 5, 1}, {2, 1, 2}, {2, 2, 2}, {3, 1, 3}, {4, 1, 4},  {4, 4, 4}, {8, 8, 4},  {8, 4, 4},
               {8, 2, 4}, {8, 1, 8}, {6, 4, 6}, {6, 9, 4}, {16, 4, 4}, {5, 5, 4}, {12, 1, 12}};
  for (const auto& c : cases) {
    CAPTURE(c.holders);
    CAPTURE(c.destinations);
    CHECK(cut_piece(large, matrix, c.holders, c.destinations).parts == c.parts);
    std::vector<int> parts_of(static_cast<std::size_t>(c.holders), 0);
    for (index_t k = 0; k < c.destinations; ++k)
      for (index_t q = 0; q < c.parts; ++q)
        ++parts_of[static_cast<std::size_t>(holder_of_part(k, q, c.parts, c.holders))];
    CHECK(*std::max_element(parts_of.begin(), parts_of.end()) - *std::min_element(parts_of.begin(), parts_of.end()) <=
          1);
    if (c.holders % c.destinations == 0 || c.destinations % c.holders == 0) CHECK(parts_of.front() == parts_of.back());
  }
}

TEST_CASE(
    "the cut is along layers where they are 4 m or more, else along the longest axis but the last; a vector has one "
    "axis") {
  constexpr family matrix{.name = "matrix", .shape_ndim = 2}, vector{.name = "vector", .shape_ndim = 1};
  const auto along = [](index_t layers, index_t experts, index_t parts, index_t rows, index_t columns,
                        const family& of) {
    return cut_piece({{{0, layers}, {0, experts}, {0, parts}, {0, rows}, {0, columns}}}, of, 4, 1).along;
  };
  CHECK(along(16, 1, 1, 999, 999, matrix) == axis_of::layer);
  CHECK(along(15, 1, 1, 999, 999, matrix) == axis_of::row);
  CHECK(along(15, 1, 1, 14, 999, matrix) == axis_of::layer);  // still the longest but the last
  CHECK(along(3, 8, 2, 7, 999, matrix) == axis_of::expert);
  CHECK(along(1, 1, 2, 1, 999, matrix) == axis_of::part);
  CHECK(along(3, 3, 3, 3, 999, matrix) == axis_of::layer);  // of equals the first
  CHECK(along(16, 1, 1, 1, 999, vector) == axis_of::layer);
  CHECK(along(15, 1, 1, 1, 2, vector) == axis_of::column);
  CHECK(cut_piece({{{0, 1}, {0, 1}, {0, 1}, {0, 3}, {0, 9}}}, matrix, 8, 1).parts == 3);  // no more parts than rows
}
