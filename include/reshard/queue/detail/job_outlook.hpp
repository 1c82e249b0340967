// SPDX-License-Identifier: Apache-2.0
// What is expected of running jobs if nothing else happened: when each ends, and when so many devices are free. By this
// is judged who is admitted, and whether the first waiting job is delayed.
// Builds on: queue/job_schedule.hpp, queue/detail/job_shares.hpp.
#pragma once

#include <algorithm>
#include <vector>

#include <reshard/queue/detail/job_shares.hpp>
#include <reshard/queue/job_schedule.hpp>

namespace reshard::detail {

/// An admitted job: trains from `ready` to `end` where it keeps its devices. Without devices it has not begun.
struct running_job {
  const traced_job* job = nullptr;
  std::size_t number = 0;  // in the order of submission
  index_t devices = 0;
  double ready = 0;
  double end = 0;
};

/// Speeds and pauses under one policy.
class job_clock {
 public:
  job_clock(index_t devices, job_policy policy, change_cost cost)
      : devices_(devices), pause_(is_elastic(policy) ? cost.pause : 0),
        rest_(is_elastic(policy) ? 1 - cost.overhead : 1) {}

  index_t devices() const { return devices_; }
  /// f(n) (1 - overhead)
  double speed(const traced_job& job, index_t n) const { return job.throughput[static_cast<std::size_t>(n)] * rest_; }
  double samples_left(const running_job& one, double now) const {
    if (one.devices == 0) return one.job->samples;
    return (one.end - std::max(now, one.ready)) * speed(*one.job, one.devices);
  }
  /// The job with n devices from now on. One that runs already stops for a pause, after that in which it is.
  running_job with(running_job one, index_t n, double now) const {
    if (one.devices == n) return one;
    const double left = samples_left(one, now);
    one.ready = one.devices == 0 ? now : std::max(now, one.ready) + pause_;
    one.devices = n;
    one.end = one.ready + left / speed(*one.job, n);
    return one;
  }
  /// The jobs as the rule of shares has them from now on.
  std::vector<running_job> shared(std::vector<running_job> jobs, double now) const {
    std::vector<sharing_job> sharing;
    for (const running_job& one : jobs) sharing.push_back({one.job, samples_left(one, now)});
    const std::vector<index_t> shares = shares_of(sharing, devices_);
    for (std::size_t i = 0; i < jobs.size(); ++i) jobs[i] = with(jobs[i], shares[i], now);
    return jobs;
  }

 private:
  index_t devices_;
  double pause_, rest_;
};

/// A moment at which so many devices are free.
struct free_moment {
  double at = 0;
  index_t devices = 0;
};
/// The first from now on with `wanted` free, wanted <= devices; ends of one moment are counted together.
inline free_moment first_free(const std::vector<running_job>& jobs, index_t devices, index_t wanted, double now) {
  struct ending {
    double at;
    index_t devices;
  };
  std::vector<ending> endings;
  for (const running_job& one : jobs) devices -= one.devices, endings.push_back({one.end, one.devices});
  std::sort(endings.begin(), endings.end(), [](const ending& a, const ending& b) { return a.at < b.at; });
  for (std::size_t i = 0; devices < wanted && i < endings.size();) {
    now = endings[i].at;
    for (; i < endings.size() && endings[i].at <= now + moment_seconds; ++i) devices += endings[i].devices;
  }
  return {now, devices};
}

/// When a job ends that is not admitted: it begins when its min are free, with what it would take of those, as the rule
/// of shares adds them.
inline double end_after_waiting(const job_clock& clock, const traced_job& job, const std::vector<running_job>& others,
                                double now) {
  const free_moment begins = first_free(others, clock.devices(), job.min, now);
  const index_t n = shares_of({{&job, job.samples}}, begins.devices).front();
  return begins.at + job.samples / clock.speed(job, n);
}

/// The sum of seconds to their ends of those that run.
inline double seconds_to_end(const std::vector<running_job>& jobs, double now) {
  double sum = 0;
  for (const running_job& one : jobs) sum += one.end - now;
  return sum;
}
/// sum of end - now over those that run `with` a newcomer, who is at `place` among them: until it ends they have what
/// is left beside it, from then on what they have `without` it.
inline double seconds_to_end(const job_clock& clock, const std::vector<running_job>& with, std::size_t place,
                             const std::vector<running_job>& without, double now) {
  const double left = with[place].end;
  double sum = left - now;
  for (std::size_t i = 0; i < without.size(); ++i) {
    const running_job& one = with[i < place ? i : i + 1];
    const bool ends_first = one.end <= left + moment_seconds;
    sum += (ends_first ? one : clock.with(one, without[i].devices, left)).end - now;
  }
  return sum;
}

}  // namespace reshard::detail
