// SPDX-License-Identifier: Apache-2.0
// Job traces: the jobs that came to a cluster of G devices, each with when it was submitted, how many devices it asked
// for, with how many it can train, and how fast with each. What a schedule of jobs is made of.
// Builds on: base/integer.hpp.
#pragma once

#include <charconv>
#include <string>
#include <vector>

#include <reshard/base/integer.hpp>

namespace reshard {

/// What a job says of itself: it ends after so many samples, and trains f(n) of them a second with n devices.
struct traced_job {
  double submit = 0;      // seconds, on the trace's clock
  index_t requested = 1;  // devices that a static policy gives it, min <= requested <= max
  index_t min = 1;        // fewest devices with which it fits their memory
  index_t max = 1;        // most with which it still converges
  double samples = 1;
  std::vector<double> throughput;  // [n]: f(n), samples a second with n devices; from min to max, below it anything
  std::string name;                // told in tables, empty for none
};

/// Jobs in any order, and how many devices there are for them; of jobs submitted at once the first listed is earlier.
struct job_trace {
  index_t devices = 1;
  std::vector<traced_job> jobs;
};

/// What a trace may have at most. A schedule takes seconds but for e-backfill, which shares all devices anew for every
/// job that waits whenever one comes or ends: some J^2 times 10 to 50 us where nearly all J wait, minutes for 2,000.
inline constexpr index_t max_trace_devices = 4096;
inline constexpr index_t max_trace_jobs = 20'000;               // the same of jobs
inline constexpr index_t max_trace_product = index_t{1} << 22;  // jobs x devices
inline constexpr double max_submit_seconds = 4e9;       // a clock that began in 1970 does not leave it in this century
inline constexpr double max_job_seconds = 315'360'000;  // ten years

namespace detail {

/// A number as JSON writes one.
inline std::string number_text(double number) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, number).ptr};
}

/// The refusals of one job, whose number begins each sentence.
inline void require_sound(const traced_job& job, index_t number, index_t devices) {
  if (!(job.submit >= 0 && job.submit <= max_submit_seconds))
    refuse("job ", number, ": submit is ", number_text(job.submit), "; it is 0 to 4e9 seconds");
  if (job.min < 1) refuse("job ", number, ": min is ", job.min, " devices; there is at least 1");
  if (job.min > job.max) refuse("job ", number, ": min ", job.min, " is above max ", job.max);
  if (job.requested < job.min || job.requested > job.max)
    refuse("job ", number, ": requested ", job.requested, " is not from min ", job.min, " to max ", job.max);
  if (job.requested > devices)
    refuse("job ", number, ": requested ", job.requested, " of ", devices, devices == 1 ? " device" : " devices",
           "; it could never start");
  if (!(job.samples > 0 && job.samples <= 1e18))
    refuse("job ", number, ": samples is ", number_text(job.samples), "; it is above 0, at most 1e18");
  for (index_t n = job.min; n <= least(job.max, devices); ++n) {
    if (n >= std::ssize(job.throughput))
      refuse("job ", number, ": throughput with ", n, n == 1 ? " device" : " devices",
             " is missing; it is told from min ", job.min, " to max ", job.max);
    const double speed = job.throughput[static_cast<std::size_t>(n)];
    if (!(speed > 0 && speed <= 1e18))
      refuse("job ", number, ": throughput with ", n, n == 1 ? " device" : " devices", " is ", number_text(speed),
             "; it is above 0, at most 1e18 samples a second");
    if (!(job.samples / speed <= max_job_seconds))
      refuse("job ", number, ": ", number_text(job.samples), " samples at ", number_text(speed),
             " a second take longer than ten years");
  }
}

}  // namespace detail

/// Refuses a trace that has no schedule: no job, more than is scheduled, or a job whose numbers cannot be.
inline void require_sound(const job_trace& trace) {
  if (trace.devices < 1 || trace.devices > max_trace_devices)
    refuse("a job trace of ", trace.devices, " devices; there are 1 to ", max_trace_devices);
  if (trace.jobs.empty()) refuse("a job trace without jobs; there is at least one");
  if (std::ssize(trace.jobs) > max_trace_jobs)
    refuse("a job trace of ", std::ssize(trace.jobs), " jobs; at most ", max_trace_jobs, " are scheduled");
  if (std::ssize(trace.jobs) * trace.devices > max_trace_product)
    refuse("a job trace of ", std::ssize(trace.jobs), " jobs on ", trace.devices, " devices; their product is at most ",
           max_trace_product);
  for (index_t i = 0; i < std::ssize(trace.jobs); ++i)
    detail::require_sound(trace.jobs[static_cast<std::size_t>(i)], i, trace.devices);
}

}  // namespace reshard
