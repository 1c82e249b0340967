// SPDX-License-Identifier: Apache-2.0
// Block, explicit cuts and replicated: the concept's law, each one's formula, and what they refuse.
#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include <reshard/algebra/distribution.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "distribution_law.hpp"

using namespace reshard;
using testing::check_distribution_law, testing::dice, testing::refused;

static_assert(Distribution<block> && Distribution<explicit_cuts<8>> && Distribution<replicated>);

namespace {
/// Block-cyclic, as a user would add it: the concept admits parts with several intervals.
struct cyclic {
  index_t length, count, size;
  constexpr index_t extent() const { return length; }
  constexpr index_t parts() const { return count; }
  template <typename Sink>
  constexpr void intervals(index_t p, Sink&& sink) const {
    for (index_t b = p * size; b < length; b += count * size) sink(interval{b, least(b + size, length)});
  }
  template <typename Sink>
  constexpr void owners(interval range, Sink&& sink) const {
    range = intersect(range, {0, length});
    if (range.empty()) return;
    for (index_t b = range.begin / size; b <= (range.end - 1) / size; ++b)
      sink(b % count, interval{b * size, least((b + 1) * size, length)});
  }
};
}  // namespace

TEST_CASE("block: part p owns [floor(p E / P), floor((p + 1) E / P)), and owner(x) is its inverse") {
  for (index_t extent = 0; extent <= 14; ++extent)
    for (index_t parts = 1; parts <= 9; ++parts) {
      CAPTURE(extent);
      CAPTURE(parts);
      const block d(extent, parts);
      check_distribution_law(d);
      for (index_t p = 0; p < parts; ++p) {
        CHECK(d.part(p) == interval{p * extent / parts, (p + 1) * extent / parts});
        for (index_t x = d.part(p).begin; x < d.part(p).end; ++x) CHECK(d.owner(x) == p);
      }
    }
}

TEST_CASE("block: an even cut of 2^62 is exact, though 2^62 x parts does not fit 64 bits") {
  const index_t quarter = index_t{1} << 60;
  const block d(4 * quarter, 4);
  CHECK(d.part(3) == interval{3 * quarter, 4 * quarter});
  CHECK(d.owner(0) == 0);
  CHECK(d.owner(quarter - 1) == 0);
  CHECK(d.owner(quarter) == 1);
  CHECK(d.owner(4 * quarter - 1) == 3);
  CHECK(block(4 * quarter, 2).owner(2 * quarter - 1) == 0);
  CHECK(block(4 * quarter, 2).owner(4 * quarter - 1) == 1);
  std::vector<std::pair<index_t, interval>> owned;
  d.owners({3 * quarter - 1, 4 * quarter}, [&](index_t p, interval i) { owned.emplace_back(p, i); });
  REQUIRE(owned.size() == 2);
  CHECK(owned[0].first == 2);
  CHECK(owned[0].second == interval{2 * quarter, 3 * quarter});
  CHECK(owned[1].first == 3);
  CHECK(owned[1].second == interval{3 * quarter, 4 * quarter});
}

TEST_CASE("explicit cuts: part p owns [point[p], point[p + 1]), also where parts are empty") {
  dice random;
  for (int n = 0; n < 60; ++n) {
    index_t points[6] = {};
    for (int i = 1; i < 6; ++i) points[i] = points[i - 1] + random.below(4);
    const explicit_cuts<8> d(points);
    CHECK(d.extent() == points[5]);
    CHECK(d.parts() == 5);
    check_distribution_law(d);
    for (index_t p = 0; p < 5; ++p) d.intervals(p, [&](interval i) { CHECK(i == interval{points[p], points[p + 1]}); });
  }
}

TEST_CASE("replicated: every part owns everything") {
  for (index_t extent = 0; extent <= 4; ++extent)
    for (index_t parts = 1; parts <= 4; ++parts) {
      check_distribution_law(replicated(extent, parts));
      for (index_t p = 0; p < parts; ++p)
        replicated(extent, parts).intervals(p, [&](interval i) { CHECK(i == interval{0, extent}); });
    }
}

TEST_CASE("the concept and its law hold for a distribution of one's own") {
  for (index_t extent = 0; extent <= 11; ++extent)
    for (index_t parts = 1; parts <= 4; ++parts)
      for (index_t size = 1; size <= 3; ++size) check_distribution_law(cyclic{extent, parts, size});
}

TEST_CASE("what distributions refuse") {
  CHECK(refused([] { block(-1, 2); }) == "reshard: block: an extent of -1 cannot be cut into 2 parts");
  CHECK(refused([] { block(4, 0); }) == "reshard: block: an extent of 4 cannot be cut into 0 parts");
  CHECK(refused([] { replicated(4, 0); }) == "reshard: replicated: an extent of 4 cannot be given to 0 parts");
  CHECK(refused([] {
          explicit_cuts<4>({0, 3, 2});
        }) == "reshard: explicit cuts: point 2 is 2, but points ascend from 0 and the one before is 3");
  CHECK(refused([] {
          explicit_cuts<4>({1, 3});
        }) == "reshard: explicit cuts: point 0 is 1, but points ascend from 0 and the one before is 0");
  CHECK(refused([] { explicit_cuts<4>({0, 3, 3}), block(0, 1), replicated(0, 1); }) == "accepted");
}
