// SPDX-License-Identifier: Apache-2.0
// held() and owners() at the sizes of published models, worlds of up to 65,536 ranks: the same law as in
// law/regions.cpp, on ranks and boxes chosen at random, since no scan could ask them all.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/cover.hpp>

#include "../support/dice.hpp"
#include "../support/points.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using testing::dice, testing::refused;

namespace {
/// Degrees that the model admits, most of them powers of two.
degrees random_degrees(dice& random, const model& m) {
  while (true) {
    const auto power = [&](index_t most) { return index_t{1} << random.below(most + 1); };
    degrees d{.tp = power(5),
              .cp = random.below(3) == 0 ? power(2) : 1,
              .pp = power(4),
              .dp = random.within(1, 3) * power(6)};
    if (random.below(3) == 0) d.pp = random.within(1, 20);
    if (random.below(3) == 0) d.vpp = random.within(2, 5);
    if (m.shape.experts > 0) d.ep = power(7), d.etp = random.coin() ? 0 : power(3);
    d.zero = random.below(3) == 0 ? 0 : 1;
    d.split = static_cast<pipeline_split>(random.below(3));
    if (random.coin()) d.bucket = random.within(1, 60) * 1'000'000;
    if (refused([&] { require_legal(m, d); }) == "accepted" && d.world() <= 65536) return d;
  }
}

/// Each box of a rank, asked for by itself, comes back once, with the holders that held() told, this rank among them.
void check_boxes_of(const computed_holding& h, rank_t rank, role r, index_t& asked) {
  each_shared(h, rank, r, [&](int f, const family_box& held, const rank_product& holders) {
    CAPTURE(testing::text(held));
    CHECK(h.family_at(f).whole().contains(held));
    CHECK(holders.contains(rank));
    int met = 0;
    h.owners(f, r, held, [&](const family_box& b, const rank_product& owners) {
      ++met;
      CHECK(b == held);
      CHECK(owners.count() == holders.count());
      for (index_t i = 0; i < owners.count(); i += greatest(1, owners.count() / 8)) CHECK(owners[i] == holders[i]);
    });
    CHECK(met == 1);
    ++asked;
  });
}

/// The owners of a box cover it exactly, and each one's holders hold that box.
void check_owners_of(dice& random, const computed_holding& h, int f, role r) {
  family_box within = testing::random_part(random, h.family_at(f).extent);
  for (const int i : {axis_of::row, axis_of::column})  // a slice: a whole matrix in shards has many owners
    if (within.dim[i].size() > 64) within.dim[i].end = within.dim[i].begin + random.within(1, 64);
  for (const int i : {axis_of::layer, axis_of::expert})
    if (within.dim[i].size() > 3) within.dim[i].end = within.dim[i].begin + 3;
  CAPTURE(testing::text(within));
  std::vector<family_box> boxes;
  index_t elements = 0;
  h.owners(f, r, within, [&](const family_box& b, const rank_product& owners) {
    elements += intersect(b, within).volume();
    for (const family_box& other : boxes) CHECK_FALSE(intersects(b, other));
    boxes.push_back(b);
    if (random.below(static_cast<index_t>(boxes.size())) > 3) return;  // a sample of them
    int found = 0;
    h.held(f, owners[random.below(owners.count())], r,
           [&](int, const family_box& held) { found += held == b ? 1 : 0; });
    CHECK(found == 1);
  });
  CHECK(elements == within.volume());
}
}  // namespace

TEST_CASE("published models in large worlds: every box is owned by those who hold it") {
  dice random;
  index_t asked = 0;
  rank_t largest = 0;
  for (int n = 0; n < 240; ++n) {
    const model m = make_transformer(models::presets[random.below(std::size(models::presets))]);
    const degrees d = random_degrees(random, m);
    CAPTURE(std::string(m.name));
    CAPTURE(to_text(d));
    const space s(m, d);
    const computed_holding h(s);
    largest = greatest(largest, s.ranks());
    for (const role r : roles)
      for (int times = 0; times < 3; ++times) {
        const rank_t rank = random.below(s.ranks());
        CAPTURE(rank);
        check_boxes_of(h, rank, r, asked);
        const int f = static_cast<int>(random.below(s.families()));
        if (has_states_of(s.family_at(f).kind, r)) check_owners_of(random, h, f, r);
      }
  }
  std::printf("%lld boxes asked for, in worlds of up to %lld ranks\n", static_cast<long long>(asked),
              static_cast<long long>(largest));
  CHECK_DRAWN(asked > 10000);
  CHECK_DRAWN(largest > 16384);
}
