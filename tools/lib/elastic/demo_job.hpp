// SPDX-License-Identifier: Apache-2.0
// The job that the demo shows: four found it, n4 joins, n1 leaves, n5 takes the place of n2, and n0 is killed.
#pragma once

#include "demo.hpp"
#include "demo_processes.hpp"

namespace elastic {

/// Runs it to its end: logs of all in the folder, demo.log of what was done, and model.json. Refused: what takes more
/// than a minute, an answer that is not `done`, a worker that fails.
void show_job(const demo_words& w, const held_signals& held, const job_folder& folder);

}  // namespace elastic
