// SPDX-License-Identifier: Apache-2.0
// Jobs of threads: members join, leave, are replaced and die, and layouts change, in switches that break off too. Real
// processes, killed and stopped, are in tests/tools/elastic.py.
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

TEST_CASE("members join, go over to other layouts, leave and are replaced while steps go on") {
  local_store kept;
  const any_store store(kept);
  story s;
  {
    std::vector<std::unique_ptr<member>> all;
    for (const char* who : {"a", "b"}) all.push_back(std::make_unique<member>(s, store, who, 2, 0.02));
    CHECK(ask(store, "r1", {"batch", "9"}) == "done");
    CHECK(ask(store, "r1", {"batch", "9"}) == "done");
    all.push_back(std::make_unique<member>(s, store, "c", 2, 0.02));
    CHECK(ask(store, "r2", {"join", "c"}) == "done");
    CHECK(ask(store, "r3", {"layout", "dp=3"}) == "done");
    CHECK(ask(store, "r4", {"layout", "tp=3"}).starts_with("refused: "));
    all.push_back(std::make_unique<member>(s, store, "d", 2, 0.02));
    CHECK(ask(store, "r5", {"replace", "a", "d"}) == "done");
    CHECK(ask(store, "r6", {"leave", "b"}) == "done");
    CHECK(ask(store, "r7", {"leave", "b"}) == "done");  // it is so
  }
  check_words(kept, s.worlds.rbegin()->second);
  CHECK(s.two_worlds == 0);
  CHECK(s.two_answers == 0);
  CHECK(s.worlds.size() == 6);
  CHECK((s.ends["a"] == job_end::left && s.ends["b"] == job_end::left));
  CHECK((s.ends["c"] == job_end::done && s.ends["d"] == job_end::done));
  CHECK(s.interrupts.empty());
  check_history(s);
}

TEST_CASE("who walks out without a word is gone; the others go on, and so does a spare in its place") {
  local_store kept;
  const any_store store(kept);
  story s;
  {
    std::vector<std::unique_ptr<member>> all;
    for (const char* who : {"a", "b", "c"}) all.push_back(std::make_unique<member>(s, store, who, 3, 0.005));
    while (all[0]->version.load() < 20) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    all[0]->walks_out.store(true);
    while (all[1]->version.load() < 60) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(s.two_worlds == 0);
  CHECK(s.worlds.size() >= 2);
  const member_list left = s.worlds.rbegin()->second.members;
  CHECK((left.size() == 2 && has_members(left, {"b", "c"})));
  CHECK(s.ends["a"] == job_end::runs);
  CHECK((s.ends["b"] == job_end::done && s.ends["c"] == job_end::done));
  CHECK(s.wrong == 0);
  CHECK(s.elements > 0);
  check_tiles(s, steps);
}

TEST_CASE("a job that is told to finish ends before one step, on all") {
  local_store kept;
  const any_store store(kept);
  story s;
  index_t ended[2] = {};
  {
    member a(s, store, "a", 2, 0.005), b(s, store, "b", 2, 0.005);
    while (a.version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(ask(store, "end", {"finish"}) == "done");
    a.thread.join(), b.thread.join();
    ended[0] = a.ended, ended[1] = b.ended;
    a.thread = std::thread([] {}), b.thread = std::thread([] {});
  }
  CHECK(ended[0] == ended[1]);
  CHECK((ended[0] >= 10 && ended[0] < steps));
  CHECK((s.ends["a"] == job_end::done && s.ends["b"] == job_end::done));
  check_tiles(s, ended[0]);
}

TEST_CASE("a name is never used twice") {
  local_store kept;
  const any_store store(kept);
  story s;
  {
    member first(s, store, "a", 1, 0.005);
    while (first.version.load() < 5) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    story other;
    { member again(other, store, "a", 1, 0.005); }
    CHECK(other.ends["a"] == job_end::refused);
    CHECK(other.last["a"] == "reshard: job: a member is called a already; a name is never used twice");
  }
  CHECK(s.ends["a"] == job_end::done);
}

TEST_CASE(
    "deaths at any point of a change, and of a recovery: the others go on, and are told why they waited in vain") {
  const std::vector<std::string> known = {"the change is called off",
                                          "the change is over",
                                          "a member of the change is gone",
                                          "the world of epoch",
                                          "is gone: its connection ended",
                                          "has left; a world serves one run",
                                          "has left a switch that broke off",
                                          "stopped by this process",
                                          "waited 2000 ms in vain",
                                          "there is no group",
                                          "was given up"};
  std::set<std::string> told;
  index_t deaths = 0;
  for (const std::string point : {"decided", "group_made", "boundary", "scalar"}) {
    CAPTURE(point);
    local_store kept;
    const any_store store(kept);
    story s;
    {
      std::vector<std::unique_ptr<member>> all;
      // c dies in the change to another batch, or, where it is to be in a recovery, once b has died in a step.
      const bool in_recovery = point == "group_made";
      all.push_back(std::make_unique<member>(s, store, "a", 4, 0.01));
      all.push_back(std::make_unique<member>(s, store, "b", 4, 0.01, in_recovery ? "scalar" : "", 20));
      all.push_back(std::make_unique<member>(s, store, "c", 4, 0.01, point, point == "group_made" ? 2 : 1));
      all.push_back(std::make_unique<member>(s, store, "d", 4, 0.01));
      while (all[0]->version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (!in_recovery) ask(store, "r1", {"batch", "9"});
    }
    CHECK(s.two_worlds == 0);
    CHECK(s.two_answers == 0);
    CHECK((s.ends["a"] == job_end::done && s.ends["d"] == job_end::done));
    CHECK(s.ends["c"] == job_end::runs);
    CHECK(!has_member(s.worlds.rbegin()->second.members, "c"));
    check_history(s);
    deaths += s.ends["b"] == job_end::runs ? 2 : 1;
    for (const std::string& sentence : s.told) {
      bool is_known = false;
      for (const std::string& one : known)
        if (sentence.find(one) != std::string::npos) is_known = true, told.insert(one);
      CHECK_MESSAGE(is_known, sentence);
    }
  }
  std::string all;
  for (const std::string& one : told) all += (all.empty() ? "" : "; ") + one;
  MESSAGE(deaths, " deaths; told were: ", all);
  CHECK_FALSE(told.empty());
}

TEST_CASE("a job that has not begun is in no world") {
  local_store kept;
  job_settings settings;
  settings.me = "a";
  const elastic_job job(any_store(kept), settings, {});
  CHECK_THROWS_WITH_AS(static_cast<void>(job.now()), "reshard: job: a is in no world yet", refusal);
}

TEST_CASE("who comes and dies before all have entered takes nothing along, of states with one holder neither") {
  for (const std::string point : {"entered"}) {
    CAPTURE(point);
    local_store kept;
    const any_store store(kept);
    story s;
    {
      degrees cut;  // two pipeline stages: every element has one holder
      cut.pp = 2;
      std::vector<std::unique_ptr<member>> all;
      for (const char* who : {"a", "b"}) all.push_back(std::make_unique<member>(s, store, who, 2, 0.01, "", 1, cut));
      while (all[0]->version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      all.push_back(std::make_unique<member>(s, store, "c", 2, 0.01, point, 1, cut));
      ask(store, "r1", {"replace", "b", "c"});
    }
    CHECK(s.ends["c"] == job_end::runs);
    CHECK((s.ends["a"] == job_end::done && s.ends["b"] == job_end::done));
    check_history(s);
  }
}

TEST_CASE("whom a world was to leave goes on alone where the one that was to stay dies before it has entered") {
  for (const std::string at : {"decided", "entered"}) {
    CAPTURE(at);
    local_store kept;
    const any_store store(kept);
    story s;
    {
      member a(s, store, "a", 2, 0.004, at), b(s, store, "b", 2, 0.004);
      while (b.version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      CHECK(ask(store, "1", {"leave", "b"}).starts_with("refused: "));  // taken up again, and nobody would be left
    }
    CHECK(s.ends == std::map<std::string, job_end>{{"a", job_end::runs}, {"b", job_end::done}});
    CHECK(s.worlds.rbegin()->second.members == member_list{"b"});
    CHECK(s.worlds.rbegin()->first == 3);
    check_history(s);
  }
}

TEST_CASE("what one holder alone had comes from its neighbour's copy: back by less than two turns, small state too") {
  struct {
    rank_t tp, pp, dp;
    int zero;
    const char* point;
    bool spare;
  } const cases[] = {{1, 2, 1, 0, "scalar", false}, {1, 1, 3, 1, "samples", true}, {2, 1, 1, 0, "updating", true}};
  for (const auto& c : cases) {
    CAPTURE(std::string(c.point));
    local_store kept;
    const any_store store(kept);
    story s;
    std::uint64_t taken = 0;
    {
      degrees cut;
      cut.tp = c.tp, cut.pp = c.pp, cut.dp = c.dp, cut.zero = c.zero;
      const index_t n = cut.world();
      std::vector<std::unique_ptr<member>> all;
      for (const char* who : {"a", "b", "c"})
        if (std::ssize(all) < n)
          all.push_back(std::make_unique<member>(s, store, who, n, 0.005, *who == 'b' ? c.point : "", 58, cut, 10));
      if (c.spare) {
        while (all[0]->version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        all.push_back(std::make_unique<member>(s, store, "x", n, 0.005, "", 1, cut, 10));
      }
      while (!all[0]->over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      taken = all[0]->taken;
    }
    CHECK(s.ends["a"] == job_end::done);
    CHECK(s.wrong == 0);
    REQUIRE(s.worlds.size() == 2);
    const world& after = s.worlds[2];
    CHECK(after.layout.world() == (c.spare ? c.tp * c.pp * c.dp : 1));
    CHECK(after.first_step % 10 == 0);
    CHECK((after.first_step >= 40 && after.first_step <= 58));
    check_tiles(s, steps);
    std::uint64_t then = 0;  // what small state was at that version
    for (index_t k = after.cursor - after.batch; k < after.cursor; ++k) then += mix64(static_cast<std::uint64_t>(k));
    CHECK(taken == then);
  }
}

TEST_CASE("a job whose state had one holder that is gone is lost, and says what is missing") {
  local_store kept;
  const any_store store(kept);
  story s;
  {
    degrees cut;
    cut.pp = 2;
    member a(s, store, "a", 2, 0.005, "", 1, cut), b(s, store, "b", 2, 0.005, "scalar", 20, cut);
  }
  CHECK(s.ends["a"] == job_end::lost);
  const std::string said = s.last["a"];
  CHECK(said.find(" nobody holds ") != std::string::npos);
  CHECK(said.find(" bytes any more; the first are param of ") != std::string::npos);
  CHECK(said.ends_with("; b held them"));
}

TEST_CASE("a job of other states than Adam's misses none of those") {
  local_store kept;
  const any_store store(kept);
  story s;
  const auto parameters = [](member& m) { m.settings.list = {{"param", dtype::fp32, 3}}; };
  {
    degrees cut{.dp = 3};
    cut.zero = 1;  // each has all parameters; of Adam's others a third
    const auto add = [&](const char* who, const char* dies) {
      return std::make_unique<member>(s, store, who, 3, 0.005, dies, 20, cut, 0, no_budget, 0.0, 1, parameters);
    };
    const auto a = add("a", ""), b = add("b", ""), c = add("c", "scalar");
    while (!b->over.load() && b->version.load() < 60) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(ask(store, "r1", {"leave", "b"}) == "done");
  }
  CHECK((s.ends["a"] == job_end::done && s.ends["b"] == job_end::left));
  CHECK(to_text(s.worlds.rbegin()->second.layout) == "zero=1");
  check_history(s);
}

TEST_CASE("under a budget a switch that breaks off leaves state between two worlds, and all go on from there") {
  index_t stages = 0;
  for (const std::string point : {"stage:0", "stage:1", "stage:2"}) {
    CAPTURE(point);
    local_store kept;
    const any_store store(kept);
    story s;
    std::string answer;
    {
      degrees stage_each, half_each;  // every element has one holder, and most of them move
      stage_each.pp = 2, half_each.tp = 2;
      member a(s, store, "a", 2, 0.005, "", 1, stage_each, 0, 36_KiB),
          b(s, store, "b", 2, 0.005, point, 1, stage_each, 0, 36_KiB);
      while (a.version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      answer = ask(store, "r1", {"layout", to_text(half_each)});
      stages = std::max(stages, a.stages.load());
    }
    CHECK(answer == "done");  // it was asked for again
    CHECK((s.ends["a"] == job_end::done && s.ends["b"] == job_end::done));
    CHECK(s.told.contains("it dies"));  // what a call throws between stages ends the switch, and nobody
    CHECK(s.worlds.size() > 2);
    check_history(s);
  }
  CHECK(stages > 3);  // of several: what was in place stood in new arrays
}

TEST_CASE("a recovery from state between two worlds that breaks off too is made once more from there") {
  for (const std::string breaks : {"a", "b"}) {
    CAPTURE(breaks);
    local_store kept;
    const any_store store(kept);
    story s;
    index_t most_kept = 0;
    {
      degrees stage_each, half_each;
      stage_each.pp = 2, half_each.tp = 2;
      // who breaks the change off at stage 2 does no more; the recovery is stage 0 for the second time
      member a(s, store, "a", 2, 0.02, breaks == "a" ? "stage:0" : "stage:2", breaks == "a" ? 2 : 1, stage_each, 0,
               36_KiB);
      member b(s, store, "b", 2, 0.02, breaks == "b" ? "stage:0" : "stage:2", breaks == "b" ? 2 : 1, stage_each, 0,
               36_KiB);
      while (a.version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      CHECK(ask(store, "r1", {"layout", to_text(half_each)}) == "done");
      most_kept = std::max(a.most_kept.load(), b.most_kept.load());
    }
    CHECK((s.ends["a"] == job_end::done && s.ends["b"] == job_end::done));
    CHECK((!s.worlds.contains(2) && !s.worlds.contains(3)));  // the change, and the first recovery
    CHECK(most_kept == 3);  // of the two worlds that state lies between, and of one attempt to leave them
    check_history(s);
  }
}

TEST_CASE("who was to come with a switch that broke off gives what it got, and is a spare that holds nothing") {
  local_store kept;
  const any_store store(kept);
  story s;
  index_t emptied = 0;
  {
    degrees cut;
    cut.pp = 2;
    member a(s, store, "a", 2, 0.005, "", 1, cut, 0, 36_KiB), b(s, store, "b", 2, 0.005, "stage:1", 1, cut, 0, 36_KiB);
    while (a.version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    member c(s, store, "c", 2, 0.005, "", 1, cut, 0, 36_KiB);
    CHECK(ask(store, "r1", {"replace", "b", "c"}) == "done");  // asked for again after that
    emptied = c.emptied.load();
  }
  CHECK(emptied == 1);
  CHECK(s.told.contains("it dies"));
  CHECK((s.ends["a"] == job_end::done && s.ends["b"] == job_end::left && s.ends["c"] == job_end::done));
  check_history(s);
}

TEST_CASE("what was given to a member that dies before all have entered is lost, and how is said") {
  local_store kept;
  const any_store store(kept);
  story s;
  {
    degrees cut;
    cut.pp = 2;
    member a(s, store, "a", 2, 0.01, "", 1, cut, 0, 36_KiB), b(s, store, "b", 2, 0.01, "", 1, cut, 0, 36_KiB);
    while (a.version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    member c(s, store, "c", 2, 0.01, "entered", 1, cut, 0, 36_KiB);
    ask(store, "r1", {"replace", "b", "c"});
  }
  CHECK((s.ends["a"] == job_end::lost && s.ends["b"] == job_end::lost));
  const std::string said = s.last["a"];
  CHECK(said.find(" bytes any more, since the change to epoch 2 was torn: lost are 0 elements that only the dead held, "
                  "and ") != std::string::npos);
  CHECK(said.ends_with(" that a survivor had given back before their new copies stood"));
}

TEST_CASE("what a torn switch lost comes from copies, and what lies between its worlds is left alone") {
  local_store kept;
  const any_store store(kept);
  story s;
  {
    degrees cut;
    cut.pp = 2;
    const auto add = [&](const char* who, const std::string& dies) {
      return std::make_unique<member>(s, store, who, 2, 0.01, dies, 1, cut, 4, 36_KiB);
    };
    const auto a = add("a", ""), b = add("b", "");
    while (a->version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto c = add("c", "entered");
    ask(store, "r1", {"replace", "b", "c"});  // c has it in part, and dies
  }
  CHECK((s.ends["a"] == job_end::done && s.ends["c"] == job_end::runs));
  CHECK(s.ends["b"] == job_end::done);
  CHECK(s.worlds.rbegin()->second.first_step % 4 == 0);  // a copy's version
  check_history(s);
}

TEST_CASE("a budget that no number of stages keeps is the answer to who asked, and steps go on") {
  local_store kept;
  const any_store store(kept);
  story s;
  std::string answer;
  {
    member a(s, store, "a", 2, 0.005, "", 1, {}, 0, 1_KiB), b(s, store, "b", 2, 0.005, "", 1, {}, 0, 1_KiB);
    while (a.version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    degrees halves;
    halves.tp = 2;
    answer = ask(store, "r1", {"layout", to_text(halves)});
    while (!a.over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(a.most_kept.load() == 2);  // those of the change that was refused are given up before others are made
    CHECK(a.given_up.load() >= 1);
  }
  CHECK(answer.starts_with("failed: a budget of 1024 bytes cannot work: "));
  CHECK((s.ends["a"] == job_end::done && s.ends["b"] == job_end::done));
  CHECK(s.worlds.size() <= 3);  // the old one, that was made again
  check_history(s);
}

TEST_CASE("small state of one rank alone is refused before it is gone: who asked is told, and steps go on") {
  for (const bytes_t budget : {no_budget, 64_KiB}) {
    CAPTURE(budget);
    local_store kept;
    const any_store store(kept);
    story s;
    {
      const auto has_own = [](member& m) { m.own_small = m.me == "a" ? "at 17" : ""; };
      const auto add = [&](const char* who) {
        return std::make_unique<member>(s, store, who, 2, 0.005, "", 1, degrees{.dp = 2}, 0, budget, 0.0, 1, has_own);
      };
      const auto a = add("a"), b = add("b");
      while (a->version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const auto c = add("c");
      CHECK(ask(store, "r1", {"join", "c"}).starts_with("failed: no device asks for small state loader[a], which "));
      while (!a->over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      CHECK(a->own_came == 1);  // with the world that was made again
      CHECK(b->own_came == 0);
    }
    CHECK((s.ends["a"] == job_end::done && s.ends["b"] == job_end::done));
    CHECK(s.worlds.size() == 2);
    check_history(s);
  }
}

TEST_CASE("what was refused is refused when it is asked for once more, and the spare that it names is as good as new") {
  local_store kept;
  const any_store store(kept);
  story s;
  {
    degrees cut;
    cut.pp = 2;
    member a(s, store, "a", 2, 0.02, "", 1, cut, 0, 1_KiB), b(s, store, "b", 2, 0.02, "", 1, cut, 0, 1_KiB);
    while (a.version.load() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    member c(s, store, "c", 2, 0.02, "", 1, cut, 0, 1_KiB);
    for (const std::string id : {"r1", "r2"}) {
      CAPTURE(id);
      CHECK(ask(store, id, {"replace", "b", "c"}).starts_with("failed: a budget of 1024 bytes cannot work: "));
      const index_t so_far = a.version.load();
      while (a.version.load() < so_far + 2 && !a.over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  CHECK((s.ends["a"] == job_end::done && s.ends["b"] == job_end::done));
  CHECK(s.worlds.size() < 10);  // made again as often as it was refused
  check_history(s);
}

TEST_CASE("under a budget what is no tensor goes over before a source goes: who dies of it takes nothing along") {
  local_store kept;
  const any_store store(kept);
  story s;
  {
    member a(s, store, "a", 2, 0.005, "small", 1, {}, 0, 64_KiB), b(s, store, "b", 2, 0.005, "", 1, {}, 0, 64_KiB);
    while (a.version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    member c(s, store, "c", 2, 0.005, "", 1, {}, 0, 64_KiB);
    ask(store, "r1", {"replace", "b", "c"});
    CHECK(a.stages.load() == 0);  // of that switch, which it died in
  }
  CHECK(s.ends["a"] == job_end::runs);
  CHECK((s.ends["b"] == job_end::done || s.ends["c"] == job_end::done));
  check_history(s);
}

TEST_CASE("a spare whose coming is refused is not asked in again: who is slow stays, and why is told") {
  local_store kept;
  const any_store store(kept);
  story s;
  {
    degrees cut;
    cut.pp = 2;
    member a(s, store, "a", 2, 0.03, "", 1, cut, 0, 1_KiB, 0.1), b(s, store, "b", 2, 0.03, "", 1, cut, 0, 1_KiB, 0.01);
    while (a.version.load() < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    member c(s, store, "c", 2, 0.03, "", 1, cut, 0, 1_KiB, 0.01);
    while (!a.over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(c.emptied.load() >= 1);  // it was to come: what was made for that is its trainer's no more
  }
  CHECK((s.ends["a"] == job_end::done && s.ends["b"] == job_end::done));
  CHECK(s.worlds.size() < 10);  // the second is the first once more
  CHECK(std::count_if(s.told.begin(), s.told.end(), [](const std::string& one) {
          return one.starts_with("a: ignored: a budget of 1024 bytes cannot work: ");
        }) == 1);
  check_history(s);
}

TEST_CASE("steps that are longer than the patience: who comes waits until the others are out of theirs") {
  local_store kept;
  const any_store store(kept);
  story s;
  const auto impatient = [](member& m) {
    m.settings.steps = 5;
    m.settings.wait = std::chrono::seconds(1), m.settings.grace = std::chrono::milliseconds(100);
  };
  {
    std::vector<std::unique_ptr<member>> all;
    const auto add = [&](const char* who) {
      all.push_back(
          std::make_unique<member>(s, store, who, 2, 1.6, "", 1, degrees{.dp = 2}, 0, no_budget, 0.0, 1, impatient));
    };
    for (const char* who : {"a", "b"}) add(who);
    while (all[0]->version.load() < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    add("c");
    CHECK(ask(store, "r1", {"join", "c"}) == "done");
  }
  CHECK(s.worlds.size() == 2);
  CHECK(s.told.empty());
  for (const char* who : {"a", "b", "c"}) CHECK(s.ends[who] == job_end::done);
  check_history(s, 5);
}
