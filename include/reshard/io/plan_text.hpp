// SPDX-License-Identifier: Apache-2.0
// Plans and reports as people read them: what a device sends, receives and keeps, box by box; and what a switch did.
// Builds on: io/print.hpp, plan/layout_switch.hpp, plan/plan.hpp, switch/options.hpp.
#pragma once

#include <string>

#include <reshard/io/print.hpp>
#include <reshard/plan/layout_switch.hpp>
#include <reshard/plan/plan.hpp>
#include <reshard/switch/options.hpp>

namespace reshard {

namespace detail {
inline std::string amount_text(const std::vector<transfer>& list) {
  using namespace io;
  return text_of(list.size(), list.size() == 1 ? " box of " : " boxes of ", bytes_text(total_bytes(list)));
}
}  // namespace detail

/// A line of what the device does in all, then one for every box: "  to 3  param  NAME  [0,4)x..", in the plan's order.
template <Holding From, Holding To>
[[nodiscard]] std::string to_text(const plan& p, const layout_switch<From, To>& change) {
  using io::text_of;
  std::string text = text_of("device ", p.device, " sends ", detail::amount_text(p.sends), ", receives ",
                             detail::amount_text(p.receives), ", keeps ", detail::amount_text(p.retains), "\n");
  const auto line = [&](const std::string& what, const transfer& t) {
    text += text_of("  ", what, "  ", to_text(t.states), "  ", change.to().family_at(t.family).name, "  ",
                    to_text(t.where), t.phase > 0 ? text_of("  phase ", t.phase) : "",
                    t.why == purpose::passed_on ? "  to be passed on" : "", "\n");
  };
  for (const transfer& t : p.sends) line(text_of("to ", t.dst), t);
  for (const transfer& t : p.receives) line(text_of("from ", t.src), t);
  for (const transfer& t : p.retains) line("keeps", t);
  for (const transfer& t : p.creates) line("zeros", t);
  for (const transfer& t : p.lost) line("lost", t);
  return text;
}

/// "sent 1.00 MiB, received 2.00 MiB, kept 3.00 MiB in 4 stages; peak 5.00 MiB, 1.00 MiB above max(before, after)"
[[nodiscard]] inline std::string to_text(const switch_report& r) {
  using namespace io;
  return text_of("sent ", bytes_text(r.sent), ", received ", bytes_text(r.received),
                 r.passed_on > 0 ? text_of(", ", bytes_text(r.passed_on), " of it to pass it on") : "", ", kept ",
                 bytes_text(r.retained), " in ", r.stages, r.stages == 1 ? " stage" : " stages",
                 r.phases > 1 ? text_of(" of ", r.phases, " phases") : "", "; peak ", bytes_text(r.memory.peak), ", ",
                 bytes_text(r.memory.excess()), " above max(before, after)");
}

}  // namespace reshard
