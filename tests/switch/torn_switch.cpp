// SPDX-License-Identifier: Apache-2.0
// Who holds what after a torn switch, against bookkeeping of single elements: random switches, stages and survivors.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/space/cover.hpp>
#include <reshard/switch/torn_switch.hpp>

#include "../oracle/random_layouts.hpp"
#include "../support/dice.hpp"
#include "../support/each_element.hpp"
#include "../support/expand.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice;
using testing::each_element;
using testing::element;

namespace {

struct counts {
  int tried = 0, lost = 0, whole = 0, first = 0, last = 0, no_budget = 0, unread = 0, given_away = 0, apart = 0,
      kept_by_one = 0;
  long elements = 0, boxes = 0;
};

void check_torn(const computed_switch& change, dice& random, counts& seen) {
  const index_t stages = random.within(1, 9), in_place = random.within(0, stages);
  std::vector<rank_t> survivors;
  for (rank_t d = 0; d < change.devices(); ++d)
    if (random.below(4) != 0) survivors.push_back(d);
  if (survivors.empty()) survivors.push_back(0);
  ended::torn end{"", stages, in_place, survivors};
  if (seen.tried % 4 != 0) {
    end.unread_kept.emplace();
    for (rank_t d = 0; d < change.devices(); ++d)
      end.unread_kept->push_back(random.coin()   ? 0
                                 : random.coin() ? std::min(in_place + 1, stages)  // it stands for this stage alone
                                                 : random.within(0, stages));
  }
  // In half of them survivors were told fewer stages than others, as halves of a cut network may be; or some never
  // began the switch.
  std::vector<torn_share> shares;
  const bool apart = random.coin(), begun_by_some = random.below(4) == 0;
  index_t most = 0;
  for (const rank_t d : survivors) {
    shares.push_back({d, in_place, 0, {}});
    if (end.unread_kept) shares.back().unread_kept = (*end.unread_kept)[static_cast<std::size_t>(d)];
    if (apart) shares.back().in_place = begun_by_some ? 0 : random.within(0, in_place);
    if (apart && begun_by_some && random.coin()) shares.back() = {d, 0, 0, {}};
    const bool all_here = apart && !begun_by_some && random.below(3) == 0;  // and does not know of the others
    shares.back().here = all_here ? stages : shares.back().in_place;
    most = std::max(most, shares.back().in_place);
  }
  seen.apart += apart ? 1 : 0;
  CAPTURE(stages);
  CAPTURE(in_place);
  CAPTURE(apart);
  CAPTURE(end.unread_kept.has_value());
  const auto of = [&](int f) -> const family& { return change.to().family_at(f); };

  std::map<element, std::set<rank_t>> wanted_old, wanted_new;
  std::set<element> survivors_had;
  for (const torn_share& share : shares) {
    const rank_t d = share.device;
    const staged_plan p = stage_plan(make_plan(change, d), change, stages);
    std::set<element> had, touched;
    for (const role r : roles)
      if (const state_set states = change.states().of(r); change.from_rank(d) >= 0 && !states.empty())
        each_held(change.from(), change.from_rank(d), r, [&](int f, const family_box& b) {
          each_tensor(f, b, [&](const tensor_id& t, const box<3>& where) {
            each_element(of(f), states, t, where, [&](const element& e) { had.insert(e); });
          });
        });
    for (const auto* list : {&p.sends, &p.retains})
      for (const staged_piece& piece : *list)
        each_element(of(piece.tensor.family), piece.states, piece.tensor, piece.where,
                     [&](const element& e) { touched.insert(e); });
    for (const element& e : had) {
      const bool untouched = !touched.contains(e);
      const bool stands = !share.unread_kept || (untouched && share.in_place < *share.unread_kept);
      if (stands) wanted_old[e].insert(d);
      seen.unread += untouched && stands ? 1 : 0;
      seen.kept_by_one += untouched && share.unread_kept && share.in_place + 1 == *share.unread_kept ? 1 : 0;
      survivors_had.insert(e);
    }
    for (const auto* list : {&p.sends, &p.retains, &p.receives})
      for (const staged_piece& piece : *list) {
        const bool comes = list == &p.receives, goes = list == &p.sends;
        const bool in_new = !goes && piece.stage < std::max(most, share.here);
        const bool in_old = !comes && (!share.unread_kept || piece.stage >= share.in_place);
        each_element(of(piece.tensor.family), piece.states, piece.tensor, piece.where, [&](const element& e) {
          if (in_new) wanted_new[e].insert(d);
          if (in_old) wanted_old[e].insert(d);
        });
      }
  }
  const std::vector<torn_box> boxes = apart ? torn_boxes(change, stages, shares) : torn_boxes(change, end);
  std::set<element> visited;
  long wrong = 0, lost = 0, given_away = 0;
  for (const torn_box& b : boxes)
    each_element(of(b.tensor.family), b.states, b.tensor, b.where, [&](const element& e) {
      wrong += visited.insert(e).second ? 0 : 1;  // boxes are disjoint
      wrong += std::set<rank_t>(b.in_old.begin(), b.in_old.end()) == wanted_old[e] ? 0 : 1;
      wrong += std::set<rank_t>(b.in_new.begin(), b.in_new.end()) == wanted_new[e] ? 0 : 1;
      lost += b.lost() ? 1 : 0;
      given_away += b.lost() && survivors_had.contains(e) ? 1 : 0;
    });
  CHECK(wrong == 0);
  const lost_elements told = lost_after(change, boxes, survivors);
  CHECK(told.given_away == given_away);
  CHECK(told.sole_held == lost - given_away);
  if (!end.unread_kept) CHECK(given_away == 0);  // without a budget nothing is given back before all is in place
  index_t whole = 0;
  for (int f = 0; f < change.to().families(); ++f)
    for (const role r : roles)
      for (const int s : change.states())
        if (has_states_of(of(f).kind, r) && change.states().role_of(s) == r) whole += of(f).whole().volume();
  CHECK(static_cast<index_t>(visited.size()) == whole);

  // a list of shards like any other, from which a switch goes on without what is lost
  const torn_layout left = layout_after(change, boxes, survivors);
  const space then(change.to().space().model(), parse_degrees("dp=1"));
  const layout_switch next(left.shards, then, left.placed(device_map(std::vector<rank_t>{survivors[0]})));
  CHECK(covers(next.from()));
  const plan mine = make_plan(next, survivors[0]);
  index_t lost_of_plan = 0, brought = 0;
  for (const transfer& t : mine.lost)
    for ([[maybe_unused]] const int s : t.states) lost_of_plan += t.where.volume();
  for (const auto* list : {&mine.receives, &mine.retains})
    for (const transfer& t : *list)
      for ([[maybe_unused]] const int s : t.states) brought += t.where.volume();
  CHECK(lost_of_plan == lost);
  CHECK(brought + lost == whole);
  ++seen.tried, ++(lost > 0 ? seen.lost : seen.whole);
  seen.no_budget += end.unread_kept ? 0 : 1, seen.given_away += given_away > 0 ? 1 : 0;
  seen.first += in_place == 0 ? 1 : 0, seen.last += in_place == stages ? 1 : 0;
  seen.elements += whole, seen.boxes += static_cast<long>(boxes.size());
}
}  // namespace

TEST_CASE("after a torn switch each survivor has what is said of it, cut alike, and the others' rest is lost") {
  oracle::generator cases(testing::seed() + 60);
  dice random(61);
  counts seen;
  // goes on until a survivor gave something away that the dead held too, and another kept it for one stage more
  const auto rare = [&] { return seen.given_away == 0 || seen.kept_by_one == 0; };
  for (int i = 0; (seen.tried < testing::tries(60) || (rare() && seen.tried < 400)) && i < 20'000; ++i) {
    const oracle::switch_case c = cases.next_switch();
    if (oracle::elements_of(c.m) > 6000) continue;
    const auto map = [](const std::vector<long>& d) { return device_map(std::vector<rank_t>(d.begin(), d.end())); };
    const computed_switch change(space(testing::to_model(c.m), parse_degrees(c.from_text)),
                                 space(testing::to_model(c.m), parse_degrees(c.to_text)),
                                 {map(c.from_devices), map(c.to_devices)});
    if (change.devices() > 12) continue;
    INFO(c.describe());
    check_torn(change, random, seen);
  }
  std::printf(
      "{\"torn\":%d,\"something_lost\":%d,\"nothing_lost\":%d,\"none_in_place\":%d,\"all_in_place\":%d,"
      "\"no_budget\":%d,\"told_apart\":%d,\"unread_elements_kept\":%d,\"for_one_stage_more\":%d,"
      "\"some_given_away\":%d,\"elements\":%ld,\"boxes\":%ld}\n",
      seen.tried, seen.lost, seen.whole, seen.first, seen.last, seen.no_budget, seen.apart, seen.unread,
      seen.kept_by_one, seen.given_away, seen.elements, seen.boxes);
  CHECK(seen.tried >= testing::tries(60));
  CHECK_DRAWN(seen.lost > seen.tried / 8);
  CHECK_DRAWN(seen.no_budget > seen.tried / 8);
  CHECK_DRAWN(seen.unread > 100);
  CHECK_DRAWN(seen.kept_by_one > 0);
  CHECK_DRAWN(seen.apart > seen.tried / 8);
  CHECK_DRAWN(seen.given_away > 0);
}

TEST_CASE("what one survivor holds is a binding over its old and new arrays") {
  const std::vector<shard> rows = {{0, "w", bf16, {4, 4}, {0, 0}, {2, 4}}, {1, "w", bf16, {4, 4}, {2, 0}, {2, 4}}},
                           columns = {{0, "w", bf16, {4, 4}, {0, 0}, {4, 2}}, {1, "w", bf16, {4, 4}, {0, 2}, {4, 2}}};
  const layout_switch change(rows, columns);
  std::byte before[16] = {}, after[16] = {};
  binding old_tensors("old", {}, lion), new_tensors("new", {}, lion);
  old_tensors.add({0, {}, {{{0, 1}, {0, 2}, {0, 4}}}}, {before, 16});
  new_tensors.add({0, {}, {{{0, 1}, {0, 4}, {0, 2}}}}, {after, 16});
  old_tensors.seal(), new_tensors.seal();
  const std::vector<index_t> first{0, 0};
  const std::vector<torn_box> none = torn_boxes(change, {"", 1, 0, {0}, first}),
                              all = torn_boxes(change, {"", 1, 1, {0}, first});
  REQUIRE(none.size() == 3);  // two columns retained, two to be sent, and what 1 had
  CHECK(none[0].in_old == std::vector<rank_t>{0});
  CHECK(none[2].lost());
  const binding of_old = binding_after(none, 0, old_tensors, new_tensors);
  REQUIRE(of_old.boxes().size() == 2);
  CHECK(of_old.boxes()[0].data == before);
  CHECK(of_old.list() == lion);
  binding no_old("old");  // who came with the switch
  CHECK(binding_after(all, 0, no_old, new_tensors).list() == lion);
  CHECK(of_old.boxes()[1].data == before + 4);
  const binding of_new = binding_after(all, 0, old_tensors, new_tensors);
  for (const bound_box& b : of_new.boxes()) CHECK((b.data == after || b.data == after + 8));
  CHECK(binding_after(none, 1, old_tensors, new_tensors).boxes().empty());
  CHECK(lost_elements{7, 12}.text() ==
        "lost are 7 elements that only the dead held, and 12 that a survivor had given back before their new copies "
        "stood");
  CHECK_REFUSED((void)layout_after(change, none, {0, 1}),
                "reshard: torn switch: all devices survive, and nobody holds all of w");
  CHECK(layout_after(change, none, {0}).lost == std::vector<rank_t>{1});
}
