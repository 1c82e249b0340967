// SPDX-License-Identifier: Apache-2.0
// A job of one member, with all of its threads: what a step asks of its trainer and in which order, which samples it
// has, what ends it, and requests that it is asked meanwhile.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
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
    if (std::this_thread::get_id() == trains) lines += std::string(where) + " ";
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
  one.job.reset();
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
  one.job.reset();
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
  one.job.reset();
  CHECK(record_of(one.kept.read(one.keys.record())->value).phase == job_phase::idle);
}

TEST_CASE("its own times of a step are told to the others once for each window") {
  lone one({});
  one.settings.window = patience(1), one.settings.policy.windows = 1;
  one.trains.own = [] { return 0.25; };
  elastic_job& job = one.begin();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto told = [&] { return one.kept.read(one.keys.paces() + "a"); };
  while (!told() && std::chrono::steady_clock::now() < end && job.runs()) {
    std::this_thread::sleep_for(patience(2));
    job.step(one.trains);
  }
  REQUIRE(told());
  CHECK(told()->value == "1 250000");
}
