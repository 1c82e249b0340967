// SPDX-License-Identifier: Apache-2.0
// The record's next value: what each row demands, what is over, who is expelled; and a model checker: three members,
// two requests and one death, interleaved in every way, with the contract's rows beside. From every state an end is
// reached, and nothing that is over changes anything.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <reshard/elastic/next.hpp>
#include <reshard/elastic/require_record.hpp>

#include "../oracle/job_machine.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using kind = job_event_kind;

namespace {

constexpr world world_of(index_t epoch, member_list members, index_t first_step = 0, index_t cursor = 0) {
  const auto dp = static_cast<index_t>(members.size());
  return {.epoch = epoch,
          .members = std::move(members),
          .layout = {.dp = dp},
          .first_step = first_step,
          .cursor = cursor,
          .batch = 8};
}
constexpr job_event event_of(const job_record& r, kind what, member_list members = {}, std::vector<world> to = {}) {
  job_event e = event_about(r, what);
  e.members = std::move(members);
  e.to = std::move(to);
  return e;
}
constexpr job_event at_step(job_event e, index_t at) {
  e.at = at;
  return e;
}
constexpr job_record founded(member_list members = {"a", "b"}) {
  job_record r;
  r.wanted = static_cast<index_t>(members.size());
  return next(r, event_of(r, kind::found, {}, {world_of(1, members)}));
}
constexpr job_record asked(const job_record& r, member_list members) {
  return next(r, event_of(r, kind::ask, {}, {world_of(r.epoch + 1, std::move(members))}));
}
constexpr job_record armed(const job_record& r, index_t at) {
  member_list all = r.now().members;
  add_members(all, r.proposed[0].members);
  return next(r, at_step(event_of(r, kind::ready, all), at));
}
constexpr job_record promised(job_record r, const member_name& who, index_t version = 5) {
  return with_promise(r, r.epoch, {.told = {who, version}});
}

// The way of a planned change and of a death, by the compiler.
constexpr bool a_member_joins() {
  const job_record r = armed(asked(founded(), {"a", "b", "c"}), 12);
  if (r.phase != job_phase::armed || r.boundary != 12 || r.proposed[0].cursor != 96) return false;
  const job_record in = next(r, event_of(r, kind::acked, {"b", "a"}));
  if (in.phase != job_phase::entering || in.epoch != 2 || in.worlds.size() != 2) return false;
  const job_record idle = next(in, event_of(in, kind::entered, {"a", "b", "c"}));
  return idle.phase == job_phase::idle && idle.worlds.size() == 1 && idle.now().first_step == 12 &&
         follows(r.now(), idle.now());
}
constexpr bool a_member_dies() {
  job_record r = founded();
  r = next(r, event_of(r, kind::broke, {"b"}));
  r = promised(r, "a");
  r = next(r, event_of(r, kind::accounted, {}, {world_of(2, {"a"}, 5, 40)}));
  return r.phase == job_phase::entering && r.epoch == 2 && r.gone == member_list{"b"} &&
         next(r, event_of(r, kind::entered, {"a"})).gone.empty();
}
static_assert(a_member_joins() && a_member_dies());

// What was asked for: called off it is still to be answered, after a death it is taken up again, and it goes with the
// end of the job.
constexpr bool requests_are_kept() {
  job_event ask = event_of(founded(), kind::ask, {}, {world_of(2, {"a", "b", "c"})});
  ask.request = "r1";
  const job_record r = next(founded(), ask);
  if (r.request != member_name("r1") || next(r, event_of(r, kind::late)).request != member_name("r1")) return false;
  if (!next(r, event_of(r, kind::broke, {"a"})).request.empty()) return false;
  job_event end = at_step(event_of(founded(), kind::finish), 7);
  end.request = "r2";
  const job_record done = next(founded(), end);
  return done.phase == job_phase::done && done.boundary == 7 && done.request == member_name("r2");
}
// Promises stay while the world is entered that they led to, and no longer.
constexpr bool promises_are_kept() {
  job_record r = founded();
  r = promised(next(r, event_of(r, kind::broke, {"b"})), "a");
  r = next(r, event_of(r, kind::accounted, {}, {world_of(2, {"a"}, 5, 40)}));
  return r.promises.size() == 1 && next(r, event_of(r, kind::entered, {"a"})).promises.empty() &&
         next(r, event_of(r, kind::broke, {"a"})).promises.empty();
}

}  // namespace

TEST_CASE("a member joins, and a member dies, at run time as by the compiler") {
  CHECK(a_member_joins());
  CHECK(a_member_dies());
}

TEST_CASE("what each row demands of its event") {
  const auto why = [](const job_record& r, const job_event& e) {
    CHECK(next(r, e) == r);
    return std::string(why_ignored(r, e));
  };
  job_record r;
  r.wanted = 2;
  CHECK(why(r, event_of(r, kind::found)) == "it names no world of epoch 1");
  CHECK(why(r, event_of(r, kind::found, {}, {world_of(2, {"a", "b"})})) == "it names no world of epoch 1");
  CHECK(why(r, event_of(r, kind::found, {}, {world_of(1, {"a"})})) == "fewer members are there than were asked for");
  CHECK(why(r, event_of(r, kind::finish)) == "the table has no such pair");
  r = founded();
  CHECK(why(r, event_of(r, kind::ask)) == "it names no world of the next epoch");
  CHECK(why(r, event_of(r, kind::ask, {}, {world_of(3, {"a"})})) == "it names no world of the next epoch");
  CHECK(why(r, event_of(r, kind::ask, {}, {world_of(2, {"a", "b"})})) == "it names no other world");
  CHECK(why(r, event_of(r, kind::broke, {"c"})) ==
        "it names no member of the old or new world that was thought to live");
  r = asked(r, {"a", "c"});
  CHECK(r.attempt == 1);
  for (const member_list& all : {member_list{"a", "c"}, member_list{"a", "b"}})
    CHECK(why(r, at_step(event_of(r, kind::ready, all), 3)) ==
          "a member of the old or new world does not have its groups");
  CHECK(why(r, at_step(event_of(r, kind::ready, {"a", "b", "c"}), -1)) ==
        "its boundary is before the first step of the world");
  CHECK(next(r, event_of(r, kind::broke, {"c"})).phase == job_phase::recovering);
  r = armed(r, 3);
  CHECK(why(r, event_of(r, kind::acked, {"a", "c"})) == "a member of the old world is not armed");
  CHECK(why(r, at_step(event_of(r, kind::passed), 3)) == "it names no later boundary");
  const job_event early = event_of(r, kind::acked, {"a", "b"});
  r = next(r, at_step(event_of(r, kind::passed), 9));
  CHECK(r.boundary == 9);
  CHECK(r.proposed[0].cursor == 72);
  CHECK(why(r, early) == "it is about another boundary");
  r = next(r, event_of(r, kind::acked, {"a", "b"}));
  CHECK(why(r, early) == "the table has no such pair");
  CHECK(why(r, event_of(r, kind::entered, {"a"})) == "a member of the new world has not switched");
  CHECK(why(next(r, event_of(r, kind::entered, {"a", "c"})), event_of(founded(), kind::broke, {"a"})) ==
        "it is about another epoch");
}

namespace {

/// A record and an event that it takes.
struct taken_event {
  job_record at;
  job_event e;
};
/// Of every row of the table one, two of a kind where that is brought about in several phases.
std::vector<taken_event> one_of_each_row() {
  std::vector<taken_event> all;
  const auto add = [&](const job_record& r, const job_event& e) { all.push_back({r, e}); };
  job_record r;
  r.wanted = 2;
  add(r, event_of(r, kind::found, {}, {world_of(1, {"a", "b"})}));
  r = next(asked(founded(), {"a"}), event_of(asked(founded(), {"a"}), kind::late));
  REQUIRE(r.attempt == 1);
  add(r, event_of(r, kind::ask, {}, {world_of(2, {"a"})}));
  add(r, at_step(event_of(r, kind::finish), 9));
  r = asked(r, {"a", "b", "c"});
  add(r, event_of(r, kind::late));
  add(r, at_step(event_of(r, kind::ready, {"a", "b", "c"}), 6));
  r = armed(r, 6);
  for (const kind what : {kind::late, kind::acked}) add(r, event_of(r, what, {"a", "b"}));
  add(r, at_step(event_of(r, kind::passed), 7));
  add(r, event_of(r, kind::broke, {"c"}));
  r = next(r, event_of(r, kind::acked, {"a", "b"}));
  add(r, event_of(r, kind::entered, {"a", "b", "c"}));
  r = promised(next(r, event_of(r, kind::broke, {"c"})), "a");
  add(r, event_of(r, kind::accounted, {"b"}, {world_of(3, {"a"}, 6, 48)}));
  add(r, event_of(r, kind::no_plan));
  add(r, event_of(r, kind::nobody));
  r = next(r, event_of(r, kind::no_plan));
  add(r, event_of(r, kind::come));
  add(r, event_of(r, kind::broke, {"b"}));
  return all;
}

}  // namespace

TEST_CASE("an event is about an epoch; all but a founding, a request, a death and the end are about an attempt") {
  for (const taken_event& one : one_of_each_row()) {
    const job_record& r = one.at;
    const job_event& taken = one.e;
    CAPTURE(to_text(r));
    CAPTURE(to_text(taken));
    CHECK(why_ignored(r, taken).empty());
    const bool whatever =
        taken.kind == kind::found || taken.kind == kind::ask || taken.kind == kind::broke || taken.kind == kind::finish;
    for (const index_t other : {-1, 1}) {
      job_event e = taken;
      e.epoch += other;
      CHECK(why_ignored(r, e) == "it is about another epoch");
      e = taken, e.attempt += other;
      CHECK(why_ignored(r, e) == (whatever ? "" : "it is about another attempt"));
      // a boundary is named only where the job is armed
      e = taken, e.boundary += other;
      CHECK(why_ignored(r, e) == (whatever || r.phase != job_phase::armed ? "" : "it is about another boundary"));
    }
  }
}

TEST_CASE(
    "a death is of a member that was thought to live, of any world that state may lie in or of the one proposed") {
  const std::string in_vain = "it names no member of the old or new world that was thought to live";
  const auto why = [](const job_record& r, member_list dead) {
    return std::string(why_ignored(r, event_of(r, kind::broke, std::move(dead))));
  };
  job_record r = asked(founded(), {"b", "c"});
  for (const member_list& dead : {member_list{"a"}, {"b"}, {"c"}, {"x", "c"}, {"c", "x"}}) CHECK(why(r, dead).empty());
  for (const member_list& dead : {member_list{}, {"x"}, {"x", "y"}}) CHECK(why(r, dead) == in_vain);
  r = next(armed(r, 4), event_of(armed(r, 4), kind::acked, {"a", "b"}));
  r.gone = {"b"};
  for (const member_list& dead : {member_list{"a"}, {"c"}, {"b", "a"}}) CHECK(why(r, dead).empty());
  for (const member_list& dead : {member_list{"b"}, {"x", "b"}}) CHECK(why(r, dead) == in_vain);
}

TEST_CASE("the least that a row accepts: the first step itself, the same members alone, more than are asked for") {
  const auto taken = [](const job_record& r, const job_event& e) { return why_ignored(r, e).empty(); };
  job_record r;
  r.wanted = 2;
  CHECK(taken(r, event_of(r, kind::found, {}, {world_of(1, {"a", "b", "c"})})));
  r = next(r, event_of(r, kind::found, {}, {world_of(1, {"a", "b"}, 7, 3)}));
  r = asked(r, {"a", "b", "c"});
  for (const index_t at : {6, 7, 8})
    CHECK(taken(r, at_step(event_of(r, kind::ready, {"c", "b", "a", "x"}), at)) == (at >= 7));
  r = armed(r, 7);
  CHECK(r.proposed[0].cursor == 3);
  for (const member_list& acks : {member_list{"a"}, {"b"}, {}}) CHECK_FALSE(taken(r, event_of(r, kind::acked, acks)));
  for (const member_list& acks : {member_list{"b", "a"}, {"a", "c", "b"}})
    CHECK(taken(r, event_of(r, kind::acked, acks)));
  for (const index_t at : {6, 7, 8}) CHECK(taken(r, at_step(event_of(r, kind::passed), at)) == (at == 8));
}

TEST_CASE("another world has other members, another layout or another batch; where it begins makes it no other") {
  const job_record r = founded();
  world other = world_of(2, {"a", "b"});
  const auto why = [&] { return std::string(why_ignored(r, event_of(r, kind::ask, {}, {other}))); };
  other.first_step = 3, other.cursor = 24;
  CHECK(why() == "it names no other world");
  other.batch = 9;
  CHECK(why().empty());
  other.batch = 8, other.layout = {.tp = 2};
  CHECK(why().empty());
  other.layout = {.dp = 2}, other.members = {"b", "a"};
  CHECK(why().empty());
  other.epoch = 1;
  CHECK(why() == "it names no world of the next epoch");
  CHECK(why_ignored(r, event_of(r, kind::ask, {}, {world_of(2, {"a"}), world_of(2, {"b"})})) ==
        "it names no world of the next epoch");
}

TEST_CASE("attempts are counted within an epoch, and begin with 0 in each") {
  job_record r = founded();
  CHECK(r.attempt == 0);
  r = asked(r, {"a", "b", "c"});
  r = next(r, event_of(r, kind::late));
  r = asked(r, {"a", "b", "c"});
  CHECK(r.attempt == 2);
  r = armed(r, 5);
  CHECK(r.attempt == 2);
  r = next(r, event_of(r, kind::acked, {"a", "b"}));
  CHECK((r.epoch == 2 && r.attempt == 0));
  r = next(r, event_of(r, kind::broke, {"c"}));
  CHECK(r.attempt == 1);
  r = next(r, event_of(r, kind::no_plan));
  r = next(r, event_of(r, kind::come));
  CHECK(r.attempt == 2);
  r = next(promised(r, "a"), event_of(r, kind::accounted, {"b"}, {world_of(3, {"a"}, 5, 40)}));
  CHECK((r.epoch == 3 && r.attempt == 0));
}

TEST_CASE("of a world after a death: its cursor is that of its first step, also where that is the old world's") {
  job_record r = founded();
  r.worlds[0].first_step = 5, r.worlds[0].cursor = 40;
  r = promised(next(r, event_of(r, kind::broke, {"b"})), "a");
  const auto why = [&](index_t step, index_t cursor) {
    return std::string(why_ignored(r, event_of(r, kind::accounted, {}, {world_of(2, {"a"}, step, cursor)})));
  };
  CHECK(why(5, 40).empty());
  CHECK(why(5, 41) == "its world has another cursor");
  CHECK(why(6, 48).empty());
  CHECK(why(6, 40) == "its world has another cursor");
  CHECK(why(4, 7).empty());  // undone: an earlier world tells it
}

TEST_CASE("who is gone is kept with the record, and what is called off keeps its request and what was promised") {
  job_record r = founded({"a", "b", "c"});
  job_event ask = event_of(r, kind::ask, {}, {world_of(2, {"a", "b"})});
  ask.request = "r1";
  r = armed(next(r, ask), 5);
  CHECK(next(r, event_of(r, kind::late)).request == member_name("r1"));
  r = next(r, event_of(r, kind::acked, {"a", "b", "c"}));
  CHECK(r.request == member_name("r1"));
  CHECK(next(r, event_of(r, kind::entered, {"a", "b"})).request.empty());
  CHECK(next(r, event_of(r, kind::entered, {"a", "b"})).proposed.empty());
  r = promised(next(r, event_of(r, kind::broke, {"c"})), "a");
  CHECK(r.gone == member_list{"c"});
  const job_record waits = next(r, event_of(r, kind::no_plan));
  CHECK((waits.phase == job_phase::waiting && waits.attempt == 1));
  const job_record again = next(waits, event_of(waits, kind::come, {"x"}));
  CHECK((again.worlds == r.worlds && again.promises == r.promises && again.gone == r.gone));
  CHECK(again.phase == job_phase::recovering);
  const job_record lost = next(r, event_of(r, kind::nobody, {"b", "c"}));
  CHECK(lost.gone == member_list{"c", "b"});
  CHECK((lost.attempt == r.attempt && lost.promises == r.promises && lost.worlds == r.worlds));
  const job_record in = next(r, event_of(r, kind::accounted, {"b"}, {world_of(3, {"a"}, 5, 40)}));
  CHECK(in.gone == member_list{"c", "b"});
  CHECK(why_ignored(in, event_of(in, kind::broke, {"b"})) ==
        "it names no member of the old or new world that was thought to live");
  CHECK(next(in, event_of(in, kind::entered, {"a"})).gone.empty());
}

TEST_CASE("a proposal that is over and asked for again is another: acks of the first are none of the second") {
  job_record first = armed(asked(founded(), {"a", "b", "c"}), 5);
  const job_event acks = event_of(first, kind::acked, {"a", "b"});
  const job_record off = next(first, event_of(first, kind::late));
  CHECK(off.phase == job_phase::idle);
  CHECK(off.boundary == 0);
  CHECK(off.proposed.empty());
  const job_record again = armed(asked(off, {"a"}), 5);
  CHECK(again.epoch == first.epoch);
  CHECK(again.boundary == first.boundary);
  CHECK(why_ignored(again, acks) == "it is about another attempt");
  CHECK(next(again, acks) == again);
  CHECK(next(first, acks).epoch == 2);
}

TEST_CASE("who must be accounted for before another world is made of who is left") {
  const auto why = [](const job_record& r, member_list gone, std::vector<world> to) {
    return std::string(why_ignored(r, event_of(r, kind::accounted, std::move(gone), std::move(to))));
  };
  job_record r = founded({"a", "b", "c"});
  r = next(r, event_of(r, kind::broke, {"c"}));
  CHECK(r.gone == member_list{"c"});
  const std::vector<world> two{world_of(2, {"a", "b"}, 5, 40)}, one{world_of(2, {"a"}, 5, 40)};
  r = promised(r, "a");
  CHECK(why(r, {}, two) == "a member has neither promised nor is it gone");
  CHECK(why(r, {"b"}, two) == "its world has a member that is gone");
  CHECK(why(r, {"b"}, one).empty());
  CHECK(why(r, {"a", "b"}, one) == "nobody who holds state has promised");
  CHECK(why(r, {"b"}, {}) == "it names no world of the next epoch");
  CHECK(why(r, {"b"}, {world_of(3, {"a"}, 5, 40)}) == "it names no world of the next epoch");
  CHECK(why(r, {"b"}, {world_of(2, {"a"}, 5, 41)}) == "its world has another cursor");
  r = promised(r, "b");
  CHECK(why(r, {}, two).empty());
  CHECK(why(r, {"a"}, two) == "its world has a member that is gone");
  // a promise within the grace saves whom the evidence called gone
  const job_record back = promised(r, "c");
  CHECK(back.gone.empty());
  CHECK(why(back, {}, two).empty());
  // a world in which nobody holds state
  job_record empty = next(founded(), event_of(founded(), kind::broke, {"b"}));
  empty = promised(empty, "a", holds_nothing);
  CHECK(why(empty, {}, one) == "nobody who holds state has promised");
  CHECK(next(empty, event_of(empty, kind::nobody)).phase == job_phase::lost);
  CHECK(next(empty, event_of(empty, kind::no_plan)).phase == job_phase::waiting);
}

TEST_CASE("a world begins with copies of a version that somebody has, and the record says so until it is entered") {
  job_record r = founded({"a", "b"});
  r = next(r, event_of(r, kind::broke, {"b"}));
  r = with_promise(r, 1, {.told = {"a", 5}, .of_epoch = 1, .copies = {{"a", 4}, {"b", 2}}});
  const auto from = [&](index_t step, bool copies) {
    job_event e = event_of(r, kind::accounted, {}, {world_of(2, {"a"}, step, 8 * step)});
    e.from_copies = copies;
    return e;
  };
  for (const index_t step : {4, 2}) CHECK(why_ignored(r, from(step, true)).empty());
  for (const index_t step : {5, 3, 0})
    CHECK(why_ignored(r, from(step, true)) == "nobody has a copy of the version it begins with");
  CHECK_FALSE(next(r, from(5, false)).from_copies);
  const job_record in = next(r, from(4, true));
  CHECK(in.from_copies);
  CHECK(in.promises == r.promises);
  CHECK(to_text(in).find("; it begins with copies") != std::string::npos);
  CHECK(to_text(from(4, true)).ends_with(", from copies"));
  CHECK_FALSE(next(in, event_of(in, kind::entered, {"a"})).from_copies);
  CHECK_FALSE(next(in, event_of(in, kind::broke, {"a"})).from_copies);
}

TEST_CASE("of a torn change, who was to leave may hold the state, and goes on without a member of the epoch too") {
  job_record r = armed(asked(founded(), {"b", "c"}), 5);
  r = next(r, event_of(r, kind::acked, {"a", "b"}));
  r = next(r, event_of(r, kind::broke, {"b"}));
  CHECK(r.worlds.size() == 2);
  CHECK(r.concerned() == member_list{"a", "b", "c"});
  r = promised(r, "a");
  const job_event only_a = event_of(r, kind::accounted, {"c"}, {world_of(3, {"a"}, 5, 40)});
  CHECK(why_ignored(r, only_a).empty());
  CHECK(next(r, only_a).now().members == member_list{"a"});
  CHECK(next(r, only_a).epoch == 3);
  r = promised(r, "c", holds_nothing);
  const job_event only_c = event_of(r, kind::accounted, {"a"}, {world_of(3, {"c"}, 5, 40)});
  CHECK(why_ignored(r, only_c) == "nobody who holds state has promised");
  const job_record in = next(r, event_of(r, kind::accounted, {}, {world_of(3, {"a", "c"}, 5, 40)}));
  CHECK(in.phase == job_phase::entering);
  CHECK(in.worlds.size() == 3);
  CHECK(next(in, event_of(in, kind::entered, {"a", "c"})).worlds.size() == 1);
}

TEST_CASE("requests and promises stay in the record as long as somebody needs them") {
  CHECK(requests_are_kept());
  CHECK(promises_are_kept());
}

TEST_CASE("promises: taken once, of the epoch that broke, and too late for who is out") {
  const promise p{.told = {"b", 5}};
  job_record r = founded({"a", "b", "c"});
  CHECK(answer_to(r, 1, p) == promise_answer::not_asked);
  CHECK(with_promise(r, 1, p) == r);
  r = next(r, event_of(r, kind::broke, {"b"}));
  CHECK(answer_to(r, 2, p) == promise_answer::not_asked);
  CHECK(answer_to(r, 1, {.told = {"x", 5}}) == promise_answer::not_asked);
  CHECK(answer_to(r, 1, p) == promise_answer::taken);
  CHECK(answer_to(with_promise(r, 1, p), 1, p) == promise_answer::said);
  CHECK(answer_to(next(r, event_of(r, kind::no_plan)), 1, p) == promise_answer::taken);
  r = promised(promised(r, "a"), "c");
  r = next(r, event_of(r, kind::accounted, {}, {world_of(2, {"a", "c"}, 5, 40)}));
  CHECK(why_ignored(r, event_of(r, kind::broke, {"b"})) ==
        "it names no member of the old or new world that was thought to live");
  CHECK(answer_to(r, 1, p) == promise_answer::too_late);
  CHECK(with_promise(r, 1, p) == r);
  CHECK(answer_to(r, 1, {.told = {"a", 5}}) == promise_answer::not_asked);
}

TEST_CASE("a world that is none is refused") {
  job_record r;
  world twice = world_of(1, {"a", "a"});
  CHECK_REFUSED(next(r, event_of(r, kind::found, {}, {twice})), "ranks 0 and 1 are both a; a member has one rank");
  CHECK_REFUSED(r.now(), "there is no world yet; the job is founding");
}

TEST_CASE("records and events as text") {
  job_record r = armed(asked(founded(), {"a", "b", "c"}), 12);
  r.request = "r1";
  CHECK(
      to_text(r) ==
      "armed in epoch 1, attempt 1: all stop before step 12; epoch 1: a and b; dp=2; from step 0, sample 0, in batches "
      "of 8; proposed is epoch 2: a, b and c; dp=3; from step 12, sample 96, in batches of 8; asked for by r1");
  CHECK(to_text(at_step(event_of(r, kind::passed, {"a"}), 14)) ==
        "passed about epoch 1, attempt 1, boundary 12, at step 14: a");
  r = next(r, event_of(r, kind::broke, {"b"}));
  CHECK(to_text(promised(r, "a")) ==
        "recovering in epoch 1, attempt 2; epoch 1: a and b; dp=2; from step 0, sample 0, in batches of 8; "
        "promised: a is at version 5, stage 0; gone: b");
  CHECK(to_text(job_record{}) == "founding in epoch 0, attempt 0: 1 members are asked for");
}

namespace {

/// The record and what it does not say: who lives, how many requests are left, what members have said.
struct modelled {
  job_record record;
  unsigned dead = 0, said = 0, holders = 0;  // bits: a, b, c
  int left = 2;                              // requests that were not taken up
  bool passed = false;

  std::string key() const {
    return to_text(record) + "/" + std::to_string(dead) + "/" + std::to_string(said) + "/" + std::to_string(holders) +
           "/" + std::to_string(left) + (passed ? "p" : "");
  }
};
const member_list everybody{"a", "b", "c"};

member_list listed(unsigned bits) {
  member_list list;
  for (unsigned m = 0; m < 3; ++m)
    if ((bits >> m & 1u) != 0) list.push_back(everybody[m]);
  return list;
}
unsigned bits_of(const member_list& list) {
  unsigned bits = 0;
  for (unsigned m = 0; m < 3; ++m)
    if (has_member(list, everybody[m])) bits |= 1u << m;
  return bits;
}

/// Explores every interleaving.
class model_checker {
 public:
  explicit model_checker(bool dying) : dying_(dying) {
    modelled first;
    first.record.wanted = 2;
    add(first);
    while (!pending_.empty()) {
      at_ = pending_.back();
      pending_.pop_back();
      from_ = numbers_[at_.key()];
      states_[from_] = at_.record;
      explore();
    }
  }
  std::size_t states() const { return numbers_.size(); }
  const std::map<std::string, int>& events() const { return events_; }
  bool agreed() const { return agreed_; }
  /// States from which a phase is reached.
  std::set<std::size_t> with_a_way_to(std::set<job_phase> ends) const {
    std::set<std::size_t> found;
    std::vector<std::size_t> open;
    for (const auto& [number, record] : states_)
      if (ends.count(record.phase) > 0) found.insert(number), open.push_back(number);
    while (!open.empty()) {
      const std::size_t one = open.back();
      open.pop_back();
      if (const auto before = before_.find(one); before != before_.end())
        for (const std::size_t b : before->second)
          if (found.insert(b).second) open.push_back(b);
    }
    return found;
  }
  /// Every state is a record, so that it is stored and read.
  void require_records() const {
    for (const auto& [unused, r] : states_) require_record(r);
  }
  /// Events about what is over, given to every state: how many were ignored, and how many were not. Where few tries are
  /// asked for each state is given one of them in a thousand, and others than the state before.
  std::pair<long, long> stale() const {
    long ignored = 0, taken = 0;
    const std::size_t one_in = testing::few() ? 997 : 1;
    for (const auto& [number, r] : states_)
      for (std::size_t at = number % one_in; at < about_.size(); at += one_in) {
        const job_event& e = about_[at];
        if (e.epoch == r.epoch && e.attempt == r.attempt && (r.phase != job_phase::armed || e.boundary == r.boundary))
          continue;
        const bool of_epoch = e.kind == kind::broke || e.kind == kind::ask || e.kind == kind::finish;
        if (of_epoch && e.epoch == r.epoch) continue;
        ++(why_ignored(r, e).empty() ? taken : ignored);
      }
    return {ignored, taken};
  }

 private:
  void add(const modelled& to) {
    const auto [found, is_new] = numbers_.emplace(to.key(), numbers_.size());
    if (is_new) pending_.push_back(to);
    before_[found->second].insert(from_);
  }
  /// An event that a member might bring about now; it is followed where the record takes it, in step with the rows.
  template <typename Change>
  void bring_about(const job_event& e, Change&& change) {
    modelled to = at_;
    to.record = next(at_.record, e);
    const bool taken = why_ignored(at_.record, e).empty();
    const std::string phase(name(at_.record.phase)), event(name(e.kind));
    const auto [follows_as, rises] = twin_.after(phase, event);
    agreed_ = agreed_ && taken == twin_.has(phase, event) && name(to.record.phase) == follows_as &&
              to.record.epoch == at_.record.epoch + rises;
    ++events_[event];
    about_.push_back(e);
    to.said = 0;
    change(to);
    if (taken) add(to);
  }
  void bring_about(const job_event& e) {
    bring_about(e, [](modelled&) {});
  }
  void explore() {
    const job_record& r = at_.record;
    const unsigned living = 7u & ~at_.dead;
    if (dying_ && at_.dead == 0 && !is_end(r.phase))
      for (unsigned m = 0; m < 3; ++m) {
        modelled to = at_;
        to.dead |= 1u << m;
        add(to);
      }
    if (r.phase == job_phase::founding) {
      for (const unsigned two : {3u, 5u, 6u})
        if ((two & at_.dead) == 0)
          bring_about(event_of(r, kind::found, {}, {world_of(1, listed(two))}),
                      [&](modelled& to) { to.holders = two; });
      return;
    }
    const unsigned old_world = bits_of(r.now().members),
                   new_world = r.proposed.empty() ? 0 : bits_of(r.proposed[0].members);
    const unsigned needed = r.phase == job_phase::proposed ? old_world | new_world : old_world;
    if (r.phase == job_phase::proposed || r.phase == job_phase::armed || r.phase == job_phase::entering)
      for (unsigned m = 0; m < 3; ++m)
        if (const unsigned bit = 1u << m; (needed & living & ~at_.said & bit) != 0) {
          modelled to = at_;
          to.said |= bit;
          add(to);
        }
    const bool all_said = (needed & ~at_.said) == 0;
    if (r.phase == job_phase::proposed || r.phase == job_phase::armed) bring_about(event_of(r, kind::late));
    if (r.phase == job_phase::proposed && all_said)
      bring_about(at_step(event_of(r, kind::ready, listed(at_.said)), r.now().first_step + 2));
    if (r.phase == job_phase::armed && all_said) bring_about(event_of(r, kind::acked, listed(at_.said)));
    if (r.phase == job_phase::armed && !at_.passed)
      bring_about(at_step(event_of(r, kind::passed), r.boundary + 1), [](modelled& to) { to.passed = true; });
    if (r.phase == job_phase::entering && all_said)
      bring_about(event_of(r, kind::entered, listed(at_.said)), [&](modelled& to) { to.holders = old_world; });
    if (const unsigned broke = at_.dead & (bits_of(r.concerned()) | new_world) & ~bits_of(r.gone);
        broke != 0 && !is_end(r.phase) && r.phase != job_phase::recovering)
      bring_about(event_of(r, kind::broke, listed(broke)));
    if (r.phase == job_phase::idle) explore_idle(living, old_world);
    if (r.phase == job_phase::waiting) bring_about(event_of(r, kind::come, {"d"}));
    if (r.phase == job_phase::recovering) explore_recovery(living);
  }
  void explore_idle(unsigned living, unsigned old_world) {
    const job_record& r = at_.record;
    bring_about(event_of(r, kind::finish));
    if (at_.left == 0) return;
    // two requests: whoever is spare joins; the first of the world leaves
    const unsigned joined = old_world | living, left = old_world & (old_world - 1);
    for (const unsigned to_be : {joined, left})
      if (to_be != old_world && to_be != 0)
        bring_about(event_of(r, kind::ask, {}, {world_of(r.epoch + 1, listed(to_be))}),
                    [](modelled& to) { --to.left; });
  }
  void explore_recovery(unsigned living) {
    const job_record& r = at_.record;
    unsigned promises = 0;
    for (const promise& p : r.promises) promises |= bits_of({p.told.member});
    for (unsigned m = 0; m < 3; ++m)
      if (const unsigned bit = 1u << m; (bits_of(r.concerned()) & living & ~promises & bit) != 0) {
        modelled to = at_;
        to.record = with_promise(
            r, r.epoch, {.told = {everybody[m], (at_.holders & bit) != 0 ? r.now().first_step : holds_nothing}});
        add(to);
      }
    const unsigned concerned = bits_of(r.concerned()), out = (bits_of(r.gone) | at_.dead) & concerned;
    if ((concerned & ~(promises | out)) != 0) return;
    const bool held = (at_.holders & living & promises) != 0;
    if (!held) return bring_about(event_of(r, kind::nobody));
    if (r.attempt < 3) bring_about(event_of(r, kind::no_plan));  // or states had no end
    for (const unsigned to_be : {promises & living, living})
      bring_about(event_of(r, kind::accounted, listed(out),
                           {world_of(r.epoch + 1, listed(to_be), r.now().first_step, r.now().cursor)}));
  }

  bool dying_;
  oracle::job_machine twin_;
  std::map<std::string, std::size_t> numbers_;
  std::map<std::size_t, job_record> states_;
  std::map<std::size_t, std::set<std::size_t>> before_;
  std::map<std::string, int> events_;
  std::vector<job_event> about_;
  std::vector<modelled> pending_;
  modelled at_;
  std::size_t from_ = 0;
  bool agreed_ = true;
};

}  // namespace

TEST_CASE("three members, two requests, one death, every interleaving: no state without a way to an end") {
  const model_checker all(true), none_dies(false);
  CHECK(all.agreed());
  CHECK(none_dies.agreed());
  CHECK_NOTHROW(all.require_records());
  CHECK(all.with_a_way_to({job_phase::done, job_phase::lost}).size() == all.states());
  CHECK(none_dies.with_a_way_to({job_phase::done}).size() == none_dies.states());
  const std::size_t lost = all.with_a_way_to({job_phase::lost}).size();
  CHECK(lost > 0);
  CHECK(lost < all.states());
  CHECK(all.events().size() == static_cast<std::size_t>(job_events));
  const auto [ignored, taken] = all.stale();
  CHECK(taken == 0);
  CHECK(ignored > 10000);
  std::string counts;
  for (const auto& [event, count] : all.events()) counts += " " + event + " " + std::to_string(count);
  MESSAGE(all.states() << " states (" << none_dies.states() << " without a death), events brought about:" << counts
                       << "; " << ignored << " that were over were ignored");
}
