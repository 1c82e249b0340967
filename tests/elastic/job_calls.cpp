// SPDX-License-Identifier: Apache-2.0
// What a job is told and what it asks, as values: the patiences of which nothing is said, calls that nobody gave, how
// jobs end in words, and a watcher that overrides some calls.
#include <doctest/doctest.h>

#include <chrono>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <reshard/elastic/job_calls.hpp>

using namespace reshard;

namespace {
constexpr std::pair<job_end, std::string_view> called_ends[] = {
    {job_end::runs, "runs"},         {job_end::done, "done"}, {job_end::left, "left"},
    {job_end::expelled, "expelled"}, {job_end::lost, "lost"}, {job_end::refused, "refused"}};

constexpr bool ends_are_called_so() {
  for (std::size_t i = 0; i < std::size(called_ends); ++i)
    if (static_cast<std::size_t>(called_ends[i].first) != i || name(called_ends[i].first) != called_ends[i].second)
      return false;
  return std::size(job_end_names) == std::size(called_ends);
}
static_assert(ends_are_called_so());
static_assert(job_end{} == job_end::runs);
static_assert(std::has_virtual_destructor_v<job_watcher> && !std::is_abstract_v<job_watcher>);

/// Two calls of all; the others are passed over.
struct place_watcher : job_watcher {
  std::string seen;
  void at(std::string_view where) override { seen += where; }
  void gone(const member_name& who, std::string_view by, double after) override {
    seen += " " + std::string(who.text()) + " " + std::string(by) + (after > 1 ? " late" : " soon");
  }
};
/// Every call there is.
void tell_all(job_watcher& w) {
  w.at("registered"), w.entered({}, "founded", 0.5), w.samples(1, {}), w.stopped(3, 0.1), w.gone("b", "lease", 2);
  w.slow({"a"}, "why"), w.broken(1, "why", 2), w.failed("why"), w.answered("r1", "done");
}
}  // namespace

TEST_CASE("how a job ends is called so in a log") { CHECK(ends_are_called_so()); }

TEST_CASE("a watcher hears what it overrides, and the rest is passed over") {
  job_watcher deaf;
  CHECK_NOTHROW(tell_all(deaf));
  const std::unique_ptr<job_watcher> watcher = std::make_unique<place_watcher>();
  tell_all(*watcher);
  CHECK(static_cast<const place_watcher&>(*watcher).seen == "registered b lease late");
}

TEST_CASE("settings of which nothing is said: one member of a job of one, without end and snapshots, on this machine") {
  const job_settings s;
  CHECK((s.job == "job" && s.me.empty() && s.listen == "127.0.0.1:0" && s.node == "here"));
  CHECK((s.found == 1 && s.layout.world() == 1 && s.batch == 1 && !s.steps && s.snapshot == 0));
  CHECK(s.list.size() == adam.size());
  CHECK((s.lease == std::chrono::milliseconds(3000) && s.wait == std::chrono::milliseconds(1000)));
  CHECK(s.grace == std::chrono::milliseconds(300));
  CHECK((s.ready == std::chrono::minutes(1) && s.comes == std::chrono::seconds(10)));
  CHECK(s.window == std::chrono::seconds(2));
}

TEST_CASE(
    "calls that nobody gave are not there, a share of which nothing is said is of one rank, and a group of none") {
  const trainer_calls calls;
  CHECK((!calls.make_group && !calls.interrupt && !calls.tensors && !calls.given_up && !calls.initialize &&
         !calls.entered));
  CHECK((!calls.update && !calls.small && !calls.take_small));
  const step_calls step{};
  CHECK((!step.gradients && !step.scalar && !step.update && !step.own));
  const sample_share share;
  CHECK((share.step == 0 && share.samples.empty() && share.dp == 0 && share.of == 1));
  const group_request asked{};
  CHECK((asked.next == nullptr && asked.rank == 0 && asked.addresses.empty() && asked.number == 0));
}
