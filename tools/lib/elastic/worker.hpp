// SPDX-License-Identifier: Apache-2.0
// One member of a job: with the exact trainer, or with the one of examples/trainer.
#pragma once

#include <string>
#include <vector>

namespace elastic {

/// The words of `worker`, as they were typed.
struct worker_words {
  std::string store, job, id, log, listen = "127.0.0.1:0", node = "here", model, layout, policy, budget, dump, snapshot;
  std::string found, batch, steps;
  double step_ms = 0, lease = 3, patience = 1, grace = 0.3, init = 0, group = 0;
  std::vector<std::string> kill, stop;
};

/// Trains until the job is over for it: 0 done or left, 3 expelled, 4 refused, 5 lost.
int run_worker(const worker_words& w);

}  // namespace elastic
