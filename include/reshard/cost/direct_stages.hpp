// SPDX-License-Identifier: Apache-2.0
// In how many stages a direct plan keeps a budget: the least power of two that does on every device, found at about the
// cost of looking once at each. One function answers the tool, what is simulated, and whoever chooses a routing.
// Builds on: plan/make_plan.hpp, cost/switch_bytes.hpp, schedule/stage_count.hpp.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <reshard/cost/switch_bytes.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/schedule/stage_count.hpp>

namespace reshard {

/// What one device holds of a direct plan in S stages beyond max(before, after), for any S.
template <Holding From, Holding To>
class direct_memory {
 public:
  /// `change` outlives this.
  direct_memory(const layout_switch<From, To>& change, rank_t device, sources after_use)
      : change_(&change), after_use_(after_use), plan_(make_plan(change, device)) {
    before_ = held_bytes(change.from(), change.from_rank(device), change.states());
    after_ = held_bytes(change.to(), change.to_rank(device), change.states());
    if (after_use == sources::keep) return;
    created_ = total_bytes(plan_.creates) + total_bytes(plan_.lost);
    stands_ = detail::leaving_bytes(plan_) + total_bytes(plan_.retains) + created_;
    std::vector<std::pair<std::pair<rank_t, std::uint32_t>, index_t>> streams;
    for (const transfer& t : plan_.receives) streams.push_back({{t.src, t.states.bits()}, t.where.volume()});
    std::sort(streams.begin(), streams.end());
    for (std::size_t i = 0; i < streams.size(); ++i) {
      const state_set states = change.states().masked(streams[i].first.second);
      if (i == 0 || streams[i].first != streams[i - 1].first) streams_.push_back({0, states.bytes_per_element()});
      streams_.back().first += streams[i].second;
    }
  }

  /// The largest of all slots, less max(before, after); nothing where sources are kept, which is the most it holds.
  bytes_t excess(index_t stages) const {
    if (after_use_ == sources::keep) return 0;
    if (stages == 1) return greatest(0, first_slot(1) - greatest(before_, after_));
    const staged_plan cut = stage_plan(plan_, *change_, stages);
    return replay_memory(before_, after_, cut.receives, cut.sends, plan_.retains, stages, created_).excess();
  }
  /// excess(S), where it is within the budget. What the first slot holds is known without cutting anything, and decides
  /// for most S.
  std::optional<bytes_t> within(bytes_t budget, index_t stages) const {
    if (after_use_ == sources::release && first_slot(stages) - greatest(before_, after_) > budget) return {};
    const bytes_t found = excess(stages);
    return found <= budget ? std::optional(found) : std::nullopt;
  }

 private:
  bytes_t first_slot(index_t stages) const {
    bytes_t first = stands_;
    for (const auto& [elements, width] : streams_) first += even_part({0, elements}, 0, stages).size() * width;
    return first;
  }

  const layout_switch<From, To>* change_;
  sources after_use_;
  plan plan_;
  bytes_t before_ = 0, after_ = 0, created_ = 0;
  bytes_t stands_ = 0;                                // in the first slot, before anything comes
  std::vector<std::pair<index_t, bytes_t>> streams_;  // elements that each brings, and bytes of one
};

/// The largest excess of these devices in S stages.
template <Holding From, Holding To>
[[nodiscard]] bytes_t direct_excess(const layout_switch<From, To>& change, interval devices, index_t stages,
                                    sources after_use = sources::release) {
  bytes_t most = 0;
  for (rank_t device = devices.begin; device < devices.end; ++device)
    most = greatest(most, direct_memory(change, device, after_use).excess(stages));
  return most;
}

/// Finds what stages_within does of what these devices exceed, at about the cost of seeing each once: a device that
/// does not keep the budget in S stages rules S out. Where no S keeps it, `kept` is false, and no more was looked for.
template <Holding From, Holding To>
[[nodiscard]] stages_found direct_stages(const layout_switch<From, To>& change, interval devices, bytes_t budget,
                                         sources after_use = sources::release) {
  require_budget(budget);
  stages_found found;
  index_t in_a_row = 0;
  for (rank_t device = devices.begin; in_a_row < devices.size();) {
    const direct_memory memory(change, device, after_use);
    std::optional<bytes_t> excess;
    for (; !(excess = memory.within(budget, found.stages)); found = {found.stages * 2}, in_a_row = 0)
      if (found.stages == most_stages) return {.kept = false};
    found.excess = greatest(found.excess, *excess);
    ++in_a_row;
    if (++device == devices.end) device = devices.begin;
  }
  return found;
}

/// max(1, min over S = 1, 2, 4 .. 4096 of the largest excess of these devices in S stages): the least budget that any S
/// keeps. Costs thirteen replays of each device.
template <Holding From, Holding To>
[[nodiscard]] bytes_t least_direct_budget(const layout_switch<From, To>& change, interval devices,
                                          sources after_use = sources::release) {
  std::vector<bytes_t> excess;
  for (rank_t device = devices.begin; device < devices.end; ++device) {
    const direct_memory memory(change, device, after_use);
    std::size_t i = 0;
    for (index_t stages = 1; stages <= most_stages; stages *= 2, ++i) {
      if (i == excess.size()) excess.push_back(1);
      excess[i] = greatest(excess[i], memory.excess(stages));
    }
  }
  return excess.empty() ? 1 : *std::min_element(excess.begin(), excess.end());
}

}  // namespace reshard
