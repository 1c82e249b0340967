// SPDX-License-Identifier: Apache-2.0
// Who gets how many devices: min to each admitted job, then one at a time to the job with the greatest gain
//   Q / f(w) - Q / f(w + 1),
// the seconds that one device more saves of what it has left, Q being the samples that it has yet to train; while that
// is above 0, w is below max and a device is free. Of equal gains the earlier job's is taken.
// Builds on: queue/job_trace.hpp.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include <reshard/queue/job_trace.hpp>

namespace reshard {

/// A job among which devices are shared, and what it has left.
struct sharing_job {
  const traced_job* job = nullptr;
  double samples_left = 0;
};

/// Q / f(w) - Q / f(w + 1), for w + 1 devices that the table has.
inline double gain_of(const sharing_job& one, index_t devices) {
  const double* const f = one.job->throughput.data() + devices;
  return one.samples_left / f[0] - one.samples_left / f[1];
}

/// A number above 0 to the nearest of 30 bits.
inline double rounded_gain(double gain) {
  constexpr std::uint64_t half = std::uint64_t{1} << 22;
  return std::bit_cast<double>((std::bit_cast<std::uint64_t>(gain) + half) & ~(2 * half - 1));
}

/// sum of shares <= devices, min <= share <= max of each: the rule above, for jobs in the order in which they came
/// whose minima are not more than the devices. Gains are compared by their first 30 bits, within 1e-9 of them: equal
/// jobs gain alike, however their sums were rounded.
inline std::vector<index_t> shares_of(const std::vector<sharing_job>& jobs, index_t devices) {
  struct offer {
    double gain;
    std::size_t number;
    bool operator<(const offer& other) const { return gain != other.gain ? gain < other.gain : number > other.number; }
  };
  std::vector<index_t> shares;
  std::vector<offer> offers;
  for (const sharing_job& one : jobs) shares.push_back(one.job->min), devices -= one.job->min;
  const auto offer_next = [&](std::size_t i) {
    const traced_job& job = *jobs[i].job;
    const index_t w = shares[i];
    if (w >= job.max || w + 1 >= std::ssize(job.throughput)) return;
    const double* const f = job.throughput.data() + w;
    if (!(f[1] > f[0])) return;  // the gain is not above 0
    offers.push_back({rounded_gain(gain_of(jobs[i], w)), i});
    std::push_heap(offers.begin(), offers.end());
  };
  for (std::size_t i = 0; devices > 0 && i < jobs.size(); ++i) offer_next(i);
  for (; devices > 0 && !offers.empty(); --devices) {
    std::pop_heap(offers.begin(), offers.end());
    const std::size_t taken = offers.back().number;
    offers.pop_back();
    ++shares[taken];
    offer_next(taken);
  }
  return shares;
}

}  // namespace reshard
