// SPDX-License-Identifier: Apache-2.0
// What a switch is told and what it tells: the two holdings and where they sit, a budget, and what became of it.
// Builds on: plan/make_plan.hpp, schedule/memory.hpp.
#pragma once

#include <limits>
#include <utility>

#include <reshard/plan/make_plan.hpp>
#include <reshard/schedule/memory.hpp>

namespace reshard {

inline namespace literals {
constexpr bytes_t operator""_KiB(unsigned long long n) { return static_cast<bytes_t>(n << 10); }
constexpr bytes_t operator""_MiB(unsigned long long n) { return static_cast<bytes_t>(n << 20); }
constexpr bytes_t operator""_GiB(unsigned long long n) { return static_cast<bytes_t>(n << 30); }
}  // namespace literals

/// Of what is to move: from one holding, to another, the ranks of each placed on devices.
template <Holding From, Holding To>
struct layout_switch {
  const From& from;
  const To& to;
  placement where;

  layout_switch(const From& f, const To& t) : from(f), to(t), where{device_map(f.ranks()), device_map(t.ranks())} {}
  layout_switch(const From& f, const To& t, placement w) : from(f), to(t), where(std::move(w)) {}
  layout_switch(const From&&, const To&) = delete;  // both holdings must outlive the switch
  layout_switch(const From&, const To&&) = delete;
  layout_switch(const From&&, const To&&) = delete;
  layout_switch(const From&&, const To&, placement) = delete;
  layout_switch(const From&, const To&&, placement) = delete;
  layout_switch(const From&&, const To&&, placement) = delete;

  rank_t devices() const { return greatest(where.from.devices(), where.to.devices()); }
};

/// Whether a switch gives memory back as it drains, or leaves the sources whole until the caller drops them.
enum class sources { release, keep };

inline constexpr bytes_t no_budget = std::numeric_limits<bytes_t>::max() / 8;

struct switch_options {
  bytes_t budget = no_budget;            // beyond max(before, after), per device; the same on all devices
  sources after_use = sources::release;  // keep: peak is before + after
};

/// What a switch did, or is about to do, on one device.
struct switch_report {
  index_t stages = 1;
  bytes_t sent = 0;
  bytes_t received = 0;
  bytes_t retained = 0;
  memory_replay memory;  // committed pages and staging, in bytes
};

}  // namespace reshard
