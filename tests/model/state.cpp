// SPDX-License-Identifier: Apache-2.0
// States, and sets of them: every pair of subsets, as lists of members.
#include <doctest/doctest.h>

#include <set>
#include <string>

#include <reshard/model/state.hpp>

using namespace reshard;

namespace {
std::set<int> members(state_set s) {
  std::set<int> all;
  for (int i = 0; i < 32; ++i)
    if (s.contains(i)) all.insert(i);
  return all;
}
}  // namespace

TEST_CASE("mixed-precision Adam: bf16 parameters, and three fp32 states of the optimizer, a statistic in fp32") {
  const struct {
    const char* name;
    bytes_t width;
    role placed_as;
  } wanted[] = {{"param", 2, role::parameter},
                {"master", 4, role::optimizer},
                {"exp_avg", 4, role::optimizer},
                {"exp_avg_sq", 4, role::optimizer},
                {"param", 4, role::statistic}};
  CHECK(std::size(adam_states) == std::size(wanted));
  CHECK(state_count == 5);
  for (int i = 0; i < 5; ++i) {
    CHECK(adam_states[i].name == wanted[i].name);
    CHECK(width(adam_states[i].type) == wanted[i].width);
    CHECK(adam_states[i].placed_as == wanted[i].placed_as);
  }
  CHECK(adam_states[0].type == dtype::bf16);
  for (int i = 1; i < 5; ++i) CHECK(adam_states[i].type == dtype::fp32);
}

TEST_CASE("sets: membership, union, intersection, emptiness, bytes of an element") {
  for (unsigned a = 0; a < 32; ++a) {
    const state_set one{a};
    bytes_t bytes = 0;
    for (const int i : members(one)) bytes += i == 0 ? 2 : 4;
    CHECK(one.bytes_per_element() == bytes);
    CHECK(one.empty() == members(one).empty());
    for (unsigned b = 0; b < 32; ++b) {
      const state_set other{b};
      std::set<int> both = members(one), either = members(one);
      std::erase_if(both, [&](int i) { return !members(other).contains(i); });
      either.merge(members(other));
      CHECK(members(one & other) == both);
      CHECK(members(one | other) == either);
      CHECK((one == other) == (members(one) == members(other)));
    }
  }
}

TEST_CASE("named sets: one state, those of a role, all") {
  for (int i = 0; i < state_count; ++i) CHECK(members(only(i)) == std::set<int>{i});
  CHECK(members(all_states) == std::set<int>{0, 1, 2, 3, 4});
  CHECK(members(parameter_states) == std::set<int>{0, 4});
  CHECK(members(optimizer_states) == std::set<int>{1, 2, 3});
  CHECK((states_of(role::parameter) | states_of(role::statistic)) == parameter_states);
  CHECK(states_of(role::optimizer) == optimizer_states);
  CHECK(std::size(roles) == 4);
  CHECK(roles[2] == role::gradient);
  CHECK(roles[3] == role::statistic);
  CHECK(states_named("param") == parameter_states);
  CHECK(states_named("exp_avg") == only(2));
  CHECK(sharding_level(role::optimizer) == 1);
  CHECK(sharding_level(role::gradient) == 2);
  CHECK(sharding_level(role::parameter) == 3);
  CHECK(sharding_level(role::statistic) > 3);
  CHECK(roles[0] == role::parameter);
  CHECK(roles[1] == role::optimizer);
  CHECK(state_set{}.empty());
}
