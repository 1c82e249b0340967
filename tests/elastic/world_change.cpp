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

#include <reshard/base/digest.hpp>
#include <reshard/elastic/run/world_change.hpp>
#include <reshard/memory/each_element.hpp>
#include <reshard/memory/rank_storage.hpp>

#include "../support/one_member.hpp"

using namespace reshard;
using namespace testing;

namespace {

/// Arrays of a world's rank, each of whose elements says which it is.
struct arrays_of {
  arrays_of(const model& m, const world& w, rank_t rank)
      : layout(space(m, w.layout), adam.all()),
        storage(layout, rank, "arrays", w.epoch == 1 ? pages_are::committed : pages_are::reserved) {}
  void each(auto&& visit) {
    for (const bound_box& b : storage.tensors().boxes()) {
      const std::uint64_t key =
          mix64(static_cast<std::uint64_t>(b.state * 1'000'000 + b.tensor.family * 1000 + b.tensor.member));
      const auto one = [&](auto& x, index_t i) {
        visit(x, static_cast<std::remove_reference_t<decltype(x)>>(mix64(key + static_cast<std::uint64_t>(i))));
      };
      if (b.element_bytes == 2) each_element<std::uint16_t>(b, layout.family_at(b.tensor.family), one);
      else each_element<std::uint32_t>(b, layout.family_at(b.tensor.family), one);
    }
  }
  void fill(bool otherwise = false) {
    each([&](auto& x, auto is) { x = static_cast<std::remove_reference_t<decltype(x)>>(otherwise ? ~is : is); });
  }
  /// How many elements there are, if each is right; -1 if one is wrong.
  index_t right() {
    index_t all = 0;
    bool good = true;
    each([&](auto& x, auto is) { ++all, good = good && x == is; });
    return good ? all : -1;
  }

  computed_holding layout;
  rank_storage storage;
};

struct mover : one_member {
  mover(local_store& shared, const std::string& me, bytes_t budget = no_budget, index_t every = 5)
      : one_member(
            me,
            [budget, every](job_settings& s) {
              s.wait = std::chrono::seconds(20), s.budget = budget, s.snapshot = every;
            },
            calls_of(*this), &shared),
        door(listening_socket("127.0.0.1:0")), groups(core, door), copies(core, groups), change(core, groups, copies) {
    put(core.keys.places() + me, "127.0.0.1:" + std::to_string(door.port()) + " 127.0.0.1:1 here");
    sum = me == "a" ? 111 : 222;
  }
  static trainer_calls calls_of(mover& one) {
    trainer_calls calls;
    calls.make_group = [](const group_request&, const std::stop_token&) {};
    calls.tensors = [&one](const world& w, rank_t rank) {
      auto& made = one.arrays[w.epoch];
      made = std::make_unique<arrays_of>(one.core.settings.model, w, rank);
      return made->storage.tensors();
    };
    calls.initialize = [&one](const world& w, rank_t) { one.arrays[w.epoch]->fill(); };
    calls.entered = [](const world&, rank_t) {};
    calls.update = [&one](double scalar) { one.watcher.say("update " + std::to_string(scalar)); };
    calls.small = [&one] {
      small_state mine;
      mine.add_same("sum", std::as_bytes(std::span(&one.sum, 1)));
      return mine;
    };
    calls.take_small = [&one](const small_state& s) {
      std::memcpy(&one.came, s.bytes_of({"sum"}).data(), sizeof one.came);
    };
    return calls;
  }
  /// It is in this world, with its state.
  void begin(const world& w, index_t version) {
    change.begin(w);
    change.settle(w);
    core.epoch = core.holds = core.tried = w.epoch;
    core.version = version;
  }
  /// Right elements of a world's arrays.
  index_t right(index_t epoch) { return arrays.contains(epoch) ? arrays[epoch]->right() : 0; }

  std::uint64_t sum = 0, came = 0;
  std::map<index_t, std::unique_ptr<arrays_of>> arrays = {};
  process_door door;
  detail::world_groups groups;
  detail::snapshots copies;
  detail::world_change change;
  detail::world_change::result result = {};
};

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
  for (auto& m : all)
    if (has_member(r.concerned(), m->core.me()) && !has_member(dead, m->core.me()))
      threads.emplace_back([&m, &r] { m->result = m->change.enter(r); });
  for (std::thread& t : threads) t.join();
}
world cut(index_t epoch, const member_list& members, const char* layout, index_t first_step = 10) {
  world w = world_at(epoch, members, first_step);
  w.layout = parse_degrees(layout);
  return w;
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
  all[0]->arrays[1]->fill(true), all[0]->sum = 5;  // what a has is not to be used
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
  for (std::size_t m = 0; m < 2; ++m) all[m]->arrays[1]->fill(true), all[m]->sum = 5;  // steps went on
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
