// SPDX-License-Identifier: Apache-2.0
// A job run by threads, by processes over sockets, or under mpirun.
#pragma once

#include "options.hpp"

namespace train {

/// What a run told, in order of time.
struct told_by_run {
  std::vector<step_report> steps;
  std::vector<change_report> changes;
  end_report end;
};

/// Runs the job on threads; each thing that is told is also given to `live`, as it is told.
told_by_run run_on_threads(const job& all, const listener& live);
/// Runs it on processes of this one's, over TCP; what `live` writes goes to where this process's output goes.
void run_on_sockets(const job& all, const listener& live);
/// Runs it on the processes of MPI's world. What is written goes out of process 0, in order of time, at the end.
void run_on_mpi(const job& all, const listener& live);

}  // namespace train
