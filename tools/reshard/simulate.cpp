// SPDX-License-Identifier: Apache-2.0
// simulate: how long a switch will take on a cluster, before anything moves.
#include <cstdio>
#include <optional>

#include <reshard/io/arguments.hpp>
#include <reshard/io/simulation_json.hpp>
#include <reshard/io/simulation_text.hpp>
#include <reshard/io/switch_svg.hpp>
#include <reshard/io/text_output.hpp>
#include <reshard/io/trace.hpp>

#include "asked.hpp"

namespace reshard::tool {

void simulate(const arguments& given) {
  require_sensible(given);
  if (!given.cluster)
    refuse("simulate: --cluster is missing; it is a800, h100, h200, gb200 or a file that describes the cluster");
  const model m = load_model(given.model);
  const computed_switch asked = switch_asked_for(given, m);
  if (!asked.on().has_speeds())
    refuse("--cluster: ", *given.cluster, " is a shape, which has no speeds; simulate wants a name (a800, h100, h200, ",
           "gb200) or a file that describes the cluster");
  const relabelled_switch relabelled = relabelled_for(given, m, asked);
  const computed_switch& change = relabelled.change ? *relabelled.change : asked;
  require_possible(given, change);
  const index_t stages = stages_asked_for(given, change).stages;  // one is the fastest of a direct plan
  figure_collector figures(change, stages, figures_of::whole_switch, sources_asked_for(given));
  simulator seconds(change);
  std::optional<live_recorder<computed_holding, computed_holding>> memory;
  if (given.trace) memory.emplace(change, stages, sources_asked_for(given));
  for (rank_t device = 0; device < change.devices(); ++device) {
    const reshard::plan whole = make_plan(change, device);
    figures.add(whole);
    seconds.add(whole);
    if (memory) memory->add(whole);
  }
  const simulation found = seconds.in_stages(stages, asked);
  if (memory) {
    text_output events;
    write_trace(events, seconds, *memory);
    write_file(*given.trace, events.text());
  }
  if (given.svg) {
    text_output picture;
    write_switch_svg(picture, change, seconds.on(), seconds.streams());
    write_file(*given.svg, picture.text());
  }
  text_output out(stdout);
  if (given.json) write_simulation(out, change, found, figures.figures(), relabelled.saves);
  else out << simulation_text(change, found, figures.figures(), budget_asked_for(given), relabelled.saves);
  out.flush();
}

}  // namespace reshard::tool
