// SPDX-License-Identifier: Apache-2.0
// What each change of a job cost its members, from the lines of their logs alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "demo_log.hpp"

namespace elastic {

/// Seconds of one change. Let m be a member of the world before it and of the one after it, last(m) when it ended its
/// last step before, first(m) its first step after, and usual(m) the median time from one end of a step to the next in
/// the world after:
///   pause     = max over m of first(m) - last(m) - usual(m)
///   switched  = max over m of the `switch` of its line `world` (who comes has nothing to train meanwhile, and waits in
///               its own for the others)
/// and, of a death at time k, with told(m) the first `gone` or `broken` of m that names who died:
///   detection = min over m of told(m) - k
///   known     = max over m of told(m) - k
///   recovery  = min over m of first(m) - k
struct change_figures {
  std::string what, who;
  index_t epoch = 0;  // of the world after
  double pause = 0, switched = 0;
  std::optional<double> detection = {}, known = {}, recovery = {};
};

/// The first epoch beyond `after` whose members are as the deed wants them; 0 where none was entered.
index_t epoch_of(const log_event& deed, const event_list& workers, index_t after);

/// Of each deed that changes who is there (join, leave, replace, kill), in order. Refused: one that no world follows,
/// or whose worlds have too few steps to compare.
std::vector<change_figures> figures_of(const event_list& deeds, const event_list& workers);

}  // namespace elastic
