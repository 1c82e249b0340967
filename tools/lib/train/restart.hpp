// SPDX-License-Identifier: Apache-2.0
// --restart: the pause of a switch beside that of a restart, which writes files, ends the processes, starts others and
// reads.
#pragma once

#include "options.hpp"

namespace train {

/// Makes the first switch of a job between two steps both ways, and prints both pauses. The exit code.
int compare_with_restart(const options& asked, const job& all);
/// What a process that was started for it does: reads its part from the folder, and has its groups. The exit code.
int read_restarted(const options& asked, const job& all);

}  // namespace train
