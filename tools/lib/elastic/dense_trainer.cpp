// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <mutex>
#include <numeric>
#include <thread>

#include <reshard/model/transformer.hpp>

#include "../../../examples/trainer/sockets.hpp"
#include "../../../examples/trainer/step.hpp"
#include "worker_trainer.hpp"

namespace elastic {

namespace {

constexpr index_t length = 32;  // of a sample

/// One rank's part of a world: arrays, groups, and what trains on them.
struct seat {
  seat(const model& m, const world& w, rank_t r, index_t total)
      : of(w), layout(m, w.layout), z(trainer::sizes_of(m, w.batch, length)), set{.total = total},
        state(holding_of(layout), r, reshard::detail::text_of("rank ", r, " of epoch ", w.epoch),
              w.epoch == 1 ? pages_are::committed : pages_are::reserved) {
    trainer::require_trainable(layout, z);
  }
  /// Groups over a mesh of this world's ranks. Parameters are made from the masters, which alone are whole: with ZeRO
  /// a rank updates its part of them, and others have it by the next gradients.
  void train_on(std::unique_ptr<trainer::world> made, const trainer::dataset& data) {
    for (const trainer::run& r : state.runs())
      std::transform(r.master, r.master + r.count, r.param, trainer::nearest_bf16);
    std::vector<rank_t> devices(static_cast<std::size_t>(layout.ranks()));
    std::iota(devices.begin(), devices.end(), rank_t{0});
    mesh = std::move(made);
    with = trainer::groups::make(*mesh, layout, state.rank(), devices);
    trains = std::make_unique<trainer::rank_trainer>(z, set, data, state, with);
    trains->forget_gathered();
  }

  world of;
  space layout;
  trainer::sizes z;
  trainer::settings set;
  trainer::rank_state state;
  std::unique_ptr<trainer::world> mesh;
  trainer::groups with;
  std::unique_ptr<trainer::rank_trainer> trains;
};

class dense_trainer final : public worker_trainer {
 public:
  dense_trainer(const job_settings& job, worker_log& log, double step_seconds)
      : job_(job), log_(log), step_seconds_(step_seconds), data_(trainer::settings{}.seed, length) {
    trainer::require_trainable(space(job.model, job.layout), trainer::sizes_of(job.model, job.batch, length));
  }

  trainer_calls calls(elastic_job*& job) override {
    trainer_calls c;
    c.make_group = [this, &job](const group_request& r, const std::stop_token& stop) {
      auto met = std::make_unique<socket_endpoint>(r.rank, r.addresses, job->door(), r.number, job_.ready, stop);
      const std::string& mine = r.addresses[static_cast<std::size_t>(r.rank)];
      const std::string host = mine.substr(0, mine.rfind(':'));
      const listening_socket called(host + ":0");
      const std::vector<std::string> all = met->gather(host + ":" + std::to_string(called.port()));
      auto made = trainer::socket_sums(r.rank, all, called, job_.wait);
      const std::lock_guard lock(mutex_);
      next_met_ = std::move(met), next_mesh_ = std::move(made), next_of_ = r.next->epoch;
    };
    c.interrupt = [this](const std::string&) {
      const std::lock_guard lock(mutex_);
      if (now_mesh_ != nullptr) now_mesh_->close();
    };
    c.tensors = [this](const world& w, rank_t rank) {
      if (next_ && job_.budget != no_budget) between_.push_back(std::move(next_));
      next_ = std::make_unique<seat>(job_.model, w, rank, job_.steps.value());
      return next_->state.tensors();
    };
    c.given_up = [this](index_t epoch) {
      const auto is_it = [&](const auto& one) { return one && one->of.epoch == epoch; };
      std::erase_if(between_, is_it);
      if (is_it(next_)) next_.reset();
    };
    c.initialize = [this](const world&, rank_t) { next_->state.initialize(next_->set.seed); };
    c.entered = [this](const world& w, rank_t rank) {
      const std::lock_guard lock(mutex_);
      now_mesh_ = nullptr;
      now_.reset(), met_.reset(), between_.clear();
      if (rank < 0) next_.reset();
      if (next_ == nullptr || next_->of.epoch != w.epoch) return;
      now_ = std::move(next_);
      if (next_of_ != w.epoch) return;
      met_ = std::move(next_met_);
      now_->train_on(std::move(next_mesh_), data_);
      now_mesh_ = now_->mesh.get();
    };
    c.update = [this](double norm) { update(norm); };
    return c;
  }

  step_calls step(elastic_job& job) override {
    return {.gradients =
                [this, &job](const sample_share& mine) {
                  if (step_seconds_ > 0) std::this_thread::sleep_for(std::chrono::duration<double>(step_seconds_));
                  const world& w = job.now();
                  step_ = mine.step;
                  together([&] { trained().gradients({w.cursor + (step_ - w.first_step) * w.batch}, step_); });
                },
            .scalar =
                [this] {
                  together([&] { known_ = trained().scalar(); });
                  return static_cast<double>(known_.norm);
                },
            .update =
                [this, &job](double norm) {
                  update(norm);
                  log_.line("step", worker_log::text("\"epoch\":", job.now().epoch, ",\"step\":", step_, ",\"loss\":",
                                                     exact(known_.loss), ",\"norm\":", exact(known_.norm)));
                },
            .own = {}};  // its gradients wait for others, so that its time would tell of nobody
  }

  void finish() override {
    try {
      if (now_ != nullptr && now_->trains != nullptr) now_->trains->gather();
    } catch (const trainer::peer_gone&) {  // one of them died after the last step; masters are whole
    }
  }
  void leave() override {
    const std::lock_guard lock(mutex_);
    if (now_mesh_ != nullptr) now_mesh_->close();
    now_mesh_ = nullptr;
    met_.reset(), next_met_.reset(), next_mesh_.reset();
  }

  std::string end_fields() override {
    if (now_ == nullptr) return {};
    const trainer::digests all = now_->state.digest();
    return worker_log::text(",\"state\":[", all.of[0], ",", all.of[1], ",", all.of[2], ",", all.of[3], "]");
  }

 private:
  arrays_told* arrays() override {
    told_.reset();
    if (now_ != nullptr)
      told_.emplace(arrays_told{now_->of, now_->state.rank(), now_->state.layout(), now_->state.tensors()});
    return told_ ? &*told_ : nullptr;
  }
  void update(double norm) { trained().update(step_, static_cast<float>(norm)); }
  trainer::rank_trainer& trained() {
    if (now_ == nullptr || now_->trains == nullptr) throw peer_failed("reshard: there is no group");
    return *now_->trains;
  }
  /// What other ranks end by going is a step that broke off, to the job.
  template <typename What>
  static void together(What&& what) {
    try {
      what();
    } catch (const trainer::peer_gone& why) {
      throw peer_failed("reshard: " + std::string(why.what()));
    }
  }
  /// Enough digits for each bit.
  static std::string exact(double x) {
    char digits[40];
    std::snprintf(digits, sizeof digits, "%.17g", x);
    return digits;
  }

  job_settings job_;
  worker_log& log_;
  double step_seconds_;
  trainer::dataset data_;
  index_t step_ = 0;
  trainer::scalars known_;
  std::unique_ptr<seat> now_, next_;
  std::vector<std::unique_ptr<seat>> between_;  // under a budget state may lie in arrays of several worlds
  std::optional<arrays_told> told_;
  std::mutex mutex_;  // of groups
  trainer::world* now_mesh_ = nullptr;
  std::unique_ptr<trainer::world> next_mesh_;
  std::unique_ptr<socket_endpoint> met_, next_met_;  // stays, so that nobody's gathering ends with who was faster
  index_t next_of_ = 0;
};

}  // namespace

std::optional<model> trained_model(const std::string& name) {
  transformer t{
      .name = name, .layers = 6, .hidden = 96, .heads = 12, .groups = 6, .head_dim = 8, .ffn = 288, .vocabulary = 264};
  if (name == "moe") t.experts = 12, t.expert_ffn = 96;
  else if (name != "dense") return std::nullopt;
  return make_transformer(t);
}

std::unique_ptr<worker_trainer> make_dense_trainer(const job_settings& job, worker_log& log, double step_seconds) {
  return std::make_unique<dense_trainer>(job, log, step_seconds);
}

}  // namespace elastic
