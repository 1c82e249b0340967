// SPDX-License-Identifier: Apache-2.0
// Shares by hand: min to each, then one at a time to the greatest gain.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <vector>

#include <reshard/queue/detail/job_shares.hpp>

#include "../support/dice.hpp"
#include "../support/tries.hpp"

using namespace reshard;

namespace {
traced_job table(index_t min, std::vector<double> from_one) {
  traced_job job{0, min, min, std::ssize(from_one), 1, {0}, ""};
  job.throughput.insert(job.throughput.end(), from_one.begin(), from_one.end());
  return job;
}
using shares = std::vector<index_t>;
}  // namespace

TEST_CASE("the gain is what one device more saves of what is left") {
  const traced_job job = table(1, {10, 20, 25});
  CHECK(gain_of({&job, 100}, 1) == 5);
  CHECK(gain_of({&job, 100}, 2) == 1);
  CHECK(gain_of({&job, 50}, 2) == 0.5);
}

TEST_CASE("of gains that differ by a fifty-millionth the greater is taken, of equal ones the earlier job's") {
  const traced_job one = table(1, {1, 2});
  CHECK(shares_of({{&one, 100'000'000}, {&one, 100'000'002}}, 3) == shares{1, 2});
  CHECK(shares_of({{&one, 100'000'002}, {&one, 100'000'000}}, 3) == shares{2, 1});
  const double tenth = 0.1 * 3, other = 0.3;  // one sum, rounded in two ways
  REQUIRE(tenth != other);
  CHECK(shares_of({{&one, other}, {&one, tenth}}, 3) == shares{2, 1});
  CHECK(shares_of({{&one, tenth}, {&one, other}}, 3) == shares{2, 1});
}

TEST_CASE("min to each, then one at a time to the greatest gain, while a device is free") {
  const traced_job one = table(1, {10, 20, 25, 26}), two = table(2, {0, 10, 11, 12, 13, 14});
  const std::vector<sharing_job> jobs{{&one, 100}, {&two, 100}};
  // gains of one: 5, 1, 0.15; of two: 0.91, 0.76, 0.64, 0.55
  CHECK(shares_of(jobs, 3) == shares{1, 2});
  CHECK(shares_of(jobs, 4) == shares{2, 2});
  CHECK(shares_of(jobs, 5) == shares{3, 2});
  CHECK(shares_of(jobs, 6) == shares{3, 3});
  CHECK(shares_of(jobs, 9) == shares{3, 6});
  CHECK(shares_of(jobs, 10) == shares{4, 6});
  CHECK(shares_of(jobs, 99) == shares{4, 6});                        // max of both
  CHECK(shares_of({{&one, 100}, {&two, 1000}}, 6) == shares{1, 5});  // ten times as much is left
  CHECK(shares_of({}, 5).empty());
}

TEST_CASE("equal gains: the earlier job first; what does not gain gets none, and none after") {
  const traced_job same = table(1, {1, 2, 3, 4});
  CHECK(shares_of({{&same, 6}, {&same, 6}, {&same, 6}}, 4) == shares{2, 1, 1});
  CHECK(shares_of({{&same, 6}, {&same, 6}, {&same, 6}}, 5) == shares{2, 2, 1});
  const double rounded = std::nextafter(6.0, 7.0);
  CHECK(shares_of({{&same, 6}, {&same, rounded}}, 3) == shares{2, 1});
  CHECK(shares_of({{&same, 6}, {&same, 6.01}}, 3) == shares{1, 2});
  const traced_job flat = table(1, {1, 2, 2, 9}), falling = table(1, {3, 2, 9});
  CHECK(shares_of({{&flat, 1}, {&falling, 1}}, 8) == shares{2, 1});
  const traced_job slow = table(1, {1e-3, 2e-3}), fast = table(1, {1e17, 2e17});
  CHECK(shares_of({{&fast, 1e-30}, {&slow, 1e9}}, 4) == shares{2, 2});  // however small a gain is
}

TEST_CASE("a table that ends below max is that far, and max where the table goes on") {
  traced_job job = table(1, {1, 2, 3});
  job.max = 9;
  CHECK(shares_of({{&job, 1}}, 9) == shares{3});
  job.max = 2;
  CHECK(shares_of({{&job, 1}}, 9) == shares{2});
}

TEST_CASE("random tables that flatten: the shares are those of least seconds in all") {
  // where every gain is less than the one before, one at a time is as good as all at once
  testing::dice dice(43);
  long shared = 0, full = 0;
  const int rounds = testing::tries(testing::thrown(300));
  for (int round = 0; round < rounds; ++round) {
    std::vector<traced_job> tables;
    std::vector<sharing_job> jobs;
    for (int j = 0; j < 3; ++j) {
      // 1 / f falls by less every time
      std::vector<double> seconds{1000}, speeds;
      double falls = static_cast<double>(dice.within(100, 300));
      for (int n = 1; n < 5; ++n) seconds.push_back(seconds.back() - falls), falls *= 0.5;
      for (const double s : seconds) speeds.push_back(1 / s);
      tables.push_back(table(dice.within(1, 2), speeds));
    }
    index_t least_held = 0;
    for (const traced_job& one : tables)
      jobs.push_back({&one, static_cast<double>(dice.within(1, 50))}), least_held += one.min;
    const index_t devices = dice.within(least_held, 18);
    const auto seconds = [&](const shares& held) {
      double sum = 0;
      for (std::size_t j = 0; j < 3; ++j)
        sum += jobs[j].samples_left / tables[j].throughput[static_cast<std::size_t>(held[j])];
      return sum;
    };
    double best = 1e300;
    for (index_t a = tables[0].min; a <= 5; ++a)
      for (index_t b = tables[1].min; b <= 5; ++b)
        for (index_t c = tables[2].min; c <= 5 && a + b + c <= devices; ++c) best = std::min(best, seconds({a, b, c}));
    const shares found = shares_of(jobs, devices);
    CHECK(found[0] + found[1] + found[2] <= devices);
    CHECK(seconds(found) == doctest::Approx(best).epsilon(1e-6));
    ++(found[0] + found[1] + found[2] == devices ? full : shared);
  }
  std::printf("%ld of %d have devices left\n", shared, rounds);
  if (!testing::few()) {
    CHECK_DRAWN(full > 100);
    CHECK_DRAWN(shared > 20);
  }
}

TEST_CASE("a gain is rounded to the nearest of 30 bits") {
  const double step = 1.0 / (1 << 29);  // of numbers from 1 to 2
  for (const double gain : {1., 1.5, 1 + step, 2.}) CHECK(rounded_gain(gain) == gain);
  CHECK(rounded_gain(1 + 0.49 * step) == 1);
  CHECK(rounded_gain(1 + 0.51 * step) == 1 + step);
  CHECK(rounded_gain(1 - 0.1 * step) == 1);
}
