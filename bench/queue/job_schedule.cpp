// SPDX-License-Identifier: Apache-2.0
// A schedule of jobs: 128 devices, days of a synthetic trace. `ratio` is the time of an event (a submission or an end)
// over that of one when the events are sorted, in the same run; argument: days.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

#include <reshard/queue/schedule_jobs.hpp>
#include <reshard/queue/synthetic_trace.hpp>

namespace {
using namespace reshard;

double seconds_of(const auto& call) {
  const auto begun = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

void schedule(benchmark::State& state, job_policy policy) {
  const job_trace trace = synthetic_trace(1, 24 * state.range(0));
  std::vector<double> events;
  const job_schedule made = schedule_jobs(trace, policy, {1, 0});
  for (std::size_t i = 0; i < trace.jobs.size(); ++i)
    events.push_back(trace.jobs[i].submit), events.push_back(made.jobs[i].end);
  std::shuffle(events.begin(), events.end(), std::mt19937(1));
  double scheduling = 1e9, sorting = 1e9;
  for (auto _ : state) {
    for (int round = 0; round < 20; ++round) {  // by turns, as the machine is not equally fast all the time
      scheduling = std::min(scheduling, seconds_of([&] { benchmark::DoNotOptimize(schedule_jobs(trace, policy)); }));
      for (int i = 0; i < 20; ++i)
        sorting = std::min(sorting, seconds_of([&] {
                             std::vector<double> sorted = events;
                             std::sort(sorted.begin(), sorted.end());
                             benchmark::DoNotOptimize(sorted.data());
                           }));
    }
  }
  state.counters["ratio"] = scheduling / sorting;
  state.counters["events"] = static_cast<double>(events.size());
  state.counters["us_per_event"] = scheduling * 1e6 / static_cast<double>(events.size());
}
#define RESHARD_SCHEDULE(policy) \
  BENCHMARK_CAPTURE(schedule, policy, job_policy::policy)->Arg(2)->Arg(16)->Iterations(1)->Unit(benchmark::kMillisecond)
RESHARD_SCHEDULE(fifo);
RESHARD_SCHEDULE(backfill);
RESHARD_SCHEDULE(e_fifo);
RESHARD_SCHEDULE(e_backfill);

}  // namespace

BENCHMARK_MAIN();
