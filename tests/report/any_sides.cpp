// SPDX-License-Identifier: Apache-2.0
// Reports over any_holding: of computed layouts every text, JSON and picture is the one of the layouts themselves; of
// others the heading says what they are, and what needs degrees or names is refused.
#include <doctest/doctest.h>

#include <string>

#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/report/layout_picture.hpp>
#include <reshard/report/layout_svg.hpp>
#include <reshard/report/simulation_json.hpp>
#include <reshard/report/simulation_text.hpp>
#include <reshard/report/switch_json.hpp>
#include <reshard/report/switch_svg.hpp>
#include <reshard/report/switch_text.hpp>

#include "../support/drawn_layouts.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using namespace reshard::io;
using testing::refused;

namespace {
const model m = testing::drawn_model(false);
const computed_holding from(space(m, parse_degrees("tp=2,dp=2,zero=1"))), to(space(m, parse_degrees("pp=2,dp=3")));
const placement lossy{.on = clusters::h100.for_devices(6), .lost = {}, .lost_elements = when_lost::leave_out};

/// All that is told of a switch, one after the other.
template <Holding From, Holding To>
std::string told(const layout_switch<From, To>& change) {
  text_output out;
  figure_collector figures(change, 1, figures_of::whole_switch);
  simulator seconds(change);
  json_items items(out);
  for (rank_t device = 0; device < change.devices(); ++device) {
    const plan p = make_plan(change, device);
    figures.add(p), seconds.add(p);
    write_transfers(items, change, p, figures_of::whole_switch);
    write_transfers(items, change, stage_plan(p, change, 2), figures_of::one_device);
  }
  write_rank_of_device(out, change);
  write_lost(out, change, nullptr);
  const simulation found = seconds.in_stages(1);
  write_simulation(out, change, found, figures.figures());
  write_switch_svg(out, change, seconds.on(), seconds.streams());
  const relabel_saves saves{true, 3, {}};
  return std::string(out.text()) + switch_text(change, figures.figures(), 0.5, 0, -1, saves) +
         simulation_text(change, found, figures.figures(), 0);
}

/// All that is told of a layout.
template <Holding H>
std::string told(const H& h) {
  text_output out;
  write_check_json(out, h);
  write_regions_json(out, h, {0, h.ranks()}, all_states);
  write_svg(out, h, 1);
  return std::string(out.text()) + check_text(h) + rank_text(h, 1, all_states) + layout_picture(h);
}
}  // namespace

TEST_CASE("what is told of computed sides does not depend on the type that holds them") {
  const std::string wanted = told(layout_switch(from, to, lossy));
  CHECK(wanted.size() > 10000);
  CHECK(told(any_switch(from, to, lossy)) == wanted);
  CHECK(told(any_holding(from)) == told(from));
  CHECK(told(any_holding(to)) == told(to));
}

TEST_CASE("a heading says what a side is, and the model where one of them knows it") {
  const listed_holding list(tensor_table(m), testing::listed(from), 4);
  const auto first = [](const auto& change) {
    const std::string text = switch_heading(change);
    return text.substr(0, text.find("on "));
  };
  CHECK(first(any_switch(from, to)) == "drawn from tp=2,dp=2,zero=1 (4 ranks)\nto pp=2,dp=3 (6 ranks)\n");
  CHECK(first(any_switch(list, to)) == "drawn from a list of shards (4 ranks)\nto pp=2,dp=3 (6 ranks)\n");
  CHECK(first(any_switch(from, list)) == "drawn from tp=2,dp=2,zero=1 (4 ranks)\nto a list of shards (4 ranks)\n");
  CHECK(first(any_switch(list, living_holding(to, {}))) ==
        "tensors of no model from a list of shards (4 ranks)\nto a holding (6 ranks)\n");
  CHECK(first(layout_switch(list, to)) == first(any_switch(list, to)));
}

TEST_CASE("what is told by degrees and names is refused of what has none") {
  const any_holding list(listed_holding(tensor_table(m), testing::listed(from), 4));
  const std::string sentence =
      "reshard: a holding of 4 ranks that is no computed layout has neither degrees nor names to be told by; tell of a "
      "space";
  text_output out;
  CHECK(refused([&] { static_cast<void>(check_text(list)); }) == sentence);
  CHECK(refused([&] { static_cast<void>(rank_text(list, 0, all_states)); }) == sentence);
  CHECK(refused([&] { static_cast<void>(layout_picture(list)); }) == sentence);
  CHECK(refused([&] { write_svg(out, list, 0); }) == sentence);
  CHECK(refused([&] { write_regions_json(out, list, {0, 1}, all_states); }) == sentence);
  const any_switch change(from, list);
  json_items items(out);
  CHECK(refused([&] { write_transfers(items, change, make_plan(change, 0), figures_of::whole_switch); }) == sentence);
  write_check_json(out, list);  // bytes need no names
}
