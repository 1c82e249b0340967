// SPDX-License-Identifier: Apache-2.0
// Who watches a switch is told of every stage, whatever the transport.
// Builds on: exec/packing.hpp, exec/switch_options.hpp.
#pragma once

#include <chrono>
#include <vector>

#include <reshard/exec/packing.hpp>
#include <reshard/exec/switch_options.hpp>

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
    std::vector<peer_pieces> groups;
    pieces_by_peer(plan_->receives, k, &staged_piece::src, plan_->device, groups);
    told.peers = static_cast<rank_t>(groups.size());
    for (const staged_piece& p : pieces_of_slot(plan_->receives, k))
      told.bytes += p.where.volume() * p.states.bytes_per_element();
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
