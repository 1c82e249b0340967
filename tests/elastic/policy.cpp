// SPDX-License-Identifier: Apache-2.0
// Rungs and what they are called, and what a policy and a situation are of which nothing is said.
#include <doctest/doctest.h>

#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/elastic/policy.hpp>

using namespace reshard;

namespace {
constexpr std::pair<rung, std::string_view> called_rungs[] = {
    {rung::hot, "hot"},           {rung::replace, "replace"},       {rung::shrink, "shrink"},
    {rung::snapshot, "snapshot"}, {rung::checkpoint, "checkpoint"}, {rung::wait, "wait"}};

/// By their numbers, from 0 on, and none beyond.
constexpr bool rungs_are_called_so() {
  if (std::size(rung_names) != std::size(called_rungs)) return false;
  for (std::size_t i = 0; i < std::size(called_rungs); ++i)
    if (static_cast<std::size_t>(called_rungs[i].first) != i || name(called_rungs[i].first) != called_rungs[i].second ||
        rung_names[i] != called_rungs[i].second)
      return false;
  return true;
}
static_assert(rungs_are_called_so());
}  // namespace

TEST_CASE("rungs have the names that policies write") { CHECK(rungs_are_called_so()); }

TEST_CASE("a policy of which nothing is said tries every rung once, the cheapest first") {
  const elastic_policy usual;
  std::vector<rung> all;
  for (const auto& [which, unused] : called_rungs) all.push_back(which);
  CHECK(usual.rungs == all);
  CHECK(usual.factor == 2);
  CHECK(usual.windows == 3);
  CHECK(usual.wait == 60);
  CHECK(usual.min == 1);
  CHECK(usual.axes.empty());
}

TEST_CASE("a member of which nothing is said lives, holds the target version and was not timed") {
  const seen_member one{.name = "a"};
  CHECK_FALSE(one.dead);
  CHECK_FALSE(one.empty);
  CHECK(one.steps.empty());
}

TEST_CASE("a situation of which nothing is said is of nobody, at version 0, with nothing to go back to") {
  const elastic_situation none;
  CHECK(none.model.families == 0);
  CHECK((none.members.empty() && none.spares.empty() && none.snapshots.empty()));
  CHECK(none.layout.world() == 1);
  CHECK(none.version == 0);
  CHECK(none.waited == 0);
  CHECK_FALSE(none.checkpoint.has_value());
  const kept_snapshot copy{"a", "b", 7};
  CHECK((copy.of == member_name("a") && copy.at == member_name("b") && copy.version == 7));
}
