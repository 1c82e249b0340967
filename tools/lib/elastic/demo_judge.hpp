// SPDX-License-Identifier: Apache-2.0
// Whether a job did what it had to, from the lines of its logs alone.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <reshard/model/model.hpp>

#include "demo_log.hpp"

namespace elastic {

/// What was found wrong, in sentences; and how far the job came.
struct job_verdict {
  index_t steps = 0, samples = 0, replicas = 0;
  std::vector<std::string> wrong = {};
};

/// Workers and asks ended as they had to, those of the last world with the same version and the others as they were
/// asked to; the samples of the history tile [0, steps x batch) and each step's sum is that of its samples.
job_verdict judge_history(const event_list& deeds, const event_list& workers);

/// Of each member of the last world, the digests of what it holds after so many steps of a batch, by the exact
/// trainer's recurrence in closed form: x_v = c P_v, P_0 = 1, P_{v+1} = A P_v + S_v. Elements are numbered and digests
/// summed by the functions that the workers use; tests/oracle/job_log.py has others.
void judge_digests(job_verdict& so_far, const reshard::model& m, const event_list& workers);

}  // namespace elastic
