// SPDX-License-Identifier: Apache-2.0
// Who holds what after a torn switch, against bookkeeping of single elements: random switches, stages and survivors.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <reshard/exec/torn_switch.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/space/cover.hpp>

#include "../oracle/random_layouts.hpp"
#include "../support/dice.hpp"
#include "../support/expand.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice;

namespace {

using element = std::tuple<int, int, index_t, index_t, index_t>;  // state, family, member, expert, flat

/// Calls visit(element) for every element and state of a box.
template <typename Visit>
void each_element(const family& of, state_set states, const tensor_id& t, const box<3>& b, Visit&& visit) {
  for (const int s : states)
    for (index_t part = b.dim[0].begin; part < b.dim[0].end; ++part)
      for (index_t row = b.dim[1].begin; row < b.dim[1].end; ++row)
        for (index_t column = b.dim[2].begin; column < b.dim[2].end; ++column)
          visit(element{s, t.family, t.member, t.expert, (part * of.extent[3] + row) * of.extent[4] + column});
}

struct counts {
  int tried = 0, lost = 0, whole = 0, first = 0, last = 0;
  long elements = 0, boxes = 0;
};

void check_torn(const computed_switch& change, dice& random, counts& seen) {
  const index_t stages = random.within(1, 9), in_place = random.within(0, stages);
  std::vector<rank_t> survivors;
  for (rank_t d = 0; d < change.devices(); ++d)
    if (random.below(4) != 0) survivors.push_back(d);
  if (survivors.empty()) survivors.push_back(0);
  CAPTURE(stages);
  CAPTURE(in_place);
  const auto of = [&](int f) -> const family& { return change.to().family_at(f); };

  std::map<element, std::set<rank_t>> wanted_old, wanted_new;
  for (const rank_t d : survivors) {
    const staged_plan p = stage_plan(make_plan(change, d), change, stages);
    for (const auto* list : {&p.sends, &p.retains, &p.receives})
      for (const staged_piece& piece : *list) {
        const bool comes = list == &p.receives, in_new = piece.stage < in_place;
        if ((comes && !in_new) || (list == &p.sends && in_new)) continue;
        each_element(of(piece.tensor.family), piece.states, piece.tensor, piece.where,
                     [&](const element& e) { (in_new ? wanted_new : wanted_old)[e].insert(d); });
      }
  }
  const std::vector<torn_box> boxes = torn_boxes(change, stages, in_place, survivors);
  std::set<element> visited;
  long wrong = 0, lost = 0;
  for (const torn_box& b : boxes)
    each_element(of(b.tensor.family), b.states, b.tensor, b.where, [&](const element& e) {
      wrong += visited.insert(e).second ? 0 : 1;  // boxes are disjoint
      wrong += std::set<rank_t>(b.in_old.begin(), b.in_old.end()) == wanted_old[e] ? 0 : 1;
      wrong += std::set<rank_t>(b.in_new.begin(), b.in_new.end()) == wanted_new[e] ? 0 : 1;
      lost += b.lost() ? 1 : 0;
    });
  CHECK(wrong == 0);
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
  seen.first += in_place == 0 ? 1 : 0, seen.last += in_place == stages ? 1 : 0;
  seen.elements += whole, seen.boxes += static_cast<long>(boxes.size());
}
}  // namespace

TEST_CASE("after a torn switch each survivor has what is said of it, cut alike, and the others' rest is lost") {
  oracle::generator cases(testing::seed() + 60);
  dice random(61);
  counts seen;
  for (int i = 0; seen.tried < testing::tries(60) && i < 20'000; ++i) {
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
      "\"elements\":%ld,\"boxes\":%ld}\n",
      seen.tried, seen.lost, seen.whole, seen.first, seen.last, seen.elements, seen.boxes);
  CHECK(seen.tried == testing::tries(60));
  CHECK_DRAWN(seen.lost > seen.tried / 3);
}

TEST_CASE("what one survivor holds is a binding over its old and new arrays") {
  const std::vector<shard> rows = {{0, "w", bf16, {4, 4}, {0, 0}, {2, 4}}, {1, "w", bf16, {4, 4}, {2, 0}, {2, 4}}},
                           columns = {{0, "w", bf16, {4, 4}, {0, 0}, {4, 2}}, {1, "w", bf16, {4, 4}, {0, 2}, {4, 2}}};
  const layout_switch change(rows, columns);
  std::byte before[16] = {}, after[16] = {};
  binding old_tensors("old"), new_tensors("new");
  old_tensors.add({0, {}, {{{0, 1}, {0, 2}, {0, 4}}}}, {before, 16});
  new_tensors.add({0, {}, {{{0, 1}, {0, 4}, {0, 2}}}}, {after, 16});
  old_tensors.seal(), new_tensors.seal();
  const std::vector<torn_box> none = torn_boxes(change, 1, 0, {0}), all = torn_boxes(change, 1, 1, {0});
  REQUIRE(none.size() == 3);  // two columns retained, two to be sent, and what 1 had
  CHECK(none[0].in_old == std::vector<rank_t>{0});
  CHECK(none[2].lost());
  const binding of_old = binding_after(none, 0, old_tensors, new_tensors);
  REQUIRE(of_old.boxes().size() == 2);
  CHECK(of_old.boxes()[0].data == before);
  CHECK(of_old.boxes()[1].data == before + 4);
  const binding of_new = binding_after(all, 0, old_tensors, new_tensors);
  for (const bound_box& b : of_new.boxes()) CHECK((b.data == after || b.data == after + 8));
  CHECK(binding_after(none, 1, old_tensors, new_tensors).boxes().empty());
}
