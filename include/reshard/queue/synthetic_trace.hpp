// SPDX-License-Identifier: Apache-2.0
// A synthetic trace of jobs, the same for a seed on every machine: more arrive by day than by night, of five kinds that
// scale differently, most of them short and some of many hours. It stands for no cluster; Elan's trace is not public.
// Of a kind with batch B a step with n devices takes
//   fixed + sample B / n + ring (n - 1) / n + hop (n - 1)
// microseconds: what every step takes, a device's samples, bytes around a ring, and one hop more for each device.
// Builds on: base/digest.hpp, queue/job_trace.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <reshard/base/digest.hpp>
#include <reshard/queue/job_trace.hpp>

namespace reshard {

/// How a kind of synthetic job scales.
struct job_kind {
  const char* name;
  index_t batch;                    // samples of a step
  double fixed, sample, ring, hop;  // microseconds, see above
  index_t least, most;              // devices: fits from, converges up to
};
/// The five kinds, each as likely as another.
inline constexpr job_kind job_kinds[] = {
    {"vision", 1024, 5'000, 2'500, 20'000, 150, 1, 64},     {"mobile", 512, 4'000, 800, 3'000, 200, 1, 16},
    {"translation", 512, 6'000, 6'000, 30'000, 250, 2, 64}, {"language", 512, 10'000, 12'000, 60'000, 300, 4, 64},
    {"ranking", 4096, 3'000, 150, 15'000, 400, 1, 32},
};

/// Samples a second with n devices, to a thousandth.
inline double throughput_of(const job_kind& kind, index_t devices) {
  const double n = static_cast<double>(devices), batch = static_cast<double>(kind.batch);
  const double step = kind.fixed + kind.sample * batch / n + kind.ring * (n - 1) / n + kind.hop * (n - 1);
  return std::floor(batch * 1e9 / step + 0.5) / 1000;
}

namespace detail {

/// Random integers: splitmix64's sequence.
class trace_dice {
 public:
  explicit trace_dice(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    const std::uint64_t bits = mix64(state_);
    state_ += mixing_step;
    return bits;
  }
  /// low <= result <= high
  index_t within(index_t low, index_t high) {
    return low + static_cast<index_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
  }

 private:
  std::uint64_t state_;
};

/// Jobs an hour for 128 devices, from midnight on.
inline constexpr index_t arrivals_by_hour[] = {2, 2, 1,  1,  1,  1, 2, 3, 6, 9, 10, 9,
                                               7, 8, 10, 11, 10, 8, 6, 5, 5, 4, 4,  3};

/// A job that takes 5 minutes to 12 hours with the devices that it asks for, and can have a quarter of them to four
/// times as many, within what its kind allows.
inline traced_job synthetic_job(trace_dice& dice, double submit, index_t devices) {
  const job_kind& kind = job_kinds[dice.within(0, std::ssize(job_kinds) - 1)];
  traced_job job;
  job.name = kind.name;
  job.submit = submit;
  const index_t fits = least(kind.least, devices), converges = least(kind.most, devices);
  job.requested = least(fits << dice.within(0, 4), converges);
  job.min = greatest(fits, job.requested / 4);
  job.max = least(converges, 4 * job.requested);
  const index_t size = dice.within(1, 100);
  const index_t minutes = size <= 35   ? dice.within(5, 20)
                          : size <= 70 ? dice.within(20, 80)
                          : size <= 92 ? dice.within(80, 240)
                                       : dice.within(240, 720);
  job.throughput.resize(static_cast<std::size_t>(job.max + 1), 0);
  for (index_t n = job.min; n <= job.max; ++n) job.throughput[static_cast<std::size_t>(n)] = throughput_of(kind, n);
  const double speed = job.throughput[static_cast<std::size_t>(job.requested)];
  job.samples = std::floor(speed * 60 * static_cast<double>(minutes)) + 1;
  return job;
}

}  // namespace detail

/// So many hours of arrivals, from midnight on, at a rate that grows with the devices.
[[nodiscard]] inline job_trace synthetic_trace(std::uint64_t seed, index_t hours = 48, index_t devices = 128) {
  constexpr index_t slot = 15;  // seconds
  if (devices < 1 || devices > max_trace_devices)
    refuse("a synthetic trace of ", devices, " devices; there are 1 to ", max_trace_devices);
  if (hours < 1 || hours > 24 * 366) refuse("a synthetic trace of ", hours, " hours; there are 1 to ", 24 * 366);
  job_trace trace{devices, {}};
  detail::trace_dice dice(seed);
  for (index_t second = 0; second < 3600 * hours; second += slot) {
    const index_t rate = detail::arrivals_by_hour[second / 3600 % 24] * devices * slot;  // of 128 x 3600 a slot
    const index_t arrivals = (rate + dice.within(0, 128 * 3600 - 1)) / (128 * 3600);
    std::vector<index_t> seconds;
    for (index_t i = 0; i < arrivals; ++i) seconds.push_back(second + dice.within(0, slot - 1));
    std::sort(seconds.begin(), seconds.end());
    for (const index_t at : seconds)
      trace.jobs.push_back(detail::synthetic_job(dice, static_cast<double>(at), devices));
  }
  if (trace.jobs.empty()) trace.jobs.push_back(detail::synthetic_job(dice, 0, devices));
  if (std::ssize(trace.jobs) > max_trace_jobs || std::ssize(trace.jobs) * devices > max_trace_product)
    refuse("a synthetic trace of ", hours, " hours for ", devices, " devices has ", std::ssize(trace.jobs),
           " jobs; at most ", least(max_trace_jobs, max_trace_product / devices), " are scheduled");
  return trace;
}

}  // namespace reshard
