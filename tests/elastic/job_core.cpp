// SPDX-License-Identifier: Apache-2.0
// What the threads of one member share, without any of them: news of the store, words, events and answers.
#include <doctest/doctest.h>

#include <stop_token>
#include <string>

#include <reshard/elastic/local_store.hpp>
#include <reshard/elastic/run/world_groups.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using detail::job_core;

namespace {

struct told : job_watcher {
  void at(std::string_view where) override { all += std::string(where) + " "; }
  void answered(const member_name&, std::string_view text) override { all += "answer:" + std::string(text) + " "; }
  std::string all;
};

/// A member's core over a store in this process.
struct one_member {
  explicit one_member(local_store& kept) : store(kept), core(store, settings(), {}, watcher) {}
  static job_settings settings() {
    job_settings s;
    s.job = "j";
    s.me = "a";
    return s;
  }
  void hear() { core.take(store.changes(core.keys.prefix(), core.revision, patience(0))); }

  any_store store;
  told watcher;
  job_core core;
};

job_record record_of_two() {
  job_record r;
  r.phase = job_phase::idle, r.epoch = 1;
  world w;
  w.members = {"a", "b"}, w.layout.dp = 2;
  r.worlds = {w};
  return r;
}

}  // namespace

TEST_CASE("an event is one swap: of two who bring it about one does, and it hears of the other's") {
  local_store kept;
  one_member a(kept), b(kept);
  CHECK_FALSE(a.core.happen({}));  // there is no record
  CHECK(a.core.swap_record(record_of_two(), no_revision, "founding"));
  CHECK(a.watcher.all == "swap-founding swapped-founding ");
  b.hear();
  job_event e = event_about(record_of_two(), job_event_kind::broke);
  e.members = {"b"};
  CHECK(b.core.happen(e));
  CHECK_FALSE(a.core.happen(e));  // its record is an old one, and the swap says so
  a.hear();
  CHECK(*a.core.record == *b.core.record);
  CHECK(a.core.record->phase == job_phase::recovering);
  CHECK_FALSE(a.core.happen(e));  // it is over
}

TEST_CASE("of a key the latest revision counts, whoever tells it; what goes is not known any more") {
  local_store kept;
  one_member a(kept);
  const std::string key = a.core.keys.places() + "b";
  a.core.take({{{{key, "new:1 new:2 here", 9}, false}, {{key, "old:1 old:2 here", 8}, false}}, 9, false});
  CHECK(a.core.where("b")->address == "new:1");
  a.core.take({{{{key, "", 7}, true}}, 9, false});
  CHECK(a.core.is_known(key));
  a.core.take({{{{key, "", 10}, true}}, 10, false});
  CHECK_FALSE(a.core.where("b"));
  a.core.take({{{{key, "x:1 x:2 here", 11}, false}}, 11, false});
  a.core.take({{}, 12, true});  // the store has forgotten what was between, and there is nothing now
  CHECK_FALSE(a.core.is_known(key));
}

TEST_CASE("members are told in the order in which they came, whatever they are called") {
  local_store kept;
  one_member a(kept);
  for (const char* who : {"z", "b", "m"}) a.store.swap(a.core.keys.members() + who, "x:1 x:2 here", no_revision);
  a.hear();
  CHECK(a.core.registered() == member_list{"z", "b", "m"});
  a.store.swap(a.core.keys.members() + "aa", "x:1 x:2 here", no_revision);
  a.hear();
  CHECK(a.core.registered() == member_list{"z", "b", "m", "aa"});
}

TEST_CASE("words are said once, and numbers among them are numbers") {
  local_store kept;
  one_member a(kept);
  const job_record r = record_of_two();
  a.core.say(r, "ready", "7");
  a.core.say(r, "ready", "8");
  CHECK(a.core.numbers(r, "ready") == std::vector<index_t>{7});
  CHECK(a.core.said_by(r, "ready") == member_list{"a"});
  CHECK(a.core.said_by(r, "read").empty());
  a.store.swap(a.core.keys.said(1, 0, "ready") + "b", "soon", no_revision);
  a.hear();
  CHECK(testing::refused([&] { a.core.numbers(r, "ready"); }) == "reshard: job: b says 'soon' where a step is said");
}

TEST_CASE("a request is answered once, and who is late learns the answer") {
  local_store kept;
  one_member a(kept), b(kept);
  a.core.answer("r1", "done");
  b.core.answer("r1", "failed: it is late");
  CHECK(a.watcher.all == "answer:done answered ");
  CHECK(b.watcher.all.empty());
  CHECK(kept.read(b.core.keys.answers() + "r1")->value == "done");
  CHECK(b.core.is_known(b.core.keys.answers() + "r1"));
}

TEST_CASE("who promised while the world was made anew is suspected no more; who is suspected after that is") {
  local_store kept;
  one_member a(kept);
  job_record r = record_of_two();
  a.core.take_record(r, 1);
  a.core.suspects = {"a", "b"};
  r.phase = job_phase::entering, r.epoch = 2;
  r.worlds.push_back(r.worlds[0]), r.worlds[1].epoch = 2;
  r.promises = {{{"b", 4, update_stage::nothing}, 0, 1}};
  a.core.take_record(r, 2);
  CHECK(a.core.suspects == member_list{"a"});
  a.core.suspects = {"b"};
  a.core.take_record(r, 3);
  CHECK(a.core.suspects == member_list{"b"});
}

TEST_CASE("who was suspected where a job waits is suspected no more once it promised in another attempt") {
  local_store kept;
  one_member a(kept);
  job_record r = record_of_two();
  r.phase = job_phase::waiting, r.attempt = 3;
  r.promises = {{{"b", 4, update_stage::nothing}, 0, 1}};
  a.core.take_record(r, 1);
  a.core.suspects = {"b"};  // its promise was there before
  r.promises.push_back({{"a", 4, update_stage::nothing}, 0, 1});
  a.core.take_record(r, 2);
  CHECK(a.core.suspects == member_list{"b"});
  r.phase = job_phase::recovering, r.attempt = 4;  // somebody came, and promises are kept
  a.core.take_record(r, 3);
  CHECK(a.core.suspects == member_list{"b"});
  const std::vector<promise> promises = std::exchange(r.promises, {});
  r.attempt = 5;  // it broke
  a.core.take_record(r, 4);
  CHECK(a.core.suspects == member_list{"b"});
  r.promises = promises;
  a.core.take_record(r, 5);
  CHECK(a.core.suspects.empty());
  a.core.suspects = {"b"};
  r.attempt = 6;  // what was between was not seen
  a.core.take_record(r, 6);
  CHECK(a.core.suspects.empty());
}

TEST_CASE("a group with a member that nobody can call is not made") {
  local_store kept;
  one_member a(kept);
  const job_record r = record_of_two();
  a.core.take_record(r, 1);
  a.store.swap(a.core.keys.said(1, 0, "here") + "b", "1", no_revision);
  a.hear();
  process_door door(listening_socket("127.0.0.1:0"));
  detail::world_groups groups(a.core, door);
  CHECK_THROWS_WITH_AS(groups.make_first(r, std::stop_token()), "reshard: nobody knows where a is called",
                       peer_missing);
}
