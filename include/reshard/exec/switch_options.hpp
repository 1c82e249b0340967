// SPDX-License-Identifier: Apache-2.0
// What a switch is told and what it tells: a budget, whether sources are kept, and what became of it.
// Builds on: schedule/memory_replay.hpp.
#pragma once

#include <limits>

#include <reshard/schedule/memory_replay.hpp>

namespace reshard {

inline namespace literals {
/// n x 2^10 bytes
constexpr bytes_t operator""_KiB(unsigned long long n) { return static_cast<bytes_t>(n << 10); }
/// n x 2^20 bytes
constexpr bytes_t operator""_MiB(unsigned long long n) { return static_cast<bytes_t>(n << 20); }
/// n x 2^30 bytes
constexpr bytes_t operator""_GiB(unsigned long long n) { return static_cast<bytes_t>(n << 30); }
}  // namespace literals

/// No limit: the switch is made in one stage. An eighth of what 64 bits hold, so that it may be multiplied.
inline constexpr bytes_t no_budget = std::numeric_limits<bytes_t>::max() / 8;

/// The memory that a switch may take beyond what it must, and whether its sources are kept.
struct switch_options {
  bytes_t budget = no_budget;            // beyond max(before, after), per device; the same on all devices
  sources after_use = sources::release;  // keep: peak is before + after
};

/// What a switch did, or is about to do, on one device.
struct switch_report {
  index_t stages = 1;
  index_t lag = 0;  // of the transport: there are stages + lag slots
  bytes_t sent = 0;
  bytes_t received = 0;
  bytes_t retained = 0;
  memory_replay memory;  // committed pages and staging, in bytes
};

}  // namespace reshard
