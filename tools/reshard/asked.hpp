// SPDX-License-Identifier: Apache-2.0
// The switch that a command line asks about, and its stages: what `plan` and `simulate` have in common.
#pragma once

#include <chrono>
#include <optional>

#include <reshard/cost/choose_routing.hpp>
#include <reshard/cost/compiled_once.hpp>
#include <reshard/plan/layout_switch.hpp>
#include <reshard/plan/relabel.hpp>
#include <reshard/schedule/memory_replay.hpp>
#include <reshard/schedule/stage_count.hpp>

#include "commands.hpp"

namespace reshard::tool {

/// Runs `work` and returns the seconds it took.
template <typename Work>
double timed(Work&& work) {
  const auto begun = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

/// The devices that the command asks about; all where none is named.
interval devices_asked_for(const any_switch& change, rank_t only_device);

/// Refuses options that are not built, or that say nothing without another.
void require_sensible(const arguments& given);
/// The switch; where TO's map is named, with that.
any_switch switch_asked_for(const arguments& given, const model& m, const std::optional<device_map>& to_devices = {});

struct relabelled_switch {
  std::optional<any_switch> change;    // none where nothing is permuted
  std::optional<relabel_saves> saves;  // none where --relabel is not asked for
  double planning_seconds = 0;         // that finding it took; not that of comparing
};
/// --relabel: TO's ranks on others of its devices, where that saves seconds or bytes of the whole switch.
relabelled_switch relabelled_for(const arguments& given, const model& m, const any_switch& change, relay_when otherwise,
                                 stages_unless_named stages);
/// Refuses a switch of which something is lost that is not left out.
void require_possible(const arguments& given, const any_switch& change);

/// Whether FROM's bytes stay: --keep-sources.
sources sources_asked_for(const arguments& given);
/// --budget in bytes; 0 where there is none.
bytes_t budget_asked_for(const arguments& given);
/// --budget in bytes; no_budget where there is none.
bytes_t limit_asked_for(const arguments& given);

struct routing_asked {
  routing how;
  index_t phases = 1;
  double planning_seconds = 0;         // that finding the stages of a direct plan took
  std::optional<double> seconds = {};  // predicted; none without speeds
  relayed_streams streams = {};        // of a plan with relay
};
/// --relay, or `otherwise`; chains by seconds; and --stages, or what --budget wants, or else one or the fastest.
/// Refuses a budget that is not kept, with the least that is, and what crosses rails that do not meet.
routing_asked routing_asked_for(const arguments& given, const any_switch& change, relay_when otherwise,
                                stages_unless_named stages, rank_t only_device = -1);

}  // namespace reshard::tool
