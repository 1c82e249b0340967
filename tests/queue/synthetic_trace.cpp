// SPDX-License-Identifier: Apache-2.0
// The synthetic traces, and what the schedules of three of them must show: nobody beyond his bounds, nobody overtaken
// under fifo, the first waiting job never delayed under backfill, and elasticity worth it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include <reshard/queue/schedule_figures.hpp>
#include <reshard/queue/synthetic_trace.hpp>

#include "../support/refused.hpp"

using namespace reshard;

namespace {
/// A number that any change of a trace changes.
std::uint64_t digest_of(const job_trace& trace) {
  std::uint64_t sum = static_cast<std::uint64_t>(trace.devices);
  const auto add = [&](double number) { sum = sum * 1'000'003 + static_cast<std::uint64_t>(number * 1000 + 0.5); };
  for (const traced_job& job : trace.jobs) {
    for (const index_t n : {job.requested, job.min, job.max}) add(static_cast<double>(n));
    add(job.submit), add(job.samples);
    for (const double speed : job.throughput) add(speed);
  }
  return sum;
}

/// Devices held just after each moment at which they change.
struct moment {
  double at;
  index_t more;
};

void check_bounds(const job_trace& trace, const job_schedule& s) {
  std::vector<moment> moments;
  for (std::size_t i = 0; i < trace.jobs.size(); ++i) {
    const traced_job& job = trace.jobs[i];
    const scheduled_job& told = s.jobs[i];
    CHECK(job.submit <= told.start);
    CHECK(told.start == told.held.front().from);
    double trained = 0;
    index_t before = 0;
    for (std::size_t h = 0; h < told.held.size(); ++h) {
      const auto [from, devices] = told.held[h];
      CHECK(devices >= (is_elastic(s.policy) ? job.min : job.requested));
      CHECK(devices <= (is_elastic(s.policy) ? job.max : job.requested));
      const double until = h + 1 < told.held.size() ? told.held[h + 1].from : told.end;
      CHECK(from < until);
      trained += (until - from) * job.throughput[static_cast<std::size_t>(devices)];
      moments.push_back({from, devices - before});
      before = devices;
    }
    moments.push_back({told.end, -before});
    // all its samples, no more, where a change costs nothing
    if (s.cost.pause == 0) CHECK(trained == doctest::Approx(job.samples).epsilon(1e-6));
    else CHECK(trained >= job.samples * (1 - 1e-6));
  }
  // at one moment what goes goes first
  std::sort(moments.begin(), moments.end(),
            [](const moment& a, const moment& b) { return a.at != b.at ? a.at < b.at : a.more < b.more; });
  index_t held = 0, most = 0;
  for (const moment& m : moments) held += m.more, most = std::max(most, held);
  CHECK(held == 0);
  CHECK(most <= trace.devices);
}

/// Static backfill, by what it knew: at the moment at which a job became the first to wait, the ends of those that ran
/// say when it can start, and no later does it.
long check_not_delayed(const job_trace& trace, const job_schedule& s) {
  long waited = 0;
  double first_from = 0;  // since when this job is the first that waits
  for (std::size_t i = 0; i < trace.jobs.size(); ++i) {
    first_from = std::max(first_from, trace.jobs[i].submit);
    const double start = s.jobs[i].start;
    if (start <= first_from) continue;
    ++waited;
    std::vector<moment> ends;
    index_t free = trace.devices;
    for (std::size_t j = 0; j < trace.jobs.size(); ++j) {
      const scheduled_job& other = s.jobs[j];
      const bool runs = other.start < first_from || (other.start == first_from && j < i);
      if (!runs || other.end <= first_from) continue;
      free -= other.held[0].devices;
      ends.push_back({other.end, other.held[0].devices});
    }
    std::sort(ends.begin(), ends.end(), [](const moment& a, const moment& b) { return a.at < b.at; });
    double can = first_from;
    for (const moment& m : ends) {
      if (free >= trace.jobs[i].requested) break;
      free += m.more, can = m.at;
    }
    CHECK(start <= can + 1e-5);
    first_from = start;
  }
  return waited;
}
}  // namespace

TEST_CASE("a seed is a trace, everywhere") {
  CHECK(digest_of(synthetic_trace(1)) == 6840467273090254699u);
  CHECK(digest_of(synthetic_trace(2)) == 8014852524799304844u);
  CHECK(digest_of(synthetic_trace(1, 5, 8)) == 16230504750693783498u);
}

TEST_CASE("two days for 128 devices: sound, sorted, more by day than by night, five kinds") {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    const job_trace trace = synthetic_trace(seed);
    require_sound(trace);
    long day = 0, night = 0;
    double before = 0;
    std::set<std::string> kinds;
    for (const traced_job& job : trace.jobs) {
      CHECK(before <= job.submit);
      before = job.submit;
      kinds.insert(job.name);
      const index_t hour = static_cast<index_t>(job.submit) / 3600 % 24;
      if (hour >= 9 && hour < 18) ++day;
      if (hour < 6) ++night;
      CHECK(job.max <= 64);
      const double seconds = job.samples / job.throughput[static_cast<std::size_t>(job.requested)];
      CHECK(seconds >= 300);
      CHECK(seconds <= 43201);
    }
    CHECK(before < 48 * 3600);
    CHECK(kinds.size() == 5);
    CHECK(trace.jobs.size() > 200);
    CHECK(trace.jobs.size() < 320);
    CHECK(day > 5 * night);
    CHECK(night > 0);
  }
  for (const index_t devices : {1, 3, 16, 2048})
    for (const traced_job& job : synthetic_trace(9, 12, devices).jobs) CHECK(job.requested <= devices);
  CHECK(synthetic_trace(1, 1, 1).jobs.size() == 1);  // there is always one
}

TEST_CASE("a kind's throughput") {
  // 512 samples: 10,000 + 12,000 x 512 / 8 + 60,000 x 7 / 8 + 300 x 7 microseconds
  CHECK(throughput_of(job_kinds[3], 8) == doctest::Approx(512 / 0.8326).epsilon(1e-6));
  for (const job_kind& kind : job_kinds) CHECK(throughput_of(kind, 2) > throughput_of(kind, 1));
}

TEST_CASE("what has no synthetic trace is refused") {
  CHECK_REFUSED(synthetic_trace(1, 48, 0), "a synthetic trace of 0 devices; there are 1 to 4096");
  CHECK_REFUSED(synthetic_trace(1, 0, 8), "a synthetic trace of 0 hours; there are 1 to 8784");
  CHECK_REFUSED(synthetic_trace(1, 8784, 128),
                "a synthetic trace of 8784 hours for 128 devices has 47056 jobs; at most 20000 are scheduled");
  CHECK_REFUSED(synthetic_trace(1, 8784, 128), " jobs; at most 20000 are scheduled");
  CHECK_REFUSED(synthetic_trace(1, 48, 4096), " jobs; at most 1024 are scheduled");
}

TEST_CASE("three seeds, 128 devices, two days: bounds, order, and elasticity is worth it") {
  // what tools/figures of a switch and of a restart are: see docs/howto/worth-it.md
  constexpr double no_cost = 0, a_switch = 1, a_restart = 120;
  std::printf("simulated; minutes of mean pending, mean completion, makespan\n");
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    const job_trace trace = synthetic_trace(seed);
    CAPTURE(seed);
    for (const job_policy fixed : {job_policy::fifo, job_policy::backfill}) {
      const job_policy elastic = fixed == job_policy::fifo ? job_policy::e_fifo : job_policy::e_backfill;
      CAPTURE(name(fixed));
      const job_run still = run_jobs(trace, fixed);
      check_bounds(trace, still.schedule);
      if (overtakes(fixed)) CHECK(check_not_delayed(trace, still.schedule) > 20);
      double gained_before = 1;
      for (const double pause : {no_cost, a_switch, a_restart}) {
        CAPTURE(pause);
        const job_run run = run_jobs(trace, elastic, {pause, pause > 0 ? 0.003 : 0});
        check_bounds(trace, run.schedule);
        for (std::size_t i = 1; i < trace.jobs.size() && !overtakes(elastic); ++i) {
          CHECK(still.schedule.jobs[i - 1].start <= still.schedule.jobs[i].start);
          CHECK(run.schedule.jobs[i - 1].start <= run.schedule.jobs[i].start);
        }
        const schedule_figures &a = still.figures, &b = run.figures;
        std::printf("seed %d, pause %4.0f s: %-10s %6.1f %6.1f %7.1f  %-10s %6.1f %6.1f %7.1f, %ld changes\n",
                    static_cast<int>(seed), pause, name(fixed).data(), a.pending.mean / 60, a.completion.mean / 60,
                    a.makespan / 60, name(elastic).data(), b.pending.mean / 60, b.completion.mean / 60, b.makespan / 60,
                    static_cast<long>(b.changes));
        const double gained = 1 - b.completion.mean / a.completion.mean;
        if (pause != a_restart) {
          CHECK(b.pending.mean < a.pending.mean);
          CHECK(b.completion.mean < a.completion.mean);
          CHECK(b.makespan < a.makespan);
        } else {
          CHECK(gained < gained_before - 0.01);  // restarts in place of switches
        }
        gained_before = gained;
      }
    }
  }
}

TEST_CASE("a schedule is the same every time") {
  const job_trace trace = synthetic_trace(4, 12, 32);
  for (const job_policy policy : job_policies) {
    const job_schedule a = schedule_jobs(trace, policy, {2, 0.01}), b = schedule_jobs(trace, policy, {2, 0.01});
    for (std::size_t i = 0; i < trace.jobs.size(); ++i) {
      CHECK(a.jobs[i].held == b.jobs[i].held);
      CHECK(a.jobs[i].end == b.jobs[i].end);
    }
  }
}
