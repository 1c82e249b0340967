// SPDX-License-Identifier: Apache-2.0
// A planned change, as one member drives it whose fellows' words the test says: which requests are taken up and when,
// who is waited for and for how long, where all stop, and what is answered.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <reshard/elastic/run/planned_change.hpp>

#include "../support/one_member.hpp"
#include "../support/words.hpp"

using namespace reshard;
using namespace testing;

namespace {

/// a, of the world of a and b, unless the test says otherwise; it is in the world of epoch 3.
struct changing : one_member {
  explicit changing(const std::string& me = "a", const std::function<void(job_settings&)>& differs = {},
                    trainer_calls calls = {})
      : one_member(me, differs, std::move(calls)), door(listening_socket("127.0.0.1:0")), groups(core, door),
        steps(core), change(core, groups, steps) {
    core.epoch = core.holds = core.tried = 3;
    core.published = 20;
  }
  void ask(const std::string& id, const std::string& words) {
    put(core.keys.requests() + id, stored_text(parse_request(id, words_of(words))));
  }
  static job_record idle_record() { return record_at(job_phase::idle, {world_at(3, {"a", "b"})}); }
  job_record idle() { return put(idle_record()); }
  /// Another world, which `id` asked for.
  job_record proposed(const world& now, const world& to, const std::string& id = "q") {
    job_record r = record_at(job_phase::proposed, {now}, 4);
    r.proposed = {to};
    r.request = id;
    return put(r);
  }
  job_record proposed() { return proposed(world_at(3, {"a", "b"}), other({"a", "b"})); }
  job_record armed(index_t boundary) {
    job_record r = record_at(job_phase::armed, {world_at(3, {"a", "b"})}, 4);
    r.proposed = {other({"a", "b"})};
    r.boundary = boundary, r.request = "q";
    return put(r);
  }
  static world other(const member_list& members) {
    world w = world_at(4, members);
    w.batch = 9;
    return w;
  }
  void all_say(const job_record& r, const std::string& what, const std::string& value) {
    for (const char* who : {"a", "b"}) say(who, r, what, value);
  }

  process_door door;
  detail::world_groups groups;
  detail::pace steps;
  detail::planned_change change;
};

trainer_calls with_groups() {
  trainer_calls calls;
  calls.make_group = [](const group_request&, std::stop_token) {};
  return calls;
}
/// Looks at what is proposed until it is something else, as the group is made by another thread.
void look_until_changed(changing& a, const job_record& r) {
  for (const auto end = just_now() + std::chrono::seconds(20); a.record() == r && just_now() < end;) {
    a.change.proposed(r, just_now());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}
/// By how much the boundary of the next change is beyond the step that all are at.
index_t margin_of(changing& a) {
  a.groups.end();  // of a change that is over
  const job_record r = a.proposed();
  a.all_say(r, "ready", "100");
  a.change.proposed(r, just_now());
  REQUIRE(a.phase() == job_phase::armed);
  return a.record().boundary - 100;
}

}  // namespace

TEST_CASE("the oldest request that has no answer is taken up, by who is in the world") {
  changing a;
  const job_record r = a.idle();
  a.ask("z", "batch 9"), a.ask("b", "batch 10");
  a.core.epoch = 2;
  a.change.idle(r, just_now());
  CHECK(a.record() == r);
  a.core.epoch = 3;
  a.change.idle(r, just_now());
  const job_record then = a.record();
  CHECK(then.phase == job_phase::proposed);
  CHECK(then.request == "z");
  CHECK(then.attempt == 1);
  REQUIRE(then.proposed.size() == 1);
  CHECK(then.proposed[0].batch == 9);
  CHECK(then.proposed[0].epoch == 4);

  a.put(r), a.put(a.core.keys.answers() + "z", "done");
  a.change.idle(r, just_now());
  CHECK(a.record().request == "b");
  CHECK(a.record().proposed[0].batch == 10);
}

TEST_CASE("what can be answered at once is, and what cannot be read too, and then the next one has its turn") {
  changing a;
  const job_record r = a.idle();
  a.put(a.core.keys.requests() + "bad", "nonsense");
  a.ask("q1", "batch 8"), a.ask("q2", "leave z,b"), a.ask("q3", "batch 1"), a.ask("q4", "batch 16");
  a.change.idle(r, just_now());
  CHECK(a.answer("bad") ==
        "refused: request: the text begins with 'nonsense', and a stored one with reshard-request-2");
  CHECK(a.answer("q1") == "done");  // it is so
  CHECK(a.answer("q2") == "");
  a.change.idle(r, just_now());
  CHECK(a.answer("q2") == "refused: leave: z is not in the world, which is a and b");
  a.change.idle(r, just_now());
  CHECK(a.answer("q3") == "refused: batch: 1 samples over 2 ranks; each has at least one, so at most 1 ranks");
  CHECK(a.record() == r);
  a.change.idle(r, just_now());
  CHECK(a.record().request == "q4");
  CHECK(a.answer("q4") == "");
}

TEST_CASE("who is asked to come is waited for to register, and no longer than that is due") {
  for (const std::string words : {"join c", "replace b c"}) {
    CAPTURE(words);
    changing a;
    const job_record r = a.idle();
    a.ask("q", words);
    a.change.idle(r, just_now());
    CHECK((a.record() == r && a.answer("q").empty()));
    a.enlist("c");
    a.change.idle(r, just_now());
    CHECK(a.phase() == job_phase::proposed);
    CHECK(a.record().proposed[0].members == (words == "join c" ? member_list{"a", "b", "c"} : member_list{"a", "c"}));

    changing late("a", [](job_settings& s) { s.comes = patience(0); });
    late.idle(), late.ask("q", words);
    late.change.idle(*late.core.record, just_now());
    CHECK(late.answer("q").ends_with("c is not registered; spares are: nobody"));
  }
  changing a;  // nobody waits for who is there, or for whom it is over
  const job_record r = a.idle();
  a.ask("q1", "join b"), a.ask("q2", "replace c b"), a.ask("q3", "leave c");
  for (int n = 0; n < 3; ++n) a.change.idle(r, just_now());
  CHECK((a.answer("q1") == "done" && a.answer("q2") == "done" && a.answer("q3") == "done"));
}

TEST_CASE("each request has its own time for who comes") {
  changing a("a", [](job_settings& s) { s.comes = patience(30); });
  const world now = world_at(3, {"a", "b"});
  const job_request first = parse_request("q1", {"join", "c"}), second = parse_request("q2", {"join", "c"});
  const the_time begun = just_now();
  CHECK(a.change.requests().waits_for_comers(first, now, {}));
  while (a.change.requests().waits_for_comers(first, now, {}) && just_now() < begun + std::chrono::seconds(20))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(just_now() - begun >= std::chrono::milliseconds(30));
  CHECK(a.change.requests().waits_for_comers(second, now, {}));
  CHECK_FALSE(a.change.requests().waits_for_comers(second, now, {"x", "c"}));
  CHECK_FALSE(a.change.requests().waits_for_comers(parse_request("q3", {"join", "b"}), now, {}));
  CHECK(a.change.requests().waits_for_comers(parse_request("q4", {"replace", "b", "c"}), now, {"b"}));
}

TEST_CASE("spares are who is registered and in no world") {
  changing a;
  for (const char* who : {"b", "y", "a", "x"}) a.enlist(who);
  CHECK(a.change.requests().spares(world_at(3, {"a", "b"})) == member_list{"y", "x"});
}

TEST_CASE("a job that is over answers all that is asked of it: what it ended by is done") {
  for (const job_phase end : {job_phase::done, job_phase::lost}) {
    changing a;
    job_record r = record_at(end, {world_at(3, {"a", "b"})});
    r.request = "q2";
    a.put(r);
    for (const char* id : {"q1", "q2", "q3"}) a.ask(id, "finish");
    a.put(a.core.keys.answers() + "q3", "done");
    a.change.requests().answer_rest(r);
    CHECK(a.answer("q1") == "refused: the job is " + std::string(name(end)));
    CHECK(a.answer("q2") == "done");
    CHECK(a.answer("q3") == "done");
  }
}

TEST_CASE("a change that was called off is answered for whom it was made, a grace later, before another is taken up") {
  changing a("a", [](job_settings& s) { s.grace = std::chrono::seconds(100); });
  job_record r = record_at(job_phase::idle, {world_at(3, {"a", "b"})});
  r.request = "off";
  a.put(r), a.ask("q", "batch 9");
  a.change.idle(r, seconds_ago(50));
  CHECK((a.record() == r && a.answer("off").empty()));
  a.change.idle(r, seconds_ago(101));
  CHECK(a.answer("off") == "failed: it was called off");
  CHECK(a.record().request == "q");
  a.put(r);
  a.change.idle(r, just_now());  // it has its answer
  CHECK(a.record().request == "q");
}

TEST_CASE("the job is done once all have made all steps") {
  changing a;
  const job_record r = a.idle();
  a.ask("q", "batch 9");
  a.core.finished = true;
  a.change.idle(r, just_now());
  CHECK((a.record() == r && a.said(r, "finished") == "1"));
  a.say("b", r, "finished");
  a.change.idle(r, just_now());
  CHECK(a.phase() == job_phase::done);
  CHECK((a.record().boundary == 0 && a.record().request.empty()));
  CHECK(a.answer("q").empty());
}

TEST_CASE("who is slow makes place for a spare, whom nobody asked for") {
  changing a("a", [](job_settings& s) { s.policy.windows = 1, s.window = patience(1); });
  const job_record r = a.put(record_at(job_phase::idle, {world_at(3, {"a", "b", "c"})}));
  for (const char* who : {"a", "b", "c"}) a.put(a.core.keys.paces() + who, *who == 'b' ? "3 90000" : "3 10000");
  a.enlist("s");
  a.change.idle(r, just_now());
  CHECK(a.phase() == job_phase::proposed);
  CHECK(a.record().request.empty());
  CHECK(a.record().proposed[0].members == member_list{"a", "s", "c"});
}

TEST_CASE("all stop beyond the foremost: a change of one member, whose groups are made by the way") {
  changing a("a", {}, with_groups());
  a.enlist("a");
  a.core.published = 33;
  const job_record r = a.proposed(world_at(3, {"a"}), changing::other({"a"}));
  look_until_changed(a, r);
  const job_record then = a.record();
  CHECK(then.phase == job_phase::armed);
  CHECK(then.boundary == 35);  // nothing is known of how long a step takes: 2
  CHECK(then.proposed[0].first_step == 35);
  CHECK(a.said(r, "here") == "1");
  CHECK(a.said(r, "ready") == "33");
  CHECK(a.told() == "group_made\nready\nswap-ready\nswapped-ready\n");
}

TEST_CASE("a group that cannot be made calls the change off, and who asked is told why") {
  trainer_calls calls;
  calls.make_group = [](const group_request&, std::stop_token) { throw std::runtime_error("reshard: no memory"); };
  changing a("a", {}, calls);
  a.enlist("a");
  const job_record r = a.proposed(world_at(3, {"a"}), changing::other({"a"}));
  look_until_changed(a, r);
  CHECK(a.phase() == job_phase::idle);
  CHECK(a.answer("q") == "failed: its groups could not be made: no memory");
}

TEST_CASE("who is not in the old world brings nothing about, and who has no part or is not there yet says nothing") {
  const auto says = [](const char* me, index_t epoch) {
    changing m(me, {}, with_groups());
    m.core.epoch = epoch;
    m.core.published = -1;
    for (const char* who : {"a", "b", "c"}) m.enlist(who);
    const job_record r = m.proposed(world_at(3, {"a"}), changing::other({"a", "b"}));
    for (const char* who : {"a", "b"})
      if (who != std::string(me)) m.say(who, r, "ready", "7"), m.say(who, r, "here");
    m.change.proposed(r, seconds_ago(1e6));
    bool here = false;  // by the thread that makes groups
    const patience longest(*me == 'b' ? 20'000 : 30);
    for (const auto end = just_now() + longest; !here && just_now() < end;) here = !m.said(r, "here").empty();
    return std::pair(here, m.record() == r);
  };
  CHECK(says("b", 0) == std::pair(true, true));
  CHECK(says("c", 0) == std::pair(false, true));
  CHECK(says("a", 2) == std::pair(false, true));
}

TEST_CASE("why a change is called off before all are ready, and that nobody is told who did not ask") {
  const auto answered = [](double ago, bool finished, bool registered) {
    changing a("a", [](job_settings& s) { s.ready = std::chrono::seconds(100); });
    if (registered) a.enlist("c");
    const job_record r = a.proposed(world_at(3, {"a", "b"}), changing::other({"a", "b", "c"}));
    a.core.finished = finished;
    a.change.proposed(r, seconds_ago(ago));
    CHECK((a.record() == r) == a.answer("q").empty());
    if (a.record() != r) CHECK(a.phase() == job_phase::idle);
    return a.answer("q");
  };
  CHECK(answered(50, false, true) == "");
  CHECK(answered(101, false, true) == "failed: its groups were not there in 100000 ms");
  CHECK(answered(0, true, true) == "failed: the job ends before");
  CHECK(answered(0, false, false) == "failed: c is gone");

  changing a;
  job_record r = a.proposed();
  r.request = {};
  a.put(r);
  a.core.finished = true;
  a.change.proposed(r, just_now());
  CHECK(a.phase() == job_phase::idle);
  CHECK(a.store.list(a.core.keys.answers()).all.empty());

  changing slow;  // another one was faster, with something else
  r = slow.proposed();
  slow.store.swap(slow.core.keys.record(), stored_text(slow.idle_record()), slow.core.record_revision);
  slow.core.finished = true;
  slow.change.proposed(r, just_now());
  CHECK(slow.answer("q").empty());
}

TEST_CASE("a boundary is named once all of both worlds are ready, and beyond no end of the job") {
  changing a("a", [](job_settings& s) { s.steps = 61; });
  a.enlist("c");
  const job_record r = a.proposed(world_at(3, {"a", "b"}), changing::other({"a", "c"}));
  a.say("a", r, "ready", "40"), a.say("b", r, "ready", "59");
  a.change.proposed(r, just_now());
  CHECK(a.record() == r);  // of the new world one is missing
  a.say("c", r, "ready", "-1");
  a.change.proposed(r, just_now());
  CHECK(a.phase() == job_phase::armed);
  CHECK(a.record().boundary == 61);

  changing old;
  old.enlist("c");
  const job_record lacks = old.proposed(world_at(3, {"a", "b"}), changing::other({"a", "c"}));
  for (const char* who : {"a", "c"}) old.say(who, lacks, "ready", "40");
  old.change.proposed(lacks, just_now());
  CHECK(old.record() == lacks);
}

TEST_CASE("the margin is that of two decisions over a step, at least what it was, and doubled where it was short") {
  {
    changing a;  // a decision is thought to take 20 ms before one was measured
    CHECK(margin_of(a) == 2);
  }
  for (const auto& [step, margin] : {std::pair(0.016, 4), {0.0321, 3}, {1.0, 2}}) {
    changing a;
    a.core.step_seconds = step;
    CHECK(margin_of(a) == margin);
  }
  for (const int widened : {1, 2, 3, 10}) {
    changing a;
    a.core.step_seconds = 0.016;
    for (int n = 0; n < widened; ++n) a.change.widen();
    CHECK(margin_of(a) == std::max(index_t{4}, index_t{1} << widened));
    CHECK(margin_of(a) == std::max(index_t{4}, index_t{1} << widened));  // it stays so until a change is made
  }
  changing a;
  for (int n = 0; n < 100; ++n) a.change.widen();
  CHECK(margin_of(a) == most_margin);
}

TEST_CASE("a decision takes what the last one did, or half of what one took before") {
  changing a("a", [](job_settings& s) { s.ready = std::chrono::hours(10); });
  a.core.step_seconds = 50;
  const auto decides_in = [&a](double seconds) {
    const job_record r = a.armed(30);
    a.say("b", r, "acked.30");
    a.change.armed(r, seconds_ago(seconds));
    CHECK(a.phase() == job_phase::entering);
    const job_record in = a.record();
    a.all_say(in, "entered", "1");
    a.change.entering(in);  // made: the margin begins anew
    CHECK(a.phase() == job_phase::idle);
    for (const stored& one : a.store.list(a.core.keys.said()).all) a.store.remove(one.key, one.revision);
    a.hear();
    const index_t margin = margin_of(a);
    for (const stored& one : a.store.list(a.core.keys.said()).all) a.store.remove(one.key, one.revision);
    a.hear();
    return margin;
  };
  // 1 + ceil(2 d / 50) of a decision of d seconds and a moment
  CHECK(decides_in(200) == 10);
  CHECK(decides_in(0) == 6);
  CHECK(decides_in(0) == 4);
  CHECK(decides_in(100) == 6);
}

TEST_CASE("a member of the old world stores its stop and then says whether it was in time") {
  changing a;
  job_record r = a.armed(21);
  a.change.armed(r, just_now());
  CHECK(a.core.stop == 21);
  CHECK(a.said(r, "acked.21") == "1");
  CHECK(a.record() == r);
  CHECK(a.told() == "acked\n");
  a.change.armed(r, just_now());
  CHECK(a.told() == "");
  a.core.published = 21;  // it said so, and stands at its stop
  a.say("b", r, "acked.21");
  a.change.armed(r, just_now());
  CHECK(a.phase() == job_phase::entering);
  CHECK(a.record().epoch == 4);

  changing spare("c");
  r = spare.armed(21);
  spare.change.armed(r, just_now());
  CHECK(spare.core.stop == std::numeric_limits<index_t>::max());
  CHECK(spare.record() == r);
}

TEST_CASE("where its last ack is the one that was missing the change is decided at once") {
  changing a;
  const job_record r = a.armed(21);
  a.say("b", r, "acked.21");
  a.change.armed(r, just_now());
  CHECK(a.phase() == job_phase::entering);
}

TEST_CASE("who has passed the boundary names a later one by twice the margin, or calls the change off at the end") {
  for (const index_t step : {21, 25}) {
    changing a;
    a.core.published = step;
    const job_record r = a.armed(21);
    a.change.armed(r, just_now());
    CHECK(a.said(r, "acked.21") == "");
    CHECK(a.phase() == job_phase::armed);
    CHECK(a.record().boundary == step + 2);
    CHECK(a.record().attempt == r.attempt);
    a.core.published = step + 2;
    a.change.armed(a.record(), just_now());
    CHECK(a.record().boundary == step + 2 + 4);
  }
  for (const auto& [steps, boundary] : {std::pair(24, 24), {23, 23}, {22, 22}, {21, 0}}) {
    changing a("a", [&s = steps](job_settings& of) { of.steps = s; });
    a.core.published = 21;
    a.change.armed(a.armed(21), just_now());
    CHECK(a.record().boundary == std::min(boundary, 23));
    CHECK(a.answer("q") == (boundary == 0 ? "failed: the job ends before" : ""));
  }
}

TEST_CASE("a member that does not arm is waited for as long as for groups") {
  for (const double ago : {50, 101}) {
    changing a("a", [](job_settings& s) { s.ready = std::chrono::seconds(100); });
    const job_record r = a.armed(21);
    a.core.step_seconds = 50;
    a.change.armed(r, seconds_ago(ago));
    CHECK((a.record() == r) == (ago == 50));
    CHECK(a.answer("q") == (ago == 50 ? "" : "failed: a member did not arm"));
    CHECK(margin_of(a) == 2);  // that was no decision
  }
}

TEST_CASE("a change is done once all of the new world have entered and the record says so, whoever brought it about") {
  changing a;
  job_record r = record_at(job_phase::entering, {world_at(3, {"a", "b"}), world_at(4, {"a", "c"})}, 0);
  r.request = "q";
  a.put(r);
  a.say("a", r, "entered"), a.say("b", r, "entered");
  a.change.entering(r);
  CHECK((a.record() == r && a.answer("q").empty()));
  a.say("c", r, "entered");
  const job_record old = r;
  {
    changing other;  // whose swap another one is faster than
    other.put(r);
    for (const char* who : {"a", "c"}) other.say(who, r, "entered");
    job_event e = event_about(r, job_event_kind::entered);
    e.members = {"a", "c"};
    other.store.swap(other.core.keys.record(), stored_text(next(r, e)), other.core.record_revision);
    other.change.entering(r);
    CHECK(other.answer("q").empty());
    other.hear();
    other.core.epoch = 4;
    other.change.idle(*other.core.record, just_now());
    CHECK(other.answer("q") == "done");

    changing undone;  // a death was found out before, and another epoch came
    undone.put(r);
    for (const char* who : {"a", "c"}) undone.say(who, r, "entered");
    undone.store.swap(undone.core.keys.record(), "x", undone.core.record_revision);
    undone.change.entering(r);
    undone.core.epoch = 5;
    undone.change.idle(record_at(job_phase::idle, {world_at(5, {"a"})}), just_now());
    CHECK(undone.answer("q").empty());
  }
  a.change.entering(r);
  CHECK(a.phase() == job_phase::idle);
  CHECK(a.answer("q") == "done");
  CHECK(a.record().request.empty());
  a.core.epoch = 4;
  for (int n = 0; n < 3; ++n) a.change.widen();
  a.change.idle(a.record(), just_now());  // that was it
  a.core.epoch = 3;
  CHECK(margin_of(a) == 8);
}

TEST_CASE("all end before one step that is beyond the foremost by 2, or by 4 where somebody had passed that, or by 8") {
  changing a;
  const job_record r = a.idle();
  a.core.published = 5;
  a.ask("end", "finish");
  const auto look = [&] { a.change.idle(r, just_now()); };
  look();
  CHECK(a.said(r, "finish.end") == "5");
  CHECK(a.core.stop == std::numeric_limits<index_t>::max());
  a.say("b", r, "finish.end", "7");
  look();
  CHECK(a.core.stop == 9);
  CHECK(a.said(r, "finish.end.9") == "acked");
  a.core.published = 11;
  a.say("b", r, "finish.end.9", "passed");
  look();
  CHECK(a.core.stop == 11);
  CHECK(a.said(r, "finish.end.11") == "passed");
  a.say("b", r, "finish.end.11", "acked");
  look();
  CHECK(a.core.stop == 15);
  CHECK(a.said(r, "finish.end.15") == "acked");
  look();
  CHECK(a.said(r, "finish.end.15.stopped") == "");
  a.say("b", r, "finish.end.15", "acked");
  a.core.published = 14;
  look();
  CHECK(a.said(r, "finish.end.15.stopped") == "");
  a.core.published = 15;
  look();
  CHECK(a.said(r, "finish.end.15.stopped") == "1");
  CHECK(a.record() == r);
  a.say("b", r, "finish.end.15.stopped");
  look();
  CHECK(a.phase() == job_phase::done);
  CHECK(a.record().boundary == 15);
  CHECK(a.core.stop == 15);
  CHECK(a.record().request == "end");
  CHECK(a.answer("end").empty());  // by whoever sees the end
}
