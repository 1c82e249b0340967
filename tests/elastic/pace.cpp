// SPDX-License-Identifier: Apache-2.0
// Who of a world is slow, by what its members tell of their own parts of steps, without any of their threads.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include <reshard/elastic/local_store.hpp>
#include <reshard/elastic/run/pace.hpp>
#include <reshard/model/transformer.hpp>

using namespace reshard;

namespace {

struct told : job_watcher {
  void slow(const member_list& who, const std::string& why) override { all += members_text(who) + ": " + why + "\n"; }
  std::string all;
};

/// One of four members, whose windows are of a millisecond.
struct one_member {
  explicit one_member(local_store& kept, elastic_policy policy = {.windows = 2})
      : store(kept), core(store, settings(policy), {}, watcher), steps(core) {
    core.epoch = 3;
  }
  static job_settings settings(const elastic_policy& policy) {
    job_settings s;
    s.job = "j";
    s.me = "a";
    s.model = make_transformer(
        {.name = "tiny", .layers = 1, .hidden = 4, .heads = 1, .groups = 1, .head_dim = 4, .ffn = 4, .vocabulary = 4});
    s.policy = policy;
    s.window = std::chrono::milliseconds(1);
    return s;
  }
  void tell(const std::string& who, const std::string& means) {
    const auto before = store.read(core.keys.paces() + who);
    store.swap(core.keys.paces() + who, means, before ? before->revision : no_revision);
  }
  /// Each window has the steps of one call.
  void make_steps(double own, int count = 2) {
    for (int n = 1; n < count; ++n) steps.add(own);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    steps.add(own);
  }
  std::optional<world> replaced(const member_list& spares) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto look = [&] {
      core.take(store.changes(core.keys.prefix(), core.revision, patience(0)));
      return steps.replaced(record(), spares);
    };
    look();  // tells what this member has to tell
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return look();
  }
  static job_record record() {
    job_record r;
    r.phase = job_phase::idle, r.epoch = 3;
    r.worlds = {{.epoch = 3, .members = {"a", "b", "c", "d"}, .layout = {.dp = 4}, .first_step = 7, .batch = 8}};
    return r;
  }

  any_store store;
  told watcher;
  detail::job_core core;
  detail::pace steps;
};

}  // namespace

TEST_CASE("a spare takes the place of who was slow in each of the last windows; the rest of the world stays") {
  local_store kept;
  one_member a(kept);
  a.make_steps(1), a.make_steps(0.010, 5), a.make_steps(0.010);
  for (const char* who : {"b", "c", "d"}) a.tell(who, who == std::string("c") ? "3 25000 21000" : "3 10000 9000");
  const std::optional<world> to = a.replaced({"s", "t"});
  CHECK(a.store.read(a.core.keys.paces() + "a")->value == "3 10000 10000");  // of the first window nothing is left
  REQUIRE(to);
  world expected = one_member::record().now();
  expected.epoch = 4, expected.members[2] = "s";
  CHECK(*to == expected);
  CHECK(a.watcher.all.empty());
}

TEST_CASE("nobody is slow by one window, by another world's, or while somebody told nothing") {
  local_store kept;
  one_member a(kept);
  a.make_steps(0.010), a.make_steps(0.010);
  for (const char* who : {"b", "d"}) a.tell(who, "3 10000 10000");
  CHECK_FALSE(a.replaced({"s"}));  // c told nothing
  for (const char* const means : {"3 25000 19000", "3 19000 25000", "3 25000", "2 25000 25000", "3 25000 x", "3", ""}) {
    CAPTURE(std::string(means));
    a.tell("c", means);
    CHECK_FALSE(a.replaced({"s"}));
  }
  a.tell("c", "3 25000 25000");
  CHECK(a.replaced({"s"}));
}

TEST_CASE("without a spare it stays, and is told once the policy's time is over; without the rung nothing is told") {
  const auto slow = [](elastic_policy policy) {
    local_store kept;
    one_member a(kept, policy);
    a.make_steps(0.010), a.make_steps(0.010);
    for (const char* who : {"b", "c", "d"}) a.tell(who, who == std::string("d") ? "3 25000 21000" : "3 10000 9000");
    for (int n = 0; n < 4; ++n) CHECK_FALSE(a.replaced({}));
    return std::pair(a.watcher.all, a.store.read(a.core.keys.paces() + "a").has_value());
  };
  CHECK(slow({.windows = 2, .wait = 60}) == std::pair(std::string(), true));
  const std::string said = slow({.windows = 2, .wait = 0.001}).first;
  CHECK(said.starts_with("d: ignored: d is slow, up to 2.33 times the median of the peers"));
  CHECK(said.find('\n') + 1 == said.size());
  CHECK(slow({.rungs = {rung::replace, rung::shrink}, .windows = 2, .wait = 0.001}) == std::pair(std::string(), false));
}

TEST_CASE("a change that was refused is not tried again, and why is told; another spare is another change") {
  local_store kept;
  one_member a(kept, {.windows = 2, .wait = 0});
  a.make_steps(0.010), a.make_steps(0.010);
  for (const char* who : {"b", "c", "d"}) a.tell(who, who == std::string("c") ? "3 25000 21000" : "3 10000 9000");
  std::optional<world> to = a.replaced({"s"});
  REQUIRE(to);
  world from = one_member::record().now();
  from.epoch = 1, to->epoch = 2;  // of an earlier epoch
  a.core.refused = {{from, *to, "too little memory"}};
  CHECK_FALSE(a.replaced({"s"}));
  CHECK_FALSE(a.replaced({"s"}));
  CHECK(a.watcher.all == "c: ignored: too little memory\n");
  const std::optional<world> other = a.replaced({"t"});
  REQUIRE(other);
  CHECK(other->members == member_list{"a", "b", "t", "d"});
  a.core.refused[0].from.members = {"a", "b", "c", "e"};
  CHECK(a.replaced({"s"}));
  a.core.refused[0].from.members = from.members, a.core.refused[0].to.layout.dp = 2;
  CHECK(a.replaced({"s"}));
}

TEST_CASE("what takes less than a millisecond is not told apart") {
  local_store kept;
  one_member a(kept);
  a.make_steps(0.000002), a.make_steps(0.000900), a.make_steps(0.0015);
  for (const char* who : {"b", "c", "d"}) a.tell(who, "3 1000 1000");
  CHECK_FALSE(a.replaced({"s"}));
  const std::string told = a.store.read(a.core.keys.paces() + "a")->value;
  CHECK(told.starts_with("3 1000 1"));
}

TEST_CASE("a member that goes over to another world begins its windows again") {
  local_store kept;
  one_member a(kept);
  a.make_steps(0.5), a.make_steps(0.5);
  a.core.epoch = 4;
  a.make_steps(0.010);
  job_record r = one_member::record();
  r.epoch = r.worlds[0].epoch = 4;
  static_cast<void>(a.steps.replaced(r, {}));
  CHECK(a.store.read(a.core.keys.paces() + "a")->value == "4 10000");
}

TEST_CASE("each window that is over is told once, the latest last, behind those before it") {
  local_store kept;
  one_member a(kept, {.windows = 3});
  const std::string key = a.core.keys.paces() + "a";
  static_cast<void>(a.steps.replaced(one_member::record(), {}));
  CHECK_FALSE(a.store.read(key));  // nothing is over yet
  struct window {
    double own;
    const char* told;
  };
  for (const window& one : {window{0.010, "3 10000"}, window{0.020, "3 10000 20000"},
                            window{0.030, "3 10000 20000 30000"}, window{0.040, "3 20000 30000 40000"}}) {
    a.make_steps(one.own);
    static_cast<void>(a.steps.replaced(one_member::record(), {}));
    REQUIRE(a.store.read(key));
    CHECK(a.store.read(key)->value == one.told);
    const std::uint64_t revision = a.store.read(key)->revision;
    static_cast<void>(a.steps.replaced(one_member::record(), {}));
    CHECK(a.store.read(key)->revision == revision);  // it is told once
  }
  job_record other = one_member::record();
  other.epoch = other.worlds[0].epoch = 4;
  a.make_steps(0.050);
  const std::uint64_t revision = a.store.read(key)->revision;
  static_cast<void>(a.steps.replaced(other, {}));  // these steps were made in another world
  CHECK(a.store.read(key)->revision == revision);
}

TEST_CASE("who was slow and is not any more begins to wait anew, and nothing but a spare takes its place") {
  local_store kept;
  one_member a(kept, {.rungs = {rung::hot, rung::replace, rung::shrink, rung::checkpoint}, .windows = 2, .wait = 0.8});
  a.make_steps(0.010), a.make_steps(0.010);
  a.tell("b", "3 10000 10000"), a.tell("c", "3 10000 10000");
  const auto looks = [&](const char* means, double seconds) {
    a.tell("d", means);
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    do CHECK_FALSE(a.replaced({}));
    while (std::chrono::steady_clock::now() < end);
  };
  looks("3 25000 25000", 0.5);
  looks("3 10000 10000", 0);
  looks("3 25000 25000", 0.5);
  CHECK(a.watcher.all.empty());  // a second in all, but not at a stretch
  looks("3 25000 25000", 0.9);
  CHECK(a.watcher.all.starts_with("d: ignored: d is slow"));
}
