// SPDX-License-Identifier: Apache-2.0
// Jobs on G devices, event by event: whoever ends goes, whoever is submitted waits at the end of the queue, then the
// policy admits.
//   fifo        the first waiting job starts, if what it requested is free; else nobody
//   backfill    then also a later one, if what it requested is free and by the estimates the first waiting one starts
//               no later (EASY)
//   e-fifo      the first waiting job is admitted if its min are free, or if the mean completion time of it and those
//               that run does not grow; then the devices are shared anew
//   e-backfill  then also a later one, if that is so of it and the first waiting one's min are free no later
// Free is what no job holds before the devices are shared anew. The mean does not grow if it is no more, once those
// that run have made room until the newcomer ends, than if it began when its min are free; both as if nobody else came.
// Simulated: nothing is measured.
// Builds on: queue/detail/job_outlook.hpp, base/same_seconds.hpp, base/sort.hpp.
#pragma once

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include <reshard/base/same_seconds.hpp>
#include <reshard/base/sort.hpp>
#include <reshard/queue/detail/job_outlook.hpp>

namespace reshard {

namespace detail {

/// One policy's run of a trace. Jobs are counted in the order of submission.
class job_simulator {
 public:
  job_simulator(const job_trace& trace, job_policy policy, change_cost cost)
      : trace_(&trace), clock_(trace.devices, policy, cost),
        order_(trace.jobs.size()), result_{policy, cost, std::vector<scheduled_job>(trace.jobs.size())} {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    sort_items(order_, [&](std::size_t a, std::size_t b) { return trace.jobs[a].submit < trace.jobs[b].submit; });
  }

  job_schedule run() {
    while (next_ < order_.size() || !running_.empty()) {
      take_events();
      if (is_elastic(result_.policy)) admit();
      else start();
    }
    return std::move(result_);
  }

 private:
  const traced_job& job(std::size_t number) const { return trace_->jobs[order_[number]]; }
  running_job waiting(std::size_t number) const { return {&job(number), number, 0, now_, now_}; }

  /// Goes to the next moment: the last submission within a moment of the first event, where there is one.
  void take_events() {
    double first = next_ < order_.size() ? job(next_).submit : running_.front().end;
    for (const running_job& one : running_) first = std::min(first, one.end);
    const double past = first + moment_seconds;
    now_ = std::max(now_, first);
    for (; next_ < order_.size() && job(next_).submit <= past; ++next_) {
      queue_.push_back(next_);
      now_ = std::max(now_, job(next_).submit);
    }
    std::erase_if(running_, [&](const running_job& one) {
      if (one.end > past) return false;
      result_.jobs[order_[one.number]].end = now_;
      return true;
    });
    free_ = clock_.devices(), minima_ = 0;
    for (const running_job& one : running_) free_ -= one.devices, minima_ += one.job->min;
  }

  /// Static policies: EASY, of which fifo is the part that overtakes nobody.
  void start() {
    std::vector<std::size_t> left;
    free_moment reserved;  // when the first waiting job starts; what it leaves free then
    for (std::size_t i = 0; i < queue_.size(); ++i) {
      const traced_job& one = job(queue_[i]);
      if (!left.empty() && (!overtakes(result_.policy) || free_ == 0)) {
        for (; i < queue_.size(); ++i) left.push_back(queue_[i]);  // g++ 14 takes an insertion for an overflow
        break;
      }
      const bool in_time =
          left.empty() || now_ + one.samples / clock_.speed(one, one.requested) <= reserved.at + moment_seconds;
      if (one.requested > free_ || !(in_time || one.requested <= reserved.devices)) {
        left.push_back(queue_[i]);
        if (left.size() > 1) continue;
        reserved = first_free(running_, clock_.devices(), one.requested, now_);
        reserved.devices -= one.requested;
        continue;
      }
      if (!in_time) reserved.devices -= one.requested;
      free_ -= one.requested;
      std::vector<running_job> more = running_;
      more.push_back(clock_.with(waiting(queue_[i]), one.requested, now_));
      hold(more);
    }
    queue_ = left;
  }

  /// Elastic policies: moves jobs from the queue to those that run, where they have no devices yet.
  void admit() {
    std::vector<std::size_t> left;
    std::vector<running_job> expected = clock_.shared(running_, now_);  // if nobody more is admitted
    double reserved = 0;                                                // when the first waiting job's min are free
    for (const std::size_t number : queue_) {
      const bool overtaking = !left.empty();
      std::vector<running_job> with;
      if (!overtaking || overtakes(result_.policy)) with = admitted(number, expected);
      if (with.empty() || (overtaking && min_free(with, left.front()) > reserved + moment_seconds)) {
        left.push_back(number);
        if (!overtaking) reserved = min_free(expected, number);
        continue;
      }
      free_ = std::max(index_t{0}, free_ - job(number).min);
      minima_ += job(number).min;
      running_.insert(place_of(number), waiting(number));
      expected = std::move(with);
      if (overtaking) reserved = min_free(expected, left.front());
    }
    queue_ = std::move(left);
    hold(std::move(expected));
  }
  double min_free(const std::vector<running_job>& jobs, std::size_t number) const {
    return first_free(jobs, clock_.devices(), job(number).min, now_).at;
  }
  std::vector<running_job>::iterator place_of(std::size_t number) {
    return std::find_if(running_.begin(), running_.end(), [&](const running_job& r) { return r.number > number; });
  }

  /// Who runs with this job beside them, if it may be admitted; else nobody. `without`: who runs if it is not.
  std::vector<running_job> admitted(std::size_t number, const std::vector<running_job>& without) {
    const traced_job& one = job(number);
    if (one.min > clock_.devices() - minima_) return {};
    std::vector<running_job> with = running_;
    const auto place = place_of(number) - running_.begin();
    with.insert(with.begin() + place, waiting(number));
    with = clock_.shared(std::move(with), now_);
    if (one.min <= free_) return with;
    const double waits = seconds_to_end(without, now_) + end_after_waiting(clock_, one, without, now_) - now_;
    const double runs = seconds_to_end(clock_, with, static_cast<std::size_t>(place), without, now_);
    if (fewer_seconds(waits, runs)) return {};
    return with;
  }

  /// Lets these run from now on, and tells of each whose devices are others than before.
  void hold(std::vector<running_job> jobs) {
    running_ = std::move(jobs);
    for (const running_job& one : running_) {
      scheduled_job& told = result_.jobs[order_[one.number]];
      if (told.held.empty()) told.start = now_;
      if (told.held.empty() || told.held.back().devices != one.devices) told.held.push_back({now_, one.devices});
    }
  }

  const job_trace* trace_;
  job_clock clock_;
  std::vector<std::size_t> order_;  // the trace's number of each
  job_schedule result_;
  double now_ = 0;
  index_t free_ = 0, minima_ = 0;  // devices that nobody holds; that those which run cannot do without
  std::size_t next_ = 0;           // the first that is not submitted yet
  std::vector<std::size_t> queue_;
  std::vector<running_job> running_;
};

}  // namespace detail

/// The schedule of a trace under a policy. Refuses a trace that has none, and a cost that is no cost.
[[nodiscard]] inline job_schedule schedule_jobs(const job_trace& trace, job_policy policy, change_cost cost = {}) {
  require_sound(trace);
  if (!(cost.pause >= 0 && cost.pause <= max_job_seconds))
    refuse("a pause of ", detail::number_text(cost.pause), " seconds; it is 0 to ten years");
  if (!(cost.overhead >= 0 && cost.overhead < 1))
    refuse("an overhead of ", detail::number_text(cost.overhead), "; it is a fraction, 0 or more and below 1");
  return detail::job_simulator(trace, policy, cost).run();
}

}  // namespace reshard
