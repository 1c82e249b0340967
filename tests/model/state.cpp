// SPDX-License-Identifier: Apache-2.0
// Sets of states: all that sets can be of, against lists of (number, level, width) one by one.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <type_traits>
#include <utility>

#include <reshard/model/state.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using testing::dice, testing::refused;

namespace {

/// The level and the width of each member.
using members = std::map<int, std::pair<index_t, bytes_t>>;

/// One state of a level and a width.
state_set one_state(int number, index_t level, bytes_t width) {
  return number == 16 ? statistic_states : state_set(number, level, width);
}
state_set set_of(const members& all) {
  state_set result;
  for (const auto& [number, is] : all) result = result | one_state(number, is.first, is.second);
  return result;
}
role role_at(index_t level) { return roles[level == 1 ? 1 : level == 2 ? 2 : level == 3 ? 0 : 3]; }
members members_of(const state_set& s) {
  members all;
  for (const int number : s) {
    CHECK(s.contains(number));
    const role r = s.role_of(number);
    all[number] = {r == role::parameter   ? 3
                   : r == role::gradient  ? 2
                   : r == role::optimizer ? 1
                                          : 9,
                   s.width_of(number)};
  }
  return all;
}
template <typename Keep>
members those(const members& all, Keep&& keep) {
  members kept;
  for (const auto& one : all)
    if (keep(one)) kept.insert(one);
  return kept;
}

}  // namespace

TEST_CASE("levels and roles name each other; of statistics none is sharded") {
  CHECK(sharding_level(role::optimizer) == 1);
  CHECK(sharding_level(role::gradient) == 2);
  CHECK(sharding_level(role::parameter) == 3);
  CHECK(sharding_level(role::statistic) > 1'000'000);
  for (const role r : roles) CHECK(role_of_level(sharding_level(r)) == r);
  CHECK(std::size(roles) == 4);
  CHECK(std::set<role>(std::begin(roles), std::end(roles)).size() == 4);
  CHECK(state{"grad", dtype::fp32, 2}.placed_as() == role::gradient);
  static_assert(role_of_level(1) == role::optimizer && role_of_level(3) == role::parameter);
}

TEST_CASE("random sets: members, bytes of an element, those of a role, what a zero shards, and two sets together") {
  dice random(81);
  int shared = 0, differing = 0, statistics = 0;
  for (int n = 0; n < 4000; ++n) {
    // a list of states, and sets of it; the second set is of a list of its own every third time
    members lists[2], drawn[2];
    for (members& list : lists)
      for (int i = 0; i < 16; ++i) list[i] = {random.within(1, 3), bytes_t{1} << random.below(4)};
    for (members& list : lists) list[16] = {9, 4};
    for (int side = 0; side < 2; ++side)
      for (const auto& one : lists[n % 3 == 0 ? side : 0])
        if (random.coin()) drawn[side].insert(one);
    const state_set a = set_of(drawn[0]), b = set_of(drawn[1]);
    CHECK(members_of(a) == drawn[0]);
    CHECK(a.empty() == drawn[0].empty());
    CHECK(a.bits() == std::accumulate(drawn[0].begin(), drawn[0].end(), 0u,
                                      [](unsigned sum, const auto& one) { return sum + (1u << one.first); }));
    bytes_t bytes = 0;
    for (const auto& one : drawn[0]) bytes += one.second.second;
    CHECK(a.bytes_per_element() == bytes);
    for (const role r : roles)
      CHECK(members_of(a.of(r)) == those(drawn[0], [&](const auto& one) { return role_at(one.second.first) == r; }));
    for (index_t zero = 0; zero <= 4; ++zero)
      CHECK(a.sharded_at(zero) == std::any_of(drawn[0].begin(), drawn[0].end(), [&](const auto& one) {
              return one.second.first <= std::min(zero, index_t{3});
            }));
    const members both = those(drawn[0], [&](const auto& one) {
      const auto other = drawn[1].find(one.first);
      return other != drawn[1].end() && other->second == one.second;
    });
    CHECK(members_of(a & b) == both);
    CHECK((a & b) == set_of(both));
    CHECK(members_of(a - b) == those(drawn[0], [&](const auto& one) { return !drawn[1].contains(one.first); }));
    CHECK((a == b) == (drawn[0] == drawn[1]));
    const bool of_one_list =
        both.size() == those(drawn[0], [&](const auto& one) { return drawn[1].contains(one.first); }).size();
    CHECK((refused([&] { static_cast<void>(a | b); }) == "accepted") == of_one_list);
    const auto bits = static_cast<std::uint32_t>(random.below(1 << 17));
    CHECK(members_of(a.masked(bits)) == those(drawn[0], [&](const auto& one) { return (bits >> one.first & 1) != 0; }));
    if (n % 3 != 0) {
      members either = drawn[0];
      either.insert(drawn[1].begin(), drawn[1].end());
      CHECK((a | b) == set_of(either));
    }
    shared += both.empty() ? 0 : 1, statistics += both.contains(16) ? 1 : 0;
    differing += both.size() < those(
                                   drawn[0], [&](const auto& one) { return drawn[1].contains(one.first); })
                                   .size();
  }
  CHECK_DRAWN(shared > 500);
  CHECK_DRAWN(differing > 500);
  CHECK_DRAWN(statistics > 500);
}

TEST_CASE("the state of a statistic: number 16, four bytes, and of no level") {
  CHECK(state_set::of_statistics().bits() == 1u << 16);
  CHECK(state_set::of_statistics() == (statistic_states | state_set(3, 2, 8)) - state_set(3, 2, 8));
  CHECK(state_set::of_statistics() == statistic_states);
  CHECK_FALSE(state_set::of_statistics().sharded_at(3));
  CHECK(state_set::of_statistics().bytes_per_element() == 4);
  CHECK(members_of(statistic_states) == members{{16, {9, 4}}});
  CHECK(statistic_states.of(role::statistic) == statistic_states);
  CHECK_FALSE(statistic_states.sharded_at(3));
  CHECK(state_set{}.empty());
  CHECK(state_set{}.begin() == state_set{}.end());
  CHECK(sizeof(state_set) == 12);  // a transfer carries one
}

// not of bits alone: each member has a level and a width
static_assert(!std::is_aggregate_v<state_set> && !std::is_constructible_v<state_set, std::uint32_t>);
static_assert(state_set(15, 3, 8).bits() == 1u << 15 && state_set(0, 1, 1).bits() == 1u);

TEST_CASE("a set is made of states that a list can have, and joined with sets of its list") {
  const auto said = [](int number, index_t level, bytes_t width) {
    return refused([&] { static_cast<void>(state_set(number, level, width)); });
  };
  for (const int number : {0, 15})
    for (const index_t level : {1, 2, 3})
      for (const bytes_t width : {1, 2, 4, 8}) CHECK(said(number, level, width) == "accepted");
  for (const int number : {-1, 16, 31, 32})
    CHECK(said(number, 1, 4) ==
          "reshard: states: there is no state " + std::to_string(number) + " of a list; they are 0 to 15");
  for (const index_t level : {-1, 0, 4})
    CHECK(said(3, level, 4) == "reshard: states: state 3 is of level " + std::to_string(level) +
                                   "; levels are 1, 2 and 3, the least zero at which a state is sharded");
  for (const bytes_t width : {-1, 0, 3, 5, 16})
    CHECK(said(3, 1, width) ==
          "reshard: states: state 3 has elements of " + std::to_string(width) + " bytes; 1, 2, 4 and 8 are supported");
  const state_set narrow(5, 3, 2), wide(5, 1, 4), other(4, 1, 4);
  CHECK(
      refused([&] { static_cast<void>((narrow | other) | (wide | other)); }) ==
      "reshard: states: state 5 has 2 bytes and level 3 in one set, and 4 bytes and level 1 in the other; sets of one "
      "list are joined");
}
