// SPDX-License-Identifier: Apache-2.0
// Traces that have no schedule are refused, each by a sentence with its numbers.
#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include <reshard/queue/job_trace.hpp>

#include "../support/refused.hpp"

using namespace reshard;

namespace {
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN(),
                 endless = std::numeric_limits<double>::infinity();

/// A sound trace, and what a change makes of it.
template <typename Change>
job_trace changed(Change&& change) {
  job_trace trace{8, {{0, 1, 1, 1, 10, {0, 1}, ""}, {5, 4, 2, 8, 100, {0, 0, 2, 3, 4, 5, 6, 7, 8}, ""}}};
  require_sound(trace);
  change(trace);
  return trace;
}
#define CHECK_WRONG(change, words) CHECK_REFUSED(require_sound(changed([](job_trace& t) { change; })), words)
}  // namespace

TEST_CASE("devices and jobs") {
  CHECK_WRONG(t.devices = 0, "reshard: a job trace of 0 devices; there are 1 to 4096");
  CHECK_WRONG(t.devices = 4097, "a job trace of 4097 devices; there are 1 to 4096");
  CHECK_WRONG(t.jobs.clear(), "a job trace without jobs; there is at least one");
  CHECK_WRONG(t.jobs.resize(20001), "a job trace of 20001 jobs; at most 20000 are scheduled");
  CHECK_WRONG((t.devices = 4096, t.jobs.resize(1025)),
              "a job trace of 1025 jobs on 4096 devices; their product is at most 4194304");
}

TEST_CASE("a job's numbers") {
  CHECK_WRONG(t.jobs[1].submit = -1, "job 1: submit is -1; it is 0 to 4e9 seconds");
  CHECK_WRONG(t.jobs[1].submit = not_a_number, "job 1: submit is nan; it is 0 to 4e9 seconds");
  CHECK_WRONG(t.jobs[1].submit = 4.1e9, "job 1: submit is 4.1e+09; it is 0 to 4e9 seconds");
  CHECK_WRONG(t.jobs[1].min = 0, "job 1: min is 0 devices; there is at least 1");
  CHECK_WRONG(t.jobs[1].min = 9, "job 1: min 9 is above max 8");
  CHECK_WRONG(t.jobs[1].requested = 1, "job 1: requested 1 is not from min 2 to max 8");
  CHECK_WRONG(t.jobs[1].requested = 9, "job 1: requested 9 is not from min 2 to max 8");
  CHECK_WRONG(t.devices = 3, "job 1: requested 4 of 3 devices; it could never start");
  CHECK_WRONG(t.devices = 1, "job 1: requested 4 of 1 device; it could never start");
  CHECK_WRONG(t.jobs[0].samples = 0, "job 0: samples is 0; it is above 0, at most 1e18");
  CHECK_WRONG(t.jobs[0].samples = not_a_number, "job 0: samples is nan");
  CHECK_WRONG(t.jobs[0].samples = endless, "job 0: samples is inf");
}

TEST_CASE("a job's throughput") {
  CHECK_WRONG(t.jobs[1].throughput.pop_back(),
              "job 1: throughput with 8 devices is missing; it is told from min 2 to max 8");
  CHECK_WRONG(t.jobs[0].throughput.clear(), "job 0: throughput with 1 device is missing");
  CHECK_WRONG(t.jobs[1].throughput[3] = 0,
              "job 1: throughput with 3 devices is 0; it is above 0, at most 1e18 samples a second");
  CHECK_WRONG(t.jobs[0].throughput[1] = not_a_number, "job 0: throughput with 1 device is nan; it is above 0");
  CHECK_WRONG(t.jobs[0].throughput[1] = endless, "job 0: throughput with 1 device is inf");
  CHECK_WRONG(t.jobs[0].throughput[1] = -2, "job 0: throughput with 1 device is -2");
  CHECK_WRONG(t.jobs[0].throughput[1] = 1e-9, "job 0: 10 samples at 1e-09 a second take longer than ten years");
}

TEST_CASE("what is sound: a max above the devices, a table that falls, times far from 0") {
  job_trace trace = changed([](job_trace& t) {
    t.jobs[1].max = 1000;
    t.jobs[1].throughput = {0, 0, 2, 3, 1, 5, 0.5, 7, 8};
    t.jobs[0].submit = 1.7e9;
  });
  require_sound(trace);
  trace.devices = 9;
  CHECK_REFUSED(require_sound(trace), "job 1: throughput with 9 devices is missing");
}

TEST_CASE("the greatest of each number is sound") {
  require_sound(changed([](job_trace& t) { t.jobs[1].submit = 4e9; }));
  require_sound(changed([](job_trace& t) {
    t.jobs[0].samples = 1e18;
    t.jobs[0].throughput[1] = 1e18;
  }));
  require_sound(changed([](job_trace& t) {
    t.jobs[0].samples = 315'360'000;
    t.jobs[0].throughput[1] = 1;
  }));
  const traced_job one{0, 1, 1, 1, 10, {0, 1}, ""};
  require_sound(job_trace{1, std::vector<traced_job>(20'000, one)});
  require_sound(job_trace{4096, std::vector<traced_job>(1024, one)});
}
