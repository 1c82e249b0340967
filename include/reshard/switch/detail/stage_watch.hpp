// SPDX-License-Identifier: Apache-2.0
// Who watches a switch is told of every stage, whatever the transport.
// Builds on: schedule/staged_plan.hpp, base/sort.hpp, switch/options.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

#include <reshard/base/sort.hpp>
#include <reshard/schedule/staged_plan.hpp>
#include <reshard/switch/options.hpp>

namespace reshard {

/// Tells options.on_stage, where there is one, of the stages of one run, from its making on.
class stage_watch {
  using clock = std::chrono::steady_clock;

 public:
  stage_watch(const staged_plan& plan, const switch_options& options) : plan_(&plan), options_(&options) {}

  /// What this device receives in stage k is in place.
  void in_place(index_t k) {
    if (!options_->on_stage) return;
    stage_report told{.stage = k, .stages = plan_->stages};
    std::vector<rank_t> peers;
    for (index_t phase = 0; phase < plan_->phases; ++phase)
      for (const staged_piece& p : pieces_of_slot(plan_->receives, plan_->times().slot_of(k, phase), plan_->lag)) {
        if (p.stage != k) continue;
        told.bytes += p.bytes();
        peers.push_back(p.src);
      }
    detail::sort_items(peers, [](rank_t a, rank_t b) { return a < b; });
    told.peers = static_cast<rank_t>(std::unique(peers.begin(), peers.end()) - peers.begin());
    const auto now = clock::now();
    told.seconds = std::chrono::duration<double>(now - since_).count();
    since_ = now;
    options_->on_stage(told);
  }

 private:
  const staged_plan* plan_;
  const switch_options* options_;
  clock::time_point since_ = clock::now();
};

}  // namespace reshard
