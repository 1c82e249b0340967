// SPDX-License-Identifier: Apache-2.0
// A schedule of jobs: which of them held how many devices, from when on. A value; who makes one is schedule_jobs.
// Builds on: queue/job_trace.hpp.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include <reshard/queue/job_trace.hpp>

namespace reshard {

/// Who may start, and with how many devices.
enum class job_policy {
  fifo,       // in order, with what was requested
  e_fifo,     // in order; devices are shared anew at every event
  backfill,   // EASY: a later job may start where the first waiting one is not delayed
  e_backfill  // both
};
/// All of them, each before its elastic form.
inline constexpr job_policy job_policies[] = {job_policy::fifo, job_policy::e_fifo, job_policy::backfill,
                                              job_policy::e_backfill};

/// What the command line calls it.
constexpr std::string_view name(job_policy policy) {
  constexpr std::string_view names[] = {"fifo", "e-fifo", "backfill", "e-backfill"};
  return names[static_cast<std::size_t>(policy)];
}
/// Whether running jobs grow and shrink.
constexpr bool is_elastic(job_policy policy) {
  return policy == job_policy::e_fifo || policy == job_policy::e_backfill;
}
/// Whether a later job may start before the first waiting one.
constexpr bool overtakes(job_policy policy) {
  return policy == job_policy::backfill || policy == job_policy::e_backfill;
}
/// The policy of this name; none where there is none.
constexpr std::optional<job_policy> find_job_policy(std::string_view text) {
  for (const job_policy policy : job_policies)
    if (name(policy) == text) return policy;
  return {};
}

/// What elasticity costs; static policies pay neither.
struct change_cost {
  double pause = 0;     // seconds for which a running job stops whenever its devices change
  double overhead = 0;  // of its speed, a fraction below 1: f(n) becomes (1 - overhead) f(n)
};

/// Events less than this apart are one: times are sums that are rounded.
inline constexpr double moment_seconds = 1e-6;

/// So many devices from a moment on.
struct held_devices {
  double from = 0;
  index_t devices = 0;
  friend bool operator==(const held_devices&, const held_devices&) = default;
};
/// submit <= start <= end; held.front().from == start, and the last it has until its end.
struct scheduled_job {
  double start = 0;
  double end = 0;
  std::vector<held_devices> held;
  /// How often it grew or shrank.
  index_t changes() const { return std::ssize(held) - 1; }
};

/// The jobs of a trace in its order.
struct job_schedule {
  job_policy policy = job_policy::fifo;
  change_cost cost;
  std::vector<scheduled_job> jobs;
};

}  // namespace reshard
