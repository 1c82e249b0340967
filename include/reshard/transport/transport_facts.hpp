// SPDX-License-Identifier: Apache-2.0
// What a transport answers when it is asked, as values: what it is whatever it moves, and what it takes for one plan.
// An answer hangs on nothing that was asked before.
// Builds on: schedule/slot_times.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <reshard/base/integer.hpp>
#include <reshard/schedule/slot_times.hpp>

namespace reshard {

/// What a device's end of a transport is, whatever it moves.
struct transport_facts {
  index_t lag = 0;          // L: what is sent in slot k is in place by the end of slot k + L; the same on all devices
  bytes_t fixed_bytes = 0;  // F: what it holds on this device whatever the stages; paid from the budget
  std::vector<rank_t> absent = {};  // the devices that take no part, being gone; ascending
  bool checks_messages = true;      // whether it can do what check_messages(true) asks for; false: it refuses that
};

/// What a device's end of a transport takes for one plan. A plan of slots 0 .. n - 1 sends in the first n - L.
struct footprint {
  std::vector<bytes_t> staging = {};     // by slot: what it holds then beside the state and fixed_bytes
  bytes_t most = 0;                      // the largest of them; 0 where there is none
  std::vector<index_t> written_in = {};  // by the slot that something is sent in: the first slot that writes it

  /// Whether it tells of every slot of a plan, and of no other: written_in[k] is one of k .. n - 1.
  bool tells_of(const slot_times& at) const {
    bool all =
        static_cast<index_t>(staging.size()) == at.slots() && static_cast<index_t>(written_in.size()) == at.sending();
    for (std::size_t k = 0; k < written_in.size(); ++k)
      all = all && written_in[k] >= static_cast<index_t>(k) && written_in[k] < at.slots();
    return all;
  }
};

/// The footprint of a transport that holds `bytes` in every slot and writes in slot k + L what is sent in slot k:
///   staging[k] = bytes, written_in[k] = k + L.
[[nodiscard]] inline footprint even_footprint(const slot_times& at, bytes_t bytes) {
  footprint all{
      .staging = std::vector<bytes_t>(static_cast<std::size_t>(at.slots()), bytes), .most = bytes, .written_in = {}};
  for (index_t k = 0; k < at.sending(); ++k) all.written_in.push_back(k + at.lag);
  return all;
}

}  // namespace reshard
