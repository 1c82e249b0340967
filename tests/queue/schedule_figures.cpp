// SPDX-License-Identifier: Apache-2.0
// Figures of schedules, by hand and second by second.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include <reshard/queue/schedule_figures.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"

using namespace reshard;

namespace {
job_trace submitted(index_t devices, const std::vector<double>& at) {
  job_trace trace{devices, {}};
  for (const double submit : at) trace.jobs.push_back({submit, 1, 1, devices, 1, {}, ""});
  return trace;
}
}  // namespace

TEST_CASE("pending, completion and makespan") {
  const job_trace trace = submitted(4, {100, 110, 130});
  const job_schedule s{job_policy::fifo, {}, {{100, 160, {{100, 2}}}, {160, 170, {{160, 1}}}, {131, 200, {{131, 1}}}}};
  const schedule_figures f = schedule_figures_of(trace, s);
  CHECK(f.pending.mean == 17);  // 0, 50, 1
  CHECK(f.pending.median == 1);
  CHECK(f.completion.mean == doctest::Approx(190 / 3.0));  // 60, 60, 70
  CHECK(f.completion.median == 60);
  CHECK(f.makespan == 100);
  CHECK(f.changes == 0);
  REQUIRE(f.by_minute.size() == 2);
  CHECK(f.by_minute[0] == doctest::Approx((120 + 29) / 240.0));
  CHECK(f.by_minute[1] == doctest::Approx((10 + 40) / 160.0));  // forty seconds of it
  CHECK(f.waiting[0] == doctest::Approx((50 + 1) / 60.0));
  CHECK(f.waiting[1] == 0);
  CHECK(f.utilisation == doctest::Approx((120 + 29 + 50) / 400.0));
}

TEST_CASE("the median of an even count is between the middle two") {
  const job_trace trace = submitted(4, {0, 0, 0, 0});
  const job_schedule s{
      job_policy::fifo, {}, {{9, 10, {{9, 1}}}, {1, 10, {{1, 1}}}, {2, 10, {{2, 1}}}, {4, 10, {{4, 1}}}}};
  CHECK(schedule_figures_of(trace, s).pending.median == 3);
}

TEST_CASE("what stops for a change: one pause after the other, until the job's end") {
  const job_trace trace = submitted(4, {0});
  // 10 to 15; 12 asks again, so until 20, with 3 devices from 12 on; at 40 for 5, of which 2 are left
  const job_schedule s{job_policy::e_fifo, {5, 0}, {{0, 42, {{0, 1}, {10, 2}, {12, 3}, {40, 4}}}}};
  const schedule_figures f = schedule_figures_of(trace, s);
  CHECK(f.changes == 3);
  CHECK(f.stopped * 4 * 42 == doctest::Approx(2 * 2 + 3 * 8 + 4 * 2));
  job_schedule fixed = s;
  fixed.policy = job_policy::backfill;
  CHECK(schedule_figures_of(trace, fixed).stopped == 0);
}

TEST_CASE("a schedule that takes no time, and one that takes too long") {
  const schedule_figures none = schedule_figures_of(submitted(1, {7}), {job_policy::fifo, {}, {{7, 7, {{7, 1}}}}});
  CHECK(none.by_minute.empty());
  CHECK(none.utilisation == 0);
  CHECK(none.stopped == 0);
  const schedule_figures half = schedule_figures_of(submitted(2, {0}), {job_policy::fifo, {}, {{0, 0.5, {{0, 1}}}}});
  CHECK(half.makespan == 0.5);
  CHECK(half.by_minute == std::vector<double>{0.5});
  CHECK(half.utilisation == doctest::Approx(0.5));
  CHECK_REFUSED(schedule_figures_of(submitted(1, {0}), {job_policy::fifo, {}, {{0, 4e9, {{0, 1}}}}}),
                "the schedule ends 4e+09 seconds after the first job was submitted; at most two years are told minute "
                "by minute");
  const job_schedule longest{job_policy::fifo, {}, {{0, max_schedule_seconds, {{0, 1}}}}};
  CHECK(schedule_figures_of(submitted(1, {0}), longest).by_minute.size() == 1'051'200);  // 730 days
}

TEST_CASE("ends beside a whole minute: every minute has its mean, the last one too") {
  for (int minutes = 1; minutes <= 70; ++minutes)
    for (const double towards : {0., 1e9}) {
      const double end = std::nextafter(60. * minutes, towards);
      const schedule_figures f = schedule_figures_of(submitted(2, {0}), {job_policy::fifo, {}, {{0, end, {{0, 1}}}}});
      REQUIRE(f.by_minute.size() == static_cast<std::size_t>(towards > 0 ? minutes + 1 : minutes));
      for (const double mean : f.by_minute) CHECK(mean == doctest::Approx(0.5));
    }
}

TEST_CASE("changes and what stops are of all jobs together") {
  const job_trace trace = submitted(4, {0, 0});
  const job_schedule s{job_policy::e_fifo, {5, 0}, {{0, 50, {{0, 1}, {10, 2}}}, {0, 50, {{0, 2}, {20, 1}, {30, 2}}}}};
  const schedule_figures f = schedule_figures_of(trace, s);
  CHECK(f.changes == 3);
  CHECK(f.stopped == doctest::Approx((2 * 5 + 1 * 5 + 2 * 5) / 200.0));
}

TEST_CASE("random schedules: every minute is the mean of its seconds") {
  testing::dice dice(47);
  long grown = 0, waited = 0;
  const int rounds = testing::tries(testing::thrown(60));
  for (int round = 0; round < rounds; ++round) {
    job_trace trace{10, {}};
    job_schedule s;
    const std::int64_t offset = dice.below(1000);
    std::vector<double> held(4000, 0), waiting(4000, 0);
    std::int64_t first = 1 << 30, last = 0;
    for (std::int64_t j = dice.within(1, 6); j > 0; --j) {
      const std::int64_t submit = offset + dice.below(300), start = submit + dice.below(200);
      std::int64_t now = start;
      scheduled_job one{static_cast<double>(start), 0, {}};
      for (std::int64_t part = dice.within(1, 4); part > 0; --part) {
        const index_t devices = dice.within(1, 5);
        const std::int64_t until = now + dice.within(1, 150);
        one.held.push_back({static_cast<double>(now), devices});
        for (; now < until; ++now) held[static_cast<std::size_t>(now)] += static_cast<double>(devices);
      }
      for (std::int64_t t = submit; t < start; ++t) waiting[static_cast<std::size_t>(t)] += 1;
      one.end = static_cast<double>(now);
      grown += one.changes(), waited += start > submit;
      s.jobs.push_back(one);
      trace.jobs.push_back({static_cast<double>(submit), 1, 1, 5, 1, {}, ""});
      first = std::min(first, submit), last = std::max(last, now);
    }
    const schedule_figures f = schedule_figures_of(trace, s);
    REQUIRE(std::ssize(f.by_minute) == (last - first + 59) / 60);
    REQUIRE(f.waiting.size() == f.by_minute.size());
    for (std::int64_t m = 0; m < std::ssize(f.by_minute); ++m) {
      double devices = 0, jobs = 0;
      const std::int64_t begins = first + 60 * m, ends = std::min(begins + 60, last);
      for (std::int64_t t = begins; t < ends; ++t)
        devices += held[static_cast<std::size_t>(t)], jobs += waiting[static_cast<std::size_t>(t)];
      const double seconds = static_cast<double>(ends - begins);
      CHECK(f.by_minute[static_cast<std::size_t>(m)] == doctest::Approx(devices / seconds / 10));
      CHECK(f.waiting[static_cast<std::size_t>(m)] == doctest::Approx(jobs / seconds));
    }
  }
  std::printf("%ld changes, %ld jobs that waited\n", grown, waited);
  if (!testing::few()) {
    CHECK_DRAWN(grown > 50);
    CHECK_DRAWN(waited > 50);
  }
}

TEST_CASE("a run is a schedule and its figures") {
  const job_trace trace{2, {{3, 2, 1, 2, 10, {0, 1, 2}, ""}}};
  const job_run run = run_jobs(trace, job_policy::e_backfill);
  CHECK(run.schedule.jobs[0].end == 8);
  CHECK(run.figures.completion.mean == 5);
  CHECK(run.figures.utilisation == 1);
}
