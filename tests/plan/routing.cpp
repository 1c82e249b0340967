// SPDX-License-Identifier: Apache-2.0
// A routing as a value: of which nothing is said it is without relay and in one stage, and it is another one where any
// of its three integers is.
#include <doctest/doctest.h>

#include <type_traits>

#include <reshard/plan/routing.hpp>

using namespace reshard;

namespace {
constexpr bool usual_is_direct_and_in_one_stage() {
  return routing{}.how == relay::never && routing{}.chains == 1 && routing{}.stages == 1;
}
constexpr bool in_the_order_relay_chains_stages() {
  const routing r{relay::always, 2, 3};
  return r.how == relay::always && r.chains == 2 && r.stages == 3;
}
/// Devices that were given other integers are told so by this comparison.
constexpr bool equal_where_all_three_are() {
  const routing all[] = {{relay::never, 1, 1},  {relay::always, 1, 1}, {relay::never, 2, 1},
                         {relay::always, 2, 1}, {relay::never, 1, 2},  {relay::always, 1, 2},
                         {relay::never, 2, 2},  {relay::always, 2, 2}, {relay::always, 2, index_t{1} << 40}};
  for (const routing& a : all)
    for (const routing& b : all)
      if ((a == b) != (&a == &b) || (a != b) != (&a != &b)) return false;
  return true;
}
static_assert(usual_is_direct_and_in_one_stage());
static_assert(in_the_order_relay_chains_stages());
static_assert(equal_where_all_three_are());
static_assert(std::is_aggregate_v<routing> && std::is_trivially_copyable_v<routing>);
static_assert(relay::never != relay::always && relay{} == relay::never);
}  // namespace

TEST_CASE("a routing of which nothing is said is direct and in one stage; its integers are relay, chains and stages") {
  CHECK(usual_is_direct_and_in_one_stage());
  CHECK(in_the_order_relay_chains_stages());
}

TEST_CASE("two routings are one where relay, chains and stages are the same") { CHECK(equal_where_all_three_are()); }
