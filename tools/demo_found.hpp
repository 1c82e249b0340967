// SPDX-License-Identifier: Apache-2.0
// What the devices of the demo find, whichever carries their switch, and how it is told.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>

#include <reshard/io/arguments.hpp>
#include <reshard/io/hf_config.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/layout_switch.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/testing/known_values.hpp>
#include <reshard/transport/exchange.hpp>
#include <reshard/transport/forwarding.hpp>

#include "demo_measure.hpp"

namespace demo {

using namespace reshard;

using namespace reshard::io;

using seconds = std::chrono::duration<double>;
using instant = std::chrono::steady_clock::time_point;

inline void tell(const char* key, std::int64_t value) { std::printf("%s %lld\n", key, static_cast<long long>(value)); }
inline void tell_seconds(double value) { std::printf("seconds %.9f\n", value); }

inline device_map devices_of(const char* what, const std::string& list, rank_t ranks) {
  return list.empty() ? device_map(ranks) : device_map(parse_device_list(what, list, ranks));
}

/// The switch that is asked for.
inline computed_switch switch_of(const switch_request& r) {
  const model m = load_model(r.model);
  const space from(m, parse_degrees(r.from)), to(m, parse_degrees(r.to));
  return layout_switch(from, to,
                       {devices_of("--from-devices", r.from_devices, from.ranks()),
                        devices_of("--to-devices", r.to_devices, to.ranks()), nodes_of(r.node_devices)});
}
inline routing route_of(const switch_request& r) { return {r.node_devices > 0 ? relay::always : relay::never}; }

/// What a device found. Plain data, so that processes may leave it in memory that they share.
struct found_by_device {
  switch_report report;
  comparison compared;
  index_t messages = 0;
  bytes_t wire_bytes = 0, staging = 0;
  instant begin, end;
};

/// An endpoint that counts messages where there are any.
template <typename Endpoint>
struct counting : forwarding<Endpoint> {
  using typename forwarding<Endpoint>::moves;
  using forwarding<Endpoint>::inner;
  found_by_device& found;

  moves prepare(const staged_plan& plan, const binding& into, page_stages& pages) {
    moves made = inner.prepare(plan, into, pages);
    if constexpr (std::is_same_v<moves, exchange_moves>) {
      found.messages = static_cast<index_t>(made.out.size());
      found.wire_bytes = made.sent_bytes();
      found.staging = inner.footprint(plan).most;
    }
    return made;
  }
};

/// One device's switch, from when all are ready; device 0 tells which stages are done.
template <typename Endpoint>
inline void switch_once(const computed_switch& change, binding& before, binding& after, Endpoint& here,
                        switch_options options, found_by_device& found) {
  counting<Endpoint> endpoint{{here}, found};
  if (here.device() == 0)
    options.on_stage = [](const stage_report& r) {
      std::printf("at %lld %lld\n", static_cast<long long>(r.stage + 1), static_cast<long long>(r.stages));
      std::fflush(stdout);
    };
  here.all_reduce_max(0);
  found.begin = std::chrono::steady_clock::now();
  found.report = switch_state(change, before, after, endpoint, options);
  found.end = std::chrono::steady_clock::now();
}
inline double elapsed(const std::vector<found_by_device>& all) {
  instant begin = all[0].begin, end = all[0].end;
  for (const found_by_device& f : all) begin = std::min(begin, f.begin), end = std::max(end, f.end);
  return seconds(end - begin).count();
}

inline void tell_found(const std::vector<found_by_device>& all, const switch_request& request, double best) {
  found_by_device sum;
  bytes_t excess = 0, peak = 0, floor = 0, bound = bytes_t{64} << 20;
  for (const found_by_device& f : all) {
    const switch_report& r = f.report;
    sum.report.received += r.received;
    sum.report.passed_on += r.passed_on;
    sum.report.retained += r.retained;
    sum.compared.elements += f.compared.elements;
    sum.compared.wrong += f.compared.wrong;
    sum.messages += f.messages;
    sum.wire_bytes += f.wire_bytes;
    sum.staging = std::max(sum.staging, f.staging);
    excess = std::max(excess, r.memory.excess());
    peak = std::max(peak, r.memory.peak);
    floor = std::max({floor, r.memory.before, r.memory.after});
    bound += std::max(r.memory.before, r.memory.after) + request.budget;
  }
  tell_seconds(best);
  tell("elements", sum.compared.elements);
  tell("wrong", sum.compared.wrong);
  tell("moved_bytes", sum.report.received - sum.report.passed_on);
  tell("relayed_bytes", sum.report.passed_on);
  tell("phases", all[0].report.phases);
  tell("retained_bytes", sum.report.retained);
  tell("stages", all[0].report.stages);
  tell("unread_kept_stages", all[0].report.unread_kept.value_or(-1));  // -1: none
  tell("lag", all[0].report.lag);
  tell("messages", sum.messages);
  tell("wire_bytes", sum.wire_bytes);
  tell("staging_bytes", sum.staging);
  tell("peak_excess_bytes", excess);
  tell("peak_bytes", peak);
  tell("floor_bytes", floor);
  tell("vmhwm_bound_bytes", bound);
}

}  // namespace demo
