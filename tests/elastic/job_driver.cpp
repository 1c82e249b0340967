// SPDX-License-Identifier: Apache-2.0
// What drives a job, turn by turn, as one member whose fellows' words the test says: which event each phase brings
// about, what ends with a phase, whose pulses are heard, and by what evidence a world breaks.
#include <doctest/doctest.h>

#include <chrono>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <reshard/elastic/run/job_driver.hpp>

#include "../support/one_member.hpp"
#include "../support/words.hpp"

using namespace reshard;
using namespace testing;

namespace {

/// a, of the world of epoch 3, in which it is; it hears no pulses for a long time.
struct driven : one_member {
  explicit driven(const std::string& me = "a", const std::function<void(job_settings&)>& differs = {})
      : one_member(
            me,
            [&differs](job_settings& s) {
              s.grace = std::chrono::seconds(100), s.wait = std::chrono::seconds(1000);
              if (differs) differs(s);
            },
            stops_with(*this)),
        door(listening_socket("127.0.0.1:0")), heard(me, listening_socket("127.0.0.1:0"), std::chrono::seconds(30),
                                                     [](const member_name&, detail::found_gone, double) {}),
        groups(core, door), copies(core, groups), steps(core), driver(core, heard, groups, copies, steps) {
    core.epoch = core.holds = core.tried = 3;
    core.version = core.published = 20;
  }
  static trainer_calls stops_with(driven& one) {
    trainer_calls calls;
    calls.interrupt = [&one](const std::string& sentence) { one.interrupts += sentence + "\n"; };
    calls.make_group = [](const group_request&, std::stop_token) {};
    return calls;
  }
  job_record turn(const job_record& r, int times = 1) {
    put(r);
    for (int n = 0; n < times; ++n) driver.turn();
    hear();
    return record();
  }
  static job_record idle(index_t epoch = 3) { return record_at(job_phase::idle, {world_at(epoch, {"a", "b"})}); }
  static job_record named(job_phase phase) {
    job_record r = record_at(phase, {world_at(3, {"a", "b"})}, 4);
    r.proposed = {world_at(4, {"a", "b"}, 30)};
    r.proposed[0].batch = 9;
    if (phase == job_phase::armed) r.boundary = 30;
    return r;
  }
  /// Of this world something is over: b is gone.
  static job_record over(job_phase phase, const member_list& gone = {"b"}) {
    job_record r = record_at(phase, {world_at(3, {"a", "b"})}, 4);
    r.gone = gone;
    return r;
  }
  static job_record entering(const member_list& old, const member_list& next, index_t epoch = 4) {
    return record_at(job_phase::entering, {world_at(epoch - 1, old), world_at(epoch, next)});
  }

  std::string interrupts = {};
  process_door door;
  detail::pulses heard;
  detail::world_groups groups;
  detail::snapshots copies;
  detail::pace steps;
  detail::job_driver driver;
};

/// Who calls a socket to say that it lives, and of which world, within a while.
std::pair<std::string, std::uint64_t> caller_of(const listening_socket& socket, patience longest) {
  detail::pulse_line line;
  for (const auto end = just_now() + longest; just_now() < end; std::this_thread::sleep_for(patience(1))) {
    if (!line.link.open()) line.link = socket.accept();
    if (line.link.open() && line.introduces()) return {line.said.name(), line.said.world};
  }
  return {};
}
std::string address_of(const listening_socket& socket) { return "127.0.0.1:" + std::to_string(socket.port()); }

}  // namespace

TEST_CASE("a job begins once somebody has heard that there is none, and is founded by who came first") {
  driven a("a", [](job_settings& s) { s.found = 2, s.layout.tp = 2, s.batch = 6; });
  a.core.epoch = 0;
  a.core.listed = false;
  a.driver.turn();
  CHECK_FALSE(a.store.read(a.core.keys.record()));
  a.core.listed = true;
  a.driver.turn();
  job_record r = a.record();
  CHECK(r == job_record{.wanted = 2});
  CHECK(a.told() == "swap-founding\nswapped-founding\n");
  CHECK(a.driver.rest() == patience(5));
  a.enlist("z");
  a.driver.turn();
  CHECK(a.record() == r);
  a.enlist("b");  // as many as were asked for
  a.driver.turn();
  r = a.record();
  CHECK(r.phase == job_phase::idle);
  REQUIRE(r.worlds.size() == 1);
  CHECK(r.worlds[0] == world{.epoch = 1, .members = {"z", "b"}, .layout = {.tp = 2}, .batch = 6});

  driven more;  // who is more than that is a spare
  for (const char* who : {"z", "b", "a"}) more.enlist(who);
  CHECK(more.turn(job_record{}).worlds[0].members == member_list{"z"});
}

TEST_CASE("each phase has its event, and a job that is over answers what is asked") {
  {
    driven a;
    a.put(a.core.keys.requests() + "q", stored_text(parse_request("q", {"batch", "9"})));
    CHECK(a.turn(driven::idle()).phase == job_phase::proposed);
  }
  {
    driven a;
    a.core.finished = true;
    CHECK(a.turn(driven::named(job_phase::proposed)).phase == job_phase::idle);
  }
  {
    driven a;
    const job_record r = driven::named(job_phase::armed);
    a.say("b", r, "acked.30");
    CHECK(a.turn(r).phase == job_phase::entering);
  }
  {
    driven a;
    const job_record r = driven::entering({"a", "b"}, {"a"});
    a.say("a", r, "entered");
    CHECK(a.turn(r).phase == job_phase::idle);
  }
  {
    driven a;
    CHECK(a.turn(driven::over(job_phase::recovering)).promises.size() == 1);
  }
  {
    driven a;
    a.enlist("x");
    job_record r = driven::over(job_phase::waiting);
    r.promises = {{{"a", 20}, 0, 3}};
    CHECK(a.turn(r).phase == job_phase::recovering);
  }
  for (const job_phase end : {job_phase::lost, job_phase::done}) {
    driven a;
    a.put(a.core.keys.requests() + "q", stored_text(parse_request("q", {"batch", "9"})));
    const job_record r = driven::over(end, {});
    CHECK(a.turn(r) == r);
    CHECK(a.answer("q") == "refused: the job is " + std::string(name(end)));
  }
}

TEST_CASE("it looks often while something is under way, or in doubt, and seldom else") {
  for (int p = 1; p < job_phases; ++p) {
    const auto phase = static_cast<job_phase>(p);
    CAPTURE(name(phase));
    driven a;
    a.core.at = detail::trainer_at::update;
    const bool named = phase == job_phase::proposed || phase == job_phase::armed;
    a.turn(named ? driven::named(phase) : driven::over(phase, {}));
    const bool quiet = phase == job_phase::idle || phase == job_phase::lost || phase == job_phase::done;
    CHECK(a.driver.rest() == patience(quiet ? 200 : 5));
  }
}

TEST_CASE("where steps go on again nobody stops, and a change that was called off has more room the next time") {
  const auto margin_after = [](const std::vector<job_record>& seen) {
    driven a;
    for (const job_record& r : seen) {
      const bool is_new = a.core.record != r;
      a.core.stop = 7;
      a.turn(r);
      if (!is_new) CHECK(a.core.stop == 7);
      else if (r.phase == job_phase::idle) CHECK(a.core.stop == std::numeric_limits<index_t>::max());
    }
    job_record r = driven::named(job_phase::proposed);
    r.attempt = 9;
    for (const char* who : {"a", "b"}) a.say(who, r, "ready", "100");
    const job_record then = a.turn(r);
    REQUIRE(then.phase == job_phase::armed);
    return then.boundary - 100;
  };
  driven idle;
  const job_record r = driven::idle(), armed = driven::named(job_phase::armed);
  CHECK(margin_after({r}) == 2);
  CHECK(margin_after({armed}) == 2);
  CHECK(margin_after({armed, r}) == 2);
  CHECK(margin_after({armed, r, armed, r}) == 4);
  CHECK(margin_after({armed, r, armed, r, armed, r}) == 8);
  CHECK(margin_after({armed, r, r, r, r, r}) == 2);          // each is noted once
  CHECK(margin_after({driven::idle(2), r, armed, r}) == 2);  // another epoch was no change that was called off
}

TEST_CASE("what the trainer waits for ends where the world is over, once for each attempt, and says of whom") {
  for (const job_phase phase : {job_phase::recovering, job_phase::waiting, job_phase::lost}) {
    driven a;
    a.core.at = detail::trainer_at::update;
    job_record r = driven::over(phase);
    a.turn(r, 3);
    CHECK(a.interrupts == "reshard: the world of epoch 3 is over: b is gone\n");
    r.attempt = 5, r.gone = {"b", "c"};
    a.turn(r, 2);
    CHECK(a.interrupts.ends_with("b is gone\nreshard: the world of epoch 3 is over: b and c are gone\n"));
  }
  driven quiet;
  for (const job_phase phase : {job_phase::proposed, job_phase::armed}) quiet.turn(driven::named(phase));
  quiet.turn(driven::idle()), quiet.turn(driven::over(job_phase::done, {}));
  quiet.turn(driven::entering({"a", "b"}, {"b", "c"}));
  CHECK(quiet.interrupts.empty());

  driven deaf;  // a trainer that has nothing to end
  trainer_calls none;
  told_all watcher;
  detail::job_core core(deaf.store, deaf.core.settings, none, watcher);
  core.listed = true, core.epoch = 3, core.at = detail::trainer_at::update;
  core.take_record(driven::over(job_phase::recovering), 1);
  detail::world_groups groups(core, deaf.door);
  detail::snapshots copies(core, groups);
  detail::pace steps(core);
  detail::job_driver driver(core, deaf.heard, groups, copies, steps);
  CHECK_NOTHROW(driver.turn());
}

TEST_CASE("who hears that the job went on without it ends its waits, but for who leaves, takes part or is a spare") {
  const auto said = [](const job_record& r, index_t epoch, index_t tried, bool leaving) {
    driven a;
    a.core.epoch = epoch, a.core.tried = tried, a.core.leaving = leaving;
    a.turn(r);
    return a.interrupts;
  };
  const job_record out = record_at(job_phase::idle, {world_at(4, {"b", "c"})}), in = driven::idle(4);
  const std::string sentence = "reshard: the job went on in epoch 4 without a\n";
  CHECK(said(out, 3, 3, false) == sentence);
  CHECK(said(driven::entering({"b", "c"}, {"c"}), 3, 3, false) == sentence);
  CHECK(said(driven::entering({"a", "c"}, {"c"}), 3, 3, false) == "");
  CHECK(said(out, 3, 3, true) == "");
  CHECK(said(out, 3, 4, false) == "");
  CHECK(said(out, 0, 0, false) == "");
  CHECK(said(out, 1, 1, false) == sentence);
  CHECK(said(in, 3, 3, false) == "");
}

TEST_CASE("groups of a change end with it, and what waits in one that is over ends at once") {
  const job_record made_for = [] {
    job_record r = record_at(job_phase::proposed, {world_at(3, {"a"})}, 4);
    r.proposed = {world_at(4, {"a"}, 30)}, r.proposed[0].batch = 9;
    return r;
  }();
  const auto stands_after = [&](const job_record& then) {
    driven a;
    a.enlist("a");
    a.put(made_for);
    a.groups.begin(made_for);
    for (const auto end = just_now() + std::chrono::seconds(20); !a.groups.made(made_for).first && just_now() < end;)
      std::this_thread::sleep_for(patience(1));
    REQUIRE(a.groups.made(made_for).first);
    const std::stop_token stop = a.groups.stop_of(made_for);
    a.core.at = detail::trainer_at::update;
    a.turn(then);
    return std::pair(a.groups.made(made_for).first, stop.stop_requested());
  };
  job_record armed = made_for;
  armed.phase = job_phase::armed, armed.boundary = 30;
  CHECK(stands_after(armed) == std::pair(true, false));
  CHECK(stands_after(driven::entering({"a"}, {"a"})) == std::pair(true, false));
  CHECK(stands_after(record_at(job_phase::idle, {world_at(3, {"a"})}, 4)) == std::pair(false, false));
  job_record broke = record_at(job_phase::recovering, {world_at(3, {"a"})}, 5);
  CHECK(stands_after(broke) == std::pair(false, true));
  broke.attempt = 4;  // what it waits for is of this attempt
  CHECK(stands_after(broke) == std::pair(false, false));
  CHECK(stands_after(record_at(job_phase::idle, {world_at(4, {"b"})})) == std::pair(false, true));  // it is out

  const job_record out = record_at(job_phase::idle, {world_at(4, {"b"})});
  for (const index_t attempt : {4, 0}) {  // who leaves waits for nothing that was begun before
    driven a;
    a.core.leaving = true;
    job_record waited_for = made_for;
    if (attempt == 0) waited_for = out;
    const std::stop_token stop = a.groups.stop_of(waited_for);
    a.turn(out);
    CHECK(stop.stop_requested() == (attempt == 4));
  }
}

TEST_CASE("no copies are made where the world is over, the job has ended or this member is out") {
  const auto copies = [](const job_record& r, bool leaving = false) {
    driven a("a", [](job_settings& s) { s.snapshot = 1; });
    world two = world_at(3, {"a", "b"});
    two.layout.dp = 1, two.layout.pp = 2;
    const rank_storage arrays(space(a.core.settings.model, two.layout), 0, "arrays", pages_are::committed);
    a.copies.settle(two, arrays.tensors());
    a.core.leaving = leaving;
    a.core.at = detail::trainer_at::update;
    a.turn(r);
    a.told();
    a.copies.before_step(10);
    const bool copied = a.told() == "copied\n";
    CHECK(copied == !a.core.copies.empty());
    a.copies.drop();
    return copied;
  };
  CHECK(copies(driven::idle()));
  CHECK(copies(driven::named(job_phase::armed)));
  CHECK(copies(driven::entering({"a", "b"}, {"a"})));
  for (const job_phase phase : {job_phase::recovering, job_phase::waiting, job_phase::lost, job_phase::done})
    CHECK_FALSE(copies(driven::over(phase)));
  for (const bool leaving : {true, false})
    CHECK_FALSE(copies(record_at(job_phase::idle, {world_at(4, {"b"})}), leaving));
}

TEST_CASE("how long a phase has lasted is counted from when it was first seen") {
  bool stays = false;
  for (int tried = 0; tried < 8 && !stays; ++tried) {  // a machine may stand still for as long
    driven a("a", [](job_settings& s) { s.ready = patience(20); });
    const the_time begun = just_now();
    while (just_now() - begun < std::chrono::milliseconds(25)) a.turn(driven::idle());
    stays = a.turn(driven::named(job_phase::proposed)).phase == job_phase::proposed;
  }
  CHECK(stays);
}

TEST_CASE("words about other epochs are forgotten by who said them") {
  driven a;
  const job_record now = driven::idle(30), before = driven::idle(3), later = driven::idle(31);
  for (const char* who : {"a", "b", "xa"})
    for (const job_record& r : {before, now, later}) a.say(who, r, "here"), a.say(who, r, "acked.7");
  a.turn(now);
  std::set<std::string> left;
  for (const stored& one : a.store.list(a.core.keys.said()).all) left.insert(one.key.substr(a.core.keys.said().size()));
  std::set<std::string> expected;
  for (const std::string word : {"here", "acked.7"}) {
    for (const std::string epoch : {"3", "30", "31"})
      for (const std::string who : {"b", "xa"}) expected.insert(epoch + ".0/" + word + "/" + who);
    expected.insert("30.0/" + word + "/a");
  }
  CHECK(left == expected);
}

TEST_CASE("pulses are heard of the world's members; while one is entered of both worlds'; of nobody who is gone") {
  struct row {
    job_record r;
    bool heard, both;
  };
  job_record without = driven::idle();
  without.gone = {"b"};
  job_record founding{.wanted = 5};
  for (const row& one :
       {row{driven::idle(), true, false}, row{driven::named(job_phase::proposed), true, false},
        row{driven::entering({"a", "b"}, {"a"}), true, true}, row{driven::entering({"b"}, {"a"}), true, true},
        row{driven::over(job_phase::recovering, {}), false, false},
        row{driven::over(job_phase::waiting, {}), false, false}, row{without, false, false},
        row{record_at(job_phase::idle, {world_at(3, {"b", "c"})}), false, false}, row{founding, false, false}}) {
    CAPTURE(to_text(one.r));
    driven a;
    a.core.at = detail::trainer_at::update;
    a.enlist("a"), a.enlist("c");
    const listening_socket b("127.0.0.1:0");
    a.put(a.core.keys.places() + "b", "127.0.0.1:1 " + address_of(b) + " here");
    a.turn(one.r);
    const auto [who, world] = caller_of(b, patience(one.heard ? 20'000 : 30));
    CHECK(who == (one.heard ? "a" : ""));
    if (!one.heard) continue;
    a.turn(one.r, 3);
    CHECK(caller_of(b, patience(5)).first.empty());  // once
    CHECK(world == (one.both ? a.core.number_of("entering", one.r.epoch, 0, one.r.concerned())
                             : a.core.number_of("world", one.r.epoch, 0, one.r.now().members)));
  }
  driven a;  // a member whose place the store tells yet
  a.enlist("a");
  const listening_socket b("127.0.0.1:0");
  const job_record r = a.turn(driven::idle());
  a.put(a.core.keys.places() + "b", "127.0.0.1:1 " + address_of(b) + " here");
  a.turn(r);
  CHECK(caller_of(b, patience(20'000)).first == "a");
}

TEST_CASE("evidence against a member that was thought to live breaks the world, against others nothing") {
  const auto after = [](const member_list& suspects, const job_record& r) {
    driven a;
    a.core.at = detail::trainer_at::update;
    a.put(r);
    a.core.suspects = suspects;
    a.driver.turn();
    const job_record then = a.record();
    return then.phase == r.phase ? "-" : std::string(name(then.phase)) + " " + members_text(then.gone);
  };
  const job_record idle = driven::idle();
  {
    driven a;  // what else is due has another turn
    a.put(a.core.keys.requests() + "q", stored_text(parse_request("q", {"batch", "8"})));
    a.put(idle);
    a.core.suspects = {"b"};
    a.driver.turn();
    CHECK(a.answer("q").empty());
  }
  CHECK(after({"b"}, idle) == "recovering b");
  CHECK(after({"b", "x"}, idle) == "recovering b and x");
  CHECK(after({"x"}, idle) == "-");
  CHECK(after({}, idle) == "-");
  CHECK(after({"b"}, driven::over(job_phase::waiting, {})) == "recovering b");
  CHECK(after({"b"}, driven::over(job_phase::waiting)) == "-");  // it is known
  CHECK(after({"b"}, driven::named(job_phase::armed)) == "recovering b");
  CHECK(after({"c"}, driven::entering({"a", "b"}, {"a", "c"})) == "recovering c");
  CHECK(after({"b"}, driven::over(job_phase::done, {})) == "-");
  CHECK(after({"b"}, driven::over(job_phase::lost, {})) == "-");
}

TEST_CASE("a step that broke off by itself is of nobody's death for two patiences; then who made it says that it is") {
  struct row {
    double ago;
    index_t failed_in;
    job_record r;
    bool doubts, breaks;
  };
  job_record recovered = driven::entering({"a", "b"}, {"a", "b"});
  recovered.promises = {{{"b", 20}, 0, 3}};
  const job_record planned = driven::entering({"a", "b"}, {"a", "b"});
  job_record waits = driven::over(job_phase::waiting, {});
  for (const row& one :
       {row{1990, 3, driven::idle(), true, false}, row{2001, 3, driven::idle(), true, true},
        row{2001, 3, recovered, false, false}, row{2001, 4, recovered, true, true}, row{2001, 3, planned, true, true},
        row{2001, 3, waits, false, false}, row{2001, 3, driven::over(job_phase::done, {}), false, false},
        row{2001, 3, driven::named(job_phase::armed), true, true}}) {
    CAPTURE(to_text(one.r));
    driven a;
    a.core.at = detail::trainer_at::update;
    a.core.failed = "it broke off", a.core.failed_in = one.failed_in, a.core.failed_since = seconds_ago(one.ago);
    const job_record then = a.turn(one.r);
    CHECK((then.phase == job_phase::recovering) == one.breaks);
    if (one.breaks) CHECK(then.gone == member_list{"a"});
    if (one.r.phase == job_phase::idle) CHECK(a.driver.rest() == patience(5));
  }
  driven a;
  a.turn(driven::idle());
  CHECK(a.driver.rest() == patience(200));
  a.core.failed = "it broke off", a.core.failed_in = 3, a.core.failed_since = just_now();
  a.driver.turn();
  CHECK(a.driver.rest() == patience(5));
  a.core.failed.clear();
  a.driver.turn();
  CHECK(a.driver.rest() == patience(200));
  a.core.failed = "it broke off";
  for (const job_phase end : {job_phase::done, job_phase::lost}) {
    a.turn(driven::over(end, {}));
    CHECK(a.driver.rest() == patience(200));
  }
  a.turn(driven::idle());
  a.core.suspects = {"x"}, a.core.failed_since = seconds_ago(2001);  // that of others says nothing
  a.driver.turn();
  CHECK(a.record().gone == member_list{"a"});
  // of others there is evidence: then that is told
  a.core.failed_since = just_now();
  a.turn(driven::idle());
  a.core.failed = "it broke off", a.core.failed_since = seconds_ago(1e4), a.core.suspects = {"b"};
  a.driver.turn();
  CHECK(a.record().gone == member_list{"b"});
}

TEST_CASE("a spare finds out that all are gone before it looks at anything else") {
  driven s("s", [](job_settings& of) { of.grace = patience(0); });
  s.core.epoch = s.core.holds = s.core.tried = 0;
  for (const char* who : {"a", "b"}) s.put(s.core.keys.places() + who, "127.0.0.1:1 127.0.0.1:1 here");
  s.put(driven::idle());
  for (const auto end = just_now() + std::chrono::seconds(20); s.phase() == job_phase::idle && just_now() < end;)
    s.driver.turn();
  CHECK(s.phase() == job_phase::recovering);
  CHECK(s.record().gone == member_list{"a", "b"});
}
