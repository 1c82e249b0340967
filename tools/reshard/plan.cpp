// SPDX-License-Identifier: Apache-2.0
// plan: what must move when a job goes from one layout to another.
#include <cstdio>
#include <optional>
#include <string>

#include <reshard/io/arguments.hpp>
#include <reshard/io/hf_config.hpp>
#include <reshard/io/plan_json.hpp>
#include <reshard/io/plan_text.hpp>
#include <reshard/io/text_output.hpp>

#include "commands.hpp"

namespace reshard::tool {

namespace {

device_map devices_of(const char* what, const std::optional<std::string>& list, rank_t ranks) {
  return list ? device_map(parse_device_list(what, *list, ranks)) : device_map(ranks);
}

/// Refuses what could overflow later: all bytes of all devices, on both sides, and every one of them moved.
void require_countable(const model& m, rank_t from_ranks, rank_t to_ranks) {
  checked_multiply(checked_multiply(m.parameters(), all_states.bytes_per_element()), greatest(from_ranks, to_ranks));
}

/// Refuses a budget that the switch, or the one device that is asked about, exceeds, with the least that does.
void require_kept(switch_question asked, bytes_t largest, bytes_t budget, rank_t only_device) {
  constexpr rank_t most_searched_devices = 256;  // the search plans every device 13 times
  const auto excess_of = [&](index_t stages) {
    asked.stages = stages;
    figure_collector figures(asked, figure_collector::view::whole_switch);
    for (rank_t device = only_device < 0 ? 0 : only_device; device < (only_device < 0 ? asked.devices : only_device + 1); ++device)
      figures.add(plan_device(asked, device));
    return figures.figures().peak_excess;
  };
  const index_t stages = asked.stages;
  const bytes_t excess = stages <= most_stages ? excess_of(stages) : 0;
  if (stages <= most_stages && excess <= budget) return;
  if (asked.devices > most_searched_devices && only_device < 0)
    refuse("--budget: ", budget, " bytes cannot work in ", stages, " stages; at least ", ceil_divide(4 * largest, most_stages),
           " bytes are needed, for at most ", most_stages, " stages");
  const bytes_t least_that_does = least_budget(largest, excess_of);
  if (stages > most_stages)
    refuse("--budget: ", budget, " bytes would take ", stages, " stages, and at most ", most_stages, " are made; the least budget that does is ",
           least_that_does, " bytes");
  refuse("--budget: ", budget, " bytes cannot work: in ", stages, " stages a device needs ", excess,
         " bytes beyond max(before, after); the least budget that does is ", least_that_does, " bytes");
}

}  // namespace

void plan(const arguments& given) {
  if (given.relabel) refuse("--relabel is not built yet; without it every rank of TO sits where --to-devices says");
  if (given.transfers && !given.json) refuse("--transfers lists every transfer as JSON; give --json with it");
  const model m = load_model(given.model);
  const degrees from_degrees = parse_degrees(given.layout), to_degrees = parse_degrees(given.to);

  std::optional<space> from, to;
  double seconds = timed([&] { from.emplace(m, from_degrees), to.emplace(m, to_degrees); });
  require_listable("FROM", from->ranks());
  require_listable("TO", to->ranks());
  require_countable(m, from->ranks(), to->ranks());
  const state_set states = states_asked_for(given);
  placement where{devices_of("--from-devices", given.from_devices, from->ranks()), devices_of("--to-devices", given.to_devices, to->ranks()), 0, states};
  rank_t devices = greatest(where.from.devices(), where.to.devices());
  if (given.cluster) {
    const cluster_shape shape = parse_cluster(*given.cluster);
    if (shape.devices() < devices)
      refuse("--cluster ", *given.cluster, " has ", shape.devices(), " devices, but device ", devices - 1, " is named");
    devices = shape.devices();
    where.node_devices = shape.nodes > 1 ? shape.node_devices : 0;
  }
  const rank_t only_device = given.rank ? parse_rank(*given.rank, devices, "device") : -1;

  std::optional<computed_holding> before, after;
  switch_question asked{nullptr, nullptr, where, devices, 1};
  seconds += timed([&] {
    before.emplace(*from, states);
    after.emplace(*to, states);
  });
  asked.from = &*before;
  asked.to = &*after;
  const bytes_t budget = given.budget ? parse_bytes("--budget", *given.budget) : 0;
  if (given.budget) {
    bytes_t largest = 0;
    seconds += timed([&] {
      largest = largest_holding(*before, *after, states);
      asked.stages = stage_count(largest, budget);
    });
    require_kept(asked, largest, budget, only_device);
  }

  const auto view = only_device < 0 ? figure_collector::view::whole_switch : figure_collector::view::one_device;
  figure_collector figures(asked, view);
  figures.took(seconds);
  text_output out(stdout);
  if (given.json) {
    out << "{";
    write_rank_of_device(out, asked);
    out << (given.transfers ? ",\"transfers\":[" : "");
  }
  json_items transfers(out);
  for (rank_t device = only_device < 0 ? 0 : only_device; device < (only_device < 0 ? devices : only_device + 1); ++device) {
    std::optional<device_plan> planned;
    figures.took(timed([&] { planned = plan_device(asked, device); }));
    figures.add(*planned);
    if (given.transfers) write_transfers(transfers, asked, *planned, view);
  }
  if (given.json) {
    out << (given.transfers ? "]," : ",");
    write_figures(out, asked, figures.figures());
    out << "}\n";
  } else {
    out << plan_text(asked, figures.figures(), budget, only_device);
  }
  out.flush();
}

}  // namespace reshard::tool
