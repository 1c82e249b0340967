// SPDX-License-Identifier: Apache-2.0
// check and regions: one layout of one model.
#include <cstdio>
#include <string>

#include <reshard/io/arguments.hpp>
#include <reshard/io/text_output.hpp>
#include <reshard/report/layout_picture.hpp>
#include <reshard/report/layout_svg.hpp>
#include <reshard/report/layout_text.hpp>
#include <reshard/report/regions.hpp>

#include "commands.hpp"

namespace reshard::tool {

state_list list_asked_for(const arguments& given) { return given.states ? parse_state_list(*given.states) : adam; }
state_set states_asked_for(const arguments& given, const state_list& list) {
  return given.state ? parse_states(*given.state, list) : list.all();
}

void check(const arguments& given) {
  const state_list list = list_asked_for(given);
  const space where(model_asked_for(given), parse_degrees(given.layout));
  require_listable("the layout", where.ranks());
  const computed_holding holding(where, list);
  text_output out(stdout);
  if (given.json) write_check_json(out, holding, list);
  else out << check_text(holding, list);
  out.flush();
}

void regions(const arguments& given) {
  const state_list list = list_asked_for(given);
  const space where(model_asked_for(given), parse_degrees(given.layout));
  require_listable("the layout", where.ranks());
  const state_set states = states_asked_for(given, list);
  const computed_holding holding(where, states);
  rank_t rank = -1;
  if (given.rank) rank = parse_rank(*given.rank, where.ranks());
  if (given.svg) {
    text_output picture;
    write_svg(picture, computed_holding(where), rank < 0 ? 0 : rank);
    write_file(*given.svg, picture.text());
  }
  text_output out(stdout);
  if (given.json)
    write_regions_json(out, holding, rank < 0 ? interval{0, where.ranks()} : interval{rank, rank + 1}, states, list);
  else if (given.svg) out << "The picture is in " << one_line(*given.svg) << "\n";
  else if (given.rank) out << rank_text(holding, rank, states, 4, list);
  else out << layout_picture(computed_holding(where));
  out.flush();
}

}  // namespace reshard::tool
