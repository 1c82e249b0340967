// SPDX-License-Identifier: Apache-2.0
// What is expected of running jobs, by hand: when each ends with other devices, when devices are free, and the sums by
// which a newcomer is judged.
#include <doctest/doctest.h>

#include <vector>

#include <reshard/queue/detail/job_outlook.hpp>

using namespace reshard;
using detail::end_after_waiting;
using detail::first_free;
using detail::free_moment;
using detail::job_clock;
using detail::running_job;
using detail::seconds_to_end;

namespace {

traced_job table(double samples, index_t min, std::vector<double> from_one) {
  traced_job job{0, min, min, std::ssize(from_one), samples, {0}, ""};
  job.throughput.insert(job.throughput.end(), from_one.begin(), from_one.end());
  return job;
}
/// 400 samples; 10, 20, 25 and 40 a second with 1 to 4 devices.
const traced_job& usual() {
  static const traced_job job = table(400, 1, {10, 20, 25, 40});
  return job;
}
running_job running(index_t devices, double ready, double end) { return {&usual(), 3, devices, ready, end}; }

constexpr change_cost cost{.pause = 4, .overhead = 0.5};
job_clock still(index_t devices = 8) { return {devices, job_policy::backfill, cost}; }
job_clock elastic(index_t devices = 8) { return {devices, job_policy::e_backfill, cost}; }

void check_same(const running_job& found, const running_job& expected) {
  CHECK(found.job == expected.job);
  CHECK(found.number == expected.number);
  CHECK(found.devices == expected.devices);
  CHECK(found.ready == expected.ready);
  CHECK(found.end == expected.end);
}
void check_moment(const free_moment& found, double at, index_t devices) {
  CHECK(found.at == at);
  CHECK(found.devices == devices);
}

}  // namespace

TEST_CASE("elastic policies pay the pause and the overhead, the others neither") {
  for (const job_policy policy : job_policies) {
    CAPTURE(name(policy));
    const bool pays = policy == job_policy::e_fifo || policy == job_policy::e_backfill;
    const job_clock clock(8, policy, cost);
    CHECK(clock.devices() == 8);
    CHECK(clock.speed(usual(), 2) == (pays ? 10 : 20));
    CHECK(clock.speed(usual(), 4) == (pays ? 20 : 40));
    CHECK(clock.with(running(2, 0, 20), 1, 10).ready == (pays ? 14 : 10));
  }
}

TEST_CASE("what a job has left: all before it begins, else what it trains until its end, not before it is ready") {
  CHECK(still().samples_left(running(0, 0, 0), 7) == 400);
  CHECK(still().samples_left(running(2, 0, 20), 5) == 300);
  CHECK(still().samples_left(running(2, 12, 20), 5) == 160);
  CHECK(still().samples_left(running(2, 12, 20), 15) == 100);
  CHECK(elastic().samples_left(running(2, 12, 20), 15) == 50);
}

TEST_CASE("a job with other devices pauses, after the pause in which it is, and ends when the rest is trained") {
  check_same(elastic().with(running(2, 3, 20), 2, 5), running(2, 3, 20));
  check_same(elastic().with(running(0, 0, 0), 2, 5), running(2, 5, 45));
  // 15 s at 10 a second are left: 150 samples at 20 a second
  check_same(elastic().with(running(2, 3, 20), 4, 5), running(4, 9, 16.5));
  check_same(elastic().with(running(2, 8, 20), 4, 5), running(4, 12, 18));
  check_same(elastic().with(running(4, 0, 20), 1, 15), running(1, 19, 39));
  check_same(still().with(running(4, 0, 20), 1, 15), running(1, 15, 35));
}

TEST_CASE("jobs as the rule of shares has them, in their order") {
  const traced_job one = table(100, 1, {10, 20}), two = table(300, 2, {0, 30, 36, 40});
  const std::vector<running_job> jobs = {{&one, 1, 0, 0, 0}, {&two, 2, 3, 2, 20}};
  // gains with 5 devices: of one 10 s to 5 s; of two 270 samples left at half of 36
  const job_clock five(5, job_policy::e_fifo, cost);
  const std::vector<running_job> shared = five.shared(jobs, 5);
  REQUIRE(shared.size() == 2);
  check_same(shared[0], {&one, 1, 2, 5, 15});
  check_same(shared[1], {&two, 2, 3, 2, 20});
  const job_clock three(3, job_policy::e_fifo, cost);
  const std::vector<running_job> fewer = three.shared(jobs, 5);
  check_same(fewer[0], {&one, 1, 1, 5, 25});
  check_same(fewer[1], {&two, 2, 2, 9, 27});
  CHECK(five.shared({}, 5).empty());
}

TEST_CASE("shares hang on what is left, not on what there was") {
  // one at its end and one at its beginning: the device more goes to the second
  const std::vector<running_job> jobs = {running(1, 0, 101), running(0, 0, 0)};
  const job_clock three(3, job_policy::fifo, cost);
  const std::vector<running_job> shared = three.shared(jobs, 100);
  CHECK(shared[0].devices == 1);
  CHECK(shared[1].devices == 2);
}

TEST_CASE("the first moment at which so many are free; ends of one moment count together") {
  const std::vector<running_job> jobs = {running(3, 0, 30), running(2, 0, 10), running(1, 0, 20), running(1, 0, 10)};
  check_moment(first_free(jobs, 8, 1, 5), 5, 1);
  check_moment(first_free(jobs, 8, 0, 5), 5, 1);
  check_moment(first_free(jobs, 8, 2, 5), 10, 4);
  check_moment(first_free(jobs, 8, 4, 5), 10, 4);
  check_moment(first_free(jobs, 8, 5, 5), 20, 5);
  check_moment(first_free(jobs, 8, 6, 5), 30, 8);
  check_moment(first_free(jobs, 8, 8, 5), 30, 8);
  check_moment(first_free({}, 8, 8, 5), 5, 8);
  const std::vector<running_job> near = {running(1, 0, 10), running(1, 0, 10 + 0.5e-6), running(1, 0, 10 + 2e-6)};
  check_moment(first_free(near, 3, 1, 5), 10, 2);
  check_moment(first_free(near, 3, 3, 5), 10 + 2e-6, 3);
  // as far as moment_seconds itself
  const std::vector<running_job> edge = {running(1, 0, 0), running(1, 0, moment_seconds)};
  check_moment(first_free(edge, 2, 1, 0), 0, 2);
}

TEST_CASE("a job that waits begins when its least are free, with what it would take of those") {
  const std::vector<running_job> others = {running(3, 0, 30), running(2, 0, 10)};
  const traced_job two = table(100, 2, {0, 10, 20, 50}), three = table(100, 3, {0, 0, 20, 50});
  CHECK(end_after_waiting(still(6), two, others, 5) == 10 + 5);     // 3 free at 10
  CHECK(end_after_waiting(still(7), two, others, 5) == 5 + 10);     // 2 free at once
  CHECK(end_after_waiting(elastic(6), two, others, 5) == 10 + 10);  // at half the speed
  CHECK(end_after_waiting(still(6), three, others, 5) == 10 + 5);
  CHECK(end_after_waiting(still(5), three, others, 5) == 30 + 2);  // 5 free, of which it takes 4
  CHECK(end_after_waiting(still(5), two, {}, 5) == 5 + 2);
}

TEST_CASE("the sum of seconds to the ends") {
  CHECK(seconds_to_end({}, 5) == 0);
  CHECK(seconds_to_end({running(1, 0, 30), running(2, 0, 10)}, 5) == 30);
}

TEST_CASE("the sum with a newcomer: until it ends the others have what is left, then what they have without it") {
  // the newcomer, second of three, ends at 10; one ends before that, the other goes from 1 to 4 devices then
  const std::vector<running_job> with = {running(2, 0, 8), running(1, 5, 10), running(1, 0, 50)};
  const std::vector<running_job> without = {running(4, 0, 6), running(4, 0, 20)};
  // 40 s at 5 a second are left at 10: 200 samples, after a pause, at 20 a second
  CHECK(seconds_to_end(elastic(), with, 1, without, 5) == (10 - 5) + (8 - 5) + (24 - 5));
  CHECK(seconds_to_end(still(), with, 1, without, 5) == (10 - 5) + (8 - 5) + (20 - 5));
  // the same with the newcomer first and last
  CHECK(seconds_to_end(elastic(), {with[1], with[0], with[2]}, 0, without, 5) == 27);
  CHECK(seconds_to_end(elastic(), {with[0], with[2], with[1]}, 2, without, 5) == 27);
  CHECK(seconds_to_end(elastic(), {with[1]}, 0, {}, 5) == 5);
  // who ends in the same moment keeps its devices
  const std::vector<running_job> moment = {running(1, 0, 10 + 0.5e-6), running(1, 5, 10)};
  CHECK(seconds_to_end(elastic(), moment, 1, {running(4, 0, 9)}, 5) == doctest::Approx(10).epsilon(1e-6));
  const std::vector<running_job> edge = {running(1, 0, moment_seconds), running(1, 0, 0)};
  CHECK(seconds_to_end(elastic(), edge, 1, {running(4, 0, 9)}, 0) == moment_seconds);
}
