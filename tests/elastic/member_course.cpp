// SPDX-License-Identifier: Apache-2.0
// What the record wants of a member's trainer, between two steps: a member that is alone in its worlds, so that it goes
// over from one to the next at once, and records in which it has no part.
#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <reshard/elastic/run/member_course.hpp>
#include <reshard/memory/rank_storage.hpp>

#include "../support/one_member.hpp"

using namespace reshard;
using namespace testing;
using detail::trainer_at;

namespace {

/// A member and its trainer, all of whose calls are written down among what its watcher is told.
struct trained : one_member {
  explicit trained(const std::function<void(job_settings&)>& differs = {}, bool has_small = false)
      : one_member(
            "a",
            [&differs](job_settings& s) {
              s.wait = std::chrono::seconds(20);
              if (differs) differs(s);
            },
            calls_of(*this, has_small)),
        door(listening_socket("127.0.0.1:0")), groups(core, door), copies(core, groups), course(core, groups, copies) {
    put(core.keys.places() + "a", "127.0.0.1:" + std::to_string(door.port()) + " 127.0.0.1:1 here");
  }
  static std::string place_in(const world& w, rank_t rank) {
    return std::to_string(w.epoch) + " " + std::to_string(rank);
  }
  static trainer_calls calls_of(trained& one, bool has_small) {
    trainer_calls calls;
    calls.make_group = [&one](const group_request& g, const std::stop_token&) {
      one.watcher.say("group " + place_in(*g.next, g.rank) + " of " + std::to_string(g.addresses.size()));
      CHECK(g.number == one.core.number_of("group", g.next->epoch, one.core.record->attempt, g.next->members));
      if (one.group_fails) throw peer_failed("reshard: no group");
    };
    calls.tensors = [&one](const world& w, rank_t rank) {
      one.watcher.say("tensors " + place_in(w, rank));
      one.arrays.push_back(std::make_unique<rank_storage>(space(one.core.settings.model, w.layout), rank, "arrays",
                                                          pages_are::committed));
      return one.arrays.back()->tensors();
    };
    calls.given_up = [&one](index_t epoch) { one.watcher.say("given up " + std::to_string(epoch)); };
    calls.initialize = [&one](const world& w, rank_t rank) {
      one.watcher.say("initialize " + place_in(w, rank));
      int next = 0;
      for (const bound_box& b : one.arrays.back()->tensors().boxes())
        for (bytes_t i = 0; i < b.bytes_spanned(); ++i) b.data[i] = static_cast<std::byte>(next = (next * 5 + 7) % 256);
    };
    calls.entered = [&one](const world& w, rank_t rank) { one.watcher.say("goes on in " + place_in(w, rank)); };
    if (!has_small) return calls;
    calls.small = [&one] {
      one.watcher.say("small");
      small_state mine;
      mine.add_same("sum", std::as_bytes(std::span(&one.sum, 1)));
      if (one.own_small) mine.add_per_rank("loader", "a", std::as_bytes(std::span(&one.sum, 1)));
      return mine;
    };
    calls.take_small = [&one](const small_state& s) {
      one.watcher.say("takes small");
      std::memcpy(&one.came, s.bytes_of({"sum"}).data(), sizeof one.came);
    };
    return calls;
  }
  /// Whether there is a step to make by a record, which the store has.
  bool steps(const job_record& r) {
    if (!core.record || *core.record != r) put(r);
    return course.steps(r);
  }
  /// It founds the job, and is at this version.
  void found(index_t version = 0) {
    steps(founded());
    if (core.epoch == 1) core.version = version;
    told();
  }
  static world first() { return world_at(1, {"a"}, 0); }
  static world second(index_t first_step = 3) {
    world w = world_at(2, {"a"}, first_step);
    w.batch = 9, w.cursor = 8 * first_step;
    return w;
  }
  static job_record founded() { return record_at(job_phase::idle, {first()}); }
  /// Another world is entered, that was planned.
  static job_record enters(index_t first_step = 3) {
    job_record r = record_at(job_phase::entering, {first(), second(first_step)});
    r.request = "q";
    return r;
  }
  static job_record recovers(index_t version) {
    job_record r = record_at(job_phase::entering, {first(), second(version)});
    r.promises = {{{"a", version}, 0, 1}};
    return r;
  }
  /// Whether two worlds' arrays are alike, byte for byte.
  bool moved(std::size_t from, std::size_t to) const {
    const auto &a = arrays[from]->tensors().boxes(), &b = arrays[to]->tensors().boxes();
    bool same = a.size() == b.size() && !a.empty();
    for (std::size_t i = 0; same && i < a.size(); ++i)
      same = std::memcmp(a[i].data, b[i].data, static_cast<std::size_t>(a[i].bytes_spanned())) == 0;
    return same;
  }

  bool group_fails = false, own_small = false;
  std::uint64_t sum = 77, came = 0;
  std::vector<std::unique_ptr<rank_storage>> arrays = {};
  process_door door;
  detail::world_groups groups;
  detail::snapshots copies;
  detail::member_course course;
};

}  // namespace

TEST_CASE("a founded job: arrays are made and set, then the group, and then there are steps") {
  trained a;
  CHECK(a.course.now().epoch == 0);
  CHECK_FALSE(a.steps(trained::founded()));
  CHECK(a.told() == "tensors 1 0\ninitialize 1 0\ngroup 1 0 of 1\ngroup_made\ngoes on in 1 0\nin epoch 1, founded\n");
  CHECK(a.said(trained::founded(), "here") == "1");
  CHECK((a.core.epoch == 1 && a.core.holds == 1 && a.core.tried == 1 && a.core.version == 0));
  CHECK((a.core.published == 0 && a.core.at == trainer_at::rest && !a.core.leaving));
  CHECK(a.watcher.switch_seconds == 0);
  CHECK(a.course.now() == trained::first());
  CHECK(a.course.why() == job_end::runs);
  CHECK(a.steps(trained::founded()));
  CHECK(a.told().empty());
}

TEST_CASE(
    "a step is made where the job has more and no stop is at it; where it stops, and for how long, is told once") {
  trained a([](job_settings& s) { s.steps = 9; });
  a.found();
  const job_record r = trained::founded();
  for (const index_t version : {0, 1, 4}) {
    a.core.version = version;
    CHECK(a.steps(r));
    CHECK(a.core.published == version);
  }
  a.core.stop = 5;
  CHECK(a.steps(r));
  a.core.version = 5;
  CHECK_FALSE(a.steps(r));
  CHECK(a.core.published == 5);
  CHECK_FALSE(a.steps(r));
  CHECK(a.told() == "boundary\n");
  a.core.stop = 6;
  CHECK(a.steps(r));
  CHECK(a.told() == "stopped at 5\n");
  CHECK(a.steps(r));
  a.core.version = 6;
  CHECK_FALSE(a.steps(r));
  a.core.stop = std::numeric_limits<index_t>::max();
  CHECK(a.steps(r));
  CHECK(a.told() == "boundary\nstopped at 6\n");
  CHECK_FALSE(a.core.finished);
  a.core.version = 8;
  CHECK(a.steps(r));
  for (const index_t over : {9, 10}) {
    a.core.version = over, a.core.finished = false;
    CHECK_FALSE(a.steps(r));
    CHECK((a.core.finished && a.core.published == over));
  }
  CHECK(a.told().empty());
  a.core.version = 7, a.core.failed = "it broke off";
  CHECK_FALSE(a.steps(r));
  CHECK(a.core.published == 10);  // nothing more is said of its steps
}

TEST_CASE("who is to leave takes its registration away before, while that is decided or under way") {
  trained a;
  a.found(1);
  const auto leaves = [&](job_record r) {
    a.core.leaving = true;
    CHECK(a.steps(r));
    return a.core.leaving.load();
  };
  job_record armed = record_at(job_phase::armed, {trained::first()});
  armed.proposed = {world_at(2, {"b"})}, armed.boundary = 10;
  job_record proposed = armed;
  proposed.phase = job_phase::proposed, proposed.boundary = 0;
  CHECK(leaves(armed));
  CHECK_FALSE(leaves(proposed));
  CHECK_FALSE(leaves(trained::founded()));
  armed.proposed = {world_at(2, {"a"})};
  CHECK_FALSE(leaves(armed));
  CHECK_FALSE(leaves(trained::enters(2)));
  CHECK(leaves(record_at(job_phase::entering, {trained::first(), world_at(2, {"b"}, 2)})));
}

TEST_CASE("a change that was planned: steps up to the boundary, over to the other world, and on once all are there") {
  for (const bool budget : {false, true}) {
    CAPTURE(budget);
    trained a([&](job_settings& s) { s.budget = budget ? index_t{1} << 20 : no_budget; }, true);
    a.found(2);
    a.told();
    const job_record r = trained::enters();
    CHECK(a.steps(r));  // step 2 is before it
    CHECK(a.told().empty());
    a.core.version = a.core.stop = 3;
    CHECK_FALSE(a.steps(record_at(job_phase::idle, {trained::first()})));
    CHECK(a.told() == "boundary\n");
    CHECK_FALSE(a.steps(r));
    const std::string over = a.told(), begin = "stopped at 3\ndecided\ngroup 2 0 of 1\ngroup_made\ntensors 2 0\n",
                      small = "small\ntakes small\n", stage = "stage:0\n";
    CHECK(over == begin + (budget ? small + stage : stage + small) + "entered\n");
    CHECK(a.said(r, "entered") == "1");
    CHECK(a.said(r, "moves") == "1");
    CHECK(a.came == 77);
    CHECK((a.core.epoch == 1 && a.core.tried == 2 && a.core.at == trainer_at::rest));
    CHECK(a.course.now() == trained::first());
    CHECK(a.core.torn.has_value() == budget);
    if (budget)
      CHECK((a.core.torn->stages == 1 && a.core.torn->share.in_place == 1 && a.core.torn->share.here == 1 &&
             a.core.torn->share.device == 0 && a.core.holds == 1));
    CHECK_FALSE(a.steps(r));  // until all are there
    CHECK(a.told().empty());
    const job_record idle = record_at(job_phase::idle, {trained::second()});
    CHECK_FALSE(a.steps(idle));
    CHECK(a.told() == "goes on in 2 0\nin epoch 2, asked\n");
    CHECK(a.watcher.switch_seconds > 0);
    CHECK((a.core.epoch == 2 && a.core.holds == 2 && a.core.version == 3 && a.core.published == 3));
    CHECK(a.core.stop == std::numeric_limits<index_t>::max());
    CHECK(!a.core.torn);
    CHECK(a.course.now() == trained::second());
    if (!budget) CHECK(a.moved(0, 1));
    CHECK(a.steps(idle));
  }
}

TEST_CASE("a change by which it stopped nowhere before stops there, and one from a member's boundary does not twice") {
  trained a;
  a.found(3);
  a.steps(trained::enters());
  CHECK(a.told().starts_with("boundary\nstopped at 3\ndecided\n"));
}

TEST_CASE("after a death nobody stops at a boundary: the world is recovered, and what was begun in it is forgotten") {
  trained a({}, true);
  a.found(7);
  a.core.promised = a.core.finished = true, a.core.failed = "it broke off", a.core.stage = update_stage::gradients;
  a.core.stop = 4;
  const job_record r = trained::recovers(7);
  CHECK_FALSE(a.steps(r));
  CHECK(a.told() == "group 2 0 of 1\ngroup_made\ntensors 2 0\nstage:0\nsmall\ntakes small\nentered\n");
  CHECK(a.core.failed.empty());
  CHECK(!a.core.torn);
  a.core.suspects = {"b", "a"};
  a.core.version = 5, a.core.failed = "what came after";
  CHECK_FALSE(a.steps(record_at(job_phase::idle, {trained::second(7)})));
  CHECK(a.told() == "goes on in 2 0\nin epoch 2, recovered\n");
  CHECK((!a.core.promised && !a.core.finished && a.core.stage == update_stage::nothing));
  CHECK((a.core.version == 7 && a.core.published == 7));
  CHECK(a.core.stop == std::numeric_limits<index_t>::max());
  CHECK(a.core.suspects == member_list{"a"});
  CHECK(a.core.failed.empty());
  CHECK(a.moved(0, 1));
}

TEST_CASE("who stood at a boundary when a member died stands there no more in the next world") {
  trained a;
  a.found(7);
  a.core.stop = 7;
  CHECK_FALSE(a.steps(trained::founded()));
  CHECK(a.told() == "boundary\n");
  a.steps(trained::recovers(7));
  const job_record idle = record_at(job_phase::idle, {trained::second(7)});
  a.steps(idle);
  a.told();
  CHECK(a.steps(idle));
  CHECK(a.told().empty());
  a.core.stop = 7;
  CHECK_FALSE(a.steps(idle));
  CHECK(a.told() == "boundary\n");
}

TEST_CASE("who is in no world any more has a part in the change to the next one, and leaves, or is a spare by it") {
  for (const bool planned : {true, false}) {
    trained a;
    a.found(3);
    job_record r = record_at(job_phase::entering, {trained::first(), world_at(2, {"b"}, 3)});
    if (!planned) r.promises = {{{"a", 3}, 0, 1}};
    a.put(r);
    a.say("b", r, "here");
    CHECK_FALSE(a.steps(r));
    CHECK(a.told() == std::string(planned ? "boundary\nstopped at 3\ndecided\n" : "") +
                          "failed: reshard: nobody knows where b is called\n");
    CHECK((a.core.leaving == planned && a.core.tried == 2));
    a.core.leaving = false;
    CHECK_FALSE(a.steps(record_at(job_phase::idle, {world_at(2, {"b"}, 3)})));
    CHECK(a.course.why() == (planned ? job_end::left : job_end::runs));
    CHECK(a.told() == (planned ? "" : "goes on in 1 -1\n"));
    if (planned) continue;
    CHECK((a.core.epoch == 0 && a.core.holds == 0 && a.core.version == holds_nothing));
    CHECK(a.course.now().epoch == 0);
  }
}

TEST_CASE("where there is no step it waits a little, unless the record is another by then") {
  trained a;
  const job_record r = a.put(record_at(job_phase::idle, {world_at(3, {"b"})}));
  const auto takes = [&] {
    const the_time begun = just_now();
    CHECK_FALSE(a.course.steps(r));
    return just_now() - begun;
  };
  const auto least = [&] {
    auto shortest = takes();
    for (int n = 0; n < 7; ++n) shortest = std::min(shortest, takes());
    return shortest;
  };
  CHECK(least() >= std::chrono::milliseconds(20));
  a.put(record_at(job_phase::idle, {world_at(4, {"b"})}));
  CHECK(least() < std::chrono::milliseconds(20));
  a.core.record.reset();
  CHECK(least() < std::chrono::milliseconds(20));
}

TEST_CASE("a change that breaks off is told; its arrays are given up before the next ones are made") {
  trained a;
  a.found(3);
  a.group_fails = true;
  const the_time begun = just_now();
  CHECK_FALSE(a.steps(trained::enters()));
  CHECK(a.told().ends_with("group 2 0 of 1\nfailed: reshard: no group\n"));
  CHECK((a.core.failed == "reshard: no group" && a.core.failed_in == 2 && a.core.failed_since >= begun));
  CHECK(a.core.at == trainer_at::rest);
  CHECK((a.core.epoch == 1 && a.core.holds == 1 && a.core.tried == 2));
  CHECK_FALSE(a.steps(trained::enters()));  // it waits for what the record says then
  CHECK(a.told().empty());
  a.group_fails = false;
  job_record r = record_at(job_phase::entering, {trained::first(), trained::second(), world_at(3, {"a"}, 3)});
  r.promises = {{{"a", 3}, 0, 1}};
  CHECK_FALSE(a.steps(r));
  CHECK(a.told() == "group 3 0 of 1\ngroup_made\ntensors 3 0\nstage:0\nentered\n");
  r = record_at(job_phase::entering,
                {trained::first(), trained::second(), world_at(3, {"a"}, 3), world_at(4, {"a"}, 3)});
  r.promises = {{{"a", 3}, 0, 1}};
  CHECK_FALSE(a.steps(r));  // not all entered that
  CHECK(a.told() == "group 4 0 of 1\ngroup_made\ngiven up 3\ntensors 4 0\nstage:0\nentered\n");
  CHECK_FALSE(a.steps(record_at(job_phase::idle, {world_at(4, {"a"}, 3)})));
  CHECK(a.told() == "goes on in 4 0\nin epoch 4, recovered\n");
  CHECK(a.moved(0, a.arrays.size() - 1));
}

TEST_CASE("what is refused as planned is told to who asked, or kept where nobody did, and no evidence is waited for") {
  for (const bool asked : {true, false}) {
    trained a({}, true);
    a.found(3);
    a.own_small = true;
    job_record r = trained::enters();
    if (!asked) r.request = {};
    CHECK_FALSE(a.steps(r));
    const std::string why = "no device asks for small state loader[a]";
    CHECK(a.core.failed.starts_with("reshard: " + why));
    CHECK(a.core.failed_since == the_time());
    CHECK(a.answer("q").starts_with(asked ? "failed: " + why : ""));
    CHECK(a.answer("q").empty() == !asked);
    CHECK(a.core.refused.size() == (asked ? 0u : 1u));
    if (!asked) {
      CHECK(a.core.refused[0].from == trained::first());
      CHECK(a.core.refused[0].to == trained::second());
      CHECK(a.core.refused[0].why.starts_with(why));
    }
    CHECK(a.came == 0);
  }
  trained a({}, true);  // after a death who has such keeps it
  a.found(3);
  a.own_small = true;
  a.steps(trained::recovers(3));
  CHECK(a.core.failed.empty());
  CHECK(a.came == 77);
}

TEST_CASE("a step that broke off is of the latest epoch that this member was in or tried to enter") {
  trained a;
  for (const auto& [epoch, tried] : {std::pair<index_t, index_t>{3, 3}, {3, 4}, {4, 0}}) {
    a.core.epoch = epoch, a.core.tried = tried, a.core.at = trainer_at::scalar;
    const std::uint64_t before = a.core.changed.times();
    const the_time begun = just_now();
    a.course.broke_off("why");
    CHECK((a.core.failed == "why" && a.core.failed_in == std::max(epoch, tried) && a.core.at == trainer_at::rest));
    CHECK((a.core.failed_since >= begun && a.core.failed_since <= just_now()));
    CHECK(a.core.changed.times() > before);
    CHECK(a.told() == "failed: why\n");
  }
}

TEST_CASE("how a job ends for a member: it is done, lost, left, or the job went on without it") {
  const auto ends = [](const job_record& r, index_t epoch, bool leaving) {
    trained a;
    a.found(3);
    if (epoch != 1) a.core.epoch = a.core.holds = a.core.tried = epoch;
    a.core.leaving = leaving;
    CHECK_FALSE(a.steps(r));
    return std::string(name(a.course.why())) + ": " + a.course.sentence();
  };
  job_record done = record_at(job_phase::done, {trained::first()}), lost = done;
  lost.phase = job_phase::lost, lost.gone = {"a"};
  const job_record others = record_at(job_phase::idle, {world_at(2, {"b"})});
  job_record others_end = others;
  others_end.phase = job_phase::done;
  CHECK(ends(done, 1, false) == "done: ");
  CHECK(ends(lost, 1, false) == "lost: nobody who is left holds any of the state; gone are a");
  CHECK(ends(others, 1, false) == "expelled: the job went on in epoch 2 without it");
  CHECK(ends(others, 1, true) == "left: ");
  CHECK(ends(others_end, 1, false) == "expelled: the job went on in epoch 2 without it");
  CHECK(ends(others_end, 1, true) == "left: ");
  CHECK(ends(others_end, 0, false) == "done: ");  // a spare's
  CHECK(ends(others, 0, false) == "runs: ");
  job_record broke = record_at(job_phase::recovering, {world_at(2, {"b"}), world_at(3, {"c"})});
  job_record entered = record_at(job_phase::entering, {world_at(2, {"b"}), world_at(3, {"b", "c"})});
  CHECK(ends(entered, 1, false) == "expelled: the job went on in epoch 3 without it");
  CHECK(ends(entered, 0, false) == "runs: ");
  CHECK(ends(broke, 1, false) == "expelled: the job went on in epoch 3 without it");
  CHECK(ends(broke, 0, false) == "runs: ");
}

TEST_CASE("arrays that a switch gave back in part are no state of one world: at the end the trainer has none") {
  for (const bool budget : {false, true}) {
    trained a([&](job_settings& s) { s.budget = budget ? index_t{1} << 20 : no_budget; });
    a.found(3);
    a.steps(trained::enters());
    a.told();
    CHECK(a.core.torn.has_value() == budget);
    job_record lost = record_at(job_phase::lost, {trained::first(), trained::second()});
    lost.gone = {"a"};
    CHECK_FALSE(a.steps(lost));
    CHECK(a.course.why() == job_end::lost);
    CHECK(a.told() == (budget ? "goes on in 1 -1\n" : ""));
    CHECK((a.core.holds == (budget ? 0 : 1) && !a.core.torn));
  }
}

TEST_CASE("who was taken for gone waits while the world that is entered without it may come to nothing") {
  trained a;
  a.found(3);
  job_record r = record_at(job_phase::entering, {world_at(1, {"a", "b"}, 0), world_at(2, {"b"}, 3)});
  r.promises = {{{"b", 3}, 0, 1}}, r.gone = {"a"};
  CHECK_FALSE(a.steps(r));
  CHECK(a.course.why() == job_end::runs);
  CHECK(a.told().empty());
  CHECK(a.core.epoch == 1);
  r = record_at(job_phase::idle, {world_at(2, {"b"}, 3)});
  CHECK_FALSE(a.steps(r));
  CHECK(a.course.why() == job_end::expelled);
}

TEST_CASE("a world that broke before this member knew of it is begun, once, with its first values") {
  for (const job_phase phase : {job_phase::recovering, job_phase::waiting}) {
    trained a;
    const job_record r = record_at(phase, {world_at(1, {"a", "b"}, 0)});
    CHECK_FALSE(a.steps(r));
    CHECK(a.told() == "tensors 1 0\ninitialize 1 0\n");
    CHECK((a.core.holds == 1 && a.core.tried == 1 && a.core.version == 0 && a.core.epoch == 0));
    CHECK(a.core.at == trainer_at::rest);
    CHECK_FALSE(a.steps(r));
    CHECK(a.told().empty());

    trained later;
    CHECK_FALSE(later.steps(record_at(phase, {world_at(2, {"a", "b"}, 0)})));
    CHECK(later.told().empty());
    trained spare;
    CHECK_FALSE(spare.steps(record_at(phase, {world_at(1, {"b"}, 0)})));
    CHECK((spare.told().empty() && spare.course.why() == job_end::runs));
  }
}

TEST_CASE("a world that broke after all had entered it is this member's, though it was not told so before") {
  trained a;
  a.found(3);
  a.steps(trained::enters());
  a.told();
  job_record r = record_at(job_phase::recovering, {trained::second()});
  CHECK_FALSE(a.steps(r));
  CHECK(a.told() == "goes on in 2 0\nin epoch 2, asked\n");
  CHECK((a.core.epoch == 2 && a.core.version == 3));
  CHECK_FALSE(a.steps(r));
  CHECK(a.told().empty());

  trained fails;  // it did not come so far
  fails.found(3);
  fails.group_fails = true;
  fails.steps(trained::enters());
  fails.told();
  CHECK_FALSE(fails.steps(r));
  CHECK((fails.told().empty() && fails.core.epoch == 1));

  trained between;  // the world that broke is one that was begun after it
  between.found(3);
  between.steps(trained::enters());
  between.told();
  r = record_at(job_phase::recovering, {trained::first(), trained::second()});
  CHECK_FALSE(between.steps(r));
  CHECK((between.told().empty() && between.core.epoch == 1));
}

TEST_CASE("a spare waits, and what broke off while it was to come is no matter of the next world's") {
  trained a;
  const job_record r = record_at(job_phase::idle, {world_at(3, {"b"})});
  a.core.failed = "it broke off";
  CHECK_FALSE(a.steps(r));
  CHECK(a.core.failed.empty());
  CHECK((a.told().empty() && a.course.why() == job_end::runs));
  // it may be needed yet
  a.core.failed = "it broke off";
  job_record entering = record_at(job_phase::entering, {world_at(3, {"a", "b"}), world_at(4, {"b"})});
  entering.promises = {{{"b", 10}, 0, 3}};
  entering.gone = {"a"};
  CHECK_FALSE(a.steps(entering));
  CHECK(a.core.failed == "it broke off");
  // arrays that it was given
  trained b;
  b.steps(record_at(job_phase::recovering, {world_at(1, {"a", "b"}, 0)}));
  b.core.promised = true, b.core.published = 4;
  b.told();
  CHECK_FALSE(b.steps(r));
  CHECK(b.told() == "goes on in 1 -1\n");  // nothing, nowhere
  CHECK((b.core.epoch == 0 && b.core.holds == 0 && b.core.version == holds_nothing));
  CHECK((!b.core.promised && b.core.published == -1));
  CHECK(b.course.now().epoch == 0);
  CHECK_FALSE(b.steps(r));
  CHECK(b.told().empty());
}

TEST_CASE("who asks a store that does not answer asks again until it does") {
  int times = 0;
  const the_time begun = just_now();
  detail::member_course::until_stored([&] {
    if (++times < 3) throw store_unreachable("it does not answer");
  });
  CHECK(times == 3);
  CHECK(just_now() - begun >= std::chrono::milliseconds(100));  // it leaves it some time
}
