// SPDX-License-Identifier: Apache-2.0
// The exact trainer: state in integers, of which every element says which samples it has seen. Element i of state s of
// tensor t at version v, mod 2^(8 x its bytes):
//   x_0 = c,  x_{v+1} = A x_v + c S_v,  c = mix(mix(s) + mix(i) + hash(t)),
//   S_v = sum over the samples k of step v of mix(k)
// so that a missing, doubled or misplaced sample or element shows.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <sys/resource.h>
#include <unistd.h>

#include <reshard/base/digest.hpp>
#include <reshard/elastic/elastic_job.hpp>
#include <reshard/memory/each_element.hpp>
#include <reshard/memory/rank_storage.hpp>

#include "worker_trainer.hpp"

namespace elastic {

/// One rank's arrays of a world.
struct world_arrays {
  world_arrays(const model& m, const world& w, rank_t r, const state_list& list,
               pages_are at_first = pages_are::reserved)
      : of(w), rank(r), layout(holding_of(space(m, w.layout), std::nullopt, list)),
        storage(layout, r, reshard::detail::text_of("rank ", r, " of epoch ", w.epoch), at_first, std::nullopt, list) {}

  world of;
  rank_t rank;
  computed_holding layout;
  rank_storage storage;

  arrays_told told() { return {of, rank, layout, storage.tensors()}; }
  std::string name_of(const tensor_id& t) const { return layout.space().model().tensor(t); }
  /// visit(element, c) of all elements that it holds
  template <typename Visit>
  void each(Visit&& visit) {
    for (const bound_box& b : storage.tensors().boxes()) {
      const family& f = layout.family_at(b.tensor.family);
      const std::uint64_t key = mix64(static_cast<std::uint64_t>(b.state)) + fnv1a(name_of(b.tensor));
      const auto one = [&](auto& x, index_t i) { visit(x, mix64(key + mix64(static_cast<std::uint64_t>(i)))); };
      switch (b.element_bytes) {
        case 1: each_element<std::uint8_t>(b, f, one); break;
        case 2: each_element<std::uint16_t>(b, f, one); break;
        case 4: each_element<std::uint32_t>(b, f, one); break;
        default: each_element<std::uint64_t>(b, f, one);
      }
    }
  }
};

class exact_trainer final : public worker_trainer {
 public:
  exact_trainer(const job_settings& job, worker_log& log, double step_seconds)
      : model_(job.model), list_(job.list), log_(log), step_seconds_(step_seconds), wait_(job.ready),
        keeps_all_(job.budget != no_budget), trains_(std::this_thread::get_id()) {}

  trainer_calls calls(elastic_job*& job) override {
    trainer_calls c;
    c.make_group = [this, &job](const group_request& r, const std::stop_token& stop) {
      auto made = std::make_unique<socket_endpoint>(r.rank, r.addresses, job->door(), r.number, wait_, stop);
      {
        const std::lock_guard lock(mutex_);
        next_group_ = std::move(made);
        next_group_of_ = r.next->epoch;
      }
      prepare(*r.next, r.rank, stop);
    };
    c.interrupt = [this](const std::string& sentence) {
      const std::lock_guard lock(mutex_);
      stop_group(sentence);
    };
    c.tensors = [this](const world& w, rank_t rank) {
      if (next_ && keeps_all_) between_.push_back(std::move(next_));
      next_ = prepared(w, rank);
      if (!next_)
        next_ = std::make_unique<world_arrays>(model_, w, rank, list_,
                                               w.epoch == 1 ? pages_are::committed : pages_are::reserved);
      return next_->storage.tensors();
    };
    c.given_up = [this](index_t epoch) {
      const auto is_it = [&](const auto& one) { return one && one->of.epoch == epoch; };
      std::erase_if(between_, is_it);
      if (is_it(next_)) next_.reset();
    };
    c.initialize = [this](const world&, rank_t) {
      next_->each([](auto& x, std::uint64_t c0) { x = static_cast<std::remove_reference_t<decltype(x)>>(c0); });
    };
    c.entered = [this](const world& w, rank_t rank) {
      if (rank < 0) now_.reset(), next_.reset();
      else if (next_ && next_->of.epoch == w.epoch) let_go(std::exchange(now_, std::move(next_)));
      between_.clear();
      const std::lock_guard lock(mutex_);
      if (rank < 0) group_.reset();
      else if (next_group_of_ == w.epoch) group_ = std::move(next_group_);
    };
    c.update = [this](double) { update(); };
    return c;
  }

  step_calls step(elastic_job& job) override {
    return {.gradients =
                [this, &job](const sample_share& mine) {
                  const auto begun = std::chrono::steady_clock::now();
                  if (step_seconds_ > 0) std::this_thread::sleep_for(std::chrono::duration<double>(step_seconds_));
                  std::uint64_t sum = 0;
                  if (adds(job.now()))
                    for (index_t k = mine.samples.begin; k < mine.samples.end; ++k)
                      sum += mix64(static_cast<std::uint64_t>(k));
                  own_seconds_ = seconds_since(begun);
                  sum_ = group().agree({.addend = sum}).sum;
                },
            .scalar = [this] { return static_cast<double>(group().agree({.addend = 1}).sum); },
            .update =
                [this, &job](double) {
                  update();
                  log_.step(job.now().epoch, job.version(), sum_);
                },
            .own = [this] { return own_seconds_; }};
  }

  void leave() override {
    const std::lock_guard lock(mutex_);
    group_.reset(), next_group_.reset();
  }

 private:
  arrays_told* arrays() override {
    told_.reset();
    if (now_) told_.emplace(now_->told());
    return told_ ? &*told_ : nullptr;
  }
  static double seconds_since(std::chrono::steady_clock::time_point then) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
  }
  /// Samples are of a data-parallel coordinate; of its ranks the first one adds them.
  bool adds(const world& w) const {
    const mesh dense = mesh_of(w.layout, mesh_kind::dense);
    const rank_t rank = now_->rank;
    return dense.coordinate(mesh_axis::tensor, rank) == 0 && dense.coordinate(mesh_axis::middle, rank) == 0 &&
           dense.coordinate(mesh_axis::pipeline, rank) == 0;
  }
  void update() {
    now_->each([this](auto& x, std::uint64_t c) {
      x = static_cast<std::remove_reference_t<decltype(x)>>(mixing_step * x + c * sum_);
    });
  }
  /// Gives pages back on a thread of its own, which comes after all that make steps: they need not wait for that.
  void let_go(std::unique_ptr<world_arrays> old) {
    if (lets_go_.joinable()) lets_go_.join();
    if (old && !keeps_all_)
      lets_go_ =
          std::jthread([gone = std::move(old)] { ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 10); });
  }
  /// Beside the steps, once its group stands: a planned world's arrays, pages and all, for which the pause then need
  /// not wait. Under a budget nothing is there before its time. Of a world that is called off they stay until the next.
  void prepare(const world& next, rank_t rank, const std::stop_token& stop) {
    if (keeps_all_ || next.epoch == 1 || std::this_thread::get_id() == trains_) return;
    prepared(next, -1);  // first those of before go
    auto made = std::make_unique<world_arrays>(model_, next, rank, list_);
    if (!made->storage.commit_while([&stop] { return !stop.stop_requested(); })) return;
    const std::lock_guard lock(mutex_);
    prepared_ = std::move(made);
  }
  /// The arrays that were prepared for that rank of that world, if there are any; others go.
  std::unique_ptr<world_arrays> prepared(const world& w, rank_t rank) {
    std::unique_ptr<world_arrays> made;
    {
      const std::lock_guard lock(mutex_);
      made = std::move(prepared_);
    }
    if (!made || made->of.epoch != w.epoch || !(made->of.layout == w.layout) || made->rank != rank) return nullptr;
    made->of = w;
    return made;
  }
  socket_endpoint& group() {
    if (!group_) throw peer_failed("reshard: there is no group");
    return *group_;
  }
  void stop_group(const std::string& sentence) {
    if (group_) group_->stop(sentence);
  }

  model model_;
  state_list list_;
  worker_log& log_;
  double step_seconds_, own_seconds_ = 0;
  patience wait_;  // for who is late in a step, however slow: pulses tell who is gone, and then interrupt ends the wait
  std::uint64_t sum_ = 0;
  std::unique_ptr<world_arrays> now_, next_;
  bool keeps_all_;  // under a budget state may lie in arrays of several worlds
  std::vector<std::unique_ptr<world_arrays>> between_;
  std::optional<arrays_told> told_;
  std::thread::id trains_;
  std::mutex mutex_;  // of what another thread makes
  std::unique_ptr<socket_endpoint> group_, next_group_;
  index_t next_group_of_ = 0;
  std::unique_ptr<world_arrays> prepared_;
  std::jthread lets_go_;
};

}  // namespace elastic
