// SPDX-License-Identifier: Apache-2.0
// One device of a job that changes its layout while it trains, and where it does. What a layout decides stands
// elsewhere: what a rank holds in state.hpp; its groups, layers and samples in step.cpp; its rows, columns and experts
// in model.hpp and experts.hpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "step.hpp"

namespace trainer {

/// A layout from a step on: as text, and the device of each rank. (A stage is one of a pipeline.)
struct phase {
  index_t step = 0;
  std::string text;  // as it was written
  space layout;
  std::vector<rank_t> devices;
};

/// A job, as all of its devices know it.
struct job {
  sizes z;
  settings set;
  dataset data;
  std::vector<phase> phases;  // the first from step 0 on
  index_t steps = 0;
  bytes_t budget = no_budget;
  damage bad;
  // Of --damage alone: called after a switch, on devices that have a rank.
  std::function<void(index_t step, rank_state&, groups&)> after_switch = {};

  /// The devices of all phases.
  rank_t devices() const;
};

/// What a switch took and moved, as all devices know it together.
struct change_report {
  index_t step = 0;
  std::string from, to;
  digests before = {}, after = {};
  bytes_t moved = 0, least = 0, excess = 0;
  double seconds = 0, wait_seconds = 0;
};
/// What rank 0 knows after a step.
struct step_report {
  index_t step = 0;
  scalars of;
  std::string layout;
  rank_t devices = 0;
  double rate = 0, seconds = 0;
};
/// What rank 0 knows at the end.
struct end_report {
  index_t step = 0, cursor = 0;
  std::uint64_t seed = 0;
  digests digest = {};
  double cpu_seconds = 0;  // of all devices
  bytes_t peak_bytes = 0;  // of all their processes
};

/// Where a device tells what it knows: each is called on the device that is rank 0 then, `finish` on all that have a
/// rank at the end.
struct listener {
  std::function<void(const step_report&)> step = {};
  std::function<void(const change_report&)> change = {};
  std::function<void(const end_report&)> end = {};
  std::function<void(rank_state&, groups&)> finish = {};
};

/// What a device does from the first step to the last. Where it throws, the others end with peer_gone.
void run_device(const job& all, world& here, const listener& told);

}  // namespace trainer
