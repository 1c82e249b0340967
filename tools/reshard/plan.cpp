// SPDX-License-Identifier: Apache-2.0
// plan: what must move when a job goes from one layout to another.
#include <cstdio>
#include <optional>
#include <vector>

#include <reshard/io/arguments.hpp>
#include <reshard/io/text_output.hpp>
#include <reshard/plan/relay.hpp>
#include <reshard/report/switch_json.hpp>
#include <reshard/report/switch_text.hpp>

#include "asked.hpp"

namespace reshard::tool {

void plan(const arguments& given) {
  require_sensible(given);
  if (given.transfers && !given.json) refuse("--transfers lists every transfer as JSON; give --json with it");
  const model m = model_asked_for(given);
  std::optional<any_switch> asked;
  double seconds = timed([&] { asked.emplace(switch_asked_for(given, m)); });
  const relabelled_switch relabelled = relabelled_for(given, m, *asked, relay_when::never, stages_unless_named::one);
  seconds += relabelled.planning_seconds;
  const any_switch& change = relabelled.change ? *relabelled.change : *asked;
  const rank_t only_device = given.rank ? parse_rank(*given.rank, change.devices(), "device") : -1;
  if (only_device >= 0 && change.lost(only_device)) refuse("--rank: device ", only_device, " is lost");
  require_possible(given, change);
  const bytes_t budget = budget_asked_for(given);
  const routing_asked found =
      routing_asked_for(given, change, relay_when::never, stages_unless_named::one, only_device);
  const index_t stages = found.how.stages;
  seconds += found.planning_seconds;

  const figures_of told = only_device < 0 ? figures_of::whole_switch : figures_of::one_device;
  figure_collector figures(change, found.how, found.phases, told, sources_asked_for(given), limit_asked_for(given));
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
      whole = make_plan(change, device, found.how);
      if (stages > 1 && (found.how.how == relay::never || given.transfers)) cut = stage_plan(whole, change, stages);
    });
    if (only_device >= 0) left_out = whole.lost;
    if (stages > 1 && found.how.how == relay::never) figures.add(whole, cut);
    else figures.add(whole);
    if (given.transfers && stages > 1) write_transfers(transfers, change, cut, told);
    else if (given.transfers) write_transfers(transfers, change, whole, told);
  }
  if (given.json) {
    out << (given.transfers ? "]," : ",");
    if (given.leave_out_lost) write_lost(out, change, only_device < 0 ? nullptr : &left_out);
    write_figures(out, figures.figures(), seconds, change.lost_elements(), relabelled.saves, change.on().has_speeds());
    out << "}\n";
  } else {
    out << switch_text(change, figures.figures(), seconds, budget, only_device, relabelled.saves);
  }
  out.flush();
}

}  // namespace reshard::tool
