// SPDX-License-Identifier: Apache-2.0
// plan: what must move when a job goes from one layout to another.
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <reshard/io/arguments.hpp>
#include <reshard/io/hf_config.hpp>
#include <reshard/io/switch_json.hpp>
#include <reshard/io/switch_text.hpp>
#include <reshard/io/text_output.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/schedule/stage_count.hpp>

#include "commands.hpp"

namespace reshard::tool {

namespace {

/// Where the ranks of a layout sit: as listed, or rank r on device r.
device_map devices_of(const char* what, const std::optional<std::string>& list, rank_t ranks) {
  return list ? device_map(parse_device_list(what, *list, ranks)) : device_map(ranks);
}

/// The devices that the command asks about.
interval devices_asked_for(const computed_switch& change, rank_t only_device) {
  return only_device < 0 ? interval{0, change.devices()} : interval{only_device, only_device + 1};
}

/// Refuses what could overflow later: all bytes of all devices, on both sides, and every one of them moved.
void require_countable(const model& m, const state_list& list, rank_t from_ranks, rank_t to_ranks) {
  checked_multiply(checked_multiply(m.parameters(), list.all().bytes_per_element()), greatest(from_ranks, to_ranks));
}

/// Refuses a switch of which something is lost that is not left out.
void require_left_out(const computed_switch& change) {
  if (change.lost_elements() == when_lost::leave_out || change.lost_ranks().empty()) return;
  if (const bytes_t bytes = lost_bytes(change); bytes > 0)
    refuse("--lost-devices: ", bytes, " bytes that TO holds were on lost devices alone: ", lost_families(change),
           "; --leave-out-lost plans without them");
}

/// Refuses a budget that the switch, or the one device that is asked about, exceeds, with the least that does.
void require_kept(const computed_switch& change, index_t stages, bytes_t largest, bytes_t budget, rank_t only_device) {
  constexpr rank_t most_searched_devices = 256;  // the search plans every device 13 times
  const auto excess_of = [&](index_t in_stages) {
    figure_collector figures(change, in_stages, figures_of::whole_switch);
    const interval devices = devices_asked_for(change, only_device);
    for (rank_t device = devices.begin; device < devices.end; ++device) figures.add(make_plan(change, device));
    return figures.figures().peak_excess;
  };
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

/// Runs `work` and returns the seconds it took.
template <typename Work>
double timed(Work&& work) {
  const auto begun = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

/// The switch that the command asks about.
computed_switch switch_asked_for(const arguments& given, const model& m) {
  const state_list list = list_asked_for(given);
  const degrees from_degrees = parse_degrees(given.layout), to_degrees = parse_degrees(given.to);
  const space from(m, from_degrees), to(m, to_degrees);
  require_listable("FROM", from.ranks());
  require_listable("TO", to.ranks());
  require_countable(m, list, from.ranks(), to.ranks());
  placement placed{.from = devices_of("--from-devices", given.from_devices, from.ranks()),
                   .to = devices_of("--to-devices", given.to_devices, to.ranks()),
                   .states = states_asked_for(given, list),
                   .list = list};
  if (given.lost_devices) placed.lost = parse_devices("--lost-devices", *given.lost_devices);
  if (given.leave_out_lost) placed.lost_elements = when_lost::leave_out;
  if (given.cluster) {
    const cluster_shape shape = parse_cluster(*given.cluster);
    const rank_t needed = greatest(placed.from.devices(), placed.to.devices());
    if (shape.devices() < needed)
      refuse("--cluster ", *given.cluster, " has ", shape.devices(), " devices, but device ", needed - 1, " is named");
    placed.devices = shape.devices();
    placed.node_devices = shape.nodes > 1 ? shape.node_devices : 0;
  }
  return layout_switch(from, to, placed);
}

}  // namespace

void plan(const arguments& given) {
  if (given.relabel) refuse("--relabel is not built yet; without it every rank of TO sits where --to-devices says");
  if (given.transfers && !given.json) refuse("--transfers lists every transfer as JSON; give --json with it");
  if (given.leave_out_lost && !given.lost_devices)
    refuse("--leave-out-lost leaves out what lost devices held; say with --lost-devices which they are");
  const model m = load_model(given.model);
  std::optional<computed_switch> asked;
  double seconds = timed([&] { asked.emplace(switch_asked_for(given, m)); });
  const computed_switch& change = *asked;
  const rank_t only_device = given.rank ? parse_rank(*given.rank, change.devices(), "device") : -1;
  if (only_device >= 0 && change.lost(only_device)) refuse("--rank: device ", only_device, " is lost");
  require_left_out(change);
  const bytes_t budget = given.budget ? parse_bytes("--budget", *given.budget) : 0;
  index_t stages = 1;
  if (given.budget) {
    bytes_t largest = 0;
    seconds += timed([&] {
      largest = largest_holding(change);
      stages = stage_count(largest, budget);
    });
    require_kept(change, stages, largest, budget, only_device);
  }

  const figures_of told = only_device < 0 ? figures_of::whole_switch : figures_of::one_device;
  figure_collector figures(change, stages, told);
  text_output out(stdout);
  if (given.json) {
    out << "{";
    write_rank_of_device(out, change);
    out << (given.transfers ? ",\"transfers\":[" : "");
  }
  json_items transfers(out);
  std::vector<transfer> left_out;  // of the one device
  const interval devices = devices_asked_for(change, only_device);
  for (rank_t device = devices.begin; device < devices.end; ++device) {
    reshard::plan whole;
    staged_plan cut;
    seconds += timed([&] {
      whole = make_plan(change, device);
      if (stages > 1) cut = stage_plan(whole, change, stages);
    });
    if (only_device >= 0) left_out = whole.lost;
    if (stages > 1) figures.add(whole, cut);
    else figures.add(whole);
    if (given.transfers && stages > 1) write_transfers(transfers, change, cut, told);
    else if (given.transfers) write_transfers(transfers, change, whole, told);
  }
  if (given.json) {
    out << (given.transfers ? "]," : ",");
    if (given.leave_out_lost) write_lost(out, change, only_device < 0 ? nullptr : &left_out);
    write_figures(out, figures.figures(), seconds, change.lost_elements());
    out << "}\n";
  } else {
    out << switch_text(change, figures.figures(), seconds, budget, only_device);
  }
  out.flush();
}

}  // namespace reshard::tool
