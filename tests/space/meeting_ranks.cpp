// SPDX-License-Identifier: Apache-2.0
// Which ranks can meet: no element of a stretch of ranks is ever with a rank that is left out, for random layouts
// with chunks of every size, copies, and stages that are spread; and how close the bound is, by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <reshard/algebra/box.hpp>
#include <reshard/model/presets.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/living_holding.hpp>
#include <reshard/space/meeting_ranks.hpp>

#include "../support/dice.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using detail::meeting_ranks;
using detail::meeting_ranks_of;
using testing::dice;

namespace {

/// What a switch is to have, by turns, so that few of them have all.
enum feature { plain, copies, interleaved, spread, uneven, features };

model some_model(dice& random, int wanted) {
  return make_transformer({.name = "m",
                           .layers = 8,
                           .hidden = 8,
                           .heads = 4,
                           .groups = 4,
                           .head_dim = 2,
                           .ffn = 8,
                           .vocabulary = 8,
                           .tied = wanted == copies,
                           .experts = random.coin() ? 4 : 0,
                           .expert_ffn = 8,
                           .dense_first = random.below(3),
                           .predictions = wanted == copies || wanted == uneven ? 0 : random.below(2)});
}

constexpr const char* uneven_layouts[] = {
    "pp=2,string=Ett|ttttttL", "tp=2,pp=2,zero=1,string=Ettttttt|tL",      "pp=4,string=Et||ttttt|ttL",
    "pp=3,split=spread,dp=2",  "pp=5,split=spread,dp=2,zero=1,shard=rows", "pp=2,vpp=5,split=account",
    "pp=3,first=1,last=1",     "pp=3,split=account_embedding,tp=2"};

degrees some_degrees(dice& random, int wanted) {
  if (wanted == uneven && random.below(3) > 0)
    return parse_degrees(uneven_layouts[random.below(std::size(uneven_layouts))]);
  degrees d;
  d.tp = random.within(1, 2), d.cp = random.within(1, 2), d.dp = random.within(1, 2);
  d.pp = random.within(wanted == plain ? 1 : 2, 4);
  if (wanted == interleaved) d.pp = random.coin() ? 2 : 4, d.vpp = 2;
  if (wanted == spread) d.dp = 2, std::swap(d.order.axis[4], d.order.axis[random.below(4)]);
  d.zero = static_cast<int>(random.below(2));
  return d;
}

/// Whether two ranks have an element in common, by going through all that they have.
bool meet(const computed_holding& a, rank_t rank, const computed_holding& b, rank_t other) {
  bool found = false;
  for (const role r : {role::parameter, role::optimizer, role::statistic})
    each_held(a, rank, r, [&](int f, const family_box& mine) {
      b.held(f, other, r, [&](int, const family_box& theirs) { found = found || intersects(mine, theirs); });
    });
  return found;
}

meeting_ranks of(const char* a, rank_t rank, const char* b) {
  const auto holding = [](const char* text) {
    return computed_holding(space(models::llama2_7b, parse_degrees(text)), parameter_states);
  };
  return meeting_ranks_of(holding(a), rank, holding(b));
}

}  // namespace

TEST_CASE("no rank outside has an element of the stretch, and a rank is in its own stretch") {
  dice random(1);
  int switches = 0, met = 0, bounded = 0, tight = 0, tied = 0, of_chunks = 0, not_last = 0, not_even = 0;
  for (int tried = 0; switches < testing::tries(150) && tried < 100000; ++tried) {
    const int wanted = switches % features;
    const model m = some_model(random, wanted);
    const degrees from = some_degrees(random, wanted), to = some_degrees(random, wanted == spread ? plain : wanted);
    if (!is_legal(m, from) || !is_legal(m, to)) continue;
    ++switches;
    CAPTURE(to_text(from));
    CAPTURE(to_text(to));
    const computed_holding a(space(m, from)), b(space(m, to));
    for (rank_t rank = 0; rank < a.ranks(); ++rank) {
      const meeting_ranks bound = meeting_ranks_of(a, rank, b);
      CHECK(bound.of.contains(rank));
      CHECK(interval{0, a.ranks()}.contains(bound.of));
      CHECK(interval{0, b.ranks()}.contains(bound.with));
      CHECK(meeting_ranks_of(a, bound.of.end - 1, b) == bound);
      rank_t lowest = b.ranks(), highest = -1;
      for (rank_t other = 0; other < b.ranks(); ++other) {
        if (!meet(a, rank, b, other)) continue;
        ++met;
        CHECK(bound.with.contains(other));
        lowest = std::min(lowest, other), highest = other;
      }
      bounded += bound.with.size() < b.ranks() ? 1 : 0;
      tight += bound.with.size() < b.ranks() && lowest - bound.with.begin < b.space().stage_ranks() &&
                       bound.with.end - 1 - highest < b.space().stage_ranks()
                   ? 1
                   : 0;
    }
    tied += m.shape.tied && from.pp > 1 && to.pp > 1 ? 1 : 0;
    not_even += wanted == uneven ? 1 : 0;
    of_chunks += from.vpp > 1 || to.vpp > 1 ? 1 : 0;
    not_last += a.space().first_rank(1) != a.space().stage_ranks() && from.pp > 1 ? 1 : 0;
  }
  MESSAGE(not_even, " uneven of ", switches, " switches, ", met, " pairs that meet; ", bounded, " bounds, ", tight,
          " of them tight; ", tied, " with copies, ", of_chunks, " interleaved, ", not_last,
          " whose stages do not lie side by side");
  CHECK(switches >= testing::tries(150));
  CHECK_DRAWN(2 * tight > bounded);
  for (const int times : {bounded, tied, of_chunks, not_last, not_even}) CHECK_DRAWN(times > testing::tries(150) / 20);
}

TEST_CASE("by hand: stages whose layers overlap, all ranks where a stage is spread, or where nothing is known") {
  CHECK(of("tp=2,pp=4", 0, "tp=4,pp=8") == meeting_ranks{{0, 2}, {0, 8}});
  CHECK(of("tp=2,pp=4", 5, "tp=4,pp=8") == meeting_ranks{{4, 6}, {16, 24}});
  CHECK(of("tp=4,pp=8", 31, "tp=2,pp=4") == meeting_ranks{{28, 32}, {6, 8}});
  CHECK(of("tp=2,pp=4,vpp=2", 2, "pp=8,dp=2") == meeting_ranks{{2, 4}, {2, 12}});
  CHECK(of("tp=8", 3, "pp=4") == meeting_ranks{{0, 8}, {0, 4}});
  CHECK(of("tp=2,pp=2,dp=2,order=tp-cp-pp-dp-ep", 1, "pp=4") == meeting_ranks{{0, 8}, {0, 4}});
  CHECK(of("pp=4", 1, "tp=2,pp=2,dp=2,order=tp-cp-pp-dp-ep") == meeting_ranks{{0, 4}, {0, 8}});
  const computed_holding known(space(models::llama2_7b, parse_degrees("pp=4")), parameter_states);
  CHECK(meeting_ranks_of(known, 1, living_holding(known, {{0, 1}})) == meeting_ranks{{0, 4}, {0, 4}});
}

namespace {
constexpr meeting_ranks of_a_stage_with_itself(rank_t rank, bool tied) {
  const model m = make_transformer({.name = "small",
                                    .layers = 4,
                                    .hidden = 8,
                                    .heads = 2,
                                    .groups = 2,
                                    .head_dim = 4,
                                    .ffn = 8,
                                    .vocabulary = 8,
                                    .tied = tied});
  degrees four;
  four.pp = 4;
  const computed_holding h(space(m, four), parameter_states);
  return meeting_ranks_of(h, rank, h);
}
static_assert(of_a_stage_with_itself(1, false) == meeting_ranks{{1, 2}, {1, 2}});
static_assert(of_a_stage_with_itself(3, false) == meeting_ranks{{3, 4}, {3, 4}});
}  // namespace

TEST_CASE("chunks that do not meet at the same layers, and a stage without layers") {
  const model m = make_transformer(
      {.name = "m", .layers = 8, .hidden = 8, .heads = 4, .groups = 4, .head_dim = 2, .ffn = 8, .vocabulary = 8});
  const auto between = [&](const char* a, rank_t rank, const char* b) {
    const auto holding = [&](const char* text) {
      return computed_holding(space(m, parse_degrees(text)), parameter_states);
    };
    return meeting_ranks_of(holding(a), rank, holding(b));
  };
  CHECK(between("tp=2,pp=2,string=Ett|ttttttL", 1, "pp=4,vpp=2") == meeting_ranks{{0, 2}, {0, 2}});
  CHECK(between("tp=2,pp=2,string=Ett|ttttttL", 2, "pp=4,vpp=2") == meeting_ranks{{2, 4}, {0, 4}});
  CHECK(between("pp=4,string=Et||ttttt|ttL", 1, "pp=4") == meeting_ranks{{1, 2}, {0, 0}});
  CHECK(between("pp=4,string=Et||ttttt|ttL", 2, "pp=4,tp=2") == meeting_ranks{{2, 3}, {0, 6}});
  CHECK(between("pp=4", 1, "pp=4,string=Et||ttttt|ttL") == meeting_ranks{{1, 2}, {2, 3}});
}

TEST_CASE("a tied embedding is on the last stage too; the first two cases at both times") {
  CHECK(of_a_stage_with_itself(1, false) == meeting_ranks{{1, 2}, {1, 2}});
  CHECK(of_a_stage_with_itself(3, false) == meeting_ranks{{3, 4}, {3, 4}});
  CHECK(of_a_stage_with_itself(0, true) == meeting_ranks{{0, 1}, {0, 4}});
  CHECK(of_a_stage_with_itself(1, true) == meeting_ranks{{1, 2}, {1, 2}});
  CHECK(of_a_stage_with_itself(3, true) == meeting_ranks{{3, 4}, {0, 4}});
}
