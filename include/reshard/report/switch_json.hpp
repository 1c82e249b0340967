// SPDX-License-Identifier: Apache-2.0
// A switch as JSON: transfers expanded to the tensors that a framework knows by name, figures of
// devices, what is lost, and the summary.
// Builds on: plan/relabel.hpp, cost/switch_bytes.hpp, report/regions.hpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <reshard/cost/switch_bytes.hpp>
#include <reshard/plan/relabel.hpp>
#include <reshard/report/regions.hpp>

namespace reshard::io {

namespace detail {

/// The lowest rank that holds what meets a box.
template <Holding H>
rank_t rank_with(const H& h, int f, role r, const family_box& b) {
  rank_t lowest = -1;
  h.owners(f, r, b, [&](const family_box&, const Holders auto& holders) {
    if (lowest < 0 || holders[0] < lowest) lowest = holders[0];
  });
  return lowest;
}

template <Holding From, Holding To>
void write_transfer(json_items& items, const layout_switch<From, To>& change, rank_t src, rank_t dst,
                    const state_set& states, int f, const family_box& b, index_t stage, int phase, purpose why) {
  const space& target = computed_of(change.to()).space();
  for (const int s : states) {
    const rank_t named_by =
        why == purpose::delivered ? change.to_rank(dst) : rank_with(change.to(), f, states.role_of(s), b);
    text_output before, after;
    before << "\"src\":" << src << ",\"dst\":" << dst << ",\"state\":\"" << change.list()[s].name << "\"";
    after << ",\"stage\":" << stage << ",\"phase\":" << phase
          << (why == purpose::passed_on ? ",\"relay\":true" : ",\"relay\":false");
    write_tensors(items, target, f, named_by, b, before.text(), after.text());
  }
}
template <Holding From, Holding To>
void write_list(json_items& items, const layout_switch<From, To>& change, const std::vector<transfer>& list) {
  for (const transfer& t : list)
    write_transfer(items, change, t.src, t.dst, t.states, t.family, t.where, 0, t.phase, t.why);
}
template <Holding From, Holding To>
void write_list(json_items& items, const layout_switch<From, To>& change, const std::vector<staged_piece>& list) {
  for (const staged_piece& t : list)
    write_transfer(items, change, t.src, t.dst, t.states, t.tensor.family, family_box_of(t.tensor, t.where), t.stage,
                   t.phase, t.why);
}

}  // namespace detail

/// The transfers that a device's plan, or plan in stages, adds to the list: those of a whole switch where they arrive,
/// of one device's view all.
template <Holding From, Holding To, typename Plan>
void write_transfers(json_items& items, const layout_switch<From, To>& change, const Plan& p, figures_of told) {
  if (told == figures_of::one_device) detail::write_list(items, change, p.sends);
  detail::write_list(items, change, p.receives);
  detail::write_list(items, change, p.retains);
}

/// "rank_of_device":[..]
template <Holding From, Holding To>
void write_rank_of_device(text_output& out, const layout_switch<From, To>& change) {
  out << "\"rank_of_device\":[";
  json_items ranks(out);
  for (rank_t device = 0; device < change.devices(); ++device) ranks.next() << change.to_rank(device);
  out << "]";
}

/// "lost":[..],: what is left out of a switch, each element once; or of one device's plan.
template <Holding From, Holding To>
void write_lost(text_output& out, const layout_switch<From, To>& change, const std::vector<transfer>* of_device) {
  const space& target = computed_of(change.to()).space();
  out << "\"lost\":[";
  json_items items(out);
  const auto write = [&](const state_set& states, int f, const family_box& b) {
    for (const int s : states)
      write_tensors(items, target, f, detail::rank_with(change.to(), f, states.role_of(s), b), b,
                    reshard::detail::text_of("\"state\":\"", change.list()[s].name, "\""));
  };
  if (of_device == nullptr) each_lost(change, [&](const lost_box& b) { write(b.states, b.family, b.where); });
  else
    for (const transfer& t : *of_device) write(t.states, t.family, t.where);
  out << "],";
}

/// "relabelled":.., and where it was asked for "relabel_saves":{..}
inline void write_relabelled(text_output& out, const std::optional<relabel_saves>& saves, bool speeds) {
  out << "\"relabelled\":" << (saves && saves->relabelled ? "true" : "false");
  if (!saves) return;
  out << ",\"relabel_saves\":{\"bytes\":" << saves->bytes;
  if (speeds && saves->seconds) out << ",\"seconds\":" << *saves->seconds;
  else if (speeds) out << ",\"seconds\":null";
  out << "}";
}

/// Every field of the summary but planning_seconds, by commas.
inline void write_summary(text_output& out, const switch_figures& f, when_lost lost,
                          const std::optional<relabel_saves>& saves = {}, bool speeds = false) {
  out << "\"moved_bytes\":" << f.moved << ",\"relayed_bytes\":" << f.relayed << ",\"retained_bytes\":" << f.retained
      << ",\"created_bytes\":" << f.created;
  if (lost == when_lost::leave_out) out << ",\"lost_bytes\":" << f.lost;
  out << ",\"least_bytes\":" << f.least << ",\"inter_node_bytes\":" << f.inter_node
      << ",\"cross_rail_bytes\":" << f.cross_rail << ",\"messages\":" << f.messages
      << (f.how.how == relay::never ? ",\"relay\":\"never\"" : ",\"relay\":\"always\"")
      << ",\"stages\":" << f.how.stages << ",\"phases\":" << f.phases << ",\"slots\":" << f.slots()
      << ",\"max_send_bytes\":" << f.max_send << ",\"max_receive_bytes\":" << f.max_receive
      << ",\"peak_bytes\":" << f.peak << ",\"peak_floor_bytes\":" << f.peak_floor
      << ",\"peak_excess_bytes\":" << f.peak_excess << ",\"unread_kept_stages\":";
  if (f.unread_kept) out << *f.unread_kept << ",";
  else out << "null,";
  write_relabelled(out, saves, speeds);
}

/// "devices":[..],"summary":{..}
inline void write_figures(text_output& out, const switch_figures& f, double planning_seconds,
                          when_lost lost = when_lost::refuse, const std::optional<relabel_saves>& saves = {},
                          bool speeds = false) {
  out << "\"devices\":[";
  json_items devices(out);
  for (const device_figures& d : f.devices)
    devices.next() << "{\"device\":" << d.device << ",\"send_bytes\":" << d.send << ",\"receive_bytes\":" << d.receive
                   << ",\"retained_bytes\":" << d.retained << ",\"before_bytes\":" << d.before
                   << ",\"after_bytes\":" << d.after << ",\"peak_bytes\":" << d.peak << "}";
  out << "],\"summary\":{";
  write_summary(out, f, lost, saves, speeds);
  out << ",\"planning_seconds\":" << planning_seconds << "}";
}

}  // namespace reshard::io
