// SPDX-License-Identifier: Apache-2.0
// S of direct plans within a budget, and how long what nobody reads stays, against replays of every S and every u, slot
// by slot and element by element.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <reshard/cost/choose_routing.hpp>
#include <reshard/cost/direct_stages.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>

#include "../support/any_tensors.hpp"
#include "../support/dice.hpp"
#include "../support/each_element.hpp"
#include "../support/refused.hpp"
#include "../support/tiny.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::any_tensors, testing::dice;
using testing::each_element;
using testing::element;

namespace {

/// What one device holds over the stages of a direct plan, counted element by element: what it sends or does not, what
/// is last read when, what comes when.
struct walked {
  bytes_t floor = 0, unread = 0;
  std::vector<bytes_t> live;  // in each stage, without what nobody reads

  template <typename Switch>
  walked(const Switch& change, rank_t device, index_t stages) : live(static_cast<std::size_t>(stages), 0) {
    const staged_plan p = stage_plan(make_plan(change, device), change, stages);
    const auto of = [&](const tensor_id& tensor) -> const family& { return change.to().family_at(tensor.family); };
    std::map<element, index_t> last;  // of FROM: -1 read by nobody, S retained
    std::map<element, bytes_t> width;
    bytes_t before = 0, after = 0, held = 0;
    for (const role r : roles) {
      const state_set states = change.states().of(r);
      if (states.empty()) continue;
      if (const rank_t rank = change.from_rank(device); rank >= 0)
        each_held(change.from(), rank, r, [&](int f, const family_box& b) {
          each_tensor(f, b, [&](const tensor_id& t, const box<3>& where) {
            each_element(of(t), states, t, where, [&](const element& e) {
              last[e] = -1, width[e] = reshard::width(change.list()[testing::state_of(e)].type);
            });
          });
        });
      if (const rank_t rank = change.to_rank(device); rank >= 0)
        each_held(change.to(), rank, r,
                  [&](int, const family_box& b) { after += b.volume() * states.bytes_per_element(); });
    }
    for (const auto& [e, w] : width) before += w;
    for (const staged_piece& piece : p.sends)
      each_element(of(piece.tensor), piece.states, piece.tensor, piece.where,
                   [&](const element& e) { last[e] = std::max(last[e], piece.stage); });
    for (const staged_piece& piece : p.retains)
      each_element(of(piece.tensor), piece.states, piece.tensor, piece.where,
                   [&](const element& e) { last[e] = stages; });
    std::vector<bytes_t> goes(live.size() + 1, 0);
    for (const auto& [e, stage] : last) {
      if (stage < 0) unread += width[e];
      else held += width[e], goes[static_cast<std::size_t>(stage)] += width[e];
    }
    for (const staged_piece& piece : p.creates) held += piece.bytes();
    for (std::size_t k = 0; k < live.size(); ++k) {
      for (const staged_piece& piece : p.receives)
        if (piece.stage == static_cast<index_t>(k)) held += piece.bytes();
      live[k] = held;
      held -= goes[k];
    }
    floor = std::max(before, after);
  }
  /// The largest with what nobody reads gone with the sources of stage u - 1.
  bytes_t peak(index_t u) const {
    bytes_t most = floor;
    for (std::size_t k = 0; k < live.size(); ++k)
      most = std::max(most, live[k] + (static_cast<index_t>(k) < u ? unread : 0));
    return most;
  }
};

struct seen_of {
  std::map<index_t, int> stages;
  int tried = 0, refused = 0, with_unread = 0, kept_none = 0, kept_some = 0, kept_all = 0;
};

template <typename Switch>
void check_budget(const Switch& change, bytes_t budget, seen_of& seen) {
  std::optional<index_t> wanted;
  std::vector<walked> at;
  bytes_t least_budget = -1, excess_of_wanted = 0;
  for (index_t stages = 1; stages <= 32 && !wanted; stages *= 2) {
    at.clear();
    bytes_t excess = 1;
    for (rank_t d = 0; d < change.devices(); ++d) {
      at.emplace_back(change, d, stages);
      excess = std::max(excess, at.back().peak(0) - at.back().floor);
    }
    least_budget = least_budget < 0 ? excess : std::min(least_budget, excess);
    if (excess <= budget) wanted = stages, excess_of_wanted = excess;
  }
  const interval all{0, change.devices()};
  const stages_found found = direct_stages(change, all, budget);
  if (!wanted) {
    CHECK((!found.kept || found.stages > 32));
    ++seen.refused;
    return;
  }
  REQUIRE(found.kept);
  REQUIRE(found.stages == *wanted);
  CHECK(std::max<bytes_t>(found.excess, 1) == excess_of_wanted);
  ++seen.tried, ++seen.stages[found.stages];
  const routing_choice chosen = choose_routing(change, {.when = relay_when::never, .budget = budget});
  CHECK(chosen.kept);
  CHECK(chosen.how.stages == found.stages);
  CHECK(chosen.excess <= budget);

  figure_collector figures(change, {.stages = found.stages}, 1, figures_of::whole_switch, sources::release, budget);
  std::optional<index_t> least_u;
  for (rank_t d = 0; d < change.devices(); ++d) {
    figures.add(make_plan(change, d));
    const walked& w = at[static_cast<std::size_t>(d)];
    if (w.unread == 0) continue;
    index_t u = found.stages;
    while (u > 0 && w.peak(u) > w.floor + budget) --u;  // the greatest that keeps it
    least_u = std::min(least_u.value_or(u), u);
    ++seen.with_unread;
    ++(u == 0 ? seen.kept_none : u == found.stages ? seen.kept_all : seen.kept_some);
  }
  CHECK(figures.figures().unread_kept == least_u);
}

}  // namespace

TEST_CASE("S is the least power of two whose replay keeps the budget, and u the greatest: by walking every element") {
  const model m = make_transformer(
      {.name = "small", .layers = 2, .hidden = 8, .heads = 4, .groups = 4, .head_dim = 2, .ffn = 4, .vocabulary = 8});
  const char* layouts[] = {"",     "tp=2", "pp=2",        "dp=2",      "dp=2,zero=1", "dp=4,zero=1",      "tp=2,pp=2",
                           "tp=4", "dp=4", "dp=3,zero=1", "tp=2,dp=2", "pp=2,dp=2",   "tp=2,dp=2,zero=1", "dp=3"};
  dice random(91);
  seen_of seen;
  const long wanted = testing::asked_for("RESHARD_SWITCHES", testing::tries(200));
  for (long i = 0; seen.tried < wanted && i < 100 * wanted; ++i) {
    const std::string a = layouts[random.below(std::size(layouts))], b = layouts[random.below(std::size(layouts))];
    const space from(m, parse_degrees(a)), to(m, parse_degrees(b));
    std::vector<rank_t> seats;  // of TO, in another order
    for (rank_t r = 0; r < to.ranks(); ++r) seats.insert(seats.begin() + random.below(r + 1), r);
    const computed_switch change(from, to, {.to = device_map(seats)});
    CAPTURE(a);
    CAPTURE(b);
    bytes_t excess = 0, unread = 0;  // in one stage
    for (rank_t d = 0; d < change.devices(); ++d) {
      const walked w(change, d, 1);
      excess = greatest(excess, w.peak(0) - w.floor), unread = greatest(unread, w.unread);
    }
    const bytes_t most = random.coin() ? excess : excess + unread;
    const bytes_t budget = random.within(1, greatest(1, most / (random.coin() ? 1 : 4)));
    CAPTURE(budget);
    check_budget(change, budget, seen);
  }
  std::printf("{\"switches\":%d,\"refused\":%d,\"devices_with_unread\":%d,\"u_0\":%d,\"u_between\":%d,\"u_S\":%d",
              seen.tried, seen.refused, seen.with_unread, seen.kept_none, seen.kept_some, seen.kept_all);
  for (const auto& [stages, times] : seen.stages) std::printf(",\"stages_%d\":%d", static_cast<int>(stages), times);
  std::printf("}\n");
  CHECK(seen.tried == wanted);
  CHECK_DRAWN(seen.stages.size() > 3);
  CHECK_DRAWN(seen.kept_none > 0);
  CHECK_DRAWN(seen.kept_some > 0);
  CHECK_DRAWN(seen.kept_all > 0);
}

TEST_CASE("one rank that moves to another device keeps its sources, or any budget, in one stage") {
  const space whole(testing::tiny(2), parse_degrees(""));
  const layout_switch change(whole, whole, {.to = device_map(std::vector<rank_t>{1})});
  CHECK(direct_stages(change, {0, 2}, 1, sources::keep).stages == 1);
  CHECK(direct_stages(change, {0, 2}, 1).stages == 1);
  CHECK(least_direct_budget(change, {0, 2}) == 1);
  CHECK(least_direct_budget(change, {2, 2}) == 1);  // nobody
  CHECK_REFUSED(static_cast<void>(direct_stages(change, {0, 2}, 0)), "a budget of 0 bytes; it must be at least 1");
}

TEST_CASE("a budget that no number of stages keeps, and the least that one does") {
  const space halves(testing::tiny(2), parse_degrees("tp=2"));
  const layout_switch change(halves, halves, {.to = device_map(std::vector<rank_t>{1, 0})});  // all of it swapped
  const interval all{0, 2};
  const bytes_t least_that_does = least_direct_budget(change, all);
  CHECK(least_that_does > 1);
  CHECK(direct_stages(change, all, least_that_does).kept);
  CHECK_FALSE(direct_stages(change, all, least_that_does - 1).kept);
  const routing_choice none = choose_routing(change, {.when = relay_when::never, .budget = least_that_does - 1});
  CHECK_FALSE(none.kept);
  CHECK(none.least_budget == least_that_does);
  const routing_choice named = choose_routing(change, {.when = relay_when::never, .stages = 3, .budget = 1});
  CHECK_FALSE(named.kept);
  CHECK(named.how.stages == 3);
  CHECK(named.least_budget == named.excess);
}

namespace {
/// Every device of a switch in a few numbers of stages: what it exceeds, and whether a budget is kept.
template <typename Switch>
void check_every_device(const Switch& change, int& above) {
  for (const index_t stages : {1, 3, 8}) {
    std::vector<bytes_t> excess;
    for (rank_t d = 0; d < change.devices(); ++d) {
      const walked w(change, d, stages);
      excess.push_back(w.peak(0) - w.floor);
      above += excess.back() > 0 ? 1 : 0;
      const direct_memory memory(change, d, sources::release);
      CHECK(memory.excess(stages) == excess.back());
      CHECK(memory.within(excess.back(), stages) == excess.back());
      CHECK(memory.within(excess.back() + 1, stages) == excess.back());
      if (excess.back() > 0) CHECK_FALSE(memory.within(excess.back() - 1, stages).has_value());
      const direct_memory kept(change, d, sources::keep);
      CHECK(kept.excess(stages) == 0);
      CHECK(kept.within(0, stages) == 0);
    }
    const rank_t begin = stages % change.devices(), end = std::min(change.devices(), begin + stages);
    CHECK(direct_excess(change, {begin, end}, stages) ==
          *std::max_element(&excess[static_cast<std::size_t>(begin)], excess.data() + end));
    CHECK(direct_excess(change, {begin, end}, stages, sources::keep) == 0);
    CHECK(direct_excess(change, {0, 0}, stages) == 0);
  }
}
}  // namespace

TEST_CASE("any tensors, lost ones among them: excess, S and u of every device, by walking every element") {
  dice random(92);
  seen_of seen;
  int above = 0, lost = 0, sought = 0;
  for (int n = 0; n < 40; ++n) {
    const any_tensors given(random, false);
    const auto change = given.change();
    check_every_device(change, above);
    const bytes_t most = greatest(1, direct_excess(change, {0, change.devices()}, 1));
    check_budget(change, random.within(1, most), seen);
    check_budget(change, most, seen);
    lost += lost_bytes(change) > 0 ? 1 : 0;
    if (random.below(4) != 0) continue;
    bytes_t least_of_all = direct_excess(change, {0, change.devices()}, 1);
    for (index_t stages = 2; stages <= 4096; stages *= 2)
      least_of_all = std::min(least_of_all, direct_excess(change, {0, change.devices()}, stages));
    CHECK(least_direct_budget(change, {0, change.devices()}) == std::max<bytes_t>(1, least_of_all));
    sought += least_of_all > 1 ? 1 : 0;
    if (least_of_all > 1) CHECK_FALSE(direct_stages(change, {0, change.devices()}, least_of_all - 1).kept);
    CHECK(direct_stages(change, {0, change.devices()}, std::max<bytes_t>(1, least_of_all)).kept);
  }
  std::printf("%d devices above both sides, %d switches with something lost, %d least budgets above 1\n", above, lost,
              sought);
  for (const int met : {above, seen.with_unread, seen.kept_some, seen.kept_all}) CHECK_DRAWN(met > 2);
  CHECK_DRAWN(lost > 2);
}
