// SPDX-License-Identifier: Apache-2.0
// What a switch is told and what it tells: a budget, whether sources are kept, whether messages are checked, who
// watches; and what became of it.
// Builds on: plan/routing.hpp, schedule/budget.hpp.
#pragma once

#include <functional>
#include <optional>

#include <reshard/plan/routing.hpp>
#include <reshard/schedule/budget.hpp>

namespace reshard {

inline namespace literals {
/// n x 2^10 bytes
constexpr bytes_t operator""_KiB(unsigned long long n) { return static_cast<bytes_t>(n << 10); }
/// n x 2^20 bytes
constexpr bytes_t operator""_MiB(unsigned long long n) { return static_cast<bytes_t>(n << 20); }
/// n x 2^30 bytes
constexpr bytes_t operator""_GiB(unsigned long long n) { return static_cast<bytes_t>(n << 30); }
}  // namespace literals

/// What a device is told of a stage, once what it receives in it is in place.
struct stage_report {
  index_t stage = 0;
  index_t stages = 1;
  bytes_t bytes = 0;   // received in this stage, to keep or to pass on; over all stages, switch_report::received
  rank_t peers = 0;    // from how many devices
  double seconds = 0;  // since the stage before was told, or the run began
};

/// Whether elements may lose bits where memory holds another floating type than its state's: fp32 of a state that is
/// bf16, or the other way on the side of TO.
enum class rounding { refused, to_nearest };

/// The memory that a switch may take beyond what it must, whether its sources are kept, and how it is watched.
struct switch_options {
  bytes_t budget = no_budget;            // beyond max(before, after), per device; the same on all devices
  sources after_use = sources::release;  // keep: peak is before + after; the same on all devices
  bool checks = false;  // of messages, before they are unpacked: 16 bytes more each; the same on all devices
  routing route = {};   // whether bytes are relayed, and in how many stages without a budget; the same on all devices
  // Called between copies. What it throws ends the switch; of the last stage, after which there is nothing to end, it
  // is thrown once the switch is finished everywhere.
  std::function<void(const stage_report&)> on_stage = {};
  rounding rounds =
      rounding::refused;  // of this device's elements, on their way between its memory's type and the state's
};

/// What a switch did, or is about to do, on one device.
struct switch_report {
  index_t stages = 1;
  index_t lag = 0;  // of the transport
  bytes_t sent = 0;
  bytes_t received = 0;
  bytes_t retained = 0;
  memory_replay memory;  // committed pages and staging, in bytes
  index_t phases = 1;
  bytes_t passed_on = 0;  // of what was received: sent on, and not kept
  // What nobody reads goes with the sources of stage u - 1: the least u of all devices that hold some; none does
  std::optional<index_t> unread_kept = {};
};

}  // namespace reshard
