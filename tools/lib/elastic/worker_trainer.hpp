// SPDX-License-Identifier: Apache-2.0
// What a worker trains with: the exact trainer, whose integers name a sample that is missing, or the dense one, whose
// loss curve shows what a death does to it.
#pragma once

#include <memory>
#include <string>

#include <reshard/elastic/elastic_job.hpp>

#include "log.hpp"

namespace elastic {

/// A rank's arrays of a world, as they are told at the end.
struct arrays_told {
  const world& of;
  rank_t rank;
  const computed_holding& layout;
  binding& tensors;
};

class worker_trainer {
 public:
  virtual ~worker_trainer() = default;
  /// What the job asks of it; `job` is where its groups are called, set before they are.
  virtual trainer_calls calls(elastic_job*& job) = 0;
  virtual step_calls step(elastic_job& job) = 0;
  /// After the last step of a job that is done, while all its members are there.
  virtual void finish() {}
  /// Its groups end before the job that they are called at.
  virtual void leave() = 0;
  /// visit(arrays_told) where it holds any.
  template <typename Visit>
  void told(Visit&& visit) {
    if (arrays_told* const all = arrays()) visit(*all);
  }
  /// More of the log's last line, each with a comma before it.
  virtual std::string end_fields() { return {}; }

 private:
  virtual arrays_told* arrays() = 0;
};

/// The GPT of examples/trainer, `dense` or `moe`: T = 32, its language with seed 7, dropout 0.1, the rate's cosine over
/// the job's steps. The log's `step` has "loss" and "norm", its `end` "state": by state, the sum mod 2^64 that
/// tools/train prints, over the elements that no lower rank has.
std::unique_ptr<worker_trainer> make_dense_trainer(const job_settings& job, worker_log& log, double step_seconds);

/// What `dense` and `moe` are; nothing of another name.
std::optional<model> trained_model(const std::string& name);

}  // namespace elastic
