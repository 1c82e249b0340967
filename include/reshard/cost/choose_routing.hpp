// SPDX-License-Identifier: Apache-2.0
// Finds how a switch is routed: relay or not, F, and S, once for all devices, by predicted seconds, within a budget.
// F is 1, 2, 4 .. as long as nodes pass on what came from others; S is given, what a budget wants, or the fastest.
// Builds on: cost/direct_stages.hpp, schedule/relayed_memory.hpp, schedule/stage_count.hpp,
// cost/detail/relayed_seconds.hpp, cost/simulate.hpp.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <reshard/base/same_seconds.hpp>
#include <reshard/cost/detail/relayed_seconds.hpp>
#include <reshard/cost/direct_stages.hpp>
#include <reshard/cost/simulate.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/schedule/relayed_memory.hpp>
#include <reshard/schedule/stage_count.hpp>

namespace reshard {

/// Whether devices may pass on: as `relay` says, or whichever takes fewer seconds.
enum class relay_when { never, always, faster };
/// How many stages where nothing names them: one, or those with the fewest seconds.
enum class stages_unless_named { one, fastest };

/// What a switch is asked to keep. Named stages are made; a budget, 0 for none, wants as many as keep it.
struct routing_wishes {
  relay_when when = relay_when::faster;
  std::optional<index_t> stages = {};
  bytes_t budget = 0;
  sources after_use = sources::release;
  stages_unless_named otherwise = stages_unless_named::fastest;
};

/// A way to route a switch, and what it costs.
struct routing_choice {
  routing how;
  index_t phases = 1;
  std::optional<double> seconds = {};  // none without speeds
  bool kept = true;                    // the budget, where there is one
  bytes_t least_budget = 0;            // that is kept, where this one is not
  bytes_t excess = 0;            // beyond max(before, after), of that device with the most, where a budget is named
  relayed_streams streams = {};  // all that moves or stays with relay; nothing of a direct plan

  /// Takes the stages that were found for a budget, and what they keep.
  void take(const stages_found& found) {
    how.stages = found.stages;
    excess = found.excess, kept = found.kept, least_budget = found.least_budget;
  }
};

namespace detail {

/// The memory of all devices with relay, of F chains.
template <Holding From, Holding To>
class relay_budget {
 public:
  relay_budget(const layout_switch<From, To>& change, index_t chains, index_t phases, sources after_use)
      : phases_(phases) {
    for (rank_t device = 0; device < change.devices(); ++device) {
      const plan p = make_plan(change, device, {relay::always, chains, 1});
      const bytes_t before = held_bytes(change.from(), change.from_rank(device), change.states());
      bytes_t after = held_bytes(change.to(), change.to_rank(device), change.states());
      if (after_use == sources::keep) after += before - total_bytes(p.retains);
      devices_.push_back({relayed_memory(p, before, after_use), after, greatest(before, after)});
    }
  }
  bytes_t excess(index_t stages) const {
    bytes_t most = 0;
    for (const held_by& d : devices_)
      most = greatest(most, d.memory.peak(stages, stages + phases_ - 1, d.after) - d.floor);
    return most;
  }
  /// The named stages, or the least of 1, 2, 4 .. 4096 that keep the budget.
  stages_found find(const routing_wishes& wishes) const {
    if (wishes.stages) return stages_named(*wishes.stages, excess(*wishes.stages), wishes.budget);
    return stages_within(wishes.budget, 0, [this](index_t stages) { return excess(stages); });
  }

 private:
  struct held_by {
    relayed_memory memory;
    bytes_t after, floor;
  };
  index_t phases_;
  std::vector<held_by> devices_;
};

/// Whether nodes pass on to other nodes what came from one: those that held it before have sent it by phase 1.
template <Holding From, Holding To>
[[nodiscard]] bool has_chains(const layout_switch<From, To>& change, const std::vector<relayed_stream>& streams) {
  const index_t gpus = change.node_devices();
  return gpus != 0 && std::any_of(streams.begin(), streams.end(), [gpus](const relayed_stream& s) {
           return s.phase > 1 && s.sized.src / gpus != s.sized.dst / gpus;
         });
}

/// What ports take at least with F chains, in any number of stages: what holders send to other nodes, by the busiest of
/// its ports. Costs the nodes of FROM.
template <Holding From, Holding To>
[[nodiscard]] double seconds_of_holders(const layout_switch<From, To>& change, const port_table& on, index_t chains) {
  slot_load sent(on);
  each_relayed_by_holders(change, chains, [&](const transfer& t) {
    on.each_port(t.src, t.dst, [&](std::size_t p) { sent.bytes[p] += static_cast<double>(t.bytes()); });
  });
  return sent.busiest(on).seconds;
}

}  // namespace detail

/// What stays where it is, whatever the routing.
template <Holding From, Holding To>
[[nodiscard]] relayed_streams retained_streams_of(const layout_switch<From, To>& change) {
  relayed_streams streams;
  detail::with_sources(change, [&](const auto& sources) {
    for (rank_t device = 0; device < change.devices(); ++device) {
      plan kept;
      kept.device = device;
      detail::keep_all(change, sources, kept);
      streams.add(kept);
    }
  });
  return streams;
}

/// Every transfer of a switch with relay, beside what is retained.
template <Holding From, Holding To>
[[nodiscard]] relayed_streams relayed_streams_of(const layout_switch<From, To>& change, index_t chains,
                                                 relayed_streams retained) {
  each_relayed(change, chains, [&](const transfer& t) {
    retained.add(t, [&] {
      const rank_t rank = change.to_rank(t.src);
      bool needs = false;
      if (rank >= 0)
        change.to().owners(t.family, t.states.role_of(*t.states.begin()), t.where,
                           [&](const family_box&, const Holders auto& holders) { needs = holders.contains(rank); });
      return needs;
    });
  });
  return retained;
}
template <Holding From, Holding To>
[[nodiscard]] relayed_streams relayed_streams_of(const layout_switch<From, To>& change, index_t chains) {
  return relayed_streams_of(change, chains, retained_streams_of(change));
}

/// Fewer seconds; of equal ones fewer stages. Ways without seconds are alike.
[[nodiscard]] constexpr bool better_routing(const routing_choice& a, const routing_choice& b) {
  if (!a.seconds || !b.seconds) return false;
  return fewer_seconds(*a.seconds, *b.seconds) || (same_seconds(*a.seconds, *b.seconds) && a.how.stages < b.how.stages);
}

/// Whether relay is taken, of the two ways that keep what is asked for: where it takes fewer seconds, or alone does.
[[nodiscard]] constexpr bool relay_is_better(const std::optional<double>& direct,
                                             const std::optional<double>& relayed) {
  return !direct || (relayed && fewer_seconds(*relayed, *direct));
}

/// The best way to route a switch with relay: F and S. With speeds the fastest that keeps the budget, of equal ones the
/// fewest stages, then the fewest chains; without speeds one chain. Where none keeps it, the one with the least budget.
template <Holding From, Holding To>
[[nodiscard]] routing_choice choose_relay(const layout_switch<From, To>& change, const routing_wishes& wishes) {
  std::optional<port_table> on;
  if (change.on().has_speeds()) on.emplace(change);
  const index_t gpus = change.node_devices(), nodes = gpus == 0 ? 1 : ceil_divide(change.devices(), gpus);
  const relayed_streams retained = retained_streams_of(change);
  std::optional<routing_choice> best;
  for (index_t chains = 1;; chains *= 2) {
    if (best && best->kept && best->seconds &&
        fewer_seconds(*best->seconds, detail::seconds_of_holders(change, *on, chains))) {
      if (chains >= nodes) return std::move(*best);  // there are no chains any more
      continue;  // twice as many may send less, where all nodes that need a piece are served by its holders
    }
    routing_choice found;
    found.how = {relay::always, chains, 1};
    found.streams = relayed_streams_of(change, chains, retained);
    found.phases = found.streams.phases();
    if (wishes.stages) found.how.stages = *wishes.stages;
    if (wishes.budget > 0)
      found.take(detail::relay_budget(change, chains, found.phases, wishes.after_use).find(wishes));
    if (on) {
      const relayed_seconds seconds(*on, found.streams);
      if (!wishes.stages && wishes.budget == 0 && wishes.otherwise == stages_unless_named::fastest)
        found.how.stages = seconds.best_stages(most_stages);
      if (found.how.stages <= most_stages) found.seconds = seconds.of_stages(found.how.stages).total();
    }
    const bool better = !best || (found.kept && !best->kept) ||
                        (found.kept && best->kept && better_routing(found, *best)) ||
                        (!found.kept && !best->kept && found.least_budget < best->least_budget);
    const bool last = (!on && found.kept) || !detail::has_chains(change, found.streams.streams());
    if (better) best = std::move(found);
    if (last) return std::move(*best);
  }
}

/// Seconds of the direct plan in so many stages; none where it crosses rails that do not meet.
template <Holding From, Holding To>
[[nodiscard]] std::optional<double> direct_seconds(const layout_switch<From, To>& change, index_t stages) {
  simulator all(change);
  for (rank_t device = 0; device < change.devices(); ++device) all.add(make_plan(change, device));
  for (const sized_stream& s : all.streams())
    if (all.on().apart(s.src, s.dst)) return {};
  return seconds_of(all.on(), all.streams(), stages).total();
}

/// The direct plan in the named stages, in as many as a budget wants, or in one; with its seconds where there are
/// speeds.
template <Holding From, Holding To>
[[nodiscard]] routing_choice choose_direct(const layout_switch<From, To>& change, const routing_wishes& wishes) {
  routing_choice direct;
  direct.how.stages = wishes.stages.value_or(1);
  if (wishes.budget > 0) {
    const interval devices{0, change.devices()};
    const auto named = [&](index_t stages) {
      return stages_named(stages, direct_excess(change, devices, stages, wishes.after_use), wishes.budget);
    };
    direct.take(wishes.stages ? named(*wishes.stages)
                              : direct_stages(change, devices, wishes.budget, wishes.after_use));
    if (!direct.kept && !wishes.stages) {
      direct.take(named(1));
      direct.least_budget = least_direct_budget(change, devices, wishes.after_use);
    }
  }
  if (change.on().has_speeds()) direct.seconds = direct_seconds(change, direct.how.stages);
  return direct;
}

/// The three integers: direct unless relay takes fewer seconds, or it alone keeps the budget; where neither does, the
/// way with the least budget that does. The cluster has speeds unless relay is never or always wanted.
template <Holding From, Holding To>
[[nodiscard]] routing_choice choose_routing(const layout_switch<From, To>& change, const routing_wishes& wishes = {}) {
  if (wishes.when == relay_when::never) return choose_direct(change, wishes);
  routing_choice relayed = choose_relay(change, wishes);
  if (wishes.when == relay_when::always) return relayed;
  routing_choice direct = choose_direct(change, wishes);
  if (direct.kept != relayed.kept) return direct.kept ? direct : relayed;
  if (!direct.kept) return direct.least_budget <= relayed.least_budget ? direct : relayed;
  return relay_is_better(direct.seconds, relayed.seconds) ? relayed : direct;
}

}  // namespace reshard
