// SPDX-License-Identifier: Apache-2.0
// A plan as JSON: transfers expanded to the tensors that a framework knows by name, figures of devices, and the summary.
// Builds on: io/plan_report.hpp, io/regions.hpp.
#pragma once

#include <string>

#include <reshard/io/plan_report.hpp>
#include <reshard/io/regions.hpp>

namespace reshard {

namespace detail {

inline void write_transfer(json_items& items, const switch_question& asked, rank_t src, rank_t dst, state_set states, int f,
                           const family_box& where, index_t stage) {
  const space& target = asked.to->where();
  for (int s = 0; s < state_count; ++s) {
    if (!states.contains(s)) continue;
    text_output before, after;
    before << "\"src\":" << src << ",\"dst\":" << dst << ",\"state\":\"" << adam_states[s].name << "\"";
    after << ",\"stage\":" << stage << ",\"phase\":0,\"relay\":false";
    write_tensors(items, target.which_model(), f, target.names_on(f, asked.where.to.rank_of(dst)), where, before.text(), after.text());
  }
}
inline void write_list(json_items& items, const switch_question& asked, const std::vector<transfer>& list) {
  for (const transfer& t : list) write_transfer(items, asked, t.src, t.dst, t.states, t.family, t.where, 0);
}
inline void write_list(json_items& items, const switch_question& asked, const std::vector<staged_piece>& list) {
  for (const staged_piece& t : list)
    write_transfer(items, asked, t.src, t.dst, t.states, t.family,
                   {{{t.member, t.member + 1}, {t.expert, t.expert + 1}, t.where.dim[0], t.where.dim[1], t.where.dim[2]}}, t.stage);
}

}  // namespace detail

/// The transfers that a device's plan adds to the list: those of a whole switch where they arrive, of one device's view all.
inline void write_transfers(json_items& items, const switch_question& asked, const device_plan& p, figure_collector::view told) {
  const auto write = [&](const auto& sends, const auto& receives, const auto& retains) {
    if (told == figure_collector::view::one_device) detail::write_list(items, asked, sends);
    detail::write_list(items, asked, receives);
    detail::write_list(items, asked, retains);
  };
  if (asked.stages == 1) write(p.whole.sends, p.whole.receives, p.whole.retains);
  else write(p.sends, p.receives, p.retains);
}

/// "rank_of_device":[..]
inline void write_rank_of_device(text_output& out, const switch_question& asked) {
  out << "\"rank_of_device\":[";
  json_items ranks(out);
  for (rank_t device = 0; device < asked.devices; ++device) ranks.next() << asked.where.to.rank_of(device);
  out << "]";
}

/// "devices":[..],"summary":{..}
inline void write_figures(text_output& out, const switch_question& asked, const switch_figures& f) {
  out << "\"devices\":[";
  json_items devices(out);
  for (const device_figures& d : f.devices)
    devices.next() << "{\"device\":" << d.device << ",\"send_bytes\":" << d.send << ",\"receive_bytes\":" << d.receive << ",\"retained_bytes\":" << d.retained
                   << ",\"before_bytes\":" << d.before << ",\"after_bytes\":" << d.after << ",\"peak_bytes\":" << d.peak << "}";
  out << "],\"summary\":{\"moved_bytes\":" << f.moved << ",\"relayed_bytes\":" << f.relayed << ",\"retained_bytes\":" << f.retained
      << ",\"least_bytes\":" << f.least << ",\"inter_node_bytes\":" << f.inter_node << ",\"messages\":" << f.messages << ",\"stages\":" << asked.stages
      << ",\"max_send_bytes\":" << f.max_send << ",\"max_receive_bytes\":" << f.max_receive << ",\"peak_bytes\":" << f.peak
      << ",\"peak_floor_bytes\":" << f.peak_floor << ",\"peak_excess_bytes\":" << f.peak_excess << ",\"planning_seconds\":" << f.planning_seconds << "}";
}

}  // namespace reshard
