// SPDX-License-Identifier: Apache-2.0
// Whether a plan that was read from somewhere is one of a switch: what every reader of plans asks before it hands one
// over.
// Builds on: plan/layout_switch.hpp, plan/plan.hpp.
#pragma once

#include <string_view>

#include <reshard/plan/layout_switch.hpp>
#include <reshard/plan/plan.hpp>

namespace reshard::io {

/// Refuses a plan with a device, states, family or box that the switch does not have, or whose lists are not the
/// device's own, in order. `who` begins the sentence.
template <Holding From, Holding To>
void require_plan_of(const layout_switch<From, To>& change, const plan& p, std::string_view who) {
  if (p.device < 0 || p.device >= change.devices())
    refuse(who, ": a plan of device ", p.device, "; the switch has ", change.devices(), " devices");
  const auto check = [&](const std::vector<transfer>& list, std::string_view name, bool leaves, bool arrives) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      const transfer& t = list[i];
      if (t.src < 0 || t.src >= change.devices() || t.dst < 0 || t.dst >= change.devices())
        refuse(who, ": ", name, "[", i, "] goes from device ", t.src, " to ", t.dst, "; the switch has ",
               change.devices(), " devices");
      if ((t.src == p.device) != leaves || (t.dst == p.device) != arrives)
        refuse(who, ": ", name, "[", i, "] goes from device ", t.src, " to ", t.dst, ", in a plan of device ",
               p.device);
      if (change.lost(t.src) || change.lost(t.dst))
        refuse(who, ": ", name, "[", i, "] goes from device ", t.src, " to ", t.dst, ", and device ",
               change.lost(t.src) ? t.src : t.dst, " is lost");
      if (change.empty(t.src) && &list != &p.creates && &list != &p.lost && t.phase == 0)
        refuse(who, ": ", name, "[", i, "] goes from device ", t.src, " to ", t.dst, ", and device ", t.src,
               " is empty");
      if (t.states.empty() || (t.states & change.states()) != t.states)
        refuse(who, ": ", name, "[", i, "] has states that the switch does not move");
      if (t.family < 0 || t.family >= change.to().families())
        refuse(who, ": ", name, "[", i, "] is of family ", t.family, "; the switch has ", change.to().families());
      if (t.where.empty() || !change.to().family_at(t.family).whole().contains(t.where))
        refuse(who, ": ", name, "[", i, "] is no part of ", change.to().family_at(t.family).name);
      if (leaves && arrives && (t.phase != 0 || t.why != purpose::delivered))
        refuse(who, ": ", name, "[", i, "] stays on its device, in phase ", t.phase,
               t.why == purpose::delivered ? "" : ", to be passed on");
      if (i > 0 && !precedes(list[i - 1], t)) refuse(who, ": ", name, "[", i, "] is out of order");
    }
  };
  check(p.sends, "sends", true, false);
  check(p.receives, "receives", false, true);
  check(p.retains, "retains", true, true);
  check(p.creates, "creates", true, true);
  check(p.lost, "lost", true, true);
}

}  // namespace reshard::io
