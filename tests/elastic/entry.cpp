// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <reshard/elastic/entry.hpp>
#include <reshard/elastic/next.hpp>

#include "../support/dice.hpp"
#include "../support/tries.hpp"

using namespace reshard;

namespace {

world world_of(index_t epoch, const member_list& members, index_t first_step) {
  world w;
  w.epoch = epoch, w.members = members, w.first_step = first_step;
  w.layout.dp = static_cast<rank_t>(members.size());
  return w;
}
promise promise_of(const member_name& who, index_t version, int stage, index_t of_epoch, std::uint64_t scalar = 0) {
  return {{who, version, static_cast<update_stage>(stage)}, scalar, of_epoch};
}
job_record entering(std::vector<world> worlds) {
  job_record r;
  r.phase = job_phase::entering;
  r.epoch = worlds.back().epoch;
  r.worlds = std::move(worlds);
  return r;
}

}  // namespace

TEST_CASE("a change that was planned: all of the old world hold the version of the boundary") {
  const job_record r = entering({world_of(4, {"a", "b"}, 10), world_of(5, {"a", "b", "c"}, 25)});
  const state_source s = source_of(r);
  REQUIRE(s.from != nullptr);
  CHECK(s.from->epoch == 4);
  CHECK(s.target.version == 25);
  CHECK((s.dead.empty() && s.empty.empty() && s.target.updates.empty() && !s.known));
  CHECK(devices_of_entry(s, r.now()) == member_list{"a", "b", "c"});
}

TEST_CASE("nobody holds state before the first world, and where nobody who holds some promised") {
  CHECK(source_of(entering({world_of(1, {"a"}, 0)})).from == nullptr);
  job_record r = entering({world_of(1, {"a", "b"}, 0), world_of(2, {"a", "b", "c"}, 5)});
  r.promises = {promise_of("c", holds_nothing, 0, 0)};
  CHECK(source_of(r).from == nullptr);
}

TEST_CASE(
    "after a death: who is dead promised nothing; who is behind makes the update with the scalar of who knew it") {
  job_record r = entering({world_of(1, {"a", "b", "c"}, 0), world_of(2, {"b", "c"}, 8)});
  r.promises = {promise_of("c", 7, 2, 1, 99), promise_of("b", 7, 1, 1, 5)};
  const state_source s = source_of(r);
  CHECK(s.from->epoch == 1);
  CHECK(s.dead == member_list{"a"});
  CHECK(s.target.version == 8);
  CHECK(s.target.updates == member_list{"b"});
  CHECK(s.known);
  CHECK(s.scalar == 99);

  r.promises[0] = promise_of("c", 8, 0, 1, 77);  // it made the update: its scalar is of that one
  CHECK(source_of(r).scalar == 77);
  CHECK(source_of(r).target.updates == member_list{"b"});
}

TEST_CASE("the scalar of an update is told by who made it last, or could make it, and lives") {
  job_record r = entering({world_of(1, {"a", "b", "c"}, 0), world_of(2, {"a", "b"}, 8)});
  const auto told = [&](std::vector<promise> promises, const member_list& dead = {}) {
    r.promises = std::move(promises);
    const state_source s = source_of(r, dead);
    return std::pair{s.target.version, s.known ? static_cast<index_t>(s.scalar) : -1};
  };
  using of = std::pair<index_t, index_t>;
  // at stage 1 of the step after the target it is not that update's
  CHECK(told({promise_of("a", 8, 0, 1, 77), promise_of("b", 8, 1, 1, 66)}) == of{8, 77});
  CHECK(told({promise_of("a", 8, 1, 1, 77), promise_of("b", 8, 1, 1, 66)}) == of{8, -1});
  CHECK(told({promise_of("a", 7, 1, 1, 77), promise_of("b", 7, 2, 1, 66)}) == of{8, 66});
  CHECK(told({promise_of("a", 7, 2, 1, 77), promise_of("b", 7, 1, 1, 66)}) == of{8, 77});
  // of whom the evidence calls dead, and of who holds nothing, no scalar counts
  CHECK(told({promise_of("a", 7, 1, 1, 77), promise_of("b", 7, 0, 1, 66)}, {"b"}) == of{7, -1});
  CHECK(told({promise_of("a", 7, 0, 1, 77), promise_of("b", holds_nothing, 0, 0, 66)}) == of{7, 77});
  CHECK(told({promise_of("a", 7, 1, 1, 77), promise_of("b", holds_nothing, 0, 0, 66)}) == of{7, -1});
}

TEST_CASE("who did not hear that all have entered tells nothing of the world that was entered") {
  // a is to leave, and its switch was torn at step 5; b and c have entered and made a step
  job_record r = entering({world_of(1, {"a", "b"}, 0), world_of(2, {"b", "c"}, 5), world_of(3, {"b", "c"}, 6)});
  promise torn = promise_of("a", 5, 0, 1);
  torn.torn_stages = torn.torn_in_place = torn.torn_here = 2;
  r.promises = {torn, promise_of("b", 6, 0, 2), promise_of("c", 6, 0, 2)};
  const state_source s = source_of(r);
  REQUIRE(s.from != nullptr);
  CHECK(s.from->epoch == 2);
  CHECK(s.into == nullptr);
  CHECK(s.target == target_version{.version = 6});
  CHECK((s.dead.empty() && s.empty.empty() && s.shares.empty() && s.stages == 0));
}

TEST_CASE("of a torn switch the first device tells as any other") {
  job_record r = entering({world_of(1, {"a", "b"}, 0), world_of(2, {"c"}, 5), world_of(3, {"a"}, 5)});
  promise torn = promise_of("a", 5, 0, 1);
  torn.torn_stages = 4, torn.torn_in_place = 1, torn.torn_here = 3, torn.torn_unread = 2;
  r.promises = {torn};
  state_source s = source_of(r);
  CHECK(s.shares == std::vector<torn_share>{{0, 1, 3, 2}});
  CHECK(s.dead == member_list{"b", "c"});
  CHECK(s.stages == 4);
  r.promises = {promise_of("b", 5, 0, 1), torn};
  r.promises[1].told.member = "c";
  s = source_of(r);
  CHECK(s.shares == std::vector<torn_share>{{1, 0, 0, {}}, {2, 1, 3, 2}});
  CHECK(s.dead == member_list{"a"});
}

TEST_CASE("once one has entered, its world is where the state lies, of who did not hear so, too") {
  job_record r = entering({world_of(1, {"a", "b"}, 0), world_of(2, {"a", "b", "c"}, 5), world_of(3, {"b", "c"}, 5)});
  r.promises = {promise_of("b", 5, 0, 1), promise_of("c", 5, 0, 2)};
  const state_source s = source_of(r);
  CHECK(s.from->epoch == 2);
  CHECK(s.dead == member_list{"a"});
  CHECK(s.target.version == 5);
  CHECK(s.empty.empty());

  r.promises[1] = promise_of("c", holds_nothing, 0, 0);  // nobody did: the old arrays hold it
  CHECK(source_of(r).from->epoch == 1);
  CHECK(source_of(r).dead == member_list{"a"});
  CHECK(devices_of_entry(source_of(r), r.now()) == member_list{"a", "b", "c"});
}

TEST_CASE("who lives and holds nothing of the world that the state is of is a destination") {
  job_record r = entering({world_of(2, {"a", "b", "c"}, 5), world_of(3, {"b", "c"}, 9)});
  r.promises = {promise_of("b", 9, 0, 2), promise_of("c", holds_nothing, 0, 0)};
  const state_source s = source_of(r);
  CHECK(s.empty == member_list{"c"});
  CHECK(s.dead == member_list{"a"});
  CHECK(s.target == target_version{.version = 9});
  // Who is called dead beside the record is not counted on, though it promised.
  CHECK(source_of(r, {"b"}).from == nullptr);
}

TEST_CASE(
    "of a switch that gave sources back each tells how far it came; who did not begin it has all of the old world") {
  // a, b and c go to b, c, d and e; a dies in it, c has nothing
  job_record r =
      entering({world_of(3, {"a", "b", "c"}, 4), world_of(4, {"b", "c", "d", "e"}, 9), world_of(5, {"b", "d"}, 9)});
  const auto torn = [](const member_name& who, index_t in_place, index_t here, index_t unread) {
    promise p = promise_of(who, 9, 0, 3);
    p.torn_stages = 8, p.torn_in_place = in_place, p.torn_here = here, p.torn_unread = unread;
    return p;
  };
  r.promises = {promise_of("c", holds_nothing, 0, 0), torn("d", 2, 8, 8), torn("b", 3, 3, 1),
                promise_of("e", holds_nothing, 0, 0)};
  state_source s = source_of(r);
  REQUIRE(s.from != nullptr);
  REQUIRE(s.into != nullptr);
  CHECK(s.from->epoch == 3);
  CHECK(s.into->epoch == 4);
  CHECK(s.dead == member_list{"a"});
  CHECK(s.empty == member_list{"c"});
  CHECK(s.target.version == 9);
  CHECK(s.target.updates.empty());
  CHECK(s.stages == 8);
  CHECK(s.shares == std::vector<torn_share>{{1, 3, 3, 1}, {3, 2, 8, 8}});
  CHECK(devices_of_entry(s, r.now()) == member_list{"a", "b", "c", "d", "e"});
  CHECK(s.takes_part("e"));  // it is in the switch's world, and is there
  CHECK(!s.takes_part("a"));
  CHECK(!s.takes_part("x"));

  r.promises[0] = promise_of("c", 9, 0, 3);  // it never began the switch
  CHECK(source_of(r).shares == std::vector<torn_share>{{1, 3, 3, 1}, {2, 0, 0, {}}, {3, 2, 8, 8}});
  // whom the evidence calls dead is one, of the world that was gone to, too
  s = source_of(r, {"d"});
  CHECK(s.dead == member_list{"a", "d"});
  CHECK(s.shares == std::vector<torn_share>{{1, 3, 3, 1}, {2, 0, 0, {}}});
  // only one that came is left: it tells the version, and holds what it was given
  r.promises = {torn("d", 8, 8, 8)};
  s = source_of(r);
  CHECK(s.from->epoch == 3);
  CHECK(s.target.refused.empty());
  CHECK(s.target.version == 9);
  CHECK(s.dead == member_list{"a", "b", "c", "e"});
  CHECK(s.shares == std::vector<torn_share>{{3, 8, 8, 8}});
  // where one heard that all have entered, all lies in that world
  r.promises = {torn("b", 8, 8, 0), promise_of("d", 9, 0, 4), promise_of("c", 9, 0, 4), promise_of("e", 9, 0, 4)};
  s = source_of(r);
  CHECK(s.from->epoch == 4);
  CHECK(s.into == nullptr);
  CHECK((s.dead.empty() && s.empty.empty()));
}

TEST_CASE("who has copies of a version: those who live and hold that world's layout, their own and others'") {
  job_record r = entering({world_of(1, {"a", "b", "c", "d"}, 0), world_of(2, {"b", "c"}, 6)});
  r.promises = {promise_of("c", 7, 0, 1), promise_of("b", 7, 0, 1), promise_of("d", 7, 0, 1), promise_of("x", 7, 0, 1)};
  r.promises[0].copies = {{"c", 6}, {"b", 6}, {"c", 4}};
  r.promises[1].copies = {{"b", 6}, {"a", 6}, {"a", 4}, {"stranger", 6}};
  r.promises[2].copies = {{"d", 6}, {"c", 6}};
  r.promises[3].copies = {{"d", 6}};
  state_source s = source_of(r);
  CHECK(s.dead == member_list{"a"});
  rank_copies c = copies_told(r, s, 6);
  CHECK(c.own == std::vector<bool>{false, true, true, true});
  CHECK(c.keeper == std::vector<rank_t>{1, 2, 3, -1});
  c = copies_told(r, s, 4);
  CHECK(c.own == std::vector<bool>{false, false, true, false});
  CHECK(c.keeper == std::vector<rank_t>{1, -1, -1, -1});
  // the first rank as any other
  r.promises.push_back(promise_of("a", 7, 0, 1));
  r.promises[4].copies = {{"a", 6}, {"d", 6}};
  c = copies_told(r, source_of(r), 6);
  CHECK(c.own == std::vector<bool>{true, true, true, true});
  CHECK(c.keeper == std::vector<rank_t>{1, 2, 3, 0});
  r.promises.pop_back();
  // who died since then tells nothing any more, and who is in another layout neither
  s = source_of(r, {"d"});
  c = copies_told(r, s, 6);
  CHECK(c.own == std::vector<bool>{false, true, true, false});
  CHECK(c.keeper == std::vector<rank_t>{1, 2, -1, -1});
  r.promises[2].of_epoch = 0;
  c = copies_told(r, source_of(r), 6);
  CHECK(c.keeper == std::vector<rank_t>{1, 2, -1, -1});
}

TEST_CASE("random promises: the source is the latest world somebody holds, and all of it are told apart") {
  const member_list all = {"a", "b", "c", "d", "e"};
  testing::dice dice(71);
  index_t later = 0, earlier = 0, none = 0, gone = 0;
  for (int n = 0; n < testing::tries(400); ++n) {
    member_list first, second;
    for (const member_name& who : all) {
      if (dice.below(2) == 0) first.push_back(who);
      if (dice.below(2) == 0) second.push_back(who);
    }
    if (first.empty()) first = {"a"};
    if (second.empty()) second = {"e"};
    job_record r = entering({world_of(1, first, 0), world_of(2, second, 6), world_of(3, {"a"}, 6)});
    index_t latest = 0;
    for (const member_name& who : all) {
      if (dice.below(3) == 0 || (!has_member(first, who) && !has_member(second, who))) continue;
      const index_t of = has_member(second, who) && dice.below(3) == 0 ? 2 : has_member(first, who) ? 1 : 0;
      r.promises.push_back(promise_of(who, of == 0 ? holds_nothing : 6, 0, of));
      latest = std::max(latest, of);
    }
    if (r.promises.empty()) continue;
    const state_source s = source_of(r);
    (latest == 0 ? none : latest == 2 ? later : earlier) += 1;
    REQUIRE((s.from == nullptr) == (latest == 0));
    if (s.from == nullptr) continue;
    REQUIRE(s.from->epoch == latest);
    for (const member_name& who : s.from->members) {
      const bool promised = r.promise_of(who) != nullptr;
      CHECK(has_member(s.dead, who) == !promised);
      CHECK(has_member(s.empty, who) == (promised && !r.promise_of(who)->holds_state()));
      gone += promised ? 0 : 1;
    }
  }
  MESSAGE(later, " from a world that somebody entered, ", earlier, " from the one before, ", none, " from nowhere; ",
          gone, " dead");
  CHECK_DRAWN(std::min({later, earlier, none, gone}) > 0);
}
