// SPDX-License-Identifier: Apache-2.0
// What follows a death, as one member drives it whose fellows' words the test says: what it promises and when, who is
// waited for, which world is made of whom, and when the job is lost.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <reshard/elastic/run/recovery.hpp>

#include "../support/one_member.hpp"

using namespace reshard;
using namespace testing;
using detail::trainer_at;

namespace {

/// a of a, b and c, each of which has all; it is at rest at version 15.
struct recovering : one_member {
  explicit recovering(const std::function<void(job_settings&)>& differs = {}) : one_member("a", differs) {
    core.epoch = core.holds = core.tried = 3;
    core.version = 15;
  }
  static world three() { return world_at(3, {"a", "b", "c"}); }
  /// Two stages: every element has one holder.
  static world stages() {
    world w = world_at(3, {"a", "b"});
    w.layout.dp = 1, w.layout.pp = 2;
    return w;
  }
  job_record broke(const std::vector<world>& worlds, const member_list& gone, const std::vector<promise>& told = {}) {
    job_record r = record_at(job_phase::recovering, worlds, 2);
    r.gone = gone, r.promises = told;
    return put(r);
  }
  /// What it does with the record that there is: it promises, and looks once more.
  job_record look(double ago = 0, int times = 1) {
    for (int n = 0; n <= times && phase() == job_phase::recovering; ++n) {
      hear();
      due.recovering(*core.record, seconds_ago(ago));
    }
    return record();
  }

  detail::recovery due{core};
};

promise word_of(const char* who, index_t version = 15, int stage = 0, index_t of_epoch = 3) {
  return {{who, version, static_cast<update_stage>(stage)}, 0, of_epoch};
}
/// Whom a record has promises of.
member_list promised(const job_record& r) {
  member_list all;
  for (const promise& p : r.promises) all.push_back(p.told.member);
  return all;
}
const auto long_times = [](job_settings& s) {
  s.grace = std::chrono::seconds(100), s.ready = std::chrono::seconds(1000), s.lease = std::chrono::seconds(5000);
};

}  // namespace

TEST_CASE("a promise says what the member holds, of which version, how far it came and which copies it has") {
  recovering a;
  a.core.scalar = 2.5, a.core.stage = update_stage::scalar;
  a.core.copies = {{"a", 12}, {"c", 12}};
  const job_record r = a.broke({recovering::three()}, {"c"});
  const std::uint64_t before = a.core.changed.times();
  a.due.recovering(r, just_now());
  promise mine = word_of("a", 15, 2);
  mine.scalar = bits_of_scalar(2.5), mine.copies = a.core.copies;
  CHECK(a.record().promises == std::vector<promise>{mine});
  CHECK(a.core.promised);
  CHECK(a.core.changed.times() > before + 1);  // of the word and of the record
  CHECK(a.told() == "broken: 3, c, 15\npromised\nswap-promise\nswapped-promise\n");
  a.due.recovering(r, just_now());  // an old record
  CHECK(a.told() == "");
  CHECK(a.record().promises == std::vector<promise>{mine});

  job_record again = a.record();  // another attempt: that it broke is told anew
  again.attempt = 3, again.promises.clear(), again.gone = {"b", "c"};
  a.put(again);
  a.due.recovering(again, just_now());
  CHECK(a.told().starts_with("broken: 3, b and c, 15\npromised\n"));
  CHECK(a.record().promises == std::vector<promise>{mine});
}

TEST_CASE("who computes gradients promises for half the grace's time at rest, and who is further comes to rest first") {
  const auto told = [](trainer_at at, double ago, update_stage so_far) {
    recovering a(long_times);
    a.core.at = at, a.core.stage = so_far;
    const job_record r = a.broke({recovering::three()}, {"c"});
    a.due.recovering(r, seconds_ago(ago));
    const std::vector<promise> all = a.record().promises;
    CHECK(a.core.promised == !all.empty());
    return all.empty() ? -1 : static_cast<int>(all[0].told.stage);
  };
  for (const double ago : {0.0, 49.0, 51.0, 1e5}) {
    CAPTURE(ago);
    for (const update_stage stage : {update_stage::nothing, update_stage::gradients, update_stage::scalar})
      CHECK(told(trainer_at::rest, ago, stage) == static_cast<int>(stage));
    CHECK(told(trainer_at::gradients, ago, update_stage::gradients) == (ago > 50 ? 0 : -1));
    for (const trainer_at at : {trainer_at::scalar, trainer_at::update, trainer_at::change})
      CHECK(told(at, ago, update_stage::gradients) == -1);
  }
}

TEST_CASE("what a member holds is of one of the record's worlds, or nothing where it was about to come") {
  struct row {
    std::vector<std::pair<index_t, member_list>> worlds;
    index_t holds, tried;
    int of;  // -1: it promises nothing yet
  };
  const member_list both = {"a", "b"}, others = {"b", "c"}, come = {"a", "c"};
  const row rows[] = {
      {{{3, both}}, 3, 3, 3},
      {{{1, both}}, 1, 1, 1},
      {{{3, both}}, 2, 3, -1},
      {{{3, both}}, 4, 4, -1},
      {{{3, both}}, 0, 3, -1},  // all have entered it, and this one hears of it
      {{{1, both}}, 0, 1, -1},  // the job is founded, and its first values are set
      {{{3, both}, {4, come}}, 3, 3, 3},
      {{{3, both}, {4, come}}, 4, 4, 4},
      {{{3, both}, {4, come}}, 2, 4, -1},
      {{{3, both}, {4, come}}, 0, 3, -1},  // it settles in the first of them
      {{{2, both}, {3, come}}, 0, 2, -1},
      {{{3, both}, {4, come}}, 0, 4, 0},
      {{{3, both}, {4, come}}, 0, 2, 0},
      {{{1, both}, {2, come}}, 0, 1, 0},    // nobody settles in a first world
      {{{3, others}, {4, come}}, 0, 4, 0},  // it came
      {{{3, others}, {4, come}}, 0, 3, 0},
      {{{3, others}, {4, others}, {5, come}}, 0, 5, 0},
      {{{3, both}, {4, others}, {5, come}}, 3, 5, 3},
  };
  for (const row& one : rows) {
    CAPTURE(&one - rows);
    recovering a;
    std::vector<world> worlds;
    for (const auto& [epoch, members] : one.worlds) worlds.push_back(world_at(epoch, members));
    a.core.holds = one.holds, a.core.tried = one.tried;
    a.core.stage = update_stage::gradients, a.core.copies = {{"a", 3}};
    const job_record r = a.broke(worlds, {});
    a.due.recovering(r, just_now());
    const std::vector<promise> all = a.record().promises;
    REQUIRE(all.size() == (one.of < 0 ? 0u : 1u));
    if (one.of < 0) continue;
    promise mine = word_of("a", one.of > 0 ? 15 : holds_nothing, one.of > 0 ? 1 : 0, one.of);
    if (one.of > 0) mine.copies = {{"a", 3}};
    CHECK(all[0] == mine);
  }
}

TEST_CASE("of a switch that was torn a promise says how far it came") {
  for (const std::optional<index_t> unread : {std::optional<index_t>{}, std::optional<index_t>{3}}) {
    recovering a;
    a.core.torn = {5, {.device = 0, .in_place = 2, .here = 4, .unread_kept = unread}};
    const job_record r = a.broke({world_at(3, {"a", "b"}), world_at(4, {"a", "c"})}, {});
    a.due.recovering(r, just_now());
    REQUIRE(a.record().promises.size() == 1);
    const promise p = a.record().promises[0];
    CHECK((p.torn_stages == 5 && p.torn_in_place == 2 && p.torn_here == 4 && p.torn_unread == unread.value_or(0)));
    CHECK((p.of_epoch == 3 && p.told.version == 15));
  }
}

TEST_CASE("who is of no world, or has promised, is asked for nothing") {
  recovering a;
  const job_record r = a.broke({world_at(3, {"b", "c"})}, {"c"});
  a.due.recovering(r, just_now());
  CHECK((a.record() == r && !a.core.promised && a.told().empty()));
  const job_record told = a.broke({recovering::three()}, {"c"}, {word_of("a")});
  a.due.recovering(told, just_now());
  CHECK((a.record() == told && !a.core.promised && a.told().empty()));
}

TEST_CASE("a promise is put into the record as it is by then, and not into one that asks for none") {
  recovering a;
  const job_record r = a.broke({recovering::three()}, {"c"});
  const auto behind_its_back = [&](const job_record& now) {
    REQUIRE(a.store.swap(a.core.keys.record(), stored_text(now), a.core.record_revision) != 0);
  };
  behind_its_back(with_promise(r, 3, word_of("b")));
  a.due.recovering(r, just_now());
  CHECK(promised(a.record()) == member_list{"b", "a"});
  CHECK(a.told() == "broken: 3, c, 15\npromised\nswap-promise\npromised\nswap-promise\nswapped-promise\n");

  for (const int differs : {0, 1, 2}) {
    recovering other;
    other.put(r);
    job_record now = r;
    if (differs == 0) now.attempt = 3;
    if (differs == 1) now.phase = job_phase::lost;
    if (differs == 2) now.promises = {word_of("a", 14)};
    REQUIRE(other.store.swap(other.core.keys.record(), stored_text(now), other.core.record_revision) != 0);
    other.due.recovering(r, just_now());
    CHECK(other.record() == now);
    CHECK(*other.core.record == now);
  }
}

TEST_CASE("a world is made of who promised once the others are known to be gone for the grace") {
  recovering a(long_times);
  a.enlist("a"), a.enlist("b");
  const job_record r = a.broke({recovering::three()}, {"c"}, {word_of("b")});
  CHECK(promised(a.look(0)) == member_list{"b", "a"});
  CHECK(a.look(99).phase == job_phase::recovering);
  a.told();
  const job_record made = a.look(101);
  CHECK(made.phase == job_phase::entering);
  CHECK(made.epoch == 4);
  CHECK(made.gone == member_list{"c"});
  CHECK_FALSE(made.from_copies);
  world to = world_at(4, {"a", "b"}, 15);
  to.layout = made.now().layout;
  CHECK(made.now() == to);  // first step 15, cursor 120, batch 8
  CHECK(to.layout.world() == 2);
  CHECK(a.told() == "swap-accounted\nswapped-accounted\naccounted\n");
  CHECK(r.attempt == 2);
}

TEST_CASE("where all promised nobody waits, and where nobody is dead the world is made again") {
  recovering a(long_times);
  world odd = recovering::three();
  odd.layout.dp = 3, odd.layout.zero = 1;
  a.enlist("x");  // no spare comes for it
  a.broke({odd}, {}, {word_of("c"), word_of("b", 14, 2)});
  const job_record made = a.look();
  CHECK(made.phase == job_phase::entering);
  CHECK(made.now().members == odd.members);
  CHECK(made.now().layout == odd.layout);
  CHECK(made.now().first_step == 15);
  CHECK(made.now().epoch == 4);
  CHECK(made.gone.empty());
}

TEST_CASE("who has not promised itself makes no world") {
  recovering a;
  a.core.at = trainer_at::update;
  const job_record r = a.broke({recovering::three()}, {}, {word_of("c"), word_of("b")});
  CHECK(a.look(1e6) == r);
}

TEST_CASE("who is silent is waited for while it lives for all that is known, as long as for groups") {
  for (int bits = 0; bits < 16; ++bits) {
    const bool registered = bits & 1, gone = bits & 2, suspected = bits & 4, late = bits & 8;
    CAPTURE(bits);
    recovering a(long_times);
    for (const char* who : {"a", "b"}) a.enlist(who);
    if (registered) a.enlist("c");
    if (suspected) a.core.suspects = {"c"};
    a.broke({recovering::three()}, gone ? member_list{"c"} : member_list{}, {word_of("b")});
    const job_record then = a.look(late ? 1001 : 999);
    const bool waits = registered && !gone && !suspected && !late;
    CHECK(then.phase == (waits ? job_phase::recovering : job_phase::entering));
    if (!waits) CHECK(then.gone == member_list{"c"});
  }
}

TEST_CASE("a job is lost whose state has no holder, once nobody who may hold it had a lease for the patience") {
  const auto after = [](const member_list& registered, const member_list& gone, int wait_ms, double ago, int looks) {
    recovering a([&](job_settings& s) { long_times(s), s.wait = patience(wait_ms); });
    for (const member_name& who : registered) a.enlist(std::string(who.text()));
    a.broke({recovering::stages()}, gone);
    const job_phase then = a.look(ago, looks).phase;
    return std::pair(then, a.told());
  };
  const std::string silent = "b has its lease, did not promise, and may hold what nobody else has";
  CHECK(after({"a"}, {"b"}, 0, 101, 1).first == job_phase::lost);
  CHECK(after({"a"}, {"b"}, 0, 99, 1).first == job_phase::recovering);  // the grace
  CHECK(after({"a"}, {"b"}, 1'000'000, 101, 3).first == job_phase::recovering);
  CHECK(after({"a", "b"}, {}, 0, 999, 3).first == job_phase::recovering);  // it lives
  const auto quiet = after({"a", "b"}, {"b"}, 1'000'000, 9'999, 3),
             told = after({"a", "b"}, {"b"}, 1'000'000, 10'001, 3);
  CHECK(quiet.first == job_phase::recovering);
  CHECK(quiet.second.find("waits") == std::string::npos);
  CHECK(told.first == job_phase::recovering);
  const std::size_t at = told.second.find("waits: " + silent + "\n");
  REQUIRE(at != std::string::npos);
  CHECK(told.second.find("waits", at + 1) == std::string::npos);  // once

  recovering a([](job_settings& s) { long_times(s), s.wait = patience(40); });
  a.broke({recovering::stages()}, {"b"});
  const auto looks_for = [&](patience time) {
    const the_time begun = just_now();
    while (a.look(101, 0).phase == job_phase::recovering && just_now() - begun < time)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return just_now() - begun;
  };
  CHECK(looks_for(patience(100)) >= patience(100));  // it has no lease itself
  a.enlist("a");
  CHECK(looks_for(patience(20000)) >= patience(39));
  CHECK(a.phase() == job_phase::lost);
}

TEST_CASE("where all promised and none holds state, or what they tell cannot be, the job is lost at once") {
  const auto then = [](const std::vector<promise>& told, index_t mine) {
    recovering a(long_times);
    a.core.holds = mine, a.core.tried = 4;
    a.broke({recovering::three(), world_at(4, {"a", "b"})}, {}, told);
    return a.look().phase;
  };
  const promise c = word_of("c", holds_nothing, 0, 0);
  CHECK(then({word_of("b", holds_nothing, 0, 0), c}, 0) == job_phase::lost);
  CHECK(then({word_of("b", 17), word_of("c", 17)}, 3) == job_phase::lost);
  CHECK(then({word_of("b", 15), c}, 3) == job_phase::entering);
}

TEST_CASE("state that is held and of whom no world can be made waits, and is told once by which rung") {
  recovering a([](job_settings& s) { long_times(s), s.policy.min = 3, s.policy.wait = 1000; });
  a.enlist("a"), a.enlist("b");
  a.broke({recovering::three()}, {"c"}, {word_of("b")});
  CHECK(a.look(101).phase == job_phase::waiting);
  job_record r = a.record();
  a.told();
  a.due.waiting(r, just_now());
  a.due.waiting(r, just_now());
  const std::string why = a.told();
  CHECK(why.starts_with("waits: wait; not hot: "));
  CHECK(why.find("; not replace: 0 spares are registered for 1 dead member; not shrink: 2 members are there, and a "
                 "world has at least 3") != std::string::npos);
  CHECK(why.find('\n') + 1 == why.size());
  CHECK(a.record() == r);
  a.enlist("c");  // who is of the world does not come
  a.due.waiting(r, just_now());
  CHECK((a.record() == r && a.told().empty()));
  a.enlist("x");
  a.due.waiting(r, just_now());
  CHECK(a.phase() == job_phase::recovering);
  CHECK(a.record().attempt == 3);
  CHECK(a.told() == "swap-come\nswapped-come\n");

  a.put(r);  // once came once
  a.due.waiting(r, just_now());
  CHECK(a.record() == r);
  a.delist("x");
  a.due.waiting(r, just_now());
  CHECK(a.record() == r);
  a.enlist("y"), a.enlist("x");
  a.due.waiting(r, just_now());
  CHECK(a.phase() == job_phase::recovering);
}

TEST_CASE("who has not promised yet promises where a job waits, and calls nobody in before") {
  recovering a(long_times);
  a.enlist("x");
  job_record r = record_at(job_phase::waiting, {recovering::three()}, 2);
  r.promises = {word_of("b")};
  a.put(r);
  a.core.at = trainer_at::update;
  for (int n = 0; n < 3; ++n) a.due.waiting(r, seconds_ago(1e6));
  CHECK((a.record() == r && a.told().empty()));
  a.core.at = trainer_at::rest;
  a.due.waiting(r, just_now());
  CHECK(promised(a.record()) == member_list{"b", "a"});
}

TEST_CASE("a job that waits goes on where somebody promised late, a grace later, and says that nobody is gone") {
  recovering a([](job_settings& s) { long_times(s), s.policy.min = 3, s.policy.wait = 1000; });
  job_record r = record_at(job_phase::waiting, {recovering::three()}, 2);
  r.promises = {word_of("b"), word_of("a")}, r.gone = {"c"};
  a.put(r);
  a.due.waiting(r, seconds_ago(101));
  CHECK(a.record() == r);
  r = a.put(with_promise(r, 3, word_of("c")));
  a.due.waiting(r, seconds_ago(99));
  CHECK(a.record() == r);
  a.told();
  a.due.waiting(r, seconds_ago(101));
  CHECK(a.phase() == job_phase::recovering);
  CHECK(a.record().gone == member_list{"a"});
  CHECK(a.record().attempt == 3);
  CHECK(a.told() == "swap-broke\nswapped-broke\n");
}

TEST_CASE("what a waiting job's members tell that cannot be, or holds nothing, is looked at and left alone") {
  for (const auto& told : {std::vector{word_of("a", holds_nothing, 0, 0), word_of("b", holds_nothing, 0, 0)},
                           std::vector{word_of("a", 15), word_of("b", 17)}}) {
    recovering a(long_times);
    job_record r = record_at(job_phase::waiting, {recovering::three()}, 2);
    r.promises = told;
    a.put(r);
    a.due.waiting(r, seconds_ago(1e6));
    CHECK((a.record() == r && a.told().empty()));
  }
}

TEST_CASE("where another member was faster than the one that finds that somebody fits, it looks again") {
  recovering a(long_times);
  job_record r = record_at(job_phase::waiting, {recovering::three()}, 2);
  r.promises = {word_of("a"), word_of("b")};
  a.put(r);
  job_record then = r;
  then.gone = {"c"};
  REQUIRE(a.store.swap(a.core.keys.record(), stored_text(then), a.core.record_revision) != 0);
  a.due.waiting(r, seconds_ago(101));
  CHECK(a.record() == then);
  a.hear();
  a.due.waiting(then, seconds_ago(101));
  CHECK(a.phase() == job_phase::recovering);
}

TEST_CASE("what was in place of a torn switch is held, whoever of the old world is dead") {
  for (const bool in_place : {true, false}) {
    recovering a([](job_settings& s) { long_times(s), s.wait = patience(0); });
    a.enlist("a");
    const index_t so_far = in_place ? 2 : 0;
    a.core.torn = {2, {.device = 0, .in_place = so_far, .here = so_far, .unread_kept = 2}};
    world to = world_at(4, {"a", "c"}, 15);
    to.layout.dp = 1, to.layout.tp = 2;
    promise c = word_of("c");
    c.torn_stages = 2, c.torn_in_place = c.torn_here = so_far, c.torn_unread = 2;
    a.broke({recovering::stages(), to}, {"b"}, {c});
    const job_record then = a.look(101);
    CHECK(then.phase == (in_place ? job_phase::entering : job_phase::lost));
    if (in_place) CHECK(then.now().first_step == 15);
  }
}

TEST_CASE("how long was waited is counted from the first attempt of an epoch, over all of them") {
  const auto phase_after = [](double first_ago, index_t epoch_then) {
    recovering a([](job_settings& s) {
      long_times(s);
      s.policy.rungs = {rung::replace, rung::wait, rung::shrink}, s.policy.wait = 3000;
    });
    job_record r = a.broke({recovering::three()}, {"c"}, {word_of("b"), word_of("a")});
    a.due.recovering(r, seconds_ago(first_ago));  // nobody fits: it waits
    CHECK(a.phase() == (first_ago < 3000 ? job_phase::waiting : job_phase::entering));
    r = a.record();
    if (r.phase != job_phase::waiting) return r.phase;
    r.attempt = 7;
    for (world& w : r.worlds) w.epoch = epoch_then;
    for (promise& p : r.promises) p.of_epoch = epoch_then;
    r.epoch = epoch_then;
    a.put(r);
    a.due.waiting(r, seconds_ago(2000));
    return a.phase();
  };
  CHECK(phase_after(3001, 3) == job_phase::entering);  // the next rung
  CHECK(phase_after(2990, 3) == job_phase::waiting);
  CHECK(phase_after(2990, 4) == job_phase::waiting);

  const auto waits_first = [](job_settings& s) {
    long_times(s);
    s.policy.rungs = {rung::wait, rung::shrink}, s.policy.wait = 3000;
  };
  recovering a(waits_first);  // it hears of the first attempt, and makes an update; then of the second
  a.core.at = trainer_at::update;
  job_record r = a.broke({recovering::three()}, {"c"}, {word_of("b")});
  a.due.recovering(r, seconds_ago(3001));
  CHECK(a.record() == r);
  a.core.at = trainer_at::rest;
  r.attempt = 3;
  a.put(r);
  CHECK(a.look(200).phase == job_phase::entering);

  recovering late([](job_settings& s) {  // it hears of it where the job waits already
    s.grace = std::chrono::seconds(1), s.policy.rungs = {rung::wait, rung::shrink}, s.policy.wait = 30;
  });
  r = record_at(job_phase::waiting, {recovering::three()}, 2);
  r.promises = {word_of("a"), word_of("b")};
  late.put(r);
  late.due.waiting(r, seconds_ago(10));
  CHECK(late.record() == r);
}

TEST_CASE("what nobody holds comes from copies of the newest version that who lives has whole") {
  struct row {
    std::vector<kept_copy> mine, of_b;
    bool b_lives, rung;
    index_t first_step;  // -1: none, and the job is lost
  };
  const row rows[] = {
      {{{"a", 12}, {"b", 12}}, {}, false, true, 12},
      {{{"a", 12}, {"b", 12}}, {}, false, false, -1},
      {{{"a", 12}}, {}, false, true, -1},
      {{{"b", 12}}, {}, false, true, -1},
      {{{"a", 12}, {"b", 12}, {"a", 14}, {"b", 14}}, {}, false, true, 14},
      {{{"a", 12}, {"b", 12}, {"a", 14}}, {}, false, true, 12},
      {{{"a", 12}, {"b", 12}, {"a", 16}, {"b", 16}}, {}, false, true, 12},  // beyond the target
      {{{"a", 16}, {"b", 16}}, {}, false, true, -1},
      {{{"a", 15}, {"b", 15}}, {}, false, true, 15},
      {{}, {{"a", 12}, {"b", 12}}, false, true, -1},  // they went with b
  };
  for (const row& one : rows) {
    CAPTURE(&one - rows);
    recovering a([&](job_settings& s) {
      long_times(s), s.wait = patience(0);
      if (!one.rung) s.policy.rungs = {rung::replace, rung::shrink, rung::wait};
    });
    a.enlist("a");
    a.core.copies = one.mine;
    a.broke({recovering::stages()}, {"b"});
    const job_record then = a.look(101);
    CHECK(then.phase == (one.first_step < 0 ? job_phase::lost : job_phase::entering));
    if (one.first_step < 0) continue;
    CHECK(then.from_copies);
    CHECK(then.now().first_step == one.first_step);
    CHECK(then.now().cursor == 80 + 8 * (one.first_step - 10));
    CHECK(then.now().members == member_list{"a"});
  }
  // they are no way for too few, and the job waits with them
  recovering few([](job_settings& s) { long_times(s), s.wait = patience(0), s.policy.min = 2; });
  few.enlist("a");
  few.core.copies = {{"a", 12}, {"b", 12}};
  few.broke({recovering::stages()}, {"b"});
  CHECK(few.look(101).phase == job_phase::waiting);
}

TEST_CASE("spares of a recovery are who is registered and in no world, or promised that it has nothing") {
  struct row {
    const char* who;
    bool in_next, promised, gone, taken;
  };
  for (const row& one : {row{"x", false, false, false, true}, row{"x", false, false, true, false},
                         row{"x", true, true, false, true}, row{"x", true, false, true, false}}) {
    recovering a(long_times);
    a.enlist("a"), a.enlist("x");
    std::vector<world> worlds = {world_at(3, {"a", "b"})};
    worlds.push_back(world_at(4, one.in_next ? member_list{"a", "x"} : member_list{"a"}));
    member_list gone = {"b"};
    if (one.gone) gone.push_back("x");
    std::vector<promise> told;
    if (one.promised) told = {word_of("x", holds_nothing, 0, 0)};
    a.broke(worlds, gone, told);
    const job_record then = a.look(101);
    CHECK(then.phase == job_phase::entering);
    CHECK(then.now().members == (one.taken ? member_list{"a", "x"} : member_list{"a"}));
  }
}

TEST_CASE("each rank of the world after a death has a sample, and what the job has not is missed by nobody") {
  recovering few([](job_settings& s) {
    long_times(s);
    s.policy.axes = {layout_key::tp, layout_key::dp};
  });
  world four = world_at(3, {"a", "b", "c", "d"});
  four.layout.tp = four.layout.dp = 2, four.batch = 2;
  few.broke({four}, {"d"}, {word_of("b"), word_of("c")});
  const job_record made = few.look(101);
  CHECK(made.now().members == member_list{"a", "b"});
  CHECK(made.now().layout.dp <= 2);
  CHECK(made.now().batch == 2);
  CHECK(made.now().cursor == 80 + 2 * 5);

  for (const bool parameters : {true, false}) {
    recovering a([&](job_settings& s) {
      long_times(s), s.wait = patience(0);
      if (parameters) s.list = {{"param", dtype::bf16, 3}};
    });
    a.enlist("a"), a.enlist("b");
    world sharded = recovering::three();
    sharded.layout.zero = 1;
    a.broke({sharded}, {"c"}, {word_of("b")});
    CHECK(a.look(101).phase == (parameters ? job_phase::entering : job_phase::lost));
  }
}

TEST_CASE("who is empty lives and counts for nothing that it holds; an update is made before") {
  recovering a(long_times);
  a.core.stage = update_stage::gradients;
  a.broke({recovering::three()}, {"c"}, {word_of("b", 16)});
  job_record then = a.look(101);
  CHECK(then.now().first_step == 16);
  CHECK(then.now().cursor == 80 + 8 * 6);

  recovering empty([](job_settings& s) { long_times(s), s.wait = patience(0); });
  empty.enlist("a");
  world tensors = world_at(3, {"a", "b"});
  tensors.layout.dp = 1, tensors.layout.tp = 2;
  empty.broke({tensors, world_at(4, {"a", "b"})}, {}, {word_of("b", holds_nothing, 0, 0)});
  CHECK(empty.look(101).phase == job_phase::lost);  // b's half has no holder, though b lives
}
