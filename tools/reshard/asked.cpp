// SPDX-License-Identifier: Apache-2.0
// What commands that speak of a switch have in common: the switch that the command line names, and its stages.
#include <optional>
#include <string>

#include <reshard/io/arguments.hpp>
#include <reshard/io/cluster_json.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/plan/relabel.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/schedule/figures.hpp>
#include <reshard/simulate/simulation.hpp>

#include "asked.hpp"

namespace reshard::tool {

namespace {

/// Where the ranks of a layout sit: as listed, or rank r on device r.
device_map devices_of(const char* what, const std::optional<std::string>& list, rank_t ranks) {
  return list ? device_map(parse_device_list(what, *list, ranks)) : device_map(ranks);
}

/// Refuses what could overflow later: all bytes of all devices, on both sides, and every one of them moved.
void require_countable(const model& m, const state_list& list, rank_t from_ranks, rank_t to_ranks) {
  checked_multiply(checked_multiply(m.parameters(), list.all().bytes_per_element()), greatest(from_ranks, to_ranks));
}

/// The most that a device, or the one that is asked about, needs beyond max(before, after) in so many stages.
bytes_t excess_in(const computed_switch& change, index_t stages, rank_t only_device, sources after_use) {
  figure_collector figures(change, stages, figures_of::whole_switch, after_use);
  const interval devices = devices_asked_for(change, only_device);
  for (rank_t device = devices.begin; device < devices.end; ++device) figures.add(make_plan(change, device));
  return figures.figures().peak_excess;
}

/// Refuses a budget that the switch, or the one device that is asked about, exceeds, with the least that does.
void require_kept(const computed_switch& change, index_t stages, bytes_t largest, bytes_t budget, rank_t only_device,
                  sources after_use) {
  constexpr rank_t most_searched_devices = 256;  // the search plans every device 13 times
  const auto excess_of = [&](index_t in_stages) { return excess_in(change, in_stages, only_device, after_use); };
  const bytes_t excess = stages <= most_stages ? excess_of(stages) : 0;
  if (stages <= most_stages && excess <= budget) return;
  if (change.devices() > most_searched_devices && only_device < 0)
    refuse("--budget: ", budget, " bytes cannot work in ", stages, " stages; at least ",
           ceil_divide(4 * largest, most_stages), " bytes are needed, for at most ", most_stages, " stages");
  const bytes_t least_that_does = least_budget(largest, excess_of);
  if (stages > most_stages)
    refuse("--budget: ", budget, " bytes would take ", stages, " stages, and at most ", most_stages,
           " are made; the least budget that does is ", least_that_does, " bytes");
  refuse("--budget: ", budget, " bytes cannot work: in ", stages, " stages a device needs ", excess,
         " bytes beyond max(before, after); the least budget that does is ", least_that_does, " bytes");
}

/// Refuses a direct plan that crosses rails where those do not meet; looked at only where there is such a node.
void require_meeting_rails(const computed_switch& change, rank_t only_device) {
  const cluster& on = change.on();
  const auto apart = [&](rank_t device) { return on.kind_of(on.node_of(device)).spine_GBps == 0; };
  bool any = false;
  for (const node_kind& kind : on.nodes) any = any || kind.spine_GBps == 0;
  const interval devices = devices_asked_for(change, only_device);
  for (rank_t device = devices.begin; any && device < devices.end; ++device) {
    const reshard::plan p = make_plan(change, device);
    for (const std::vector<transfer>* list : {&p.receives, &p.sends})
      for (const transfer& t : *list)
        if (on.crosses_rails(t.src, t.dst) && (apart(t.src) || apart(t.dst)))
          refuse("--cluster: device ", t.src, ", of NIC ", on.nic_of(t.src), ", sends to device ", t.dst, ", of NIC ",
                 on.nic_of(t.dst),
                 ", on another node, and where spine_GBps is 0 NICs of different numbers do not meet");
  }
}

}  // namespace

interval devices_asked_for(const computed_switch& change, rank_t only_device) {
  return only_device < 0 ? interval{0, change.devices()} : interval{only_device, only_device + 1};
}

computed_switch switch_asked_for(const arguments& given, const model& m, const std::optional<device_map>& to_devices) {
  const state_list list = list_asked_for(given);
  const degrees from_degrees = parse_degrees(given.layout), to_degrees = parse_degrees(given.to);
  const space from(m, from_degrees), to(m, to_degrees);
  require_listable("FROM", from.ranks());
  require_listable("TO", to.ranks());
  require_countable(m, list, from.ranks(), to.ranks());
  placement placed{.from = devices_of("--from-devices", given.from_devices, from.ranks()),
                   .to = to_devices ? *to_devices : devices_of("--to-devices", given.to_devices, to.ranks()),
                   .states = states_asked_for(given, list),
                   .list = list};
  if (given.lost_devices) placed.lost = parse_devices("--lost-devices", *given.lost_devices);
  if (given.leave_out_lost) placed.lost_elements = when_lost::leave_out;
  if (given.cluster) {
    const rank_t needed = greatest(placed.from.devices(), placed.to.devices());
    placed.on = load_cluster(*given.cluster).for_devices(needed);
    placed.devices = placed.on.devices();
    if (placed.devices < needed)
      refuse("--cluster ", one_line(*given.cluster, 40), " has ", placed.devices, " devices, but device ", needed - 1,
             " is named");
  }
  return layout_switch(from, to, placed);
}

void require_possible(const arguments& given, const computed_switch& change, rank_t only_device) {
  if (given.relay && *given.relay != "never" && *given.relay != "auto" && *given.relay != "always")
    refuse("--relay: '", one_line(*given.relay, 40), "' is unknown; it is never, auto or always");
  if (given.relay && *given.relay != "never")
    refuse("--relay ", *given.relay, " is not built yet; without it, or with never, every byte comes from a device ",
           "that held it before");
  if (change.lost_elements() == when_lost::refuse && !change.lost_ranks().empty())
    if (const bytes_t bytes = lost_bytes(change); bytes > 0)
      refuse("--lost-devices: ", bytes, " bytes that TO holds were on lost devices alone: ", lost_families(change),
             "; --leave-out-lost plans without them");
  require_meeting_rails(change, only_device);
}

void require_sensible(const arguments& given) {
  if (given.relabel && *given.relabel != "nodes" && *given.relabel != "groups")
    refuse("--relabel: '", one_line(*given.relabel, 40), "' is unknown; it is nodes or groups");
  if (given.leave_out_lost && !given.lost_devices)
    refuse("--leave-out-lost leaves out what lost devices held; say with --lost-devices which they are");
}

sources sources_asked_for(const arguments& given) { return given.keep_sources ? sources::keep : sources::release; }

bytes_t budget_asked_for(const arguments& given) { return given.budget ? parse_bytes("--budget", *given.budget) : 0; }

namespace {

/// The seconds of the question on this switch, 0 without speeds; none where it is refused.
std::optional<double> seconds_asked_for(const arguments& given, const computed_switch& change) {
  try {
    require_possible(given, change);
    const index_t stages = stages_asked_for(given, change).stages;
    if (!change.on().has_speeds()) return 0;
    simulator all(change);
    for (rank_t device = 0; device < change.devices(); ++device) all.add(make_plan(change, device));
    return seconds_of(all.on(), all.streams(), stages).total();
  } catch (const refusal&) {
    return {};
  }
}

}  // namespace

relabelled_switch relabelled_for(const arguments& given, const model& m, const computed_switch& change) {
  relabelled_switch found;
  if (!given.relabel) return found;
  found.saves.emplace();
  std::optional<relabelling> proposed;
  found.planning_seconds = timed([&] {
    proposed = relabel(change, *given.relabel == "groups" ? relabel_by::groups : relabel_by::nodes);
    if (proposed->relabelled) found.change.emplace(switch_asked_for(given, m, proposed->to));
  });
  if (!proposed->relabelled) return found;
  found.saves = saves_of(true, proposed->proposed.retained - proposed->given.retained, seconds_asked_for(given, change),
                         seconds_asked_for(given, *found.change));
  if (!found.saves->relabelled) found.change.reset();
  return found;
}

stages_asked stages_asked_for(const arguments& given, const computed_switch& change, rank_t only_device) {
  stages_asked found;
  if (given.stages) {
    found.stages = io::detail::digits_of("--stages", *given.stages);
    if (found.stages < 1 || found.stages > most_stages)
      refuse("--stages: ", found.stages, " stages; they are 1 to ", most_stages);
  }
  const bytes_t budget = budget_asked_for(given);
  const sources after_use = sources_asked_for(given);
  if (budget == 0) return found;
  if (given.stages) {
    if (const bytes_t excess = excess_in(change, found.stages, only_device, after_use); excess > budget)
      refuse("--budget: ", budget, " bytes cannot work in the ", found.stages, " of --stages: a device needs ", excess,
             " bytes beyond max(before, after), which is the least budget that does in so many");
    return found;
  }
  bytes_t largest = 0;
  found.seconds = timed([&] {
    largest = largest_holding(change);
    for (rank_t device = 0; after_use == sources::keep && device < change.devices(); ++device)
      largest = greatest(largest, bytes_of_both_sides(change, device));
    found.stages = stage_count(largest, budget);
  });
  require_kept(change, found.stages, largest, budget, only_device, after_use);
  return found;
}

}  // namespace reshard::tool
