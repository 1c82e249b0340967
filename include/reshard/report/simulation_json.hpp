// SPDX-License-Identifier: Apache-2.0
// What `reshard simulate --json` prints: predicted seconds, where they go, and the figures of the switch.
// Builds on: cost/simulate.hpp, report/switch_json.hpp.
#pragma once

#include <optional>

#include <reshard/cost/simulate.hpp>
#include <reshard/report/switch_json.hpp>

namespace reshard::io {

/// {"seconds":..,"floor_seconds":..,"direct_seconds":..,"dynatrain":{..},"parts":{..},"busiest":{..},
/// "rank_of_device":[..], and the summary's fields}
template <Holding From, Holding To>
void write_simulation(text_output& out, const layout_switch<From, To>& change, const simulation& s,
                      const switch_figures& f, const std::optional<relabel_saves>& saves = {}) {
  const auto seconds_or_null = [&](const char* key, const std::optional<double>& value) {
    out << "\"" << key << "\":";
    if (value) out << *value;
    else out << "null";
  };
  out << "{\"seconds\":" << s.seconds.total() << ",\"floor_seconds\":" << s.floor_seconds << ",";
  seconds_or_null("direct_seconds", s.direct_seconds);
  out << ",\"dynatrain\":{";
  seconds_or_null("naive", s.dynatrain.naive);
  out << ",";
  seconds_or_null("synchronous", s.dynatrain.synchronous);
  out << ",";
  seconds_or_null("asynchronous", s.dynatrain.asynchronous);
  const busy_port& busiest = s.seconds.busiest;
  out << "},\"parts\":{\"ports\":" << s.seconds.ports << ",\"messages\":" << s.seconds.messages
      << ",\"slots\":" << s.seconds.slots << "},\"busiest\":{\"port\":\""
      << port_names[static_cast<std::size_t>(busiest.kind)] << "\",\"device\":" << busiest.device
      << ",\"seconds\":" << busiest.seconds << "},";
  write_rank_of_device(out, change);
  out << ",";
  write_summary(out, f, change.lost_elements(), saves, true);
  out << "}\n";
}

}  // namespace reshard::io
