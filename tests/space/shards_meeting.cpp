// SPDX-License-Identifier: Apache-2.0
// The shards that meet a box: of drawn boxes and layouts those of all chunks, pieces, expert and tensor parts, gone
// through one by one, that meet it; and a few by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/detail/shards_meeting.hpp>

#include "../support/dice.hpp"

using namespace reshard;
using testing::dice;

namespace {

struct met {
  index_t k;
  int p;
  index_t e, t;
  family_box where;

  friend bool operator==(const met&, const met&) = default;
  friend bool operator<(const met& a, const met& b) {
    return std::tuple(a.k, a.p, a.e, a.t) < std::tuple(b.k, b.p, b.e, b.t);
  }
};

model small(bool experts, bool tied = false) {
  return make_transformer({.name = "small",
                           .layers = 6,
                           .hidden = 16,
                           .heads = 8,
                           .groups = 2,
                           .head_dim = 2,
                           .ffn = 32,
                           .vocabulary = 32,
                           .tied = tied,
                           .experts = experts ? 4 : 0,
                           .expert_ffn = 16,
                           .dense_first = experts ? 1 : 0});
}

/// One query group and biases of q, k and v.
model one_group() {
  return make_transformer({.name = "one group",
                           .layers = 4,
                           .hidden = 16,
                           .heads = 8,
                           .groups = 1,
                           .head_dim = 4,
                           .ffn = 32,
                           .vocabulary = 32,
                           .qkv_bias = true});
}
/// The first and the last layer have experts.
model experts_at_both_ends() {
  const auto ends = [](index_t layer) { return layer == 0 || layer == 5; };
  return make_transformer({.name = "ends",
                           .layers = 6,
                           .hidden = 16,
                           .heads = 8,
                           .groups = 2,
                           .head_dim = 2,
                           .ffn = 32,
                           .vocabulary = 32,
                           .experts = 4,
                           .expert_ffn = 16},
                          ends);
}

std::vector<met> found(const space& s, int f, const family_box& within) {
  std::vector<met> all;
  detail::each_shard(s, f, within, [&](const detail::shard_at& at, const family_box& shard) {
    all.push_back({at.k, at.p, at.e, at.t, shard});
  });
  return all;
}
/// The same, gone through one by one; of an embedding the first copy alone.
std::vector<met> gone_through(const space& s, int f, const family_box& within) {
  std::vector<met> all;
  const index_t chunks = s.family_at(f).place == home::embedding ? 1 : s.pipeline().chunks();
  for (index_t k = 0; k < chunks; ++k)
    for (int p = 0; p < s.pieces(f); ++p)
      for (index_t e = 0; e < s.expert_parts(f); ++e)
        for (index_t t = 0; t < s.tensor_parts(f); ++t) {
          const family_box shard = s.shard_box(f, p, s.chunk_members(f, k), e, t);
          if (intersects(shard, within)) all.push_back({k, p, e, t, shard});
        }
  return all;
}
int family_of(const space& s, const std::string& end) {
  for (int f = 0; f < s.families(); ++f)
    if (s.family_at(f).name.ends_with(end)) return f;
  return -1;
}
interval drawn_part(dice& random, interval all) {
  const index_t a = random.within(all.begin, all.end - 1), b = random.within(all.begin, all.end - 1);
  return random.below(3) == 0 ? all : interval{std::min(a, b), std::max(a, b) + 1};
}

void check_drawn(const space& s, dice& random, int boxes, int& shards) {
  for (int f = 0; f < s.families(); ++f)
    for (int n = 0; n < boxes; ++n) {
      CAPTURE(s.family_at(f).name);
      if (s.cut_unevenly(f)) continue;
      family_box within = s.family_at(f).whole();
      for (interval& along : within.dim) along = drawn_part(random, along);
      std::vector<met> all = found(s, f, within);
      std::sort(all.begin(), all.end());
      CHECK(all == gone_through(s, f, within));
      shards += static_cast<int>(all.size());
    }
}

}  // namespace

TEST_CASE("drawn boxes of dense layouts meet the shards that they meet") {
  dice random(68);
  int shards = 0;
  for (const char* layout :
       {"", "dp=3", "tp=2", "tp=4", "tp=8", "pp=3", "pp=2,vpp=3,tp=2", "pp=4,split=account", "pp=8,split=account,tp=4",
        "pp=4,split=spread,tp=2", "names=hf,shard=rows", "names=hf,tp=2,shard=rows", "names=hf,tp=4,shard=rows",
        "names=hf,pp=2,tp=2,shard=rows,zero=1"}) {
    CAPTURE(layout);
    check_drawn(space(small(false), parse_degrees(layout)), random, testing::thrown(12), shards);
    check_drawn(space(small(false, true), parse_degrees(layout)), random, testing::thrown(4), shards);
  }
  for (const char* layout : {"pp=2", "pp=2,tp=2", "pp=4,string=Et||tttt|tL", "pp=4,tp=4,string=Et||tttt|tL"}) {
    CAPTURE(layout);
    for (const bool tied : {false, true})
      check_drawn(space(small(false, tied), parse_degrees(layout)), random, testing::thrown(12), shards);
  }
  for (const char* layout :
       {"tp=2", "tp=4,pp=2", "names=hf,shard=rows", "names=hf,shard=rows,tp=2", "names=hf,shard=rows,tp=4,pp=2"}) {
    CAPTURE(layout);
    check_drawn(space(one_group(), parse_degrees(layout)), random, testing::thrown(24), shards);
  }
  CHECK_DRAWN(shards > 3000);
}

TEST_CASE("drawn boxes of layouts with experts meet the shards that they meet") {
  dice random(69);
  int shards = 0;
  for (const char* layout :
       {"", "dp=2,ep=2", "tp=2,ep=2", "tp=4,ep=2,etp=2", "dp=4,ep=4,etp=1", "tp=2,dp=4,ep=4,etp=2,pp=2",
        "pp=3,tp=2,ep=1,etp=2", "pp=2,vpp=3,dp=2,ep=2", "pp=4,split=spread,dp=2,ep=2", "names=hf,dp=2,ep=2,shard=rows",
        "names=hf,tp=2,ep=2,etp=2,dp=2,shard=rows,experts=grouped"}) {
    CAPTURE(layout);
    check_drawn(space(small(true), parse_degrees(layout)), random, testing::thrown(12), shards);
  }
  for (const char* layout : {"pp=6", "pp=3,vpp=2,tp=2", "pp=6,dp=2,ep=2", "pp=6,tp=2,dp=2,ep=2,etp=2"}) {
    CAPTURE(layout);
    check_drawn(space(experts_at_both_ends(), parse_degrees(layout)), random, testing::thrown(12), shards);
  }
  CHECK_DRAWN(shards > 3000);
}

TEST_CASE("four parts of two query groups: each group is cut once more along its rows") {
  const space s(small(false), parse_degrees("tp=4,pp=2"));
  const int qkv = family_of(s, "linear_qkv.weight");
  REQUIRE(qkv >= 0);
  // layers 0-5 x 2 groups x 12 rows x 16 columns: part t has rows 6 (t mod 2) .. of group t / 2
  const family_box within{{{2, 4}, {0, 1}, {0, 2}, {5, 7}, {3, 4}}};
  std::vector<met> expected;
  for (const index_t k : {0, 1})
    for (const index_t t : {0, 1, 2, 3})
      expected.push_back(
          {k, 0, 0, t, {{{3 * k, 3 * k + 3}, {0, 1}, {t / 2, t / 2 + 1}, {t % 2 * 6, t % 2 * 6 + 6}, {0, 16}}}});
  CHECK(found(s, qkv, within) == expected);
  const family_box one{{{5, 6}, {0, 1}, {1, 2}, {0, 6}, {0, 16}}};
  CHECK(found(s, qkv, one) == std::vector<met>{expected[6]});
}

TEST_CASE("expert parts come before the tensor parts of each") {
  const space s(small(true), parse_degrees("tp=4,ep=2,etp=2"));
  const int fc2 = family_of(s, "experts.linear_fc2.weight{expert}");
  REQUIRE(fc2 >= 0);
  std::vector<met> expected;
  for (const index_t e : {0, 1})
    for (const index_t t : {0, 1})
      expected.push_back({0, 0, e, t, {{{0, 5}, {2 * e, 2 * e + 2}, {0, 1}, {0, 16}, {8 * t, 8 * t + 8}}}});
  CHECK(found(s, fc2, s.family_at(fc2).whole()) == expected);
  CHECK(found(s, fc2, {{{4, 5}, {2, 3}, {0, 1}, {0, 1}, {7, 8}}}) == std::vector<met>{expected[2]});
}
