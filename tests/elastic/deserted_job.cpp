// SPDX-License-Identifier: Apache-2.0
// When a spare says that all members of a job are gone: none is registered, and nobody listens where each of them did.
#include <doctest/doctest.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include <reshard/elastic/local_store.hpp>
#include <reshard/elastic/run/deserted_job.hpp>
#include <reshard/model/transformer.hpp>

using namespace reshard;

namespace {

using std::chrono::milliseconds;

/// A spare of a job of a and b, of which this test makes the store's words.
struct spare {
  local_store keys_of;
  job_watcher nobody;
  detail::job_core core;
  detail::deserted_job deserted;
  std::optional<listening_socket> doors[2] = {};

  explicit spare(const std::string& me = "s", milliseconds grace = milliseconds(60))
      : core(any_store(keys_of), of_job(me, grace), {}, nobody), deserted(core) {
    for (int i = 0; i < 2; ++i) {
      doors[i].emplace(std::string("127.0.0.1:0"));
      tell(core.keys.places() + name_of(i), address_of(i) + " 127.0.0.1:1 node");
      tell(core.keys.members() + name_of(i), address_of(i));
    }
    core.listed = true;
  }
  static job_settings of_job(const std::string& me, milliseconds grace) {
    job_settings s;
    s.job = "story", s.me = me, s.grace = grace;
    s.model = make_transformer(
        {.name = "tiny", .layers = 2, .hidden = 8, .heads = 2, .groups = 2, .head_dim = 4, .ffn = 8, .vocabulary = 16});
    return s;
  }
  static std::string name_of(int i) { return i == 0 ? "a" : "b"; }
  std::string address_of(int i) const { return "127.0.0.1:" + std::to_string(doors[i]->port()); }
  void tell(const std::string& key, const std::string& value) {
    core.take({key, value, keys_of.swap(key, value, no_revision)}, false);
  }
  void unregister(int i) { core.known.erase(core.keys.members() + name_of(i)); }
  void die(int i) { unregister(i), doors[i].reset(); }

  /// The record, as the store has it.
  job_record put(job_record r) {
    const std::optional<stored> there = keys_of.read(core.keys.record());
    const std::uint64_t made = keys_of.swap(core.keys.record(), stored_text(r), there ? there->revision : no_revision);
    core.take_record(r, made);
    return r;
  }
  static job_record of_two(job_phase phase) {
    job_record r;
    r.phase = phase, r.epoch = 3, r.wanted = 2;
    degrees two;
    two.dp = 2;
    r.worlds = {{3, {member_name("a"), member_name("b")}, two, 7, 42, 6}};
    return r;
  }
  /// Looks for as long; whether it brought anything about.
  bool looks(milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    do {
      if (deserted.end(*core.record)) return true;
      std::this_thread::sleep_for(milliseconds(5));
    } while (std::chrono::steady_clock::now() < until);
    return false;
  }
};

}  // namespace

TEST_CASE("all members are gone where none is registered and none listens: the world broke, and then it is lost") {
  for (const job_phase phase : {job_phase::idle, job_phase::entering, job_phase::waiting}) {
    CAPTURE(name(phase));
    spare s;
    s.put(spare::of_two(phase));
    CHECK(!s.looks(milliseconds(250)));
    s.die(0);
    CHECK(!s.looks(milliseconds(250)));  // b is registered
    s.die(1);
    const auto since = std::chrono::steady_clock::now();
    REQUIRE(s.looks(std::chrono::seconds(20)));
    CHECK(std::chrono::steady_clock::now() - since >= s.core.settings.grace);
    const member_list both = {member_name("a"), member_name("b")};
    CHECK(s.core.record->phase == job_phase::recovering);
    CHECK(s.core.record->gone == both);
    REQUIRE(s.looks(std::chrono::seconds(20)));
    CHECK(s.core.record->phase == job_phase::lost);
    CHECK(s.core.record->gone == both);
    CHECK(s.core.record->epoch == 3);
    CHECK(!s.looks(milliseconds(250)));  // it is over
    CHECK(*s.core.record == record_of(s.keys_of.read(s.core.keys.record())->value));
  }
}

TEST_CASE("one that promised and died after it is gone too, as are those who were gone before") {
  spare s;
  job_record r = spare::of_two(job_phase::recovering);
  r.gone = {member_name("b")};
  promise p;
  p.told.member = member_name("a"), p.told.version = 9, p.of_epoch = 3;
  r.promises = {p};
  s.put(r);
  s.die(1);
  CHECK(!s.looks(milliseconds(250)));
  s.die(0);
  REQUIRE(s.looks(std::chrono::seconds(20)));
  CHECK(s.core.record->phase == job_phase::lost);
  CHECK(s.core.record->gone == member_list{member_name("b"), member_name("a")});
}

TEST_CASE("members whose leases are gone live while one of their doors answers, or nobody knows where it is") {
  spare s;
  s.put(spare::of_two(job_phase::idle));
  s.unregister(0), s.die(1);
  CHECK(!s.looks(milliseconds(300)));
  s.doors[0].reset();
  CHECK(s.looks(std::chrono::seconds(20)));

  spare unknown;
  unknown.put(spare::of_two(job_phase::idle));
  unknown.die(0), unknown.die(1);
  stored& place = unknown.core.known[unknown.core.keys.places() + "a"];
  place.value = "nowhere 127.0.0.1:1 node";  // an address that nobody can ask for
  CHECK(!unknown.looks(milliseconds(300)));
  unknown.core.known.erase(unknown.core.keys.places() + "a");
  CHECK(!unknown.looks(milliseconds(300)));
}

TEST_CASE("who registers again in the grace is not gone, and the grace begins anew") {
  spare s("s", milliseconds(1500));
  s.put(spare::of_two(job_phase::idle));
  s.die(0), s.die(1);
  CHECK(!s.looks(milliseconds(400)));
  s.core.known[s.core.keys.members() + "a"] = {s.core.keys.members() + "a", "x", 99};
  CHECK(!s.looks(milliseconds(50)));
  s.unregister(0);
  const auto since = std::chrono::steady_clock::now();
  REQUIRE(s.looks(std::chrono::seconds(20)));
  CHECK(std::chrono::steady_clock::now() - since >= s.core.settings.grace);
}

TEST_CASE("a member of the world says nothing of the kind, and nobody does before there is a world") {
  spare a("a");
  a.put(spare::of_two(job_phase::idle));
  a.die(0), a.die(1);
  CHECK(!a.looks(milliseconds(300)));

  spare early;
  job_record founding;
  founding.wanted = 2;
  early.put(founding);
  early.die(0), early.die(1);
  CHECK(!early.looks(milliseconds(300)));
}

TEST_CASE(
    "who was taken for gone says so of the others where they die as they enter a world without it, and only there") {
  for (const job_phase phase : {job_phase::entering, job_phase::idle}) {
    CAPTURE(name(phase));
    spare b("b");
    job_record r = spare::of_two(phase);
    r.gone = {member_name("b")};
    b.put(r);
    CHECK(!b.looks(milliseconds(250)));  // a lives
    b.die(0);
    CHECK(b.looks(phase == job_phase::entering ? milliseconds(20'000) : milliseconds(300)) ==
          (phase == job_phase::entering));
    CHECK(b.core.record->phase == (phase == job_phase::entering ? job_phase::recovering : phase));
  }
  spare s;  // of those who are gone a third one is as sure as of the others
  job_record r = spare::of_two(job_phase::entering);
  r.gone = {member_name("b")};
  s.put(r);
  s.die(0), s.unregister(1);
  CHECK(!s.looks(milliseconds(300)));
}
