// SPDX-License-Identifier: Apache-2.0
// A member's registration, turn by turn: a store that the test has in hand says what it hears, and ends the job.
#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <reshard/elastic/run/store_watch.hpp>

#include "../support/one_member.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using namespace testing;

namespace {

/// A store in this process that writes down what it is asked, and does what the test says each time that changes are
/// asked for; after the last of these the job ends.
struct led_store {
  local_store kept;
  detail::job_core* core = nullptr;
  std::vector<std::function<void()>> turns = {};
  std::function<void(const std::string&)> before = {};  // each question
  std::function<bool()> goes_on = {};                   // after the last turn
  std::string asked = {};
  std::vector<patience> leases = {}, waits = {};
  std::vector<std::uint64_t> after_revisions = {};
  std::size_t turn = 0;
  bool renews = true;

  void ask(const std::string& what) {
    asked += what + " ";
    if (before) before(what);
  }
  std::optional<stored> read(const std::string& key) { return ask("read"), kept.read(key); }
  stored_list list(const std::string& prefix) { return ask("list"), kept.list(prefix); }
  std::uint64_t swap(const std::string& key, const std::string& value, std::uint64_t expected, lease_id lease) {
    ask("swap");
    return kept.swap(key, value, expected, lease);
  }
  bool remove(const std::string& key, std::uint64_t expected) { return ask("remove"), kept.remove(key, expected); }
  lease_id lease(patience time) { return ask("lease"), leases.push_back(time), kept.lease(std::chrono::hours(1)); }
  bool renew(lease_id lease) { return ask("renew"), renews && kept.renew(lease); }
  void revoke(lease_id lease) { ask("revoke"), kept.revoke(lease); }
  store_news changes(const std::string& prefix, std::uint64_t after, patience wait) {
    ask("changes");
    waits.push_back(wait), after_revisions.push_back(after);
    if (turn < turns.size()) turns[turn]();
    if (++turn >= turns.size() && !(goes_on && goes_on())) core->ends = true;
    return kept.changes(prefix, after, patience(0));
  }
};

const registration place{"h:1", "h:2", "node"};
constexpr const char* place_text = "h:1 h:2 node";

struct watched {
  explicit watched(patience lease = std::chrono::hours(1)) {
    job_settings s = one_member::settings_of("a", {});
    s.lease = lease;
    core.emplace(any_store(store), s, trainer_calls{}, watcher);
    store.core = &*core;
  }
  std::string key() const { return core->keys.members() + "a"; }
  std::string name() const { return core->keys.places() + "a"; }
  /// What it asks from its beginning to its end.
  std::string runs(std::vector<std::function<void()>> turns) {
    store.turns = std::move(turns);
    detail::store_watch(*core, place).run();
    return store.asked;
  }

  led_store store;
  told_all watcher;
  std::optional<detail::job_core> core;
};
const auto nothing = [] {};

}  // namespace

TEST_CASE("a member takes its name and holds a lease until the job ends for it; its place stays") {
  watched w(std::chrono::seconds(1));
  stored seen;
  CHECK(w.runs({[&] { seen = *w.store.kept.read(w.key()); }, nothing}) ==
        "swap read lease swap changes changes revoke ");
  CHECK(seen.value == place_text);
  CHECK(w.watcher.lines == "registered\n");
  CHECK(w.store.leases == std::vector<patience>{std::chrono::seconds(1)});
  CHECK(w.store.waits == std::vector<patience>(2, patience(250)));
  CHECK(w.store.after_revisions == std::vector<std::uint64_t>{0, 2});
  CHECK_FALSE(w.store.kept.read(w.key()));  // it went with the lease
  CHECK(w.store.kept.read(w.name())->value == place_text);
  CHECK(w.core->listed);
  CHECK(w.core->known.size() == 2);
  CHECK(w.core->revision == 2);

  watched slow;
  slow.runs({nothing});
  CHECK(slow.store.waits == std::vector<patience>{patience(500)});  // at most so long

  watched over;
  over.core->ends = true;
  CHECK(over.runs({}) == "");
}

TEST_CASE("a name is one member's; that its own swap was made and not answered is no other one's") {
  watched w;
  w.store.kept.swap(w.name(), "h:1 h:3 node", no_revision);
  CHECK(testing::refused([&] { w.runs({nothing}); }) ==
        "reshard: job: a member is called a already; a name is never used twice");
  CHECK(w.watcher.lines.empty());
  watched own;
  own.store.kept.swap(own.name(), place_text, no_revision);
  CHECK(own.runs({nothing}) == "swap read read lease swap changes revoke ");
  CHECK(own.watcher.lines == "registered\n");
}

TEST_CASE("a lease is renewed a quarter of its time after the last time, and where it is gone it registers again") {
  watched w(patience(0));  // a quarter is over at once
  CHECK(w.runs({nothing, nothing, [&] { w.store.renews = false; }, [&] { w.store.renews = true; }}) ==
        "swap read lease swap changes renew changes renew changes renew read lease swap changes renew revoke ");
  CHECK(w.watcher.lines == "registered\n");  // once

  watched again(patience(0));  // with the key that it had
  std::uint64_t had = 0;
  again.runs({[&] {
                had = again.store.kept.read(again.key())->revision;
                again.store.renews = false;
              },
              [&] { CHECK(again.store.kept.read(again.key())->revision > had); }});
  CHECK(had > 0);

  watched often(patience(60));  // not before 15 ms
  std::vector<the_time> renewed = {just_now()};
  often.store.before = [&](const std::string& what) {
    if (what == "renew" || what == "lease") renewed.push_back(just_now());
  };
  often.store.goes_on = [&] { return renewed.size() < 5; };
  often.runs({});
  REQUIRE(renewed.size() == 5);
  for (std::size_t i = 3; i < renewed.size(); ++i) CHECK(renewed[i] - renewed[i - 1] > std::chrono::milliseconds(14));
}

TEST_CASE("who is about to leave takes its registration away, but where the others may need what it holds") {
  struct row {
    job_phase phase;
    bool concerned, stays;
  };
  for (const row& one : {row{job_phase::idle, true, false}, row{job_phase::armed, true, false},
                         row{job_phase::entering, true, false}, row{job_phase::recovering, true, true},
                         row{job_phase::waiting, true, true}, row{job_phase::recovering, false, false},
                         row{job_phase::waiting, false, false}, row{job_phase::lost, true, false}}) {
    CAPTURE(name(one.phase));
    CAPTURE(one.concerned);
    watched w;
    bool there = false;
    CHECK(w.runs({[&] {
                    w.core->leaving = true;
                    w.core->record =
                        record_at(one.phase, {world_at(3, {one.concerned ? "a" : "b", "c"}), world_at(4, {"b", "c"})});
                  },
                  [&] { there = w.store.kept.read(w.key()).has_value(); }, nothing}) ==
          (one.stays ? "swap read lease swap changes changes changes revoke "
                     : "swap read lease swap changes revoke changes changes "));
    CHECK(there == one.stays);
  }
  watched early;  // before there is a record
  early.core->leaving = true;
  CHECK(early.runs({nothing}) == "changes ");
  watched back;  // the change came to nothing
  CHECK(back.runs({[&] { back.core->leaving = true; }, [&] { back.core->leaving = false; }, nothing}) ==
        "swap read lease swap changes revoke changes read lease swap changes revoke ");
  CHECK(back.watcher.lines == "registered\n");
}

TEST_CASE("a store that does not answer is asked again, and not waited for at the end") {
  watched w;
  int fails = 2;
  w.store.before = [&](const std::string& what) {
    if (what == "revoke" || (what == "lease" && fails-- > 0)) throw store_unreachable("it does not answer");
  };
  const the_time begun = just_now();
  CHECK(w.runs({nothing}) == "swap read lease swap read read lease swap read read lease swap changes revoke ");
  CHECK(just_now() - begun >= std::chrono::milliseconds(40));
  CHECK(w.watcher.lines == "registered\n");
}

TEST_CASE("whose key another one writes as it registers tries once more") {
  watched w;
  int times = 0;
  w.store.before = [&](const std::string& what) {
    if (what == "lease" && times++ == 0) w.store.kept.swap(w.key(), "of before", no_revision);
  };
  CHECK(w.runs({nothing, nothing}) == "swap read lease swap changes swap read read lease swap changes revoke ");
  CHECK(w.watcher.lines == "registered\n");
}
