// SPDX-License-Identifier: Apache-2.0
// The baseline policy by hand: who sends to whom, when meetings end, and what a message for every tensor costs.
#include <doctest/doctest.h>

#include <vector>

#include <reshard/cost/dynatrain_policy.hpp>
#include <reshard/plan/layout_switch.hpp>
#include <reshard/space/listed_holding.hpp>

#include "../support/whole_on.hpp"

using namespace reshard;

namespace {
constexpr cluster links{.gpus = 4, .each = {.nvlink_GBps = 1e-3, .nic_GBps = 1e-4, .copy_GBps = 1}};
constexpr bytes_t all = 48;

std::vector<shard> tensors_on(rank_t ranks, int tensors, const std::vector<std::string>& states = {"param"}) {
  std::vector<shard> shards;
  for (int i = 0; i < tensors; ++i)
    for (const shard& s : testing::whole_on(ranks, std::string(1, static_cast<char>('a' + i)), {6, 4}, states))
      shards.push_back(s);
  return shards;
}
/// So many whole tensors on every rank of both sides.
auto whole(const std::vector<rank_t>& from, const std::vector<rank_t>& to, int tensors = 1) {
  return layout_switch(tensors_on(static_cast<rank_t>(from.size()), tensors),
                       tensors_on(static_cast<rank_t>(to.size()), tensors),
                       {.from = device_map(from), .to = device_map(to), .on = links});
}
}  // namespace

TEST_CASE("a byte comes from the lowest device of the node that holds it, else from the lowest of all") {
  const baseline_plan p = baseline_plan_of(whole({6, 1, 5, 2}, {0, 2, 7, 9}));
  CHECK(p.messages == std::vector<baseline_message>{{1, 0, all, 1}, {5, 7, all, 1}, {1, 9, all, 1}});
  CHECK(p.streams == std::vector<sized_stream>{{1, 0, 24, 2}, {2, 2, 24, 2}, {5, 7, 24, 2}, {1, 9, 24, 2}});
}

TEST_CASE("ranks that sit on devices in falling order are asked by device all the same") {
  const baseline_plan p = baseline_plan_of(whole({5, 3, 1}, {0, 6}));
  CHECK(p.messages == std::vector<baseline_message>{{1, 0, all, 1}, {5, 6, all, 1}});
}

TEST_CASE("a destination counts its tensors by source") {
  std::vector<shard> halves;  // rows 0 to 2 of each tensor on rank 1, the others on rank 0
  for (const char* const name : {"a", "b", "c"})
    for (const rank_t r : {0, 1})
      halves.push_back({.rank = r, .tensor = name, .whole = {6, 4}, .offset = {r == 0 ? 3 : 0, 0}, .shape = {3, 4}});
  const layout_switch change(halves, tensors_on(1, 3), {.to = device_map(std::vector<rank_t>{2}), .on = links});
  CHECK(baseline_plan_of(change).messages ==
        std::vector<baseline_message>{{0, 2, all * 3 / 2, 3}, {1, 2, all * 3 / 2, 3}});
}

TEST_CASE("messages count tensors once for every state") {
  const layout_switch change(tensors_on(1, 3, {"param", "exp_avg", "exp_avg_sq"}),
                             tensors_on(1, 3, {"param", "exp_avg", "exp_avg_sq"}),
                             {.to = device_map(std::vector<rank_t>{1}),
                              .on = links,
                              .states = adam.named("param") | adam.named("exp_avg") | adam.named("exp_avg_sq")});
  CHECK(baseline_plan_of(change).messages == std::vector<baseline_message>{{0, 1, 3 * 24 * 10, 9}});
}

TEST_CASE("meetings: in XOR order, one after the other for whoever is in both") {
  const port_table on(whole({0}, {0, 1, 2, 3, 4}));
  const auto ends = [&](const std::vector<baseline_message>& messages) {
    return last_meeting_ends(on, messages, [](index_t) { return 1.0; });
  };
  CHECK(ends({}) == 0);
  CHECK(ends({{0, 1, 1000000, 1}}) == doctest::Approx(2));
  CHECK(ends({{0, 1, 1000000, 1}, {1, 0, 3000000, 1}}) == doctest::Approx(4));  // the longer direction
  CHECK(ends({{0, 1, 1000000, 1}, {2, 3, 1000000, 1}}) == doctest::Approx(2));  // side by side
  CHECK(ends({{0, 4, 100000, 1}}) == doctest::Approx(2));                       // a NIC is slower
  // 0 meets 1 (step 1), 2 (step 2) and 3 (step 3); 1 meets 3 in step 2, 2 meets 3 in step 1, 1 meets 2 in step 3:
  // 0-1 ends at 2 and 2-3 at 11, 0-2 and 1-3 begin at 11
  CHECK(ends({{0, 1, 1000000, 1}, {2, 3, 10000000, 1}, {0, 2, 1000000, 1}, {1, 3, 2000000, 1}}) == doctest::Approx(14));
  // 0-3 is last of 0's though it comes first in the list
  CHECK(ends({{0, 3, 1000000, 1}, {0, 1, 1000000, 1}, {1, 2, 5000000, 1}}) == doctest::Approx(8));
}

TEST_CASE("the three modes of three tensors for one neighbour") {
  const auto change = whole({0}, {0, 1}, 3);
  const baseline_seconds found = seconds_of(port_table(change), baseline_plan_of(change));
  const double wire = 3 * all / 1e6;
  CHECK(found.naive.value_or(0) == doctest::Approx(30e-6 + wire + 50e-6));
  CHECK(found.synchronous.value_or(0) == doctest::Approx(10e-6 + wire + 50e-6));
  CHECK(found.asynchronous.value_or(0) == doctest::Approx(10e-6 + wire + 50e-6));
}
