// SPDX-License-Identifier: Apache-2.0
// Device maps: the inverse, ranges of devices, and what is refused; the source formula and its inverse by brute force.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <vector>

#include <reshard/plan/device_map.hpp>
#include <reshard/plan/source.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;

TEST_CASE("rank_of inverts device_of, and ranks_on is the preimage of a range") {
  testing::dice random(3);
  for (int n = 0; n < 300; ++n) {
    const rank_t ranks = random.within(1, 20), world = ranks + random.below(20);
    std::vector<rank_t> devices;
    for (rank_t d = 0; d < world; ++d) devices.push_back(d);
    for (rank_t i = world - 1; i > 0; --i)
      if (random.below(n % 4 + 1) != 0) std::swap(devices[static_cast<std::size_t>(i)], devices[static_cast<std::size_t>(random.below(i + 1))]);
    devices.resize(static_cast<std::size_t>(ranks));
    const device_map map(devices);
    CHECK(map.ranks() == ranks);
    CHECK(map.devices() == *std::max_element(devices.begin(), devices.end()) + 1);
    for (rank_t d = -1; d <= world; ++d) {
      const auto at = std::find(devices.begin(), devices.end(), d);
      CHECK(map.rank_of(d) == (at == devices.end() ? -1 : at - devices.begin()));
    }
    for (rank_t r = 0; r < ranks; ++r) CHECK(map.device_of(r) == devices[static_cast<std::size_t>(r)]);
    const interval range{random.below(world), random.within(0, world)};
    std::vector<interval> found;
    map.ranks_on(range, found);
    std::vector<rank_t> listed, wanted;
    for (const interval& i : found)
      for (rank_t r = i.begin; r < i.end; ++r) listed.push_back(r);
    for (rank_t r = 0; r < ranks; ++r)
      if (range.contains(devices[static_cast<std::size_t>(r)])) wanted.push_back(r);
    CHECK(listed == wanted);
  }
  CHECK(device_map(std::vector<rank_t>{0, 1, 2}).identity());
  CHECK_REFUSED((device_map(std::vector<rank_t>{0, 3, 1, 3})), "device map: device 3 is given to two ranks");
  CHECK_REFUSED((device_map(std::vector<rank_t>{0, -1})), "device map: rank 1 is on device -1, but devices count from 0");
}

TEST_CASE("destinations_of_holder is { (k, q) : (k m + q) mod n == holder }") {
  for (index_t holders = 1; holders <= 13; ++holders)
    for (index_t parts = 1; parts <= 15; ++parts)
      for (const index_t destinations : {1, 2, 5, 12, 31})
        for (index_t holder = 0; holder < holders; ++holder) {
          std::set<std::pair<index_t, index_t>> found, wanted;
          destinations_of_holder(holder, holders, destinations, parts, [&](index_t k, index_t q) { CHECK(found.insert({k, q}).second); });
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
    const piece_cut cut = cut_piece(piece, family{.name = {}, .shape_ndim = random.coin() ? 1 : 2}, holders, destinations);
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
  constexpr family_box layers{{{0, 16}, {0, 1}, {0, 1}, {0, 8}, {0, 64}}}, rows{{{0, 15}, {0, 1}, {0, 1}, {0, 32}, {0, 64}}};
  constexpr family matrix{.name = "matrix", .shape_ndim = 2}, vector{.name = "vector", .shape_ndim = 1};
  static_assert(cut_piece(layers, matrix, 4, 1).along == axis_of::layer && cut_piece(rows, matrix, 4, 1).along == axis_of::row);
  static_assert(cut_piece(rows, vector, 4, 1).along == axis_of::column);
}
