// SPDX-License-Identifier: Apache-2.0
// What a schedule of jobs is judged by: how long jobs wait and take, when the last ends, and how many devices and
// waiting jobs there are in each minute. Simulated, as the schedule is.
//   pending     start - submit          completion  end - submit
//   makespan    last end - first submit
//   utilisation of minute m: devices held, over G, the mean of [m, m + 1) minutes after the first submission; the last
//               minute ends with the last job
// Builds on: queue/schedule_jobs.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <reshard/queue/schedule_jobs.hpp>

namespace reshard {

/// Mean and median of seconds; of an even count the median is the mean of the middle two.
struct mean_and_median {
  double mean = 0;
  double median = 0;
};
/// The figures of a schedule, times in seconds.
struct schedule_figures {
  mean_and_median pending;
  mean_and_median completion;
  double makespan = 0;
  double utilisation = 0;         // device seconds held, over G x makespan
  double stopped = 0;             // device seconds held by jobs that stop for a change, over G x makespan
  index_t changes = 0;            // how often a running job grew or shrank
  std::vector<double> by_minute;  // utilisation
  std::vector<double> waiting;    // jobs that are submitted and have not started, the mean of each minute
};

/// Longer than this is told of no schedule minute by minute.
inline constexpr double max_schedule_seconds = 63'072'000;  // two years: a million minutes

namespace detail {

inline mean_and_median mean_and_median_of(std::vector<double> seconds) {
  double sum = 0;
  for (const double one : seconds) sum += one;
  std::sort(seconds.begin(), seconds.end());
  const std::size_t half = seconds.size() / 2;
  return {sum / static_cast<double>(seconds.size()),
          seconds.size() % 2 == 1 ? seconds[half] : (seconds[half - 1] + seconds[half]) / 2};
}

/// From this moment on there is so much more.
struct step_at {
  double at;
  double more;
};
/// The mean over each minute of [0, until) of a sum of steps, which is 0 after the last.
inline std::vector<double> means_by_minute(std::vector<step_at> steps, double until) {
  std::sort(steps.begin(), steps.end(), [](const step_at& a, const step_at& b) { return a.at < b.at; });
  std::vector<double> means(static_cast<std::size_t>(std::ceil(until / 60)), 0);
  double height = 0, now = 0;
  const auto go_to = [&](double then) {
    for (then = std::min(then, until); now < then;) {
      const std::size_t minute = std::min(static_cast<std::size_t>(now / 60), means.size() - 1);
      const double begins = 60 * static_cast<double>(minute), ends = std::min(begins + 60, until);
      const double next = std::min(then, begins + 60);
      means[minute] += height * (next - now) / (ends - begins);
      now = next;
    }
  };
  for (const step_at& step : steps) go_to(step.at), height += step.more;
  return means;
}

/// Device seconds of a job's pauses, which follow its changes one after the other.
inline double stopped_device_seconds(const scheduled_job& job, double pause) {
  double ready = job.start, sum = 0;
  for (std::size_t i = 1; i < job.held.size(); ++i) {  // it starts without one
    const double from = job.held[i].from, until = i + 1 < job.held.size() ? job.held[i + 1].from : job.end;
    ready = std::max(ready, from) + pause;
    sum += static_cast<double>(job.held[i].devices) * std::max(0.0, std::min(ready, until) - from);
  }
  return sum;
}

}  // namespace detail

/// The figures of a schedule that was made of this trace.
[[nodiscard]] inline schedule_figures schedule_figures_of(const job_trace& trace, const job_schedule& schedule) {
  double first = trace.jobs.front().submit, last = 0;
  for (const traced_job& job : trace.jobs) first = std::min(first, job.submit);
  schedule_figures told;
  std::vector<double> pending, completion;
  std::vector<detail::step_at> held, waiting;
  double stopped = 0;
  for (std::size_t i = 0; i < trace.jobs.size(); ++i) {
    const scheduled_job& job = schedule.jobs[i];
    pending.push_back(job.start - trace.jobs[i].submit), completion.push_back(job.end - trace.jobs[i].submit);
    last = std::max(last, job.end);
    told.changes += job.changes();
    stopped += detail::stopped_device_seconds(job, is_elastic(schedule.policy) ? schedule.cost.pause : 0);
    waiting.push_back({trace.jobs[i].submit - first, 1}), waiting.push_back({job.start - first, -1});
    index_t before = 0;
    for (const held_devices& h : job.held) {
      held.push_back({h.from - first, static_cast<double>(h.devices - before)});
      before = h.devices;
    }
    held.push_back({job.end - first, static_cast<double>(-before)});
  }
  told.pending = detail::mean_and_median_of(std::move(pending));
  told.completion = detail::mean_and_median_of(std::move(completion));
  told.makespan = last - first;
  if (told.makespan > max_schedule_seconds)
    refuse("the schedule ends ", detail::number_text(told.makespan), " seconds after the first job was submitted; at ",
           "most two years are told minute by minute");
  told.by_minute = detail::means_by_minute(std::move(held), told.makespan);
  told.waiting = detail::means_by_minute(std::move(waiting), told.makespan);
  const double devices = static_cast<double>(trace.devices);
  double minutes = 0;
  for (std::size_t m = 0; m < told.by_minute.size(); ++m) {
    told.by_minute[m] /= devices;
    minutes += told.by_minute[m] * std::min(1.0, told.makespan / 60 - static_cast<double>(m));
  }
  told.utilisation = told.makespan > 0 ? minutes * 60 / told.makespan : 0;
  told.stopped = told.makespan > 0 ? stopped / devices / told.makespan : 0;
  return told;
}

/// A schedule and its figures.
struct job_run {
  job_schedule schedule;
  schedule_figures figures;
};
/// A trace under a policy, and what that policy is judged by.
[[nodiscard]] inline job_run run_jobs(const job_trace& trace, job_policy policy, change_cost cost = {}) {
  job_run run{schedule_jobs(trace, policy, cost), {}};
  run.figures = schedule_figures_of(trace, run.schedule);
  return run;
}

}  // namespace reshard
