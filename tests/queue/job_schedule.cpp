// SPDX-License-Identifier: Apache-2.0
// Policies by name and by what they allow, in a table of their four; and schedules as values.
#include <doctest/doctest.h>

#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include <reshard/queue/job_schedule.hpp>

using namespace reshard;

namespace {

/// What is said of each policy, row by row.
struct told_policy {
  job_policy policy;
  std::string_view called;
  bool elastic, overtaking;
};
constexpr told_policy told_policies[] = {{job_policy::fifo, "fifo", false, false},
                                         {job_policy::e_fifo, "e-fifo", true, false},
                                         {job_policy::backfill, "backfill", false, true},
                                         {job_policy::e_backfill, "e-backfill", true, true}};

constexpr bool policies_are_as_told() {
  for (const told_policy& t : told_policies)
    if (name(t.policy) != t.called || is_elastic(t.policy) != t.elastic || overtakes(t.policy) != t.overtaking)
      return false;
  return true;
}
constexpr bool found_by_their_names_alone() {
  for (const told_policy& t : told_policies)
    if (find_job_policy(t.called) != t.policy) return false;
  for (const std::string_view none : {"", "e-", "FIFO", "fifo ", "efifo", "e_fifo", "e-fifo-", "back", "backfille"})
    if (find_job_policy(none)) return false;
  return true;
}
/// Each before its elastic form, which overtakes where it does.
constexpr bool listed_before_their_elastic_forms() {
  if (std::size(job_policies) != std::size(told_policies)) return false;
  for (std::size_t i = 0; i < std::size(job_policies); i += 2)
    if (is_elastic(job_policies[i]) || !is_elastic(job_policies[i + 1]) ||
        overtakes(job_policies[i]) != overtakes(job_policies[i + 1]) || job_policies[i] != told_policies[i].policy)
      return false;
  return true;
}
static_assert(policies_are_as_told());
static_assert(found_by_their_names_alone());
static_assert(listed_before_their_elastic_forms());
static_assert(moment_seconds == 0.000001);
static_assert(change_cost{}.pause == 0 && change_cost{}.overhead == 0);
}  // namespace

TEST_CASE("what a policy is called, and whether it shares devices anew and lets later jobs start before") {
  CHECK(policies_are_as_told());
  CHECK(listed_before_their_elastic_forms());
}

TEST_CASE("a policy is found by its name, and by no other word") {
  CHECK(found_by_their_names_alone());
  CHECK(find_job_policy(std::string("backfill")) == job_policy::backfill);
}

TEST_CASE("a job grew or shrank once less than it held so many devices") {
  scheduled_job job{3, 40, {{3, 2}}};
  CHECK(job.changes() == 0);
  job.held.push_back({10, 4});
  job.held.push_back({12.5, 2});
  CHECK(job.changes() == 2);
  CHECK(job.held.front().from == job.start);
}

TEST_CASE("so many devices from a moment on are the same where both are; a schedule of nothing is a static one") {
  CHECK(held_devices{1, 2} == held_devices{1, 2});
  CHECK_FALSE(held_devices{1, 2} == held_devices{1, 3});
  CHECK_FALSE(held_devices{1, 2} == held_devices{1.5, 2});
  const job_schedule none;
  CHECK(none.policy == job_policy::fifo);
  CHECK(none.jobs.empty());
  CHECK((none.cost.pause == 0 && none.cost.overhead == 0));
}
