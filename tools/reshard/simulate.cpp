// SPDX-License-Identifier: Apache-2.0
// simulate: how long a switch will take on a cluster, before anything moves.
#include <cstdio>
#include <optional>
#include <vector>

#include <reshard/io/arguments.hpp>
#include <reshard/io/text_output.hpp>
#include <reshard/report/chrome_trace.hpp>
#include <reshard/report/simulation_json.hpp>
#include <reshard/report/simulation_text.hpp>
#include <reshard/report/switch_svg.hpp>

#include "asked.hpp"

namespace reshard::tool {

void simulate(const arguments& given) {
  require_sensible(given);
  if (!given.cluster)
    refuse("simulate: --cluster is missing; it is a800, h100, h200, gb200 or a file that describes the cluster");
  const model m = model_asked_for(given);
  const any_switch asked = switch_asked_for(given, m);
  if (!asked.on().has_speeds())
    refuse("--cluster: ", *given.cluster, " is a shape, which has no speeds; simulate wants a name (a800, h100, h200, ",
           "gb200) or a file that describes the cluster");
  const relabelled_switch relabelled =
      relabelled_for(given, m, asked, relay_when::faster, stages_unless_named::fastest);
  const any_switch& change = relabelled.change ? *relabelled.change : asked;
  require_possible(given, change);
  const routing_asked routed = routing_asked_for(given, change, relay_when::faster, stages_unless_named::fastest);
  const routing& how = routed.how;
  figure_collector figures(change, how, routed.phases, figures_of::whole_switch, sources_asked_for(given),
                           limit_asked_for(given));
  simulator seconds(change);
  std::optional<live_recorder<any_holding, any_holding>> memory;
  if (given.trace) memory.emplace(change, how, routed.phases, sources_asked_for(given));
  relayed_streams streams;
  for (rank_t device = 0; device < change.devices(); ++device) {
    const reshard::plan whole = make_plan(change, device, how);
    figures.add(whole);
    if (how.how == relay::always) streams.add(whole), seconds.add(make_plan(change, device));
    else seconds.add(whole);
    if (memory) memory->add(whole);
  }
  const bool relayed = how.how == relay::always;
  const simulation found = relayed ? seconds.beside(relayed_seconds(seconds.on(), streams).of_stages(how.stages), asked)
                                   : seconds.in_stages(how.stages, asked);
  if (memory) {
    text_output events;
    if (!relayed) write_trace(events, seconds, *memory);
    else
      write_trace(events, seconds.on(), *memory,
                  [&](index_t t) { return traffic_of_slot(seconds.on(), streams.streams(), t, how.stages); });
    write_file(*given.trace, events.text());
  }
  if (given.svg) {
    text_output picture;
    std::vector<sized_stream> drawn = seconds.streams();
    if (relayed) drawn.clear();
    if (relayed)
      for (const relayed_stream& s : streams.streams()) drawn.push_back(s.sized);
    write_switch_svg(picture, change, seconds.on(), drawn);
    write_file(*given.svg, picture.text());
  }
  text_output out(stdout);
  if (given.json) write_simulation(out, change, found, figures.figures(), relabelled.saves);
  else out << simulation_text(change, found, figures.figures(), budget_asked_for(given), relabelled.saves);
  out.flush();
}

}  // namespace reshard::tool
