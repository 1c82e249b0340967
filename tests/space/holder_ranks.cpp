// SPDX-License-Identifier: Apache-2.0
// Who holds the same shard, and the same slice of it: the ranks that a scan of the world finds, for random orders of
// ranks, instances, copies of embeddings and experts in dense buffers.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/detail/holder_ranks.hpp>

#include "../support/dice.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice;

namespace {
constexpr transformer sizes{.name = "m",
                            .layers = 12,
                            .hidden = 24,
                            .heads = 12,
                            .groups = 12,
                            .head_dim = 2,
                            .ffn = 24,
                            .vocabulary = 24,
                            .experts = 12,
                            .expert_ffn = 12};

model any_model(dice& random) {
  transformer t = sizes;
  t.tied = random.coin();
  if (random.below(3) == 0) t.experts = t.expert_ffn = 0;
  if (random.coin()) t.predictions = 1;
  return make_transformer(t);
}

degrees any_degrees(dice& random) {
  degrees d;
  for (index_t* degree : {&d.tp, &d.cp, &d.pp, &d.dp, &d.ep, &d.etp})
    if (random.below(3) > 0) *degree = random.within(1, 4);
  if (random.coin()) d.etp = 0;
  if (random.below(3) == 0) d.ep = 1, d.etp = d.tp;
  if (d.pp > 1 && random.coin()) d.vpp = random.within(1, 3);
  if (random.coin()) d.instances = random.within(1, 4);
  for (int i = random.below(4) == 0 ? 5 : 4; i > 1; --i)  // pp last, three times of four
    std::swap(d.order.axis[i - 1], d.order.axis[random.below(i)]);
  if (random.below(3) == 0) {  // 6 slices of 4 x 6 ranks: of neither axis alone
    d = {.tp = 2, .cp = 4, .pp = random.within(1, 2), .dp = 6};
    d.instances = 4;
    if (random.coin()) d.order.axis[0] = order_axis::cp, d.order.axis[1] = order_axis::tp;  // not side by side: lists
    else if (random.coin()) std::swap(d.order.axis[1], d.order.axis[3]);                    // dp before cp
  }
  if (random.below(6) == 0) d = {.tp = 2, .cp = 4, .dp = 2}, d.instances = 4;  // 2 slices: of every second along cp
  d.shard = random.coin() ? shard_by::rows : shard_by::buffers;
  return d;
}

/// Whether a rank's stage has a chunk with what chunk k has of a family.
bool stage_has(const space& s, int f, index_t k, rank_t rank) {
  for (index_t other = s.stage_of(rank); other < s.pipeline().chunks(); other += s.degrees().pp)
    if (s.family_at(f).place == home::layers ? other == k : s.pinned_to(f, other)) return true;
  return false;
}

std::vector<rank_t> ranks_in(const rank_product& all) {
  std::vector<rank_t> ranks;
  for (index_t i = 0; i < all.count(); ++i) ranks.push_back(all[i]);
  return ranks;
}

/// What each set of ranks says of itself: i-th, index, and how many are lower.
bool consistent(const rank_product& all, rank_t world) {
  index_t below = 0;
  for (rank_t r = 0; r < world; ++r) {
    if (all.count_below(r) != below || all.contains(r) != (below < all.count() && all[below] == r)) return false;
    if (all.index_of(r) != (all.contains(r) ? below : -1)) return false;
    below += all.contains(r) ? 1 : 0;
  }
  return below == all.count();
}
}  // namespace

namespace {
/// Whether a product's ranks are these, and what it says of each.
bool is(const rank_product& all, const std::vector<rank_t>& ranks, rank_t world) {
  return ranks_in(all) == ranks && consistent(all, world);
}

/// How often slices of a list, copied embeddings, slices of several ranks and of two axes as one were asked of.
struct asked_of {
  int lists = 0, copies = 0, of_several = 0, of_two_axes = 0;
};

/// Asks of what chunk k has of a family, of expert part e, tensor part t and slice i of it.
void check_holders(const space& s, const detail::holder_ranks& holders, int f, index_t k, index_t e, index_t t,
                   index_t i, asked_of& asked) {
  std::vector<rank_t> replicas, sharers, list;
  for (rank_t r = 0; r < s.ranks(); ++r) {
    if (!stage_has(s, f, k, r) || s.expert_index(f, r) != e) continue;
    if (s.tensor_parts(f) > 1 && s.tensor_index(f, r) != t) continue;
    replicas.push_back(r);
    if (s.shard_index(s.shard_kind(f), r) == i) sharers.push_back(r);
  }
  const rank_product whole = holders.replicas(s, f, k, e, t, list);
  CHECK(is(whole, replicas, s.ranks()));
  std::vector<index_t> stages;
  s.each_stage_holding(f, k, [&](index_t stage) { stages.push_back(stage); });
  const bool progress = stages.size() < 3 || stages[1] - stages[0] == stages[2] - stages[1];
  CHECK((whole.listed == nullptr) == progress);
  const rank_product of_slice = holders.sharers(s, f, k, e, t, i, list);
  CHECK(is(of_slice, sharers, s.ranks()));
  if (holders.lists_slices(s, f)) CHECK(of_slice.listed != nullptr);
  asked.lists += of_slice.listed != nullptr ? 1 : 0;
  asked.copies += s.shared_between_stages(f) ? 1 : 0;
  asked.of_several += sharers.size() > 1 ? 1 : 0;
  asked.of_two_axes += s.degrees().instances == 4 && s.degrees().dp == 6 && of_slice.listed == nullptr ? 1 : 0;
}
}  // namespace

TEST_CASE("replicas and sharers are the ranks that a scan of the world finds, ascending") {
  dice random;
  asked_of asked;
  int spaces = 0;
  for (int tried = 0; spaces < testing::tries(400) && tried < 100000; ++tried) {
    const model m = any_model(random);
    const degrees d = any_degrees(random);
    if (!is_legal(m, d) || d.world() > 128) continue;
    ++spaces;
    CAPTURE(to_text(d));
    const space s(m, d);
    const detail::holder_ranks holders(s);
    const int f = random.below(3) == 0 ? 0 : static_cast<int>(random.below(s.families()));
    for (index_t k = 0; k < s.pipeline().chunks(); ++k) {
      if (s.chunk_members(f, k).empty()) continue;
      const index_t e = random.below(s.expert_parts(f)), t = random.below(s.tensor_parts(f)),
                    i = random.below(s.shards(s.shard_kind(f)));
      check_holders(s, holders, f, k, e, t, i, asked);
    }
  }
  MESSAGE(spaces, " spaces; ", asked.lists, " lists, ", asked.copies, " of copied embeddings, ", asked.of_several,
          " slices of several ranks, ", asked.of_two_axes, " of two axes as one");
  CHECK(spaces >= testing::tries(400));
  for (const int met : {asked.lists, asked.copies, asked.of_several, asked.of_two_axes}) CHECK_DRAWN(met > 0);
}

TEST_CASE("of every kind of group, copy and expert all chunks, parts and slices are asked, one by one") {
  const struct {
    const char* layout;
    bool tied, predicts;
  } cases[] = {{"order=cp-tp-ep-dp-pp,tp=2,cp=4,pp=2,dp=6,instances=4", true, false},  // lists: 6 slices of 4, 6 apart
               {"tp=2,cp=4,pp=2,dp=6,instances=4", true, false},                       // side by side
               {"order=tp-dp-ep-cp-pp,tp=2,cp=4,pp=2,dp=6,instances=4", false, false},
               {"order=tp-dp-cp-ep-pp,tp=2,cp=3,pp=2,dp=4,instances=2", false, false},
               {"tp=2,cp=4,pp=2,dp=2,instances=4", false, false},                  // 2 slices: of every second along cp
               {"order=cp-tp-ep-dp-pp,tp=2,cp=4,dp=2,instances=4", false, false},  // and with tp between cp and dp
               {"order=cp-tp-ep-dp-pp,tp=2,cp=2,pp=2,dp=2", false, false},  // experts' tensor parts lie otherwise
               {"order=pp-tp-dp-ep-cp,tp=2,pp=2,dp=4,instances=2", false, false},
               {"tp=2,cp=2,pp=2,dp=3,ep=3,etp=2", false, false},
               {"tp=2,cp=2,pp=2,dp=3,ep=2,etp=3", false, false},
               {"order=tp-ep-cp-dp-pp,tp=2,cp=2,pp=2,dp=4,ep=4,etp=1,instances=2", false, false},
               {"tp=2,pp=3,vpp=2,dp=2", true, false},
               {"tp=2,pp=2,dp=2,string=Et*12m|L", false, true},     // the copy is on the embedding's stage
               {"tp=2,pp=3,dp=2,string=Et*6|t*6m|L", true, true},   // copies on stages 0, 1, 2
               {"tp=2,pp=4,dp=2,string=Et*6|t*6m||L", true, true},  // and on 0, 1, 3: a list
               {"order=cp-tp-ep-dp-pp,tp=2,cp=2,pp=4,dp=3,instances=3,string=Et*6|t*6m||L", true, true}};
  asked_of asked;
  for (const auto& c : cases) {
    CAPTURE(std::string(c.layout));
    transformer sized = sizes;
    sized.tied = c.tied, sized.predictions = c.predicts ? 1 : 0;
    const space s(make_transformer(sized), parse_degrees(c.layout));
    const detail::holder_ranks holders(s);
    for (int f = 0; f < s.families(); ++f) {
      const family& of = s.family_at(f);
      bool alike = false;  // to one before it, as far as its holders go
      for (int g = 0; g < f; ++g)
        alike = alike || (s.family_at(g).mesh == of.mesh && s.family_at(g).place == of.place &&
                          s.tensor_parts(g) == s.tensor_parts(f) && s.expert_parts(g) == s.expert_parts(f));
      for (index_t k = 0; k < s.pipeline().chunks() && !alike; ++k)
        for (index_t e = 0; e < s.expert_parts(f) && !s.chunk_members(f, k).empty(); ++e)
          for (index_t t = 0; t < s.tensor_parts(f); ++t)
            for (index_t i = 0; i < s.shards(s.shard_kind(f)); ++i) check_holders(s, holders, f, k, e, t, i, asked);
    }
  }
  for (const int met : {asked.lists, asked.copies, asked.of_several, asked.of_two_axes}) CHECK(met > 40);
}

namespace {
constexpr bool the_last_stage_shares_a_tied_embedding() {
  const model m = make_transformer({.name = "tied",
                                    .layers = 2,
                                    .hidden = 8,
                                    .heads = 2,
                                    .groups = 2,
                                    .head_dim = 4,
                                    .ffn = 8,
                                    .vocabulary = 8,
                                    .tied = true});
  degrees d;
  d.tp = 2, d.pp = 2, d.dp = 2, d.zero = 1;
  const space s(m, d);
  std::vector<rank_t> list;
  const rank_product all = detail::holder_ranks(s).replicas(s, 0, 0, 0, 1, list);
  const rank_product half = detail::holder_ranks(s).sharers(s, 0, 0, 0, 1, 1, list);
  return all.count() == 4 && all[0] == 1 && all[1] == 3 && all[2] == 5 && all[3] == 7 && half.count() == 2 &&
         half[0] == 3 && half[1] == 7;
}
static_assert(the_last_stage_shares_a_tied_embedding());
}  // namespace

TEST_CASE("by hand, at both times") { CHECK(the_last_stage_shares_a_tied_embedding()); }

TEST_CASE("the holders of slices are a product wherever the axes make one, and else a list") {
  const struct {
    const char* layout;
    bool dense, experts;  // listed
  } cases[] = {
      {"tp=2,cp=2,dp=2", false, false},
      {"order=cp-tp-ep-dp-pp,cp=2,dp=4,instances=2", false, false},       // one of cp, every second of dp
      {"order=cp-tp-ep-dp-pp,cp=4,dp=2,instances=4", false, false},       // every second of cp, all of dp
      {"cp=2,dp=3,instances=2", false, false},                            // every third of both as one, side by side
      {"order=cp-tp-ep-dp-pp,tp=2,cp=2,dp=3,instances=2", true, true},    // which these are not
      {"order=cp-tp-ep-dp-pp,tp=2,cp=2,dp=2", false, true},               // experts' tensor parts lie otherwise
      {"order=cp-tp-ep-dp-pp,cp=2,dp=2", false, false},                   // of one part
      {"order=tp-dp-cp-ep-pp,tp=2,cp=2,dp=3,instances=2", false, false},  // side by side, dp before cp
  };
  const model m = make_transformer(sizes);
  for (const auto& c : cases) {
    CAPTURE(std::string(c.layout));
    const space s(m, parse_degrees(c.layout));
    const detail::holder_ranks holders(s);
    for (int f = 0; f < s.families(); ++f) {
      const bool listed = s.family_at(f).mesh == mesh_kind::expert ? c.experts : c.dense;
      CHECK(holders.lists_slices(s, f) == listed);
      if (s.chunk_members(f, 0).empty()) continue;
      std::vector<rank_t> list;
      CHECK((holders.sharers(s, f, 0, 0, 0, 0, list).listed != nullptr) == listed);
    }
  }
}
