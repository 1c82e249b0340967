// SPDX-License-Identifier: Apache-2.0
// Switches over any_holding: plans, stages, figures and refusals of random switches between computed and listed
// layouts, some without lost devices, some with relay, are those of switches over the layouts themselves.
#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <reshard/cost/choose_routing.hpp>
#include <reshard/cost/dynatrain_policy.hpp>
#include <reshard/cost/simulate.hpp>
#include <reshard/cost/switch_bytes.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/relabel.hpp>
#include <reshard/plan/relay.hpp>
#include <reshard/plan/unread.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/schedule/staged_plan.hpp>

#include "../support/dice.hpp"
#include "../support/drawn_layouts.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using testing::dice;
using testing::refused;

static_assert(
    std::is_same_v<decltype(layout_switch(std::declval<any_holding&>(), std::declval<any_holding>())), any_switch>);

namespace {

struct drawn_sides {
  model m;
  std::string text;
  computed_holding from, to;
};

drawn_sides draw_sides(dice& random) {
  const bool experts = random.coin();
  const model m = testing::drawn_model(experts);
  const std::string from = testing::drawn_layout(random, experts), to = testing::drawn_layout(random, experts);
  return {m, from + " to " + to, computed_holding(space(m, parse_degrees(from))),
          computed_holding(space(m, parse_degrees(to)))};
}

struct seen {
  int sent = 0, relayed = 0, lost = 0, kept_apart = 0;
};

/// What every device plans, with relay and in stages; the sentence where it is refused.
template <Holding From, Holding To>
std::vector<std::string> plans_of(const layout_switch<From, To>& change, std::vector<plan>& plans) {
  std::vector<std::string> sentences;
  for (rank_t device = 0; device < change.devices(); ++device) {
    sentences.push_back(refused([&] { plans.push_back(make_plan(change, device)); }));
    if (change.node_devices() > 0 && sentences.back() == "accepted")
      plans.push_back(make_plan(change, device, routing{relay::always, 2, 1}));
  }
  return sentences;
}

template <Holding From, Holding To>
void check_alike(const layout_switch<From, To>& change, const any_switch& any, seen& of) {
  std::vector<plan> wanted, found;
  CHECK(plans_of(any, found) == plans_of(change, wanted));
  REQUIRE(found.size() == wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i] == wanted[i]);
    CHECK(stage_plan(found[i], any, 3).receives == stage_plan(wanted[i], change, 3).receives);
    of.sent += found[i].sends.empty() ? 0 : 1;
    of.lost += found[i].lost.empty() ? 0 : 1;
    for (const transfer& t : found[i].receives) of.relayed += t.why == purpose::passed_on ? 1 : 0;
  }
  switch_volume volume, volume_over_any;
  CHECK(refused([&] { volume_over_any = volume_of(any); }) == refused([&] { volume = volume_of(change); }));
  CHECK(volume_over_any == volume);
  CHECK(lost_bytes(any) == lost_bytes(change));
  CHECK(refused([&] { require_nothing_missing(any); }) == refused([&] { require_nothing_missing(change); }));
}

/// Both sides as they are, or listed.
void check_kinds(const drawn_sides& sides, const placement& placed, seen& of) {
  const tensor_table table(sides.m);
  const auto listed = [&](const computed_holding& h) { return listed_holding(table, testing::listed(h), h.ranks()); };
  check_alike(layout_switch(sides.from, sides.to, placed), any_switch(sides.from, sides.to, placed), of);
  const listed_holding from = listed(sides.from), to = listed(sides.to);
  check_alike(layout_switch(from, sides.to, placed), any_switch(from, sides.to, placed), of);
  check_alike(layout_switch(sides.from, to, placed), any_switch(sides.from, to, placed), of);
  check_alike(layout_switch(from, to, placed), any_switch(any_holding(from), any_holding(to), placed), of);
}

}  // namespace

TEST_CASE("plans over any_holding are those over what it holds") {
  dice random(41);
  seen of;
  for (int n = 0; n < testing::thrown(40); ++n) {
    const drawn_sides sides = draw_sides(random);
    CAPTURE(sides.text);
    placement placed;
    if (n % 2 == 0) placed.on = nodes_of(2);
    if (n % 3 == 0) {  // FROM beside TO, and its first ranks are lost
      std::vector<rank_t> beside;
      for (rank_t r = 0; r < sides.to.ranks(); ++r) beside.push_back(sides.from.ranks() + r);
      placed.to = device_map(beside);
      placed.lost = {0};
      if (sides.from.ranks() > 2) placed.lost.push_back(2);
      if (n % 2 == 0) placed.lost_elements = when_lost::leave_out;
    }
    if (n % 4 == 0) check_kinds(sides, placed, of);
    else check_alike(layout_switch(sides.from, sides.to, placed), any_switch(sides.from, sides.to, placed), of);
  }
  CHECK_DRAWN(of.sent > 300);
  CHECK_DRAWN(of.relayed > 30);
  CHECK_DRAWN(of.lost > 10);
}

TEST_CASE("of living ranks, too: what relay goes by is all holders, with those that are lost") {
  dice random(43);
  int relayed = 0;
  for (int n = 0; n < testing::thrown(20); ++n) {
    const drawn_sides sides = draw_sides(random);
    CAPTURE(sides.text);
    if (sides.to.ranks() < 4) continue;
    const living_holding fewer(sides.to, {{1, 2}});
    const placement placed{.on = nodes_of(2)};
    const layout_switch change(fewer, sides.from, placed);
    const any_switch any(fewer, sides.from, placed);
    for (rank_t device = 0; device < change.devices(); ++device) {
      const routing how{relay::always, 1, 1};
      plan wanted, found;
      CHECK(refused([&] { found = make_plan(any, device, how); }) ==
            refused([&] { wanted = make_plan(change, device, how); }));
      CHECK(found == wanted);
      for (const transfer& t : found.receives) relayed += t.why == purpose::passed_on ? 1 : 0;
    }
  }
  CHECK_DRAWN(relayed > 10);
}

TEST_CASE("spaces and lists are sides of any_switch without more words") {
  const model m = testing::drawn_model(false);
  const space from(m, parse_degrees("tp=2,zero=1,dp=2")), to(m, parse_degrees("pp=2"));
  const std::vector<shard> list = testing::listed(computed_holding(from));
  const layout_switch computed(from, to);
  const layout_switch listed(list, to);
  const any_switch any(from, to), any_list(list, to), any_beside(list, any_holding(computed_holding(to)));
  const any_switch beside_list(list, any_holding(holding_of(list)));
  for (rank_t device = 0; device < 4; ++device) {
    CHECK(make_plan(any, device) == make_plan(computed, device));
    CHECK(make_plan(any_list, device) == make_plan(listed, device));
    CHECK(make_plan(any_beside, device) == make_plan(listed, device));
    CHECK(make_plan(beside_list, device).receives.empty());
  }
}

TEST_CASE("a list beside a holding that names no tensors is refused") {
  const computed_holding computed(space(testing::drawn_model(false), parse_degrees("tp=2")));
  const std::vector<shard> list = testing::listed(computed);
  const any_holding living(living_holding(computed, {}));
  const std::string sentence =
      "reshard: switch: a list of shards is beside a holding of 2 ranks that names no tensors; give it as a "
      "listed_holding, made with a table";
  CHECK(refused([&] { any_switch(list, living); }) == sentence);
  CHECK(refused([&] { any_switch(living, list); }) == sentence);
}

TEST_CASE("relabelling, seconds and figures over any_holding are those over what it holds") {
  dice random(42);
  int relabelled = 0;
  for (int n = 0; n < testing::thrown(12); ++n) {
    const drawn_sides sides = draw_sides(random);
    CAPTURE(sides.text);
    const rank_t devices = greatest(sides.from.ranks(), sides.to.ranks());
    const placement placed{.on = clusters::h100.for_devices(devices)};
    const placement of_four{.on = nodes_of(4)};
    const layout_switch change(sides.from, sides.to, of_four);
    const any_switch any(sides.from, sides.to, of_four);
    for (const relabel_by how : {relabel_by::nodes, relabel_by::groups}) {
      const relabelling wanted = relabel(change, how), found = relabel(any, how);
      CHECK(found.relabelled == wanted.relabelled);
      for (rank_t rank = 0; rank < sides.to.ranks(); ++rank)
        CHECK(found.to.device_of(rank) == wanted.to.device_of(rank));
      relabelled += found.relabelled ? 1 : 0;
    }
    const layout_switch timed(sides.from, sides.to, placed);
    const any_switch any_timed(sides.from, sides.to, placed);
    const simulation wanted = simulate(timed), found = simulate(any_timed);
    CHECK(found.seconds.total() == wanted.seconds.total());
    CHECK(found.floor_seconds == wanted.floor_seconds);
    CHECK(found.dynatrain.naive == wanted.dynatrain.naive);
    const routing_choice chosen = choose_routing(timed), over_any = choose_routing(any_timed);
    CHECK(over_any.how == chosen.how);
    CHECK(over_any.seconds == chosen.seconds);
  }
  CHECK_DRAWN(relabelled > 3);
  const computed_holding computed(space(testing::drawn_model(false), parse_degrees("tp=2")));
  const any_switch to_a_list(computed, testing::listed(computed), {.on = nodes_of(1)});
  CHECK(refused([&] { static_cast<void>(relabel(to_a_list, relabel_by::groups)); }) ==
        "reshard: relabel: a TO without a layout has no tensor-parallel groups; relabel by nodes");
}
