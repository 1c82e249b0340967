// SPDX-License-Identifier: Apache-2.0
// What lies between two worlds of a job, where a switch that gave its sources back was torn: derived from the record by
// every member alike, whether it was in that switch or comes now.
// Builds on: elastic/entry.hpp, plan/layout_switch.hpp, switch/torn_switch.hpp.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <reshard/elastic/entry.hpp>
#include <reshard/model/model.hpp>
#include <reshard/plan/layout_switch.hpp>
#include <reshard/space/space.hpp>
#include <reshard/switch/torn_switch.hpp>

namespace reshard::detail {

/// Where a member stands in a list of devices; their number where it does not.
inline rank_t device_in(const member_list& all, const member_name& who) {
  return std::find(all.begin(), all.end(), who) - all.begin();
}
inline std::vector<rank_t> devices_in(const member_list& all, const member_list& of) {
  std::vector<rank_t> devices;
  for (const member_name& who : of) devices.push_back(device_in(all, who));
  return devices;
}

/// The switch that was planned between two worlds, all of whose members lived.
inline any_switch switch_between(const model& m, const state_list& list, const world& from, const world& to) {
  const member_list all = devices_between(from, to);
  return any_switch(computed_holding(space(m, from.layout), list.all()),
                    computed_holding(space(m, to.layout), list.all()),
                    {.to = device_map(devices_in(all, to.members)), .devices = std::ssize(all), .list = list});
}

/// What a state_source that has `into` says of each element. Devices are those of devices_between(*from, *into).
class torn_state {
 public:
  torn_state(const model& m, const state_list& list, const state_source& s)
      : change_(switch_between(m, list, *s.from, *s.into)), boxes_(torn_boxes(change_, s.stages, s.shares)) {
    const member_list all = devices_between(*s.from, *s.into);
    for (rank_t d = 0; d < std::ssize(all); ++d)
      if (!has_member(s.dead, all[static_cast<std::size_t>(d)])) living_.push_back(d);
    for (const torn_share& one : s.shares) holders_.push_back(one.device);
  }

  /// Bytes that nobody holds.
  bytes_t unheld() const {
    bytes_t all = 0;
    for (const torn_box& b : boxes_)
      if (b.lost()) all = checked_add(all, checked_multiply(b.where.volume(), b.states.bytes_per_element()));
    return all;
  }
  /// "lost are 40 elements that only the dead held, and 0 that a survivor had given back before their new copies stood"
  std::string lost_text() const { return lost_after(change_, boxes_, holders_).text(); }

  /// The switch to another world from what is held; `all` begins with this one's devices.
  any_switch onward(const model& m, const world& to, const member_list& all) const {
    const torn_layout lies = layout_after(change_, boxes_, living_);
    placement on = lies.placed(device_map(devices_in(all, to.members)));
    on.devices = std::ssize(all);
    return any_switch(lies.shards, computed_holding(space(m, to.layout), change_.list().all()), on);
  }
  /// What a device holds, where it lies.
  binding held_by(rank_t device, const binding& old_tensors, const binding& new_tensors) const {
    return binding_after(boxes_, device, old_tensors, new_tensors);
  }

 private:
  any_switch change_;
  std::vector<torn_box> boxes_;
  std::vector<rank_t> living_, holders_;
};

}  // namespace reshard::detail
