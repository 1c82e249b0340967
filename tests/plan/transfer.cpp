// SPDX-License-Identifier: Apache-2.0
// Transfers: their order, which both ends sort by, and their bytes.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include <reshard/model/state_list.hpp>
#include <reshard/plan/transfer.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using testing::dice;

namespace {
/// What a transfer is ordered by, as a list of numbers.
std::array<index_t, 5 + 2 * family_ndim> numbers(const transfer& t) {
  std::array<index_t, 5 + 2 * family_ndim> n{t.src, t.dst, t.phase, static_cast<index_t>(t.states.bits()), t.family};
  for (std::size_t i = 0; i < family_ndim; ++i)
    n[5 + i] = t.where.dim[i].begin, n[5 + family_ndim + i] = t.where.dim[i].end;
  return n;
}
transfer random_transfer(dice& random, index_t values) {
  transfer t{random.below(values),
             random.below(values),
             adam.all().masked(static_cast<unsigned>(1 + random.below(values))),
             static_cast<int>(random.below(values)),
             {},
             static_cast<int>(random.below(values))};
  for (interval& i : t.where.dim) i = {random.below(2), 2 + random.below(2)};
  return t;
}
}  // namespace

TEST_CASE("the order is that of source, destination, phase, states, family, lower corner, upper corner") {
  dice random(1);
  int equal_heads = 0;
  for (int n = 0; n < 4000; ++n) {
    const transfer a = random_transfer(random, 1 + n % 3), b = random_transfer(random, 1 + n % 3);
    CHECK(precedes(a, b) == (numbers(a) < numbers(b)));
    CHECK((a == b) == (numbers(a) == numbers(b)));
    equal_heads +=
        a.src == b.src && a.dst == b.dst && a.phase == b.phase && a.states == b.states && a.family == b.family ? 1 : 0;
  }
  std::printf("%d of 4000 pairs differ in their boxes alone, if at all\n", equal_heads);
  CHECK_DRAWN(equal_heads > 100);
}

TEST_CASE("sort_transfers is sorting by that order, whichever end's list it is and however it comes") {
  dice random(2);
  int already = 0, peers_alone = 0;
  for (int n = 0; n < 600; ++n) {
    const bool sends = random.coin();
    std::vector<transfer> list;
    for (index_t left = random.below(30); left > 0; --left) {
      list.push_back(random_transfer(random, 4));
      (sends ? list.back().src : list.back().dst) = 7;
    }
    const auto peer = sends ? &transfer::dst : &transfer::src;
    if (n % 3 == 0)
      std::sort(list.begin(), list.end(), [](const transfer& a, const transfer& b) { return numbers(a) < numbers(b); });
    if (n % 3 == 1)
      std::stable_sort(list.begin(), list.end(),
                       [&](const transfer& a, const transfer& b) { return a.*peer < b.*peer; });
    std::vector<transfer> wanted = list;
    std::stable_sort(wanted.begin(), wanted.end(),
                     [](const transfer& a, const transfer& b) { return numbers(a) < numbers(b); });
    already += list == wanted ? 1 : 0;
    peers_alone += n % 3 == 1 && list != wanted ? 1 : 0;
    sort_transfers(list, peer);
    CHECK(list == wanted);
  }
  std::printf("of 600 lists %d were in order, %d by peer alone\n", already, peers_alone);
  CHECK_DRAWN(already > 100);
  CHECK_DRAWN(peers_alone > 100);
}

TEST_CASE("bytes are elements times the widths of all states; what leaves 64 bits is refused") {
  transfer t{0, 1, only(0) | optimizer_states, 0, {{{0, 2}, {0, 3}, {0, 1}, {1, 5}, {2, 7}}}};
  CHECK(t.bytes() == 2 * 3 * 4 * 5 * 14);
  t.states = only(0);
  CHECK(t.bytes() == 2 * 3 * 4 * 5 * 2);
  t.states = states_of(role::statistic);
  CHECK(t.bytes() == 2 * 3 * 4 * 5 * 4);
  t.states = only(0);
  t.where = {{{0, index_t{1} << 61}, {0, 1}, {0, 1}, {0, 1}, {0, 1}}};
  CHECK(t.bytes() == index_t{1} << 62);
  t.states = optimizer_states;
  CHECK_REFUSED(t.bytes(), "2305843009213693952 x 12 does not fit 64 bits");
}

TEST_CASE("the phase goes before the states, of whichever role, up to the highest phase") {
  transfer first{
      .src = 1, .dst = 7, .states = states_of(role::statistic), .where = {{{0, 1}, {0, 1}, {0, 1}, {5, 6}, {0, 4}}}};
  transfer second = first, third = first, fourth = first;
  second.phase = 1, second.where.dim[axis_of::row] = {2, 3};
  third.phase = 1 << 14, third.where.dim[axis_of::row] = {1, 2};
  fourth.phase = most_phases, fourth.where.dim[axis_of::row] = {0, 1};
  const std::vector<transfer> wanted{first, second, third, fourth};
  std::vector<transfer> list{fourth, third, second, first};
  do {
    std::vector<transfer> sorted = list;
    sort_transfers(sorted, &transfer::src);
    CHECK(sorted == wanted);
  } while (std::prev_permutation(list.begin(), list.end(),
                                 [](const transfer& a, const transfer& b) { return a.phase < b.phase; }));
}
