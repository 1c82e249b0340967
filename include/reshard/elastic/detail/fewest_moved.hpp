// SPDX-License-Identifier: Apache-2.0
// To which of several layouts does a world go? The best, as compare ranks layouts on a cluster without speeds.
// Builds on: cost/compare_layouts.hpp, plan/volume.hpp, space/space.hpp.
#pragma once

#include <vector>

#include <reshard/cost/compare_layouts.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/space/space.hpp>

namespace reshard::detail {

/// The layout to which the fewest bytes move, of those equal the first by its text. There is at least one.
inline degrees fewest_moved(const space& from, const model& m, const std::vector<degrees>& layouts,
                            const placement& placed) {
  layout_comparison all;
  for (const degrees& to : layouts) {
    all.layouts.emplace_back().layout = to;
    all.layouts.back().moved = moved_bytes(layout_switch(from, space(m, to), placed));
  }
  sort_best_first(all);
  return all.layouts.front().layout;
}

}  // namespace reshard::detail
