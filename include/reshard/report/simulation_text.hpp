// SPDX-License-Identifier: Apache-2.0
// What `reshard simulate` prints for a person, in 80 columns: seconds beside the floor and the baseline, where they go,
// and the figures of the switch. It says that all of it is simulated.
// Builds on: cost/simulate.hpp, report/switch_text.hpp.
#pragma once

#include <optional>
#include <string>

#include <reshard/cost/simulate.hpp>
#include <reshard/report/switch_text.hpp>

namespace reshard::io {

namespace detail {

inline std::string speed_text(double gigabytes) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%g", gigabytes);
  return text_of(std::string_view(digits), " GB/s");
}

/// "NVLink 160 GB/s, NICs 8 of 25 GB/s, copies 1300 GB/s", for every kind of node.
inline std::string links_text(const cluster& on) {
  std::string text;
  for (const node_kind& kind : on.nodes) {
    text +=
        folded(text_of(on.nodes.size() == 1 ? "" : count_text(kind.count) + (kind.count == 1 ? " node: " : " nodes: "),
                       "NVLink ", speed_text(kind.nvlink_GBps), ", ", kind.nics == 0 ? on.gpus : kind.nics, " NICs of ",
                       speed_text(kind.nic_GBps),
                       kind.spine_GBps == no_limit ? "" : ", between rails " + speed_text(kind.spine_GBps), ", copies ",
                       speed_text(kind.copy_GBps)),
               4) +
        "\n";
  }
  return text;
}

inline std::string port_text(port_kind kind) {
  switch (kind) {
    case port_kind::nic_out: return "the NIC out";
    case port_kind::nic_in: return "the NIC in";
    case port_kind::nvlink_out: return "NVLink out";
    case port_kind::nvlink_in: return "NVLink in";
    case port_kind::spine_out: return "the spine out";
    case port_kind::spine_in: return "the spine in";
    case port_kind::copy: return "the copy engine";
  }
  return {};
}

}  // namespace detail

/// What `reshard simulate` prints. `budget` is 0 where none was given.
template <Holding From, Holding To>
std::string simulation_text(const layout_switch<From, To>& change, const simulation& s, const switch_figures& f,
                            bytes_t budget, const std::optional<relabel_saves>& saves = {}) {
  std::string text = switch_heading(change) + relabel_text(change, saves) +
                     detail::links_text(change.on().for_devices(change.devices())) + "\n";
  const auto times_floor = [&](double seconds) {
    return s.floor_seconds > 0 ? reshard::io::detail::decimal_text(seconds / s.floor_seconds, 2) : std::string("-");
  };
  table seconds({{"simulated, not measured", table::side::left}, {"seconds"}, {"x floor"}, {"", table::side::left}});
  const auto row = [&](const char* name, const std::optional<double>& value, const char* note) {
    if (value) seconds.row({name, seconds_text(*value), times_floor(*value), note});
    else seconds.row({name, "-", "-", "crosses rails that do not meet"});
  };
  const std::string how = f.how.how == relay::always ? text_of("relay, ", stages_text(f))
                          : f.how.stages == 1        ? std::string("direct, in one stage")
                                                     : std::string("direct, in stages");
  row("this plan", s.seconds.total(), how.c_str());
  row("floor", s.floor_seconds, "no schedule is faster");
  if (f.how != routing{})
    row("direct plan, one stage", s.direct_seconds, f.how.how == relay::always ? "without relay" : "without a budget");
  row("DynaTrain, asynchronous", s.dynatrain.asynchronous, "everything at once");
  row("DynaTrain, synchronous", s.dynatrain.synchronous, "pairs take turns");
  row("DynaTrain, naive", s.dynatrain.naive, "a message per tensor");
  text += seconds.text() + "\n";

  table parts({{"where they go", table::side::left}, {"seconds"}, {"", table::side::left}});
  const busy_port& busiest = s.seconds.busiest;
  parts.row({"ports", seconds_text(s.seconds.ports),
             busiest.seconds > 0 ? text_of("busiest: ", detail::port_text(busiest.kind), " of device ", busiest.device)
                                 : ""});
  parts.row({"messages", seconds_text(s.seconds.messages), text_of(count_text(f.messages), " in all")});
  parts.row({"slots", seconds_text(s.seconds.slots), count_text(f.slots())});
  text += parts.text() + "\n";

  table bytes({{"bytes", table::side::left}, {""}, {"", table::side::left}});
  bytes.row({"moves", bytes_text(f.moved), f.moved == f.least ? "the least possible" : ""});
  if (f.how.how == relay::always) bytes.row({"relays", bytes_text(f.relayed), "received only to be passed on"});
  bytes.row({"between nodes", bytes_text(f.inter_node), ""});
  bytes.row({"across rails", bytes_text(f.cross_rail), "between NICs of different numbers"});
  bytes.row({"keeps", bytes_text(f.retained), "already where it is needed"});
  bytes.row({"peak", bytes_text(f.peak), text_of("of any device, at most ", bytes_text(f.peak_excess), " above")});
  if (f.after_use == sources::keep) bytes.row({"sources", "stay", "FROM's bytes are counted in the peak"});
  if (budget > 0) bytes.row({"budget", bytes_text(budget), "kept"});
  return text + bytes.text();
}

}  // namespace reshard::io
