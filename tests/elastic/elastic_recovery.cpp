// SPDX-License-Identifier: Apache-2.0
// Recoveries of jobs of threads: who is waited for, and what is told, where members make long steps and updates, are
// silent, hear late what happened, or have to come yet.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "../support/elastic_story.hpp"

using namespace reshard;
using namespace testing;

TEST_CASE("a job that waits says for what, once, and goes on with who comes") {
  local_store kept;
  const any_store store(kept);
  story s;
  {
    const auto add = [&](const char* who, const std::string& dies) {
      const auto short_wait = [](member& m) { m.settings.wait = std::chrono::milliseconds(400); };
      return std::make_unique<member>(s, store, who, 2, 0.004, dies, 12, degrees{.dp = 2}, 0, no_budget, 0.0, 2,
                                      short_wait);
    };
    const std::unique_ptr<member> a = add("a", ""), b = add("b", "updated");
    const auto waits = [&] {
      const std::lock_guard lock(s.mutex);
      return std::ssize(s.waits);
    };
    while (waits() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::this_thread::sleep_for(std::chrono::milliseconds(2000));  // patience is over, and no new attempt is made
    CHECK(waits() == 1);
    add("c", "");
  }
  REQUIRE(s.waits.size() == 1);
  CHECK(s.waits[0].starts_with("a: "));
  CHECK(s.waits[0].find("not replace: 0 spares are registered for 1 dead member") != std::string::npos);
  CHECK(s.waits[0].find("not shrink: ") != std::string::npos);
  CHECK(s.ends == std::map<std::string, job_end>{{"a", job_end::done}, {"b", job_end::runs}, {"c", job_end::done}});
  check_history(s);
}

TEST_CASE("a job that waits for so long as its policy says takes the next rung then") {
  local_store kept;
  const any_store store(kept);
  story s;
  const auto waits_first = [](member& m) {
    m.settings.policy.rungs = {rung::replace, rung::wait, rung::shrink};
    m.settings.policy.wait = 1.5;
    m.settings.wait = std::chrono::milliseconds(400);
  };
  std::chrono::steady_clock::time_point dies = {};
  double took = 0;
  {
    const auto add = [&](const char* who, const std::string& at) {
      return std::make_unique<member>(s, store, who, 2, 0.004, at, 12, degrees{.dp = 2}, 0, no_budget, 0.0, 1,
                                      waits_first);
    };
    const auto a = add("a", ""), b = add("b", "updated");
    while (!b->over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    dies = std::chrono::steady_clock::now();
    const index_t there = a->version.load();
    while (a->version.load() < there + 5) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    took = std::chrono::duration<double>(std::chrono::steady_clock::now() - dies).count();
  }
  CHECK(took > 1.4);
  REQUIRE(s.waits.size() == 1);
  CHECK(s.waits[0].starts_with("a: wait; not replace: 0 spares are registered for 1 dead member"));
  CHECK(s.ends["a"] == job_end::done);
  CHECK(s.worlds.rbegin()->second.members == member_list{"a"});
  check_history(s);
}

TEST_CASE("who makes an update when somebody dies keeps its place, though the update takes longer than the grace") {
  slow_updates job;
  job.one_of_three_dies(0.6);
  job.check_done({"a", "b"});
  CHECK(job.s.ends["c"] == job_end::runs);
}

TEST_CASE("nothing is lost while who holds it makes a long update") {
  slow_updates job;
  degrees cut;  // every element has one holder
  cut.pp = 2;
  job.add("a", cut, 0.6), job.add("b", cut, 0.6);
  slow_updates::reach(*job.all[0], 1);
  job.add("c", cut, 0), job.add("d", cut, 0);
  job.put({"join", "c,d"});
  job.say_gone("c", job_phase::entering);  // c and d, who have nothing yet, promise at once
  job.check_done({"a", "b", "c", "d"});
}

TEST_CASE("a recovery waits for who makes its group longer than the patience") {
  slow_updates job;
  job.wait = std::chrono::seconds(1), job.group_seconds = 2.5;
  job.one_of_three_dies();
  job.check_done({"a", "b"});
  CHECK(job.s.worlds.rbegin()->first == 2);
}

TEST_CASE("a recovery that breaks off though nobody else is gone is made again") {
  slow_updates job;
  job.wait = std::chrono::seconds(1), job.stall_seconds = 3;
  job.one_of_three_dies();
  job.check_done({"a", "b"});
  CHECK(job.s.worlds.rbegin()->first > 2);
}

TEST_CASE("who does not come to move state is not waited for without end") {
  slow_updates job;
  job.ready = std::chrono::milliseconds(1500), job.group_seconds = 5;
  job.one_of_three_dies();
  const auto begun = std::chrono::steady_clock::now();
  while (job.s.told_count("not all moved state within 1500 ms") == 0 &&
         std::chrono::steady_clock::now() - begun < std::chrono::seconds(20))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(job.s.told_count("not all moved state within 1500 ms") > 0);
  job.join();
  CHECK(job.s.ends["a"] == job_end::done);
}

TEST_CASE("a job whose sole holder dies while the other leaves is lost, and does not wait") {
  slow_updates job;
  job.lease = std::chrono::seconds(1), job.steps = 1000;  // it does not come so far
  degrees cut;
  cut.pp = 2;
  job.add("a", cut, 0, "boundary"), job.add("b", cut, 0);
  job.put({"leave", "b"});
  job.join();
  CHECK(job.s.ends["a"] == job_end::runs);
  CHECK(job.s.ends["b"] == job_end::lost);
}

TEST_CASE("wrong evidence against who holds state alone costs nothing while its lease holds") {
  slow_updates job;
  job.wait = std::chrono::milliseconds(500), job.lease = std::chrono::seconds(1), job.steps = 3;
  degrees cut;
  cut.pp = 2;
  job.add("a", cut, 0), job.add("b", cut, 3);
  slow_updates::reach(*job.all[0], 1);
  job.say_gone("b", job_phase::idle);
  job.check_done({"a", "b"});
  CHECK(job.s.worlds.size() >= 2);
  const std::string waits = "a: b has its lease, did not promise, and may hold what nobody else has";
  CHECK(std::count(job.s.waits.begin(), job.s.waits.end(), waits) > 0);
}

TEST_CASE("a job that waits goes on with a member that promises late") {
  slow_updates job;
  job.ready = std::chrono::milliseconds(1000);
  job.steps = 3, job.least_members = 2;
  const degrees three{.dp = 3};
  job.add("a", three, 0), job.add("b", three, 3), job.add("c", three, 0, "updated");
  job.check_done({"a", "b"});
  CHECK(std::count_if(job.s.waits.begin(), job.s.waits.end(), [](const std::string& one) {
          return one.find("1 member is there, and a world has at least 2") != one.npos;
        }) == 1);
}

TEST_CASE("a job that waited for whom it heard nothing of, and then for somebody to come, told both") {
  slow_updates job;
  job.lease = std::chrono::milliseconds(700), job.ready = std::chrono::milliseconds(1500), job.steps = 2;
  job.least_members = 4;
  degrees cut{.dp = 2};
  cut.pp = 2;  // a and b have the first layer, c and d the second
  job.add_next("a", cut, 0), job.add_next("b", cut, 0), job.add_next("c", cut, 4), job.add_next("d", cut, 0, "updated");
  const auto told = [&](const char* words) {
    const std::lock_guard lock(job.s.mutex);
    return std::count_if(job.s.waits.begin(), job.s.waits.end(),
                         [&](const std::string& one) { return one.find(words) != one.npos; });
  };
  const auto begun = std::chrono::steady_clock::now();
  while (told("a: wait; ") == 0 && std::chrono::steady_clock::now() - begun < std::chrono::seconds(20))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(told("a: c has its lease, did not promise") == 1);
  CHECK(told("a: wait; ") == 1);
  job.ready = std::chrono::seconds(60);
  job.add("e", cut, 0);
  job.check_done({"a", "b", "c", "e"});
}

TEST_CASE("who has entered a world, and frees what it held, promises what it has and not nothing") {
  slow_updates job;
  job.steps = 100;
  degrees cut{.dp = 2};
  cut.pp = 2;  // the second layer's are the third and fourth: one is new, and the other dies
  job.add_next("a", cut, 0), job.add_next("b", cut, 0), job.add_next("e", cut, 0);
  job.next_differs = [](member& m) {
    m.passes = [&m](std::string_view at) {
      if (at == "samples" && m.in_epoch == 2) throw std::runtime_error("it dies");
    };
  };
  job.add_next("d", cut, 0);
  slow_updates::reach(*job.all[0], 5);
  job.next_differs = [](member& m) { m.entered_seconds = 2.5; };
  job.add_next("c", cut, 0);
  CHECK(ask(job.store, "r1", {"replace", "e", "c"}) == "done");
  job.join();
  for (const char* who : {"a", "b", "c"}) CHECK_MESSAGE(job.s.ends[who] == job_end::done, who);
  CHECK(job.s.ends["d"] == job_end::runs);
  check_history(job.s, job.steps);
}

TEST_CASE("who made an update in a recovery tells its scalar in the next one") {
  slow_updates job;
  job.steps = 60;
  const degrees four{.dp = 4};
  // Of a step's scalar b and d alone hear, and d dies. In the recovery a makes the update, and b dies before f does.
  job.next_differs = [](member& m) { m.deaf_at = 6; };
  job.add_next("a", four, 0);
  job.next_differs = [](member& m) {
    m.passes = [&m, made = 0](std::string_view at) mutable {
      if (at != "group_made" || std::this_thread::get_id() != m.trains || ++made != 2) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      throw std::runtime_error("it dies");
    };
  };
  job.add_next("b", four, 0);
  job.next_differs = [](member& m) { m.deaf_at = 6, m.group_seconds = 2; };
  job.add_next("f", four, 0);
  job.add_next("d", four, 0, "updating", 7);
  job.check_done({"a", "f"});
  CHECK((job.s.ends["b"] == job_end::runs && job.s.ends["d"] == job_end::runs));
  CHECK(std::any_of(job.s.worlds.begin(), job.s.worlds.end(), [](const auto& w) { return w.second.first_step == 7; }));
}

TEST_CASE("who hears that a job waits, and not why, ends what its trainer waits for") {
  slow_updates job;
  job.steps = 60, job.least_members = 2, job.lease = std::chrono::seconds(1);
  const degrees three{.dp = 3};
  job.add_next("a", three, 0);
  const member& b = job.add_cut_off("b", three, 5);
  job.add_next("c", three, 0, "gradients", 6);
  CHECK(slow_updates::until([&] { return job.record().phase == job_phase::waiting; }));
  job.gate.shut = false;
  job.check_done({"a", "b"});
  CHECK(!b.waits_in_vain.load());
  CHECK(job.s.interrupts["b"].starts_with("reshard: the world of epoch 1 is over: c "));
}

TEST_CASE("who hears that the job went on without it ends what its trainer waits for, and is expelled") {
  slow_updates job;
  job.steps = 60, job.lease = std::chrono::seconds(1);
  const degrees three{.dp = 3};
  job.add_next("a", three, 0);
  const member& b = job.add_cut_off("b", three, 5);
  job.add_next("c", three, 0, "gradients", 6);
  CHECK(slow_updates::until([&] { return job.record().epoch == 2 && job.record().phase == job_phase::idle; }));
  job.gate.shut = false;
  job.check_done({"a"});
  CHECK(job.s.ends["b"] == job_end::expelled);
  CHECK(job.s.interrupts["b"] == "reshard: the job went on in epoch 2 without b");
  CHECK(!b.waits_in_vain.load());
}

TEST_CASE("a world that broke before a member knew of it begins with that member's first values") {
  slow_updates job;
  job.steps = 60, job.wait = std::chrono::seconds(1);
  degrees cut;
  cut.pp = 2;
  const auto patient = [](member& m) { m.settings.grace = std::chrono::seconds(2); };
  job.next_store = any_store(job.gate), job.next_differs = patient;
  job.add_next("b", cut, 0);
  job.gate.shut = true;
  job.next_differs = patient;
  job.add_next("a", cut, 0);
  CHECK(slow_updates::until([&] { return job.record().epoch == 1; }));
  job.say_gone("a", job_phase::idle, 100);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  job.gate.shut = false;
  job.check_done({"a", "b"});
  CHECK(job.s.worlds.rbegin()->first <= 6);  // else it is made again and again
}

namespace {

/// Dies as it makes its group of the world after the second one, a while after it came to that.
void dies_entering_the_third(member& m) {
  m.passes = [&m](std::string_view at) {
    if (at != "group_made" || std::this_thread::get_id() != m.trains || m.in_epoch != 2) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    throw std::runtime_error("it dies");
  };
}
void dies_in_the_second(member& m) {
  m.passes = [&m](std::string_view at) {
    if (at == "samples" && m.in_epoch == 2) throw std::runtime_error("it dies");
  };
}
/// b says that it has entered the second world, and hears nothing more until the third one is entered without it.
void cut_off(slow_updates& job) {
  job.gate.shuts_after = "entered/b";
  job.next_store = any_store(job.gate);
}
/// Of a, b and c, which all hold all, b is cut off, c dies in the second world and a as the third one is entered.
void begin_with_three(slow_updates& job) {
  job.lease = std::chrono::seconds(1);
  const degrees three{.dp = 3};
  job.next_differs = dies_entering_the_third;
  job.add_next("a", three, 0);
  cut_off(job);
  job.add_next("b", three, 0);
  job.next_differs = dies_in_the_second;
  job.add_next("c", three, 0);
  slow_updates::reach(*job.all[0], 3);
}
void hears_again(slow_updates& job) {
  CHECK(slow_updates::until([&] { return job.record().epoch == 3 && job.record().phase == job_phase::entering; }));
  CHECK(!job.record().now().has("b"));
  job.gate.shut = false;
}

}  // namespace

TEST_CASE("who was cut off as it entered a world has that world's state, though another was begun without it") {
  slow_updates job;
  job.steps = 100;
  begin_with_three(job);
  const degrees three{.dp = 3};
  job.add_next("d", three, 0), job.add_next("e", three, 0);
  job.put({"batch", "9"});
  hears_again(job);
  job.check_done({"b", "d", "e"});
  CHECK((job.s.ends["a"] == job_end::runs && job.s.ends["c"] == job_end::runs));
}

TEST_CASE("who came new and was cut off as it entered promises what it got and not nothing") {
  slow_updates job;
  job.steps = 100, job.lease = std::chrono::seconds(1);
  const degrees two{.dp = 2};
  const auto add = [&](const char* who, const std::function<void(member&)>& differs) {
    job.next_differs = [&differs](member& m) {
      m.settings.policy.axes = {layout_key::dp};  // all hold all
      differs(m);
    };
    job.add_next(who, two, 0);
  };
  add("a", dies_entering_the_third);
  add("c", dies_in_the_second);
  slow_updates::reach(*job.all[0], 3);
  cut_off(job);
  add("b", [](member& m) { m.entered_seconds = 1; });  // it frees something meanwhile: its promise could be sooner
  slow_updates::reach(*job.all[0], 5);
  job.put({"join", "b"});
  CHECK(slow_updates::until([&] { return job.record().epoch == 2; }));
  add("d", [](member&) {});
  hears_again(job);
  job.check_done({"b", "d"});
}

TEST_CASE("where all die who enter a world who was taken for gone goes on with what it holds") {
  slow_updates job;
  job.steps = 60;
  begin_with_three(job);
  job.put({"batch", "9"});
  hears_again(job);
  job.check_done({"b"});
}

TEST_CASE("after a death each data-parallel rank has a sample") {
  slow_updates job;
  job.steps = 30;
  degrees cut{.dp = 2};
  cut.tp = 2;
  for (const char* who : {"a", "b", "c", "d"}) {
    job.next_differs = [](member& m) {
      m.settings.batch = 2;  // fewer than three ranks
      m.settings.policy.axes = {layout_key::tp, layout_key::dp};
    };
    job.add_next(who, cut, 0, *who == 'd' ? "updated" : "", 5);
  }
  job.check_done({"a", "b"});
  CHECK(job.s.ends["c"] == job_end::done);  // as a spare
}

TEST_CASE("what a death undoes is not answered as done") {
  std::atomic<bool> said = false;
  slow_updates job;
  job.steps = 100;
  const degrees three{.dp = 3};
  const auto slow_swap = [&said](member& m) {
    m.settings.grace = std::chrono::seconds(2);
    m.passes = [&said](std::string_view at) {
      if (at == "swap-entered") CHECK(slow_updates::until([&] { return said.load(); }));
    };
  };
  for (const char* who : {"a", "b", "c"}) job.next_differs = slow_swap, job.add_next(who, three, 0);
  slow_updates::reach(*job.all[0], 5);
  job.put({"batch", "9"});
  const job_keys keys("story");
  const auto all_entered = [&] {
    std::size_t entered = 0;
    for (const stored& one : job.kept.list(keys.said()).all) entered += one.key.find("entered") != one.key.npos;
    return entered == 3;
  };
  CHECK(slow_updates::until(all_entered));
  job.say_gone("b", job_phase::entering, 0);
  said = true;
  CHECK(!job.kept.read(keys.answers() + "r1"));
  job.join();
  CHECK(job.kept.read(keys.answers() + "r1")->value == "done");
  CHECK(job.s.worlds.rbegin()->second.batch == 9);
  for (const char* who : {"a", "b", "c"}) CHECK_MESSAGE(job.s.ends[who] == job_end::done, who);
  check_history(job.s, job.steps);
}
