// SPDX-License-Identifier: Apache-2.0
// A job of one member, with all of its threads: what a step asks of its trainer and in which order, which samples it
// has, what ends it, and requests that it is asked meanwhile. And of two, whose collectives nobody makes: what each has
// of a step, and what is told of the one that walks out.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <reshard/elastic/elastic_job.hpp>
#include <reshard/elastic/local_store.hpp>
#include <reshard/memory/rank_storage.hpp>
#include <reshard/model/transformer.hpp>

#include "../support/refused.hpp"
#include "../support/words.hpp"

using namespace reshard;

namespace {

/// What its own thread is told, in order; and all answers.
struct noted : job_watcher {
  void at(std::string_view where) override {
    if (std::this_thread::get_id() != trains) return;
    lines += std::string(where) + " ";
    if (where == "gradients" && after_gradients) std::exchange(after_gradients, {})();
  }
  void entered(const world& w, std::string_view why, double) override {
    lines += std::string(why) + ":" + std::to_string(w.epoch) + " ";
  }
  void samples(index_t epoch, const sample_share& s) override {
    CHECK((s.dp == 0 && s.of == 1));
    shares.push_back({epoch, s.step, s.samples.begin, s.samples.end});
  }
  void failed(const std::string& sentence) override { lines += "failed:" + sentence + " "; }

  std::thread::id trains = std::this_thread::get_id();
  std::string lines = {};
  std::vector<std::vector<index_t>> shares = {};
  std::function<void()> after_gradients = {};  // once
};

struct lone {
  explicit lone(std::optional<index_t> steps, const std::string& me = "a") {
    settings.job = "j", settings.me = me, settings.steps = steps, settings.batch = 6;
    settings.model = make_transformer(
        {.name = "tiny", .layers = 1, .hidden = 4, .heads = 1, .groups = 1, .head_dim = 4, .ffn = 4, .vocabulary = 4});
    calls.make_group = [](const group_request&, const std::stop_token&) {};
    calls.tensors = [this](const world& w, rank_t rank) {
      arrays.push_back(
          std::make_unique<rank_storage>(space(settings.model, w.layout), rank, "arrays", pages_are::committed));
      return arrays.back()->tensors();
    };
    calls.initialize = [](const world&, rank_t) {};
    calls.entered = [](const world&, rank_t) {};
    trains.gradients = [this](const sample_share&) { watcher.lines += "[g] "; };
    trains.scalar = [this] {
      watcher.lines += "[s] ";
      return 2.5;
    };
    trains.update = [this](double scalar) { watcher.lines += scalar == 2.5 ? "[u] " : "[?] "; };
  }
  elastic_job& begin() {
    job.emplace(any_store(kept), settings, calls, watcher);
    return *job;
  }
  ~lone() {
    if (job) end();
  }
  /// Ends it. The job's watch of the store ends with the next news: here there are some at once.
  void end() {
    std::atomic<bool> over = false;
    std::thread news([&] {
      for (int n = 0; !over.load(); ++n) {
        kept.swap(keys.prefix() + "news/" + std::to_string(n), "", no_revision);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    job.reset();
    over.store(true);
    news.join();
  }
  void ask(const std::string& id, const std::string& words) {
    kept.swap(keys.requests() + id, stored_text(parse_request(id, testing::words_of(words))), no_revision);
  }
  std::string answer(const std::string& id) {
    const std::optional<stored> there = kept.read(keys.answers() + id);
    return there ? there->value : "";
  }
  std::string told() { return std::exchange(watcher.lines, {}); }

  local_store kept;
  job_keys keys{"j"};
  job_settings settings = {};
  trainer_calls calls = {};
  step_calls trains = {};
  noted watcher;
  std::vector<std::unique_ptr<rank_storage>> arrays = {};
  std::optional<elastic_job> job = {};
};

/// One whose world breaks, as if another had found out something, and what it promises then.
struct broken : lone {
  broken() : lone({}) {
    settings.grace = std::chrono::milliseconds(40);
    calls.update = [](double) {};
  }
  job_record record() { return record_of(kept.read(keys.record())->value); }
  void break_it() {
    for (std::uint64_t made = 0; made == 0;) {
      const stored there = *kept.read(keys.record());
      job_record r = record_of(there.value);
      r.phase = job_phase::recovering, ++r.attempt;
      r.promises.clear(), r.request = {};
      made = kept.swap(keys.record(), stored_text(r), there.revision);
    }
  }
  /// Whether it promises within a time.
  bool promises(std::chrono::milliseconds within = std::chrono::seconds(20)) {
    const auto until = std::chrono::steady_clock::now() + within;
    while (said().empty() && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return !said().empty();
  }
  /// Its promise since it broke: version, stage, and scalar in quarters.
  std::vector<index_t> said() {
    std::vector<index_t> last;
    for (const store_change& c : kept.changes(keys.record(), 0, patience(0)).changes) {
      const job_record r = record_of(c.now.value);
      if (r.promises.empty()) {
        if (r.phase == job_phase::recovering) last.clear();
        continue;
      }
      const promise& p = r.promises[0];
      CHECK((p.told.member == "a" && p.of_epoch > 0 && r.promises.size() == 1));
      last = {p.told.version, static_cast<index_t>(p.told.stage), static_cast<index_t>(4 * scalar_of_bits(p.scalar))};
    }
    return last;
  }
  /// A step that is whole, with this scalar.
  void make_step(double scalar) {
    REQUIRE(job->runs());
    step_calls whole = trains;
    whole.scalar = [scalar] { return scalar; };
    whole.update = [](double) {};
    job->step(whole);
    told();
  }
};

const std::string one_step = "samples [g] gradients [s] scalar updating [u] updated ";

}  // namespace

TEST_CASE("a job of so many steps makes them, by its samples in order, and is done") {
  lone one(3);
  elastic_job& job = one.begin();
  CHECK(testing::refused([&] { static_cast<void>(job.now()); }) == "reshard: job: a is in no world yet");
  CHECK((job.why() == job_end::runs && job.me() == "a"));
  CHECK(job.place().node == "here");
  CHECK(job.place().address == "127.0.0.1:" + std::to_string(job.door().port()));
  CHECK((job.place().pulses.starts_with("127.0.0.1:") && job.place().pulses != job.place().address));
  for (index_t step = 0; step < 3; ++step) {
    REQUIRE(job.runs());
    CHECK(job.runs());  // it stays so until the step is made
    CHECK((job.version() == step && job.now().epoch == 1 && job.now().members == member_list{"a"}));
    CHECK(one.told() == (step == 0 ? "group_made founded:1 " : ""));
    job.step(one.trains);
    CHECK(one.told() == one_step);
    CHECK(job.version() == step + 1);
  }
  CHECK_FALSE(job.runs());
  CHECK_FALSE(job.runs());
  CHECK((job.why() == job_end::done && job.sentence().empty() && job.version() == 3));
  CHECK(one.watcher.shares == std::vector<std::vector<index_t>>{{1, 0, 0, 6}, {1, 1, 6, 12}, {1, 2, 12, 18}});
  one.end();
  CHECK_FALSE(one.kept.read(one.keys.members() + "a"));  // it is registered no more
  CHECK(one.kept.read(one.keys.places() + "a"));
}

TEST_CASE("requests to a job of one: another batch by the way, a layout that it cannot have, and its end") {
  lone one({});
  one.ask("q1", "batch 10"), one.ask("q2", "layout dp=2"), one.ask("q3", "batch 10");
  elastic_job& job = one.begin();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  bool asked = false;
  while (job.runs() && std::chrono::steady_clock::now() < end) {
    job.step(one.trains);
    if (!asked && !one.answer("q3").empty()) one.ask("q4", "finish"), asked = true;
  }
  CHECK(job.why() == job_end::done);
  CHECK(one.answer("q1") == "done");
  CHECK(one.answer("q2") == "refused: layout: dp=2 has 2 ranks, and the world has 1 members");
  CHECK(one.answer("q3") == "done");
  one.ask("q5", "batch 3");
  while (one.answer("q5").empty() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  one.end();
  CHECK(one.answer("q4") == "done");
  CHECK(one.answer("q5") == "refused: the job is done");  // as long as the member is there
  const auto& shares = one.watcher.shares;
  index_t at = 0, epoch = 1;
  for (std::size_t s = 0; s < shares.size(); ++s) {
    epoch = std::max(epoch, shares[s][0]);
    CHECK(shares[s] == std::vector<index_t>{epoch, static_cast<index_t>(s), at, at + (epoch == 1 ? 6 : 10)});
    at = shares[s][3];
  }
  CHECK(epoch == 2);
}

TEST_CASE("a step that a peer's end breaks off is told, and no version is counted for it") {
  for (const int part : {0, 1, 2}) {
    lone one({});
    elastic_job& job = one.begin();
    REQUIRE(job.runs());
    job.step(one.trains);
    one.told();
    step_calls breaks = one.trains;
    if (part == 0) breaks.gradients = [](const sample_share&) { throw peer_failed("b is gone"); };
    if (part == 1) breaks.scalar = []() -> double { throw peer_missing("b is late"); };
    if (part == 2) breaks.update = [](double) { throw peer_failed("b is gone"); };
    REQUIRE(job.runs());
    job.step(breaks);
    const std::string so_far[] = {"samples failed:b is gone ", "samples [g] gradients failed:b is late ",
                                  "samples [g] gradients [s] scalar updating failed:b is gone "};
    CHECK(one.told() == so_far[part]);
    CHECK((job.version() == 1 && job.why() == job_end::runs));
  }
}

TEST_CASE("a world that breaks during a step: what was not whole is promised as nothing, and no part of it follows") {
  using told = std::vector<index_t>;
  broken one;
  elastic_job& job = one.begin();
  one.make_step(1.25);
  // between two steps: the step that was begun does nothing
  REQUIRE(job.runs());
  one.break_it();
  CHECK(one.promises());
  CHECK(one.said() == told{1, 0, 5});
  job.step(one.trains);
  CHECK(one.told() == "samples ");
  // while gradients are computed: they count for nothing, for another promise neither
  REQUIRE(job.runs());
  CHECK((job.now().epoch == 2 && job.version() == 1));
  one.told();
  step_calls breaks = one.trains;
  breaks.gradients = [&](const sample_share&) {
    one.break_it();
    CHECK(one.promises());
  };
  job.step(breaks);
  CHECK(one.told() == "samples ");
  CHECK(one.said() == told{1, 0, 5});
  one.break_it();
  CHECK(one.promises());
  CHECK(one.said() == told{1, 0, 5});
  // once they are whole, and before the last collective is begun
  REQUIRE(job.runs());
  one.told();
  one.watcher.after_gradients = [&] {
    one.break_it();
    CHECK(one.promises());
  };
  job.step(one.trains);
  CHECK(one.told() == "samples [g] gradients ");
  CHECK(one.said() == told{1, 0, 5});
  one.break_it();  // it rests, and has them
  CHECK(one.promises());
  CHECK(one.said() == told{1, 1, 5});
  REQUIRE(job.runs());
  CHECK(job.version() == 1);
}

TEST_CASE("a world that breaks in the last collective, or after it, waits for the step or for its end") {
  using told = std::vector<index_t>;
  broken one;
  elastic_job& job = one.begin();
  one.make_step(2);
  one.make_step(1.25);
  REQUIRE(job.runs());
  one.told();
  step_calls breaks = one.trains;
  breaks.scalar = [&] {
    one.break_it();
    CHECK_FALSE(one.promises(std::chrono::milliseconds(100)));
    return 3.5;
  };
  job.step(breaks);
  CHECK(one.told() == "samples [g] gradients scalar updating [?] updated ");
  CHECK(one.promises());
  CHECK(one.said() == told{3, 0, 14});
  // where the collective breaks off its gradients are whole
  REQUIRE(job.runs());
  breaks.scalar = [&]() -> double {
    one.break_it();
    throw peer_failed("b is gone");
  };
  job.step(breaks);
  CHECK(one.promises());
  CHECK(one.said() == told{3, 1, 14});
  // and where the update does the scalar is known, by which others can make it
  REQUIRE(job.runs());
  CHECK(job.version() == 3);
  breaks.scalar = [] { return 4.5; };
  breaks.update = [&](double) {
    one.break_it();
    CHECK_FALSE(one.promises(std::chrono::milliseconds(100)));
    throw peer_failed("b is gone");
  };
  job.step(breaks);
  CHECK(one.promises());
  CHECK(one.said() == told{3, 2, 18});
  REQUIRE(job.runs());
  CHECK(job.version() == 4);  // that others come to
}

TEST_CASE("whose name is another's is refused, and a member that walks out is gone without a word") {
  lone one({});
  {
    elastic_job& job = one.begin();
    REQUIRE(job.runs());
    noted other;
    elastic_job again(any_store(one.kept), one.settings, one.calls, other);
    CHECK_FALSE(again.runs());
    CHECK(again.why() == job_end::refused);
    CHECK(again.sentence() == "reshard: job: a member is called a already; a name is never used twice");
    CHECK_FALSE(again.runs());
    CHECK(job.runs());
  }
  one.end();
  CHECK(record_of(one.kept.read(one.keys.record())->value).phase == job_phase::idle);
}

TEST_CASE("its own times of a step are told to the others once for each window") {
  lone one({});
  one.settings.window = patience(1), one.settings.policy.windows = 1;
  int steps = 0, asked = 0;
  one.trains.own = [&] {
    ++asked;
    return 0.25;
  };
  elastic_job& job = one.begin();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto told = [&] { return one.kept.read(one.keys.paces() + "a"); };
  while (!told() && std::chrono::steady_clock::now() < end && job.runs()) {
    std::this_thread::sleep_for(patience(2));
    job.step(one.trains), ++steps;
  }
  CHECK(asked == steps);
  REQUIRE(told());
  CHECK(told()->value == "1 250000");
}

namespace {

/// One of two: which samples it has, and who is gone by what.
struct one_of_two : noted {
  void samples(index_t epoch, const sample_share& s) override {
    shares.push_back({epoch, s.step, s.samples.begin, s.samples.end, s.dp, s.of});
  }
  void gone(const member_name& who, std::string_view by, double) override {
    const std::lock_guard lock(mutex);
    missed += std::string(who.text()) + " by " + std::string(by) + " ";
  }
  std::string who_is_gone() {
    const std::lock_guard lock(mutex);
    return missed;
  }
  std::mutex mutex;
  std::string missed = {};
};

}  // namespace

TEST_CASE("of two members each has its share of a step; one that walks out is missed, and the other goes on alone") {
  lone a({}), b({}, "b");
  for (lone* one : {&a, &b}) {
    one->settings.found = 2, one->settings.layout.dp = 2, one->settings.batch = 5;
    one->settings.wait = std::chrono::seconds(20);  // nobody is silent on a machine that is busy
    one->settings.grace = std::chrono::milliseconds(100);
    one->calls.interrupt = [](const std::string&) {};
    one->calls.update = [](double) {};
  }
  one_of_two of_a, of_b;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::thread other([&] {  // the second by rank: it comes once the first is registered
    while (!a.kept.read(a.keys.members() + "a") && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    elastic_job job(any_store(a.kept), b.settings, b.calls, of_b);
    while (job.version() < 3 && job.runs()) job.step(b.trains);
  });
  {
    elastic_job job(any_store(a.kept), a.settings, a.calls, of_a);
    while (std::chrono::steady_clock::now() < end && job.runs() && job.now().epoch == 1) {
      job.step(a.trains);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK((job.now().epoch == 2 && job.now().members == member_list{"a"}));
    job.step(a.trains);
  }
  other.join();
  CHECK(of_a.who_is_gone().starts_with("b by eof "));
  for (const one_of_two* one : {&of_a, &of_b}) {
    index_t epoch = 1, next = 0;
    for (const std::vector<index_t>& share : one->shares) {
      const index_t step = share[1], begin = 5 * step;
      CHECK((step == next || (step == next - 1 && share[0] > epoch)));  // one that a death ended begins again
      epoch = share[0], next = step + 1;
      if (epoch == 2) CHECK(share == std::vector<index_t>{2, step, begin, begin + 5, 0, 1});
      else if (one == &of_a) CHECK(share == std::vector<index_t>{1, step, begin, begin + 2, 0, 2});
      else CHECK(share == std::vector<index_t>{1, step, begin + 2, begin + 5, 1, 2});
    }
  }
  CHECK(of_b.shares.size() == 3);
}
