// SPDX-License-Identifier: Apache-2.0
// Schedules of jobs: against the rule's twin at every instant, in all orders of the events of five jobs and in random
// ones; and by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <reshard/queue/schedule_jobs.hpp>

#include "../oracle/job_rule.hpp"
#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"

using namespace reshard;

namespace {
/// A job with f(min), f(min + 1), ..
traced_job job(double submit, index_t requested, index_t min, double samples, std::vector<double> speeds) {
  traced_job one{submit, requested, min, min + std::ssize(speeds) - 1, samples, {}, ""};
  one.throughput.assign(static_cast<std::size_t>(min), 0);
  one.throughput.insert(one.throughput.end(), speeds.begin(), speeds.end());
  return one;
}
using steps = std::vector<held_devices>;

/// What is wrong with a schedule beside the twin's history of the same trace; empty where nothing is.
std::string against_twin(const job_trace& trace, job_policy policy, change_cost cost, oracle::rule_counts& counts) {
  std::vector<oracle::cluster_job> jobs;
  for (const traced_job& one : trace.jobs)
    jobs.push_back({one.submit, static_cast<int>(one.requested), static_cast<int>(one.min), static_cast<int>(one.max),
                    one.samples, one.throughput});
  oracle::job_rule twin(jobs, static_cast<int>(trace.devices), std::string(name(policy)), cost.pause, cost.overhead);
  const std::vector<oracle::cluster_moment> history = twin.history();
  const oracle::rule_counts& met = twin.counts();
  counts.by_mean += met.by_mean, counts.not_by_mean += met.not_by_mean, counts.overtook += met.overtook;
  counts.would_delay += met.would_delay, counts.changed_while_stopped += met.changed_while_stopped;
  counts.together += met.together;
  const job_schedule found = schedule_jobs(trace, policy, cost);
  const auto near = [](double a, double b) { return std::fabs(a - b) <= 1e-5; };
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    steps wanted;
    double end = -1;
    index_t before = 0;
    for (const oracle::cluster_moment& m : history) {
      const index_t now = m.devices[j];
      if (now == before) continue;
      if (now > 0) wanted.push_back({m.at, now});
      else end = m.at;
      before = now;
    }
    const scheduled_job& told = found.jobs[j];
    const std::string which = "job " + std::to_string(j) + ": ";
    if (told.held.size() != wanted.size()) return which + "another number of changes";
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (told.held[i].devices != wanted[i].devices || !near(told.held[i].from, wanted[i].from))
        return which + std::to_string(told.held[i].devices) + " devices from " + std::to_string(told.held[i].from) +
               ", the rule has " + std::to_string(wanted[i].devices) + " from " + std::to_string(wanted[i].from);
    if (!near(told.end, end) || told.start != told.held.front().from) return which + "another end or start";
  }
  return {};
}

/// The order in which jobs are submitted (0 to 4) and end (5 to 9) in a schedule.
std::string order_of(const job_trace& trace, const job_schedule& schedule) {
  std::vector<std::pair<double, char>> events;
  for (std::size_t j = 0; j < trace.jobs.size(); ++j) {
    events.emplace_back(trace.jobs[j].submit, static_cast<char>('0' + j));
    events.emplace_back(schedule.jobs[j].end, static_cast<char>('5' + j));
  }
  std::sort(events.begin(), events.end());
  std::string order;
  for (const auto& [at, event] : events) order += event;
  return order;
}

/// Every order in which five jobs can be submitted, one after the other, and end: 9 x 7 x 5 x 3 of them.
void each_order(std::string so_far, int submitted, std::vector<std::string>& orders) {
  if (so_far.size() == 10) return orders.push_back(so_far);
  if (submitted < 5) each_order(so_far + static_cast<char>('0' + submitted), submitted + 1, orders);
  for (int j = 0; j < submitted; ++j)
    if (const char end = static_cast<char>('5' + j); so_far.find(end) == so_far.npos)
      each_order(so_far + end, submitted, orders);
}

/// A job that, with what it requested, would take as long as it has from its submission to its end in the order.
traced_job shaped(std::size_t shape, double submit, double seconds) {
  switch (shape) {
    case 0: return job(submit, 1, 1, seconds, {1});
    case 1: return job(submit, 2, 1, 1.9 * seconds, {1, 1.9, 2.7, 3.4});
    case 2: return job(submit, 2, 2, 2 * seconds, {2, 2.5});
    case 3: return job(submit, 3, 1, 1.5 * seconds, {1, 1.5, 1.5, 2});  // the gain of a third is 0
    case 4: return job(submit, 1, 1, seconds, {1, 2, 3, 4});
    default: return job(submit, 4, 3, 4 * seconds, {3.2, 4});
  }
}
constexpr std::size_t shapes = 6;
}  // namespace

TEST_CASE("five jobs on four devices, all orders of their events: the rule's devices at every instant") {
  std::vector<std::string> orders;
  each_order("", 0, orders);
  REQUIRE(orders.size() == 945);
  oracle::rule_counts counts;
  std::set<std::string> met;
  const int each = testing::few() ? 1 : 2;
  long traces = 0;
  for (std::size_t o = 0; o < orders.size(); ++o)
    for (int i = 0; i < each; ++i)
      for (const double grid : {10.0, 0.0}) {  // 0: two neighbours of the order fall on one moment
        std::size_t chosen = (o * 2 + static_cast<std::size_t>(i)) * 2741;
        job_trace trace{4, {}};
        for (std::size_t j = 0; j < 5; ++j, chosen /= shapes) {
          const auto at = [&](char event) {
            const std::size_t place = orders[o].find(event);
            return grid > 0 ? grid * static_cast<double>(place) : 20 * static_cast<double>(place / 2);
          };
          const double submit = at(static_cast<char>('0' + j)), end = at(static_cast<char>('5' + j));
          trace.jobs.push_back(shaped(chosen % shapes, submit, std::max(end - submit, 5.0)));
        }
        ++traces;
        for (const job_policy policy : job_policies)
          for (const double pause : {0.0, 7.0}) {
            if (pause > 0 && !is_elastic(policy)) continue;
            const std::string wrong = against_twin(trace, policy, {pause, pause / 100}, counts);
            if (wrong.empty()) continue;
            CAPTURE(orders[o]);
            CAPTURE(grid);
            CAPTURE(name(policy));
            CAPTURE(pause);
            CHECK(wrong == "");
            return;
          }
        met.insert(order_of(trace, schedule_jobs(trace, job_policy::e_backfill)));
      }
  std::printf(
      "%ld traces: %zu orders of events met by e-backfill alone; admitted by the mean %ld, not %ld; overtook "
      "%ld, would delay %ld; changed while stopped %ld; events of one moment %ld\n",
      traces, met.size(), counts.by_mean, counts.not_by_mean, counts.overtook, counts.would_delay,
      counts.changed_while_stopped, counts.together);
  CHECK(met.size() > 300);
  CHECK(counts.by_mean > 100);
  CHECK(counts.not_by_mean > 100);
  CHECK(counts.overtook > 100);
  CHECK(counts.would_delay > 100);
  CHECK(counts.changed_while_stopped > 100);
  CHECK(counts.together > 1000);
}

namespace {
job_trace random_trace(testing::dice& dice) {
  job_trace trace{dice.within(1, 24), {}};
  const std::int64_t count = dice.within(1, 40), span = dice.within(1, 400);
  for (std::int64_t j = 0; j < count; ++j) {
    traced_job one;
    one.submit = static_cast<double>(dice.below(span));
    one.requested = dice.within(1, trace.devices);
    one.min = dice.within(1, one.requested);
    one.max = dice.within(one.requested, trace.devices + 4);
    one.throughput.assign(static_cast<std::size_t>(one.max + 1), 0);
    double speed = static_cast<double>(dice.within(1, 20)) * static_cast<double>(one.min);
    for (index_t n = one.min; n <= one.max; ++n) {
      one.throughput[static_cast<std::size_t>(n)] = speed;
      // mostly faster, sometimes not
      speed = std::max(0.25, speed + static_cast<double>(dice.within(-2, 16)) / 2);
    }
    one.samples = static_cast<double>(dice.within(1, 4000));
    trace.jobs.push_back(one);
  }
  return trace;
}
}  // namespace

TEST_CASE("random traces: the rule's devices at every instant") {
  testing::dice dice(41);
  oracle::rule_counts counts;
  const int rounds = testing::tries(testing::thrown(400));
  for (int round = 0; round < rounds; ++round) {
    const job_trace trace = random_trace(dice);
    const change_cost cost{static_cast<double>(dice.below(4)) * 2.5, static_cast<double>(dice.below(3)) / 10};
    for (const job_policy policy : job_policies) {
      CAPTURE(round);
      CAPTURE(name(policy));
      REQUIRE(against_twin(trace, policy, cost, counts) == "");
    }
  }
  std::printf(
      "%d traces: admitted by the mean %ld, not %ld; overtook %ld, would delay %ld; changed while stopped %ld; "
      "events of one moment %ld\n",
      rounds, counts.by_mean, counts.not_by_mean, counts.overtook, counts.would_delay, counts.changed_while_stopped,
      counts.together);
  if (!testing::few()) {
    CHECK_DRAWN(counts.by_mean > 100);
    CHECK_DRAWN(counts.not_by_mean > 100);
    CHECK_DRAWN(counts.overtook > 100);
    CHECK_DRAWN(counts.would_delay > 100);
    CHECK_DRAWN(counts.changed_while_stopped > 100);
    CHECK_DRAWN(counts.together > 100);
  }
}

TEST_CASE("fifo: what was requested, in order, nobody overtaken") {
  const job_trace trace{4, {job(0, 3, 1, 30, {1, 2, 3}), job(1, 2, 1, 20, {1, 2}), job(2, 1, 1, 5, {1})}};
  const job_schedule s = schedule_jobs(trace, job_policy::fifo, {100, 0.5});  // neither is paid
  CHECK((s.jobs[0].held == steps{{0, 3}}));
  CHECK(s.jobs[0].end == 10);
  CHECK((s.jobs[1].held == steps{{10, 2}}));  // two of four were not free
  CHECK(s.jobs[1].end == 20);
  CHECK((s.jobs[2].held == steps{{10, 1}}));  // one was, all the time
}

TEST_CASE("backfill: later ones that end in time, or that the first leaves room for") {
  // 3 of 4 until 10; the first waiting wants 3, so 1 is left over then
  const job_trace trace{4, {job(0, 3, 3, 30, {3}), job(1, 3, 3, 30, {3}), job(2, 1, 1, 8, {1}), job(3, 1, 1, 9, {1})}};
  const job_schedule s = schedule_jobs(trace, job_policy::backfill);
  CHECK(s.jobs[2].start == 2);   // ends at 10, with the first
  CHECK(s.jobs[1].start == 10);  // not delayed
  CHECK(s.jobs[3].start == 10);
  job_trace room = trace;
  room.jobs[2].samples = 100;  // ends long after, but in the device that is left over
  const job_schedule t = schedule_jobs(room, job_policy::backfill);
  CHECK(t.jobs[2].start == 2);
  CHECK(t.jobs[1].start == 10);
  room.jobs[1].requested = room.jobs[1].max = room.jobs[1].min = 4;
  room.jobs[1].throughput = {0, 0, 0, 0, 4};
  const job_schedule u = schedule_jobs(room, job_policy::backfill);
  CHECK(u.jobs[1].start == 10);  // all four are reserved
  CHECK(u.jobs[2].start == 17.5);
}

TEST_CASE("elastic: min are enough, then all that gains; a change costs its pause, a start does not") {
  const job_trace trace{4, {job(0, 4, 1, 60, {1, 2, 2.5, 3}), job(10, 2, 2, 20, {2})}};
  const job_schedule s = schedule_jobs(trace, job_policy::e_fifo, {3, 0});
  // at 10, 30 are left. The newcomer ends at 20; by then 14 are trained, and four end with the rest after 3 + 16 / 3
  // seconds: 10 + 18.3 is less than 10 + 20
  CHECK((s.jobs[1].held == steps{{10, 2}}));
  CHECK(s.jobs[1].end == 20);
  // at 20, 30 - 2 x 7 are left, and it stops once more
  CHECK((s.jobs[0].held == steps{{0, 4}, {10, 2}, {20, 4}}));
  CHECK(s.jobs[0].end == doctest::Approx(23 + 16.0 / 3));
  const job_schedule slower = schedule_jobs(trace, job_policy::e_fifo, {0, 0.5});
  CHECK(slower.jobs[1].end == 30);
}

TEST_CASE("elastic: who does not help the mean waits") {
  // 2 samples are left, of one second; the newcomer takes one
  const job_trace trace{2, {job(0, 2, 1, 22, {1, 2}), job(10, 1, 1, 1, {1})}};
  CHECK(schedule_jobs(trace, job_policy::e_fifo).jobs[1].start == 10);          // 1.5 + 1 beside 1 + 2
  CHECK(schedule_jobs(trace, job_policy::e_fifo, {1, 0}).jobs[1].start == 11);  // two pauses: 3 + 1
}

TEST_CASE("equal submissions: the first listed is earlier, whatever the order of the trace") {
  const job_trace trace{1, {job(5, 1, 1, 1, {1}), job(0, 1, 1, 9, {1}), job(5, 1, 1, 2, {1}), job(0, 1, 1, 1, {1})}};
  for (const job_policy policy : job_policies) {
    const job_schedule s = schedule_jobs(trace, policy);
    CHECK(s.jobs[1].start == 0);
    CHECK(s.jobs[3].start == 9);
    CHECK(s.jobs[0].start == 10);
    CHECK(s.jobs[2].start == 11);
  }
}

TEST_CASE("events less than a microsecond apart are one") {
  job_trace trace{1, std::vector<traced_job>(10, job(0, 1, 1, 0.1, {1}))};
  trace.jobs.push_back(job(1, 1, 1, 1, {1}));
  double sum = 0;
  for (int i = 0; i < 10; ++i) sum += 0.1;
  REQUIRE(sum < 1);  // when the tenth would end
  for (const job_policy policy : job_policies) {
    const job_schedule s = schedule_jobs(trace, policy);
    CHECK(s.jobs[9].end == 1);
    CHECK(s.jobs[10].start == 1);
  }
}

TEST_CASE("a cost that is no cost is refused") {
  const job_trace trace{1, {job(0, 1, 1, 1, {1})}};
  CHECK_REFUSED(schedule_jobs(trace, job_policy::e_fifo, {-1, 0}), "a pause of -1 seconds; it is 0 to ten years");
  CHECK_REFUSED(schedule_jobs(trace, job_policy::fifo, {1e9, 0}), "a pause of 1e+09 seconds; it is 0 to ten years");
  CHECK_REFUSED(schedule_jobs(trace, job_policy::e_fifo, {0, 1}),
                "an overhead of 1; it is a fraction, 0 or more and below 1");
  CHECK_REFUSED(schedule_jobs(trace, job_policy::e_fifo, {0, std::numeric_limits<double>::quiet_NaN()}),
                "an overhead of nan");
  CHECK_REFUSED(schedule_jobs({}, job_policy::fifo), "a job trace without jobs");
  CHECK(schedule_jobs(trace, job_policy::e_fifo, {315'360'000, 0}).jobs[0].end == 1);  // nothing changes
}

TEST_CASE("names of policies") {
  for (const job_policy policy : job_policies) CHECK(find_job_policy(name(policy)) == policy);
  CHECK(!find_job_policy("e-Fifo"));
  CHECK(!find_job_policy(""));
}
