// SPDX-License-Identifier: Apache-2.0
// A switch of one device that is ready to be run, as data: how it was cut, where its bytes lie, and which pages come
// and go in which slot. It is run once, or as often as one likes where its sources are kept.
// Builds on: transport/all_or_none.hpp, transport/transport.hpp, switch/options.hpp, switch/detail/relay_arena.hpp,
// memory/page_stages.hpp, schedule/staged_plan.hpp.
#pragma once

#include <optional>
#include <vector>

#include <reshard/memory/page_stages.hpp>
#include <reshard/schedule/staged_plan.hpp>
#include <reshard/switch/detail/relay_arena.hpp>
#include <reshard/switch/options.hpp>
#include <reshard/transport/all_or_none.hpp>
#include <reshard/transport/transport.hpp>

namespace reshard::detail {

/// A device's end of a transport, as one of those that make a switch.
template <Transport T>
all_or_none<T> one_of_switch(T& transport) {
  return {transport, "the switch", "; nothing was touched"};
}

/// A switch over ends T, ready; it stays where it was made, as the moves may point into it.
template <typename T>
struct ready_switch {
  binding& old_tensors;
  binding& new_tensors;
  switch_options options;
  switch_report report = {};
  std::optional<staged_plan> staged = {};
  std::optional<relay_arena> arena = {};  // where bytes are passed on
  std::optional<page_stages> old_pages = {}, new_pages = {};
  std::optional<moves_of<T>> moves = {};
  std::vector<std::vector<block_span>> taken = {};  // by slot
  index_t unread_kept = 0;                          // u of this device
  std::vector<index_t> kept_by_device = {};         // u of each; none where all are S

  // How far a run came: it was begun, it came to move, and so many lists of sources have gone: what no stage reads, and
  // then stage by stage.
  bool touched = false, moved = false;
  index_t left = 0;

  slot_times times() const { return {report.stages, report.phases, report.lag}; }
  /// u of each of so many devices (switch/torn_switch.hpp).
  std::vector<index_t> unread_kept_by(rank_t devices) const {
    if (!kept_by_device.empty()) return kept_by_device;
    return std::vector<index_t>(static_cast<std::size_t>(devices), report.stages);
  }
  /// Whether bytes are passed on, by whatever device.
  bool relayed() const { return report.phases > 1; }
  /// Where memory is no question and the switch is made again and again, the arena stays from run to run.
  bool arena_stays() const { return options.budget == no_budget && options.after_use == sources::keep; }
  /// What the transport writes.
  const binding& written() const { return relayed() ? arena->written() : new_tensors; }
};

}  // namespace reshard::detail
