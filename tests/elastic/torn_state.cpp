// SPDX-License-Identifier: Apache-2.0
// What lies between two worlds: of a switch of which nothing, or all, is in place it is what one of them holds, dead
// members' apart; and what a lost job says of what is missing.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <reshard/elastic/run/missing.hpp>
#include <reshard/elastic/run/torn_state.hpp>
#include <reshard/memory/rank_storage.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/plan/lost.hpp>
#include <reshard/plan/volume.hpp>

using namespace reshard;
using detail::torn_state;

namespace {

const model tiny = make_transformer(
    {.name = "tiny", .layers = 4, .hidden = 8, .heads = 2, .groups = 2, .head_dim = 4, .ffn = 8, .vocabulary = 16});

world world_of(index_t epoch, member_list members, const char* layout) {
  return {.epoch = epoch, .members = std::move(members), .layout = parse_degrees(layout), .first_step = 7, .batch = 4};
}
/// Two stages on a and b; they go to halves on b, c, and d and e with them.
const world from = world_of(3, {"a", "b"}, "pp=2"), into = world_of(4, {"b", "c", "d", "e"}, "tp=2,dp=2");
constexpr index_t stages = 4;

/// So many stages are in place on all that live.
state_source torn(index_t in_place, member_list dead) {
  state_source s{.from = &from, .into = &into, .dead = std::move(dead)};
  s.stages = stages;
  const member_list all = devices_between(from, into);
  for (rank_t d = 0; d < std::ssize(all); ++d)
    if (!has_member(s.dead, all[static_cast<std::size_t>(d)])) s.shares.push_back({d, in_place, in_place, stages});
  return s;
}
torn_state between(const state_source& s, const state_list& list = adam) { return torn_state(tiny, list, s); }
const space of_from(tiny, from.layout), of_into(tiny, into.layout);

/// Elements of a rank of FROM, a state at a time: a parameter has 14 bytes in 4 states.
index_t elements_of(rank_t rank) { return held_bytes(of_from, rank) / 14 * 4; }
std::string lost(index_t held, index_t given) {
  return "lost are " + std::to_string(held) + " elements that only the dead held, and " + std::to_string(given) +
         " that a survivor had given back before their new copies stood";
}
bytes_t bytes_of(const binding& b) {
  bytes_t all = 0;
  for (const bound_box& one : b.boxes()) all += one.bytes();
  return all;
}

/// A record that is lost: who promised which version, of the epoch 3.
job_record lost_record(const std::vector<world>& worlds, const std::vector<std::pair<member_name, index_t>>& told,
                       member_list gone = {}) {
  job_record r{.phase = job_phase::lost, .epoch = worlds.back().epoch};
  r.worlds = worlds, r.gone = std::move(gone);
  for (const auto& [who, version] : told)
    r.promises.push_back({{who, version}, 0, version == holds_nothing ? 0 : index_t{3}});
  return r;
}
std::string missing(const job_record& r) { return detail::missing_of(r, tiny, adam); }

}  // namespace

TEST_CASE("devices of members are their places in a list") {
  const member_list all = {"a", "b", "c"};
  CHECK(detail::device_in(all, "a") == 0);
  CHECK(detail::device_in(all, "c") == 2);
  CHECK(detail::device_in(all, "x") == 3);
  CHECK(detail::devices_in(all, {"c", "x", "a"}) == std::vector<rank_t>{2, 3, 0});
}

TEST_CASE("the switch between two worlds: members of the old one by rank, then who else comes") {
  const any_switch change = detail::switch_between(tiny, adam, from, into);
  CHECK(change.devices() == 5);
  for (rank_t d = 0; d < 5; ++d) {
    CHECK(change.from_rank(d) == (d < 2 ? d : -1));
    CHECK(change.to_rank(d) == (d > 0 ? d - 1 : -1));
  }
  CHECK(moved_bytes(change) == moved_bytes(layout_switch(of_from, of_into, {.to = device_map({1, 2, 3, 4})})));
  CHECK(detail::switch_between(tiny, adam, from, world_of(4, {"a"}, "")).devices() == 2);
  const state_list parameters{{"param", dtype::bf16, 3}};
  CHECK(moved_bytes(detail::switch_between(tiny, parameters, from, into)) * 7 == moved_bytes(change));
}

TEST_CASE("where nothing is in place yet what the dead held is lost, and the others have what they had") {
  const torn_state all = between(torn(0, {}));
  CHECK(all.unheld() == 0);
  CHECK(all.lost_text() == lost(0, 0));
  const bytes_t each[] = {held_bytes(of_from, 0), held_bytes(of_from, 1)};
  for (const rank_t dead : {0, 1}) {
    const torn_state rest = between(torn(0, {from.members[static_cast<std::size_t>(dead)]}));
    CHECK(rest.unheld() == each[dead]);
    CHECK(rest.lost_text() == lost(elements_of(dead), 0));
  }
  CHECK(between(torn(0, {"a", "b"})).unheld() == each[0] + each[1]);
  CHECK(between(torn(0, {"c", "d", "e"})).unheld() == 0);
}

TEST_CASE("where all is in place the new arrays hold it: one of two that have each half is enough") {
  for (const member_list& dead : {member_list{}, {"a"}, {"a", "b"}, {"a", "b", "c"}, {"d", "e"}, {"b", "e"}})
    CHECK(between(torn(stages, dead)).unheld() == 0);
  // both that have the first half are dead, and it was given back
  const torn_state half = between(torn(stages, {"b", "d"}));
  CHECK(half.unheld() == lost_bytes(layout_switch(
                             of_into, of_into,
                             {.to = device_map({4, 5, 6, 7}), .lost = {0, 2}, .lost_elements = when_lost::leave_out})));
  CHECK(half.unheld() > 0);
  const index_t of_a = elements_of(0);
  const std::string said = half.lost_text();
  CHECK(said.find("lost are ") == 0);
  const index_t given = half.unheld() / 14 * 4;
  CHECK(of_a > 0);
  // b is dead and held the second stage; a lives and held the first one, of which half is lost
  const index_t sole = std::stoll(said.substr(9));
  CHECK(sole > 0);
  CHECK(said == lost(sole, given - sole));
  CHECK(given - sole > 0);
}

TEST_CASE("the way onward is from what each has, and a dead member's device has nothing") {
  const world next = world_of(5, {"c", "e", "x"}, "dp=3");
  for (const bool in_place : {false, true}) {
    state_source s = torn(in_place ? stages : 0, in_place ? member_list{"a", "d"} : member_list{"c", "d"});
    const torn_state lies = between(s);
    CHECK(lies.unheld() == 0);
    world to = next;
    if (!in_place) to.members = {"b", "e", "x"};
    const member_list all = devices_of_entry(s, to);
    REQUIRE(all == member_list{"a", "b", "c", "d", "e", "x"});
    const any_switch onward = lies.onward(tiny, to, all);
    CHECK(onward.devices() == 6);
    for (rank_t d = 0; d < 6; ++d) {
      const member_name& who = all[static_cast<std::size_t>(d)];
      CHECK((onward.from_rank(d) >= 0) == (who != "x" && !has_member(s.dead, who)));
      CHECK(onward.to_rank(d) == to.rank_of(who));
    }
    const std::vector<rank_t> targets = detail::devices_in(all, to.members);
    const placement of_old{.to = device_map(targets)},
        of_new{.from = device_map({1, 2, 3, 4}), .to = device_map(targets), .lost = {3}};
    const space then(tiny, to.layout);
    CHECK(moved_bytes(onward) == (in_place ? moved_bytes(layout_switch(of_into, then, of_new))
                                           : moved_bytes(layout_switch(of_from, then, of_old))));
  }
  // fewer devices than there are members: those that are dead at the end count too
  const state_source s = torn(stages, {"a", "e"});
  CHECK(between(s).onward(tiny, world_of(5, {"b"}, ""), devices_between(from, into)).devices() == 5);
}

TEST_CASE("what a member holds lies in its old arrays, and in its new ones where that is in place") {
  const rank_storage old_of_b(of_from, 1, "old"), new_of_b(of_into, 0, "new");
  const binding &before = old_of_b.tensors(), &after = new_of_b.tensors();
  const binding none("none", {}, adam);
  CHECK(bytes_of(between(torn(0, {})).held_by(1, before, after)) == held_bytes(of_from, 1));
  CHECK(bytes_of(between(torn(0, {})).held_by(0, before, none)) == 0);  // that is another one's
  CHECK(bytes_of(between(torn(stages, {})).held_by(1, before, after)) == held_bytes(of_into, 0));
  CHECK(bytes_of(between(torn(stages, {})).held_by(1, none, after)) == held_bytes(of_into, 0));
  CHECK(bytes_of(between(torn(0, {"b"})).held_by(1, before, after)) == 0);
}

TEST_CASE("what nobody holds any more, in a sentence") {
  const world two = world_of(3, {"a", "b"}, "dp=2"), cut = world_of(3, {"a", "b"}, "pp=2");
  CHECK(missing(lost_record({two}, {}, {"a", "b"})) == "nobody who is left holds any of the state; gone are a and b");
  CHECK(missing(lost_record({two}, {{"a", 9}}, {"a"})) == "nobody who is left holds any of the state; gone are a");
  CHECK(missing(lost_record({two}, {{"a", 9}, {"b", 12}})) ==
        "b is at version 12, stage 0, and a is at version 9, stage 0; versions of one world are at most one apart");
  CHECK(missing(lost_record({two}, {{"a", 9}}, {"b"})) == "of version 9 nobody holds 0 bytes any more; b held them");
  const std::string of_b = std::to_string(held_bytes(of_from, 1)), of_a = std::to_string(held_bytes(of_from, 0));
  const std::string second = missing(lost_record({cut}, {{"a", 9}})), first = missing(lost_record({cut}, {{"b", 9}}));
  CHECK(second.starts_with("of version 9 nobody holds " + of_b + " bytes any more; the first are param of "));
  CHECK(second.ends_with("; b held them"));
  CHECK(second.find("param of decoder.layers.2.") != std::string::npos);
  CHECK(first.starts_with("of version 9 nobody holds " + of_a + " bytes any more; the first are param of "));
  CHECK(first.ends_with("; a held them"));
  CHECK(first.find("layers.1.") == std::string::npos);
  CHECK(first.find("layers.2.") == std::string::npos);
  CHECK(second.find("the first", second.find("the first") + 1) == std::string::npos);
  // who lives and is empty held them as well
  const world four = world_of(3, {"a", "b", "c", "d"}, "pp=2,dp=2");
  const std::string both =
      missing(lost_record({four, world_of(4, {"a", "c"}, "dp=2")}, {{"a", 9}, {"b", 9}, {"c", holds_nothing}}, {"d"}));
  CHECK(both.ends_with("; d and c held them"));
  CHECK(both.starts_with("of version 9 nobody holds " + of_b + " bytes any more; the first are param of "));
}

TEST_CASE("what was lost between two worlds, in a sentence") {
  job_record r = lost_record({from, into}, {{"b", 9}}, {"a"});
  r.promises[0].torn_stages = stages;
  CHECK(missing(r) == "of version 9 nobody holds " + std::to_string(held_bytes(of_from, 0)) +
                          " bytes any more, since the change to epoch 4 was torn: " + lost(elements_of(0), 0));
}
