// SPDX-License-Identifier: Apache-2.0
// What a member promises in a recovery: of each thing that it may be at whether it promises, and what; how it is put
// into the record where others write it too; and what is told of it.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <reshard/elastic/run/own_promise.hpp>

#include "../support/one_member.hpp"

using namespace reshard;
using detail::once_an_attempt;
using detail::own_promise;
using detail::trainer_at;
using testing::one_member;
using testing::record_at;
using testing::world_at;

namespace {

/// A recovery.
job_record of_worlds(const std::vector<world>& worlds, index_t attempt = 2) {
  return record_at(job_phase::recovering, worlds, attempt);
}

/// Member a of epoch 3's world, whose states are of version 17, and the record that says that b is gone.
struct asked {
  explicit asked(job_record about = of_worlds({world_at(3, {"a", "b"})}))
      : m("a", [](job_settings& s) { s.grace = std::chrono::seconds(1000); }) {
    about.gone = {"b"};
    r = m.put(about);
    m.core.holds = 3, m.core.version = 17, m.core.scalar = 0.75, m.core.stage = update_stage::scalar;
    m.core.copies = {{"a", 12}, {"c", 16}};
  }
  /// Whether a promise is in the record then.
  bool gives(double began = 0) {
    mine.give_if_asked(r, testing::seconds_ago(began));
    return promised() != nullptr;
  }
  const promise* promised() {
    now = m.record();
    return now.promise_of("a");
  }

  one_member m;
  own_promise mine{m.core};
  job_record r, now;
};

const promise at_rest{{"a", 17, update_stage::scalar}, bits_of_scalar(0.75), 3, 0, 0, 0, 0, {{"a", 12}, {"c", 16}}};
const promise of_nothing{{"a", holds_nothing, update_stage::nothing}, bits_of_scalar(0.75)};

}  // namespace

TEST_CASE("the first time in each attempt of an epoch is told from the others") {
  once_an_attempt once;
  job_record r;
  CHECK(once.first(r));
  CHECK_FALSE(once.first(r));
  r.attempt = 1;
  CHECK(once.first(r));
  CHECK_FALSE(once.first(r));
  r.epoch = 1;
  CHECK(once.first(r));
  CHECK_FALSE(once.first(r));
  r.attempt = 0;
  CHECK(once.first(r));
}

TEST_CASE("a member at rest promises what it holds at once, and lives") {
  asked a;
  REQUIRE(a.gives());
  CHECK(*a.promised() == at_rest);
  CHECK(a.now.promises.size() == 1);
  CHECK(a.m.core.promised);
  CHECK(*a.m.core.record == a.now);
  CHECK(a.m.told() == "broken: 3, b, 17\npromised\nswap-promise\nswapped-promise\n");
  asked silent;  // the evidence called it gone itself
  silent.r.gone = {"b", "a"};
  silent.m.put(silent.r);
  CHECK(silent.gives());
  CHECK(silent.now.gone == member_list{"b"});
  CHECK(silent.m.told() == "broken: 3, b and a, 17\npromised\nswap-promise\nswapped-promise\n");
}

TEST_CASE("one that is in no world of the record, or whose promise is there, is not asked") {
  asked other(of_worlds({world_at(3, {"c", "b"})}));
  CHECK_FALSE(other.gives(1e6));
  CHECK_FALSE(other.m.core.promised);
  CHECK(other.m.told().empty());
  asked again;
  again.r.promises = {of_nothing};
  again.m.put(again.r);
  REQUIRE(again.gives(1e6));
  CHECK(*again.promised() == of_nothing);
  CHECK_FALSE(again.m.core.promised);
  CHECK(again.m.told().empty());
}

TEST_CASE("one that computes gradients is given half the grace to come to rest; one that may contribute never is") {
  asked a;
  a.m.core.at = trainer_at::gradients;
  CHECK_FALSE(a.gives(0));
  CHECK_FALSE(a.gives(450));
  CHECK_FALSE(a.m.core.promised);
  CHECK(a.m.told().empty());
  REQUIRE(a.gives(501));
  promise half_way = at_rest;
  half_way.told.stage = update_stage::nothing;
  CHECK(*a.promised() == half_way);
  for (const trainer_at at : {trainer_at::scalar, trainer_at::update, trainer_at::change}) {
    asked busy;
    busy.m.core.at = at;
    CHECK_FALSE(busy.gives(1e6));
    CHECK_FALSE(busy.m.core.promised);
  }
}

TEST_CASE("arrays are of one of the record's worlds, or nothing is promised of them") {
  const job_record two = of_worlds({world_at(3, {"a", "b"}), world_at(4, {"b", "a", "c"}, 12)});
  for (const index_t epoch : {3, 4}) {
    asked a(two);
    a.m.core.holds = epoch;
    REQUIRE(a.gives());
    CHECK(a.promised()->of_epoch == epoch);
    CHECK(a.promised()->told.version == 17);
  }
  for (const index_t epoch : {1, 2, 5}) {
    asked a(two);
    a.m.core.holds = epoch;
    CHECK_FALSE(a.gives(1e6));
    CHECK_FALSE(a.m.core.promised);
    CHECK(a.m.told().empty());
  }
}

TEST_CASE("who holds nothing promises so where state may lie in several worlds, unless it is about to hold the first") {
  const auto gives = [](const std::vector<world>& worlds, index_t tried) {
    asked a(of_worlds(worlds));
    a.m.core.holds = 0, a.m.core.tried = tried;
    const bool given = a.gives();
    if (given) {
      CHECK(*a.promised() == of_nothing);
      CHECK(a.m.told() ==
            "broken: " + std::to_string(worlds.back().epoch) + ", b, -1\npromised\nswap-promise\nswapped-promise\n");
    }
    return given;
  };
  const world with_a = world_at(3, {"a", "b"}), without = world_at(3, {"b", "c"}), next = world_at(4, {"b", "a", "c"});
  CHECK_FALSE(gives({with_a}, 3));  // of the only world all have said that they entered it
  CHECK_FALSE(gives({with_a}, 2));
  CHECK_FALSE(gives({with_a, next}, 3));
  CHECK(gives({with_a, next}, 2));
  CHECK(gives({with_a, next}, 4));
  CHECK(gives({without, next}, 3));
  const world first = world_at(1, {"a", "b"}), second = world_at(2, {"a", "b"});
  CHECK(gives({first, second}, 1));  // it set no values of the first one yet
  CHECK_FALSE(gives({second, with_a}, 2));
}

TEST_CASE("what is held of the first world of a job is promised as that of any other") {
  asked a(of_worlds({world_at(1, {"a", "b"})}));
  a.m.core.holds = 1;
  REQUIRE(a.gives());
  promise of_first = at_rest;
  of_first.of_epoch = 1;
  CHECK(*a.promised() == of_first);
}

TEST_CASE("a promise of a torn switch tells how far it came") {
  for (const bool unread : {false, true}) {
    asked a(of_worlds({world_at(3, {"a", "b"}), world_at(4, {"a", "c"})}));
    a.m.core.torn = detail::torn_part{9, {.device = 7, .in_place = 4, .here = 6}};
    if (unread) a.m.core.torn->share.unread_kept = 5;
    REQUIRE(a.gives());
    promise torn = at_rest;
    torn.torn_stages = 9, torn.torn_in_place = 4, torn.torn_here = 6, torn.torn_unread = unread ? 5 : 0;
    CHECK(*a.promised() == torn);
  }
}

TEST_CASE("that the world is broken is told once an attempt, though the promise is asked for again") {
  asked a;
  CHECK(a.gives());
  a.m.told();
  a.mine.give_if_asked(a.r, testing::just_now());  // of a record without it: it is said already
  CHECK(a.m.told().empty());
  job_record later = a.r;
  later.attempt = 3, later.gone = {"b", "c"};
  a.r = a.m.put(later);
  CHECK(a.gives());
  CHECK(a.m.told() == "broken: 3, b and c, 17\npromised\nswap-promise\nswapped-promise\n");
}

TEST_CASE("where somebody else was faster it is put into what they wrote, as long as that is of the attempt") {
  asked a(of_worlds({world_at(3, {"a", "b", "c"})}));
  const promise others{{"c", 18}, 0, 3};
  const auto behind = [&](const job_record& theirs) {  // this member does not hear of it
    const std::string key = a.m.core.keys.record();
    REQUIRE(a.m.store.swap(key, stored_text(theirs), a.m.store.read(key)->revision) != 0);
  };
  job_record theirs = a.r;
  theirs.promises = {others};
  behind(theirs);
  CHECK(a.gives());
  CHECK(a.now.promises == std::vector<promise>{others, at_rest});
  CHECK(*a.m.core.record == a.now);
  CHECK(a.m.told() == "broken: 3, b, 17\npromised\nswap-promise\npromised\nswap-promise\nswapped-promise\n");

  a.r = a.m.put(of_worlds({world_at(3, {"a", "b", "c"})}, 4));
  const job_record later = of_worlds({world_at(3, {"a", "b", "c"})}, 5);
  behind(later);
  CHECK_FALSE(a.gives());
  CHECK(*a.m.core.record == later);
  CHECK(a.m.told() == "broken: 3, nobody, 17\npromised\nswap-promise\n");
  CHECK_FALSE(a.gives());  // asked about what is over: nothing is tried
  CHECK(a.m.told().empty());
}

TEST_CASE("where another epoch has begun meanwhile nothing is promised") {
  asked a;
  job_record entered = record_at(job_phase::entering, {world_at(4, {"a", "c"})}, 2);
  a.m.put(entered);
  a.mine.give_if_asked(a.r, testing::just_now());
  CHECK(a.m.record() == entered);
  CHECK(a.m.told() == "broken: 3, b, 17\n");
}

TEST_CASE("who waits for the trainer hears that it has promised, whatever becomes of that") {
  asked a;
  a.m.put(record_at(job_phase::entering, {world_at(4, {"a", "c"})}, 2));  // nothing is put into the record
  const std::uint64_t before = a.m.core.changed.times();
  a.mine.give_if_asked(a.r, testing::just_now());
  CHECK(a.m.core.promised);
  CHECK(a.m.core.changed.times() == before + 1);
}
