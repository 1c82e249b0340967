// SPDX-License-Identifier: Apache-2.0
// The groups of a world, made by members on threads of one process: beside the steps and at once, who is in them and
// under which number, and how their making ends.
#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <reshard/elastic/run/world_groups.hpp>

#include "../support/one_member.hpp"

using namespace reshard;
using namespace testing;

namespace {

/// What a trainer was asked to make a group of.
struct asked_group {
  index_t epoch;
  rank_t rank;
  std::vector<std::string> addresses;
  std::uint64_t number;

  bool operator==(const asked_group&) const = default;
};

struct grouped : one_member {
  grouped(local_store& shared, const std::string& me, patience ready)
      : one_member(
            me, [ready](job_settings& s) { s.wait = std::chrono::seconds(20), s.ready = ready; }, calls_of(*this),
            &shared),
        door(listening_socket("127.0.0.1:0")), address("127.0.0.1:" + std::to_string(door.port())), groups(core, door) {
    put(core.keys.places() + me, address + " 127.0.0.1:1 here");
  }
  static trainer_calls calls_of(grouped& one) {
    trainer_calls calls;
    calls.make_group = [&one](const group_request& r, const std::stop_token&) {
      const std::lock_guard lock(one.mutex);
      one.asked.push_back({r.next->epoch, r.rank, r.addresses, r.number});
    };
    return calls;
  }
  std::vector<asked_group> trainers() {
    const std::lock_guard lock(mutex);
    return asked;
  }

  std::mutex mutex;
  std::vector<asked_group> asked = {};
  process_door door;
  std::string address;
  detail::world_groups groups;
};

/// Members that hear what the store says by a thread of their own.
struct members {
  explicit members(const std::vector<std::string>& names, patience ready = std::chrono::seconds(20)) {
    for (const std::string& who : names) all.push_back(std::make_unique<grouped>(shared, who, ready));
    hears = std::jthread([this](const std::stop_token& stop) {
      for (; !stop.stop_requested(); std::this_thread::sleep_for(patience(1)))
        for (auto& m : all) m->hear();
    });
  }
  grouped& operator[](std::size_t i) { return *all[i]; }
  /// Everybody has this record.
  job_record put(const job_record& r) {
    const std::lock_guard lock(all[0]->core.mutex);
    const std::optional<stored> there = all[0]->store.read(all[0]->core.keys.record());
    REQUIRE(all[0]->store.swap(all[0]->core.keys.record(), stored_text(r), there ? there->revision : no_revision) != 0);
    return r;
  }
  bool all_have(const job_record& r) {
    return within([&] {
      for (auto& m : all)
        if (!m->core.locked([&] { return m->core.record == r; })) return false;
      return true;
    });
  }
  static bool within(auto&& what) {
    for (const auto end = just_now() + std::chrono::seconds(20); just_now() < end;
         std::this_thread::sleep_for(patience(1)))
      if (what()) return true;
    return what();
  }
  std::vector<std::string> addresses(const std::vector<std::size_t>& of) {
    std::vector<std::string> some;
    for (const std::size_t i : of) some.push_back(all[i]->address);
    return some;
  }

  local_store shared;
  std::vector<std::unique_ptr<grouped>> all;
  std::jthread hears;
};

/// A world of a and b, from which a and c shall go on.
job_record proposed(index_t attempt = 0) {
  job_record r = record_at(job_phase::proposed, {world_at(3, {"a", "b"})}, attempt);
  r.proposed = {world_at(4, {"c", "a"})};
  return r;
}
std::string sentence_of(auto&& what) {
  try {
    what();
  } catch (const peer_failed& why) {
    return why.what();
  } catch (const peer_missing& why) {
    return std::string("missing: ") + why.what();
  }
  return {};
}

}  // namespace

TEST_CASE("groups are made beside the steps, once for an attempt: the switch's of all, the trainer's of who stays") {
  members all({"a", "b", "c"});
  const job_record r = all.put(proposed(1));
  REQUIRE(all.all_have(r));
  for (auto& m : all.all) CHECK(m->groups.made(r) == std::pair(false, std::string()));
  for (auto& m : all.all) m->groups.begin(r);
  for (auto& m : all.all) REQUIRE(all.within([&] { return m->groups.made(r).first; }));
  for (auto& m : all.all) {
    m->groups.begin(r);  // they stand
    CHECK(m->groups.made(r) == std::pair(true, std::string()));
    CHECK(m->groups.made(proposed(2)) == std::pair(false, std::string()));
    CHECK(m->told() == "group_made\n");
  }
  REQUIRE(all[0].trainers().size() == 1);
  REQUIRE(all[2].trainers().size() == 1);
  CHECK(all[1].trainers().empty());  // it leaves
  const asked_group of_a = all[0].trainers()[0], of_c = all[2].trainers()[0];
  CHECK((of_a.epoch == 4 && of_a.rank == 1));
  CHECK((of_c.epoch == 4 && of_c.rank == 0));
  CHECK(of_a.addresses == all.addresses({2, 0}));
  CHECK(of_c.addresses == of_a.addresses);
  CHECK(of_c.number == of_a.number);
  CHECK(of_a.number == all[1].core.number_of("group", 4, 1, {"c", "a"}));

  job_record now = r;  // the change is made
  now.phase = job_phase::entering, now.epoch = 4, now.worlds.push_back(r.proposed[0]), now.proposed.clear();
  const state_source s{.from = &r.now()};
  std::vector<std::unique_ptr<socket_endpoint>> over;
  for (auto& m : all.all) over.push_back(m->groups.take(now, s, {}));
  std::vector<std::thread> threads;
  for (std::size_t d = 0; d < 3; ++d)
    threads.emplace_back([&, d] {
      CHECK(over[d]->device() == static_cast<rank_t>(d));  // a, b of the old world, then c
      CHECK(over[d]->devices() == 3);
      CHECK(over[d]->all_reduce_max(static_cast<std::int64_t>(d)) == 2);
    });
  for (std::thread& t : threads) t.join();
  for (auto& m : all.all) CHECK(m->trainers().size() <= 1);
  for (auto& m : all.all) m->groups.end();
  for (auto& m : all.all) CHECK(m->groups.made(r) == std::pair(false, std::string()));
}

TEST_CASE("after a death groups are made at once, of who lives, though others stand") {
  members all({"a", "b", "c"});
  job_record r = all.put(proposed());
  REQUIRE(all.all_have(r));
  for (auto& m : all.all) m->groups.begin(r);
  for (auto& m : all.all) REQUIRE(all.within([&] { return m->groups.made(r).first; }));
  job_record now = r;
  now.phase = job_phase::entering, now.epoch = 4, now.attempt = 1, now.proposed.clear();
  now.worlds.push_back(world_at(4, {"c", "b"}));
  now.gone = {"a"}, now.promises = {{{"b", 7}, 0, 3}};
  all.put(now);
  REQUIRE(all.all_have(now));
  const state_source s{.from = &now.worlds[0], .dead = {"a"}};
  std::vector<std::thread> threads;
  for (const std::size_t m : {1u, 2u})
    threads.emplace_back([&, m] {
      const std::unique_ptr<socket_endpoint> over = all[m].groups.take(now, s, all[m].groups.stop_of(now));
      CHECK(over->devices() == 3);
      CHECK(over->device() == static_cast<rank_t>(m));
      CHECK(over->facts().absent == std::vector<rank_t>{0});
      all[m].groups.wait_to_move(now, s, {});
      CHECK(over->all_reduce_max(static_cast<std::int64_t>(m)) == 2);
    });
  for (std::thread& t : threads) t.join();
  for (const std::size_t m : {1u, 2u}) {
    CHECK(all[m].said(now, "here") == "1");
    CHECK(all[m].said(now, "moves") == "1");
    const asked_group last = all[m].trainers().back();
    CHECK(last ==
          asked_group{4, m == 1 ? 1 : 0, all.addresses({2, 1}), all[0].core.number_of("group", 4, 1, {"c", "b"})});
  }
  CHECK(all[0].said(now, "here").empty());
}

TEST_CASE("why groups cannot be made is told; a making that nobody wants any more ends") {
  members all({"a", "b"});
  job_record r = proposed();  // nobody knows c
  all.put(r);
  REQUIRE(all.all_have(r));
  REQUIRE(all[0].store.swap(all[0].core.keys.said(r.epoch, r.attempt, "here") + "c", "1", no_revision) != 0);
  for (auto& m : all.all) m->groups.begin(r);
  for (auto& m : all.all) {
    REQUIRE(all.within([&] { return !m->groups.made(r).second.empty(); }));
    CHECK(m->groups.made(r) ==
          std::pair(false, std::string("its groups could not be made: nobody knows where c is called")));
    CHECK(m->trainers().empty());
  }
  const job_record next = all.put(proposed(1));
  REQUIRE(all.all_have(next));
  all[0].groups.begin(next);  // b does not come
  CHECK(all[0].groups.made(next) == std::pair(false, std::string()));
  const auto begun = just_now();
  all[0].groups.end();
  CHECK(just_now() - begun < std::chrono::seconds(5));
  CHECK(all[0].groups.made(next) == std::pair(false, std::string()));
}

TEST_CASE("what a change waits for ends: by a later attempt, when it is called off or over, or after so long") {
  members all({"a", "b"}, patience(150));
  const job_record r = all.put(record_at(job_phase::entering, {world_at(3, {"a"}), world_at(4, {"a", "b"})}, 2));
  REQUIRE(all.all_have(r));
  grouped& a = all[0];
  const std::stop_token stop = a.groups.stop_of(r);
  a.groups.interrupt(4, 2), a.groups.interrupt(4, 1), a.groups.interrupt(3, 9);
  CHECK_FALSE(stop.stop_requested());
  const state_source s{.from = &r.worlds[0]};
  const auto begun = just_now();
  CHECK(sentence_of([&] { a.groups.wait_to_move(r, s, stop); }) == "reshard: not all moved state within 150 ms");
  CHECK(just_now() - begun >= patience(150));
  a.groups.interrupt(4, 3);
  CHECK(stop.stop_requested());
  CHECK(sentence_of([&] { a.groups.wait_to_move(r, s, stop); }) == "reshard: the change is called off");
  CHECK(sentence_of([&] { a.groups.make_first(r, stop); }) == "reshard: the change is called off");
  const std::stop_token again = a.groups.stop_of(r);
  CHECK_FALSE(again.stop_requested());
  a.groups.interrupt(5, 0);
  CHECK(again.stop_requested());
  for (const bool attempt : {true, false}) {
    job_record other = r;
    if (attempt) ++other.attempt;
    else ++other.epoch, other.worlds.push_back(world_at(5, {"a"}));
    all.put(other);
    REQUIRE(all.all_have(other));
    CHECK(sentence_of([&] { a.groups.make_first(r, {}); }) == "reshard: the change is over");
  }
}

TEST_CASE("the first world's group is made once all are here, and groups beside the steps are told apart by name") {
  members all({"a", "b"});
  const world w = world_at(1, {"b", "a"});
  const job_record r = all.put(record_at(job_phase::entering, {w}));
  REQUIRE(all.all_have(r));
  auto first = std::async(std::launch::async, [&] { all[0].groups.make_first(r, {}); });
  CHECK(first.wait_for(patience(60)) == std::future_status::timeout);
  CHECK(all[0].trainers().empty());
  all[1].groups.make_first(r, {});
  first.get();
  const std::uint64_t number = all[0].core.number_of("group", 1, 0, w.members);
  CHECK(all[0].trainers() == std::vector<asked_group>{{1, 1, all.addresses({1, 0}), number}});
  CHECK(all[1].trainers() == std::vector<asked_group>{{1, 0, all.addresses({1, 0}), number}});
  std::vector<std::thread> threads;
  for (const std::size_t m : {0u, 1u})
    threads.emplace_back([&, m] {
      const auto one = all[m].groups.make_among(w, "copies.5", {}), other = all[m].groups.make_among(w, "copies.6", {});
      CHECK(one->device() == w.rank_of(all[m].core.me()));
      CHECK(one->all_reduce_max(one->device()) == 1);
      CHECK(other->all_reduce_max(-other->device()) == 0);
    });
  for (std::thread& t : threads) t.join();
  world stranger = w;
  stranger.members.push_back("x");
  CHECK(sentence_of([&] { all[0].groups.make_among(stranger, "copies.7", {}); }) ==
        "missing: reshard: nobody knows where x is called");
}
