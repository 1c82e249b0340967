// SPDX-License-Identifier: Apache-2.0
// Two members, or three, go over to another world over real connections: every element is where it shall be, what is
// no tensor comes along, updates are made by who is behind, and copies stand in for who died.
#include <doctest/doctest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <reshard/elastic/run/world_change.hpp>

#include "../support/mover.hpp"

using namespace reshard;
using namespace testing;

namespace {

using movers = std::vector<std::unique_ptr<mover>>;
movers three(local_store& shared, bytes_t budget = no_budget) {
  movers all;
  for (const char* who : {"a", "b", "c"}) all.push_back(std::make_unique<mover>(shared, who, budget));
  for (auto& m : all) m->hear();
  return all;
}
/// Those of the record's old and new world that live go over, each on its own thread.
void all_enter(movers& all, const job_record& r, const member_list& dead = {}) {
  all[0]->put(r);
  for (auto& m : all) m->hear();
  const std::jthread hears([&all](const std::stop_token& stop) {  // what each says, as a thread of each would
    for (; !stop.stop_requested(); std::this_thread::sleep_for(patience(1)))
      for (auto& m : all) m->hear();
  });
  std::vector<std::thread> threads;
  const state_source s = source_of(r);
  for (auto& m : all)
    if (has_member(s.from ? devices_of_entry(s, r.now()) : r.concerned(), m->core.me()) &&
        !has_member(dead, m->core.me()))
      threads.emplace_back([&m, &r] { m->result = m->change.enter(r); });
  for (std::thread& t : threads) t.join();
}
index_t elements(const mover& m, const world& w, rank_t rank) {
  arrays_of all(m.core.settings.model, w, rank);
  all.fill();
  return all.right();
}

}  // namespace

TEST_CASE("a planned change moves every element, and what is no tensor; under a budget piece by piece") {
  struct row {
    world from, to;
  };
  for (const row& one :
       {row{cut(1, {"a", "b"}, "pp=2"), cut(2, {"a", "b"}, "tp=2")}, row{cut(1, {"a", "b"}, "tp=2"), cut(2, {"b"}, "")},
        row{cut(1, {"a"}, ""), cut(2, {"b", "a"}, "pp=2")},
        row{cut(1, {"a", "b"}, "dp=2,zero=1"), cut(2, {"a", "c", "b"}, "dp=3,zero=1")},
        row{cut(1, {"a", "b"}, "tp=2"), cut(2, {"a", "c"}, "tp=2")}})
    for (const bytes_t budget : {no_budget, 64_KiB}) {
      CAPTURE(to_text(one.from) + " -> " + to_text(one.to));
      CAPTURE(budget);
      local_store kept;
      movers all = three(kept, budget);
      for (auto& m : all)
        if (one.from.has(m->core.me())) m->sum = 111, m->begin(one.from, 10);
      job_record r = record_at(job_phase::entering, {one.from, one.to});
      all_enter(all, r);
      for (auto& m : all) {
        const rank_t rank = one.to.rank_of(m->core.me());
        CHECK(m->result.sentence.empty());
        CHECK_FALSE(m->result.refused);
        CHECK(m->right(2) == (rank < 0 ? 0 : elements(*m, one.to, rank)));
        CHECK(m->came == (rank < 0 ? 0u : 111u));
        CHECK(m->core.torn.has_value() == (budget != no_budget && has_member(r.concerned(), m->core.me())));
        if (one.from.has(m->core.me()) && budget == no_budget)
          CHECK(m->right(1) == elements(*m, one.from, one.from.rank_of(m->core.me())));  // its sources stay
        if (rank < 0) continue;
        CHECK(m->result.seconds > 0);
        m->change.settle(one.to);
        CHECK((m->change.has_arrays() && !m->core.torn));
        m->change.drop();
        CHECK((!m->change.has_arrays() && m->core.holds == 0));
      }
    }
}

TEST_CASE("in a recovery who is behind makes the update with the scalar of who knows it, and who died is left out") {
  local_store kept;
  movers all = three(kept);
  const world from = cut(1, {"a", "b", "c"}, "dp=3"), to = cut(2, {"b", "a"}, "tp=2", 8);
  for (auto& m : all) m->sum = 111, m->begin(from, 7);
  all[0]->core.stage = update_stage::gradients;
  job_record r = record_at(job_phase::entering, {from, to}, 3);
  r.promises = {{{"a", 7, update_stage::gradients}, 0, 1}, {{"b", 8}, bits_of_scalar(2.5), 1}};
  r.gone = {"c"};
  all_enter(all, r, {"c"});
  for (std::size_t m = 0; m < 2; ++m) {
    CHECK(all[m]->result.sentence.empty());
    CHECK(all[m]->right(2) == elements(*all[m], to, to.rank_of(all[m]->core.me())));
    CHECK(all[m]->came == 111);
    CHECK(!all[m]->core.torn);
  }
  CHECK(all[0]->told().find("update 2.5") != std::string::npos);
  CHECK(all[1]->told().find("update") == std::string::npos);
  CHECK((all[0]->core.version == 8 && all[0]->core.stage == update_stage::nothing && all[0]->core.scalar == 2.5));
  CHECK(all[1]->core.version == 7);  // as this test left it
}

TEST_CASE("who is of another version than the one that all go on from is a destination only") {
  local_store kept;
  movers all = three(kept);
  const world from = cut(1, {"a", "b"}, "dp=2"), next = cut(2, {"a", "b", "c"}, "dp=3"),
              to = cut(3, {"c", "a"}, "pp=2", 7);
  for (std::size_t m = 0; m < 2; ++m) all[m]->begin(from, 7);
  all[0]->arrays[1]->fill(1), all[0]->sum = 5;  // what a has is not to be used
  job_record r = record_at(job_phase::entering, {from, next, to}, 1);
  r.promises = {{{"a", holds_nothing}, 0, 0}, {{"b", 7}, 0, 1}, {{"c", holds_nothing}, 0, 0}};
  all_enter(all, r);
  for (const std::size_t m : {0u, 2u}) {
    CHECK(all[m]->result.sentence.empty());
    CHECK(all[m]->right(3) == elements(*all[m], to, to.rank_of(all[m]->core.me())));
    CHECK(all[m]->came == 222);
  }
  CHECK((all[1]->result.sentence.empty() && all[1]->right(3) == 0));
}

TEST_CASE("copies of a version stand in for who died, and for what was done since; small state is of then") {
  local_store kept;
  movers all = three(kept);
  const world from = cut(1, {"a", "b"}, "pp=2"), to = cut(2, {"a"}, "");
  for (std::size_t m = 0; m < 2; ++m) all[m]->sum = 111, all[m]->begin(from, 10);
  for (std::size_t m = 0; m < 2; ++m) {
    all[m]->copies.before_step(10);
    CHECK(all[m]->core.locked([&] { return !all[m]->core.copies.empty(); }));
  }
  const std::vector<kept_copy> both = {{"a", 10}, {"b", 10}};
  const auto has_both = [&] { return all[0]->core.locked([&] { return all[0]->core.copies == both; }); };
  for (const auto end = just_now() + std::chrono::seconds(20); !has_both() && just_now() < end;
       all[0]->hear(), all[1]->hear())
    std::this_thread::sleep_for(patience(1));
  REQUIRE(has_both());
  for (std::size_t m = 0; m < 2; ++m) all[m]->arrays[1]->fill(1), all[m]->sum = 5;  // steps went on
  all[0]->core.version = 13;
  all[1]->copies.drop();
  CHECK(all[1]->core.copies.empty());
  job_record r = record_at(job_phase::entering, {from, to}, 1);
  r.promises = {{{"a", 13}, 0, 1, 0, 0, 0, 0, both}}, r.gone = {"b"}, r.from_copies = true;
  all_enter(all, r, {"b"});
  CHECK(all[0]->result.sentence.empty());
  CHECK(all[0]->right(2) == elements(*all[0], to, 0));
  CHECK(all[0]->came == 111);
  CHECK(all[0]->core.version == 13);
}

TEST_CASE(
    "copies are made every so many steps from the first on, of two versions, and of states with one holder alone") {
  const auto copied = [](const char* layout, index_t every, const std::vector<index_t>& versions) {
    local_store kept;
    mover a(kept, "a", no_budget, every);
    const world w = cut(1, {"a", "b"}, layout);
    a.begin(w, 10);
    std::string all;
    for (const index_t v : versions) {
      a.told();
      a.core.promised = all.size() > 0;  // who has promised makes none while the last one is sent
      a.copies.before_step(v);
      all += a.told().starts_with("copied") ? "+" : "-";
    }
    return all;
  };
  CHECK(copied("pp=2", 5, {10}) == "+");
  CHECK(copied("pp=2", 5, {15}) == "+");
  CHECK(copied("pp=2", 5, {11}) == "-");
  CHECK(copied("pp=2", 1, {11}) == "+");
  CHECK(copied("pp=2", 0, {10}) == "-");
  CHECK(copied("dp=2", 5, {10}) == "-");  // both have all
  CHECK(copied("dp=2,zero=1", 5, {10}) == "+");
  CHECK(copied("pp=2", 5, {10, 10, 15}) == "+--");
}

TEST_CASE("where the record says that a member has state which it has not, or tells no source, nothing is moved") {
  local_store kept;
  mover a(kept, "a");
  job_record r = record_at(job_phase::entering, {cut(1, {"a"}, ""), cut(2, {"a"}, "")});
  a.put(r);
  CHECK(a.change.enter(r).sentence == "reshard: the record says that this member holds state, and it does not");
  r = record_at(job_phase::entering, {cut(2, {"a"}, "")});
  a.put(r);
  CHECK(a.change.enter(r).sentence == "reshard: the record tells no world that holds the state");
}

TEST_CASE(
    "what lies between two worlds, where a switch under a budget was torn, goes on to a third one: every element") {
  const std::vector<std::pair<world, world>> changes = {
      {cut(1, {"a", "b"}, "pp=2"), cut(2, {"b", "c"}, "tp=2")},
      {cut(1, {"a", "b", "c"}, "dp=3,zero=1"), cut(2, {"c", "a"}, "tp=2")},
      {cut(1, {"c"}, ""), cut(2, {"a", "b", "c"}, "dp=3,zero=1")}};
  index_t torn = 0, in_part = 0, whole = 0;
  std::size_t turn = 0;
  for (const auto& [from, into] : changes)
    for (const char* const breaks : {"stage:0", "stage:1", "stage:2"}) {
      const std::string who(1, "abbcaacbc"[turn++]);
      const std::string layout = to_text(from) + " -> " + to_text(into);
      CAPTURE(layout);
      CAPTURE(std::string(breaks));
      CAPTURE(who);
      local_store kept;
      movers all = three(kept, 40_KiB);
      for (auto& m : all) {
        m->sum = 111;
        if (from.has(m->core.me())) m->begin(from, 10);
        if (m->core.me() == who) m->watcher.breaks_at = breaks;
      }
      const job_record before = record_at(job_phase::entering, {from, into});
      all_enter(all, before);
      const world next = cut(3, {"b", "a"}, "pp=2");
      job_record r = record_at(job_phase::entering, {from, into, next}, 1);
      bool broke = false;
      for (auto& m : all) {
        if (!has_member(before.concerned(), m->core.me())) continue;
        broke = broke || !m->result.sentence.empty();
        m->watcher.breaks_at.clear();
        promise p{{m->core.me(), m->core.holds > 0 ? m->core.version : holds_nothing}, 0, m->core.holds};
        if (const auto& t = m->core.torn) {
          p.torn_stages = t->stages, p.torn_in_place = t->share.in_place, p.torn_here = t->share.here;
          p.torn_unread = t->share.unread_kept.value_or(0);
          ++torn, whole += t->share.here == t->stages ? 1 : 0;
          in_part += t->share.here > 0 && t->share.here < t->stages ? 1 : 0;
        }
        r.promises.push_back(p);
      }
      if (!broke) continue;  // it had fewer stages
      all_enter(all, r);
      for (auto& m : all) {
        const rank_t rank = next.rank_of(m->core.me());
        CHECK(m->result.sentence == "");
        CHECK(m->right(3) == (rank < 0 ? 0 : elements(*m, next, rank)));
        if (rank < 0) continue;
        CHECK(m->came == 111);
        CHECK_FALSE((m->core.torn && m->core.holds == 3));
        m->change.settle(next);
        CHECK_FALSE(m->core.torn);
      }
    }
  MESSAGE(torn << " members held what lies between two worlds: " << in_part << " of them some stages, " << whole
               << " all");
  CHECK(torn > 20);
  CHECK(in_part > 10);
}
