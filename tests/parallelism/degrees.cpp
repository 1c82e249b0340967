// SPDX-License-Identifier: Apache-2.0
// What follows from degrees as plain numbers: every combination of small ones, and products that leave 64 bits.
#include <doctest/doctest.h>

#include <range/v3/view/cartesian_product.hpp>
#include <range/v3/view/iota.hpp>

#include <reshard/parallelism/degrees.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using ranges::views::cartesian_product, ranges::views::closed_iota;

TEST_CASE("defaults: one of each, no ZeRO, an even split, one bucket, etp not named") {
  constexpr degrees d;
  static_assert(d.tp == 1 && d.cp == 1 && d.pp == 1 && d.vpp == 1 && d.dp == 1 && d.ep == 1);
  static_assert(d.etp == 0 && d.zero == 0 && d.bucket == 0 && d.split == pipeline_split::even);
  static_assert(d.world() == 1 && d.chunks() == 1 && d.expert_tp() == 1 && d.expert_dp() == 1 && !d.expert_buffers());
}

TEST_CASE("world, chunks, the experts' mesh and whether they have buffers of their own, for every small combination") {
  const auto to = [](index_t most) { return closed_iota(index_t{1}, most); };
  for (const auto [tp, cp, pp, dp, ep, etp] :
       cartesian_product(to(4), to(2), to(3), to(3), to(4), closed_iota(index_t{0}, index_t{4}))) {
    const degrees d{.tp = tp, .cp = cp, .pp = pp, .vpp = tp + 1, .dp = dp, .ep = ep, .etp = etp};
    CHECK(d.stage_ranks() == tp * cp * dp);
    CHECK(d.world() == tp * cp * dp * pp);
    CHECK(d.chunks() == pp * (tp + 1));
    index_t expert_tp = etp;
    if (etp == 0) expert_tp = ep == 1 ? tp : 1;  // 1 where ep > 1, else tp
    CHECK(d.expert_tp() == expert_tp);
    if (tp * cp * dp % (expert_tp * ep) == 0) CHECK(d.expert_dp() * expert_tp * ep == tp * cp * dp);
    CHECK(d.expert_buffers() == (ep > 1 || expert_tp != tp));
  }
}

TEST_CASE("equal degrees are equal in every one") {
  const degrees usual;
  int fields = 0;
  const auto differs = [&](auto field, auto value) {
    degrees other;
    other.*field = value;
    CHECK_FALSE(other == usual);
    ++fields;
  };
  for (index_t degrees::*field : {&degrees::tp, &degrees::cp, &degrees::pp, &degrees::vpp, &degrees::dp, &degrees::ep,
                                  &degrees::etp, &degrees::zero, &degrees::bucket})
    differs(field, index_t{2});
  differs(&degrees::split, pipeline_split::spread);
  CHECK(fields == 10);
  CHECK(usual == degrees{});
}

TEST_CASE("products that leave 64 bits are refused, whichever degrees make them") {
  const index_t large = index_t{1} << 32;
  for (const degrees& d :
       {degrees{.tp = large, .cp = large}, degrees{.cp = large, .dp = large}, degrees{.pp = large, .dp = large}})
    CHECK(testing::refused([&] { d.world(); }) == "reshard: 4294967296 x 4294967296 does not fit 64 bits");
  CHECK(testing::refused([&] { degrees{.pp = large, .vpp = large}.chunks(); }) ==
        "reshard: 4294967296 x 4294967296 does not fit 64 bits");
  CHECK(testing::refused([&] { degrees{.ep = large, .etp = large}.expert_dp(); }) ==
        "reshard: 4294967296 x 4294967296 does not fit 64 bits");
  CHECK(testing::refused([&] { degrees{.tp = large, .pp = large / 4}.world(); }) == "accepted");
}
