// SPDX-License-Identifier: Apache-2.0
// A trainer whose world changes while it trains. Three members found a job, a fourth joins, one walks away without a
// word, and the others go on. Here they are threads, and the store is in this process; as processes they share a served
// store or an etcd, and nothing else changes.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <reshard/elastic/elastic_job.hpp>
#include <reshard/elastic/local_store.hpp>
#include <reshard/memory/each_element.hpp>
#include <reshard/memory/rank_storage.hpp>
#include <reshard/model/transformer.hpp>

using namespace reshard;

namespace {

constexpr index_t steps = 100;

model small() {
  return make_transformer({.name = "small",
                           .layers = 2,
                           .hidden = 16,
                           .heads = 2,
                           .groups = 2,
                           .head_dim = 8,
                           .ffn = 32,
                           .vocabulary = 64});
}

/// What a trainer has beside a job: arrays of its rank, and a group to agree in. Its model learns to count: every
/// element of every state is the number of steps made.
class trainer {
 public:
  trainer_calls calls(elastic_job*& job) {
    trainer_calls c;
    c.make_group = [this, &job](const group_request& r, const std::stop_token& stop) {
      auto made =
          std::make_unique<socket_endpoint>(r.rank, r.addresses, job->door(), r.number, std::chrono::seconds(1), stop);
      const std::lock_guard lock(mutex_);
      next_group_ = std::move(made);
    };
    c.interrupt = [this](const std::string& sentence) {
      const std::lock_guard lock(mutex_);
      if (group_) group_->stop(sentence);
    };
    c.tensors = [this](const world& w, rank_t rank) {
      layout_ = holding_of(space(small(), w.layout));
      next_ = std::make_unique<rank_storage>(layout_, rank, "the next arrays", pages_are::committed);
      return next_->tensors();
    };
    c.initialize = [](const world&, rank_t) {};  // pages begin as zeros
    c.entered = [this](const world&, rank_t rank) {
      now_ = rank < 0 ? nullptr : std::move(next_);
      const std::lock_guard lock(mutex_);
      group_ = rank < 0 ? nullptr : std::move(next_group_);
    };
    c.update = [this](double) { update(); };
    return c;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    group_.reset(), next_group_.reset();
  }

  void backward(const sample_share&) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }
  double norm() { return static_cast<double>(group_->agree({.addend = 1}).sum); }
  void update() {
    each([](auto& x) { ++x; });
  }
  index_t wrong(index_t expected) {
    index_t count = 0;
    each([&](const auto& x) { count += static_cast<index_t>(x) == expected ? 0 : 1; });
    return count;
  }

 private:
  template <typename Visit>
  void each(Visit&& visit) {
    for (const bound_box& b : now_->tensors().boxes()) {
      const family& of = layout_.family_at(b.tensor.family);
      if (b.element_bytes == 2) each_element<std::uint16_t>(b, of, [&](auto& x, index_t) { visit(x); });
      else each_element<std::uint32_t>(b, of, [&](auto& x, index_t) { visit(x); });
    }
  }

  computed_holding layout_ = holding_of(space(small(), config{}));
  std::unique_ptr<rank_storage> now_, next_;
  std::mutex mutex_;  // of groups
  std::unique_ptr<socket_endpoint> group_, next_group_;
};

/// One member's life, up to a step at which it may be gone.
int member(const std::string& name, any_store store, index_t gone_before, std::atomic<index_t>& made) {
  job_settings settings;
  settings.job = "example";
  settings.me = name;
  settings.model = small();
  settings.found = 3;
  settings.layout.dp = 3;
  settings.batch = 12;
  settings.steps = steps;
  settings.policy.axes = parse_axes("dp");  // a death costs no element where each has a replica

  trainer t;
  elastic_job* here = nullptr;
  elastic_job job(store, settings, t.calls(here));
  here = &job;
  while (job.runs()) {
    if (job.version() >= gone_before) break;
    job.step({.gradients = [&](const sample_share& mine) { t.backward(mine); },
              .scalar = [&] { return t.norm(); },  // the last collective before the state changes
              .update = [&](double) { t.update(); }});
    if (job.version() > made.load()) made.store(job.version());
  }
  const index_t wrong = job.why() == job_end::done ? t.wrong(steps) : 0;
  std::printf("%s: %s after %lld steps, %lld elements wrong\n", name.c_str(),
              job.why() == job_end::runs ? "gone" : std::string(reshard::name(job.why())).c_str(),
              static_cast<long long>(job.version()), static_cast<long long>(wrong));
  t.leave();
  return wrong == 0 && job.why() == (gone_before < steps ? job_end::runs : job_end::done) ? 0 : 1;
}

}  // namespace

int main() {
  local_store kept;
  const any_store store(kept);
  std::atomic<index_t> made = 0;
  std::atomic<int> failed = 0;
  std::vector<std::thread> members;
  const auto start = [&](const std::string& name, index_t gone_before) {
    members.emplace_back([&, name, gone_before] { failed += member(name, store, gone_before, made); });
  };
  start("a", steps), start("b", 60), start("c", steps);
  while (made.load() < 20) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  start("d", steps);
  const std::string request = job_keys("example").requests() + "r1";  // as `tools/elastic ask --id r1 join d` says it
  store.swap(request, stored_text(parse_request("r1", {"join", "d"})), no_revision);
  for (std::thread& m : members) m.join();
  return failed.load();
}
