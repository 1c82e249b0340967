// SPDX-License-Identifier: Apache-2.0
// --damage: what a run does to itself, in its own memory, so that it can be seen whether anybody notices.
#pragma once

#include "options.hpp"

namespace train {

/// Arms the job. Kinds, each at a step:
///   bit:STATE:N   bit N of one element of a used row, after a switch
///   swap, twice   two samples in each other's place; one of them twice
///   step          a bias correction behind by one
///   stale         a replica of a vector that was not sent in a switch
///   dropout       by rank, not by sample
///   moment        of another rank, after a switch
void do_damage(const damage_asked& asked, job& all);

}  // namespace train
