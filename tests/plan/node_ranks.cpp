// SPDX-License-Identifier: Apache-2.0
// The ranks of a node: those whose devices are on it and live; and of ranks that are left out of `leaving` or
// `entering`, that no element of theirs is ever on the other side's rank of another node.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include <reshard/algebra/box.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/detail/node_ranks.hpp>
#include <reshard/space/listed_holding.hpp>

#include "../support/dice.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice;
using ranks_listed = std::vector<rank_t>;

namespace {

ranks_listed listed(const std::vector<interval>& ranks) {
  ranks_listed all;
  for (const interval& part : ranks)
    for (rank_t rank = part.begin; rank < part.end; ++rank) all.push_back(rank);
  return all;
}

bool contains(const ranks_listed& all, rank_t rank) { return std::find(all.begin(), all.end(), rank) != all.end(); }

bool share(const computed_holding& a, rank_t rank, const computed_holding& b, rank_t other) {
  bool found = false;
  for (const role r : {role::parameter, role::optimizer})
    each_held(a, rank, r, [&](int f, const family_box& mine) {
      b.held(f, other, r, [&](int, const family_box& theirs) { found = found || intersects(mine, theirs); });
    });
  return found;
}

constexpr const char* layouts[] = {"pp=4",
                                   "tp=2,pp=2",
                                   "pp=2,dp=3,zero=1",
                                   "tp=2,pp=4,zero=1,dp=2",
                                   "dp=5,zero=1",
                                   "pp=4,dp=2,order=tp-cp-pp-dp-ep",
                                   "pp=4,vpp=2,tp=2"};

device_map some_seats(dice& random, rank_t ranks) {
  std::vector<rank_t> devices(static_cast<std::size_t>(ranks + random.below(3)));
  std::iota(devices.begin(), devices.end(), random.below(3));
  for (std::size_t i = devices.size(); random.coin() && i > 1; --i)
    std::swap(devices[i - 1], devices[static_cast<std::size_t>(random.below(static_cast<index_t>(i)))]);
  devices.resize(static_cast<std::size_t>(ranks));
  return device_map(devices);
}

std::vector<interval> leaving_of(const computed_switch& change, const detail::node_ranks& here) {
  return detail::ranks_meeting_others(change.from(), here.from, change.to(), here.to);
}
std::vector<interval> entering_of(const computed_switch& change, const detail::node_ranks& here) {
  return detail::ranks_meeting_others(change.to(), here.to, change.from(), here.from);
}

/// The ranks of one side on a node, by asking each device; and of those that do not meet others, that they do not.
struct judged {
  long ranks = 0, inside = 0, meeting = 0;

  void side(const ranks_listed& here, const ranks_listed& meeting_others, const computed_holding& mine,
            const ranks_listed& others_here, const computed_holding& theirs) {
    ranks += static_cast<long>(here.size());
    meeting += static_cast<long>(meeting_others.size());
    for (const rank_t rank : meeting_others) CHECK(contains(here, rank));
    for (const rank_t rank : here) {
      if (contains(meeting_others, rank)) continue;
      ++inside;
      for (rank_t other = 0; other < theirs.ranks(); ++other)
        if (!contains(others_here, other)) CHECK_FALSE(share(mine, rank, theirs, other));
    }
  }
};

}  // namespace

TEST_CASE("what is left out meets no other node") {
  dice random(1);
  const model m = make_transformer(
      {.name = "m", .layers = 8, .hidden = 8, .heads = 4, .groups = 4, .head_dim = 2, .ffn = 8, .vocabulary = 8});
  judged leaving, entering;
  long lost = 0;
  for (int n = 0; n < testing::tries(200); ++n) {
    const space a(m, parse_degrees(layouts[random.below(std::size(layouts))])),
        b(m, parse_degrees(layouts[random.below(std::size(layouts))]));
    placement placed{.from = some_seats(random, a.ranks()), .to = some_seats(random, b.ranks())};
    placed.on = nodes_of(random.within(1, 6));
    rank_t gone = -1;
    for (rank_t rank = 0; n % 2 == 0 && rank < a.ranks() && gone < 0; ++rank)
      if (placed.to.of_world(b.ranks()).rank_of(placed.from.device_of(rank)) < 0) gone = rank;
    if (gone >= 0) placed.lost = {placed.from.device_of(gone)}, placed.lost_elements = when_lost::leave_out, ++lost;
    const layout_switch change(a, b, placed);
    for (index_t node = 0; node * change.node_devices() < change.devices(); ++node) {
      const detail::node_ranks found = detail::node_ranks_of(change, node);
      ranks_listed from, to;
      for (rank_t device = node * placed.on.gpus; device < (node + 1) * placed.on.gpus; ++device) {
        if (const rank_t rank = change.from_rank(device); rank >= 0) from.push_back(rank);
        if (const rank_t rank = change.to_rank(device); rank >= 0) to.push_back(rank);
      }
      std::sort(from.begin(), from.end()), std::sort(to.begin(), to.end());
      CHECK(found.devices == interval{node * placed.on.gpus, (node + 1) * placed.on.gpus});
      CHECK(listed(found.from) == from);
      CHECK(listed(found.to) == to);
      leaving.side(from, listed(leaving_of(change, found)), change.from(), to, change.to());
      entering.side(to, listed(entering_of(change, found)), change.to(), from, change.from());
    }
  }
  MESSAGE("of ", leaving.ranks, " ranks ", leaving.inside, " do not leave, of ", entering.ranks, " ", entering.inside,
          " are not entered; ", lost, " switches with a lost device");
  for (const judged& j : {leaving, entering}) {
    CHECK_DRAWN(j.inside > testing::tries(200) / 20);
    CHECK_DRAWN(j.meeting > testing::tries(200) / 20);
  }
  CHECK_DRAWN(lost > testing::tries(200) / 20);
}

TEST_CASE("by hand: a node of five of eight devices, one node alone, intervals that touch") {
  const model m = make_transformer(
      {.name = "m", .layers = 8, .hidden = 8, .heads = 4, .groups = 4, .head_dim = 2, .ffn = 8, .vocabulary = 8});
  const auto on = [&](index_t gpus) {
    return computed_switch(space(m, parse_degrees("tp=2,pp=4")), space(m, parse_degrees("pp=8")),
                           {.on = gpus == 0 ? cluster() : nodes_of(gpus)});
  };
  const computed_switch fives = on(5), alone = on(0);
  const detail::node_ranks first = detail::node_ranks_of(fives, 0), second = detail::node_ranks_of(fives, 1),
                           all = detail::node_ranks_of(alone, 0);
  CHECK(listed(leaving_of(fives, first)) == ranks_listed{4});
  CHECK(listed(entering_of(fives, first)) == ranks_listed{4});
  CHECK(listed(second.from) == ranks_listed{5, 6, 7});
  CHECK(listed(leaving_of(fives, second)) == ranks_listed{5});
  CHECK(listed(entering_of(fives, second)) == ranks_listed{5});
  CHECK(leaving_of(alone, all).empty());
  CHECK(entering_of(alone, all).empty());
  CHECK(listed(all.from) == ranks_listed{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(detail::covered_by({2, 7}, {{0, 4}, {4, 5}, {5, 9}}));
  CHECK_FALSE(detail::covered_by({2, 7}, {{0, 4}, {5, 9}}));
  CHECK_FALSE(detail::covered_by({2, 7}, {{3, 9}}));
  CHECK_FALSE(detail::covered_by({2, 7}, {{0, 6}}));
  CHECK(detail::covered_by({2, 2}, {}));
}

TEST_CASE("of holders the lowest among some ranks, and the devices of all of them in rank order") {
  const ranks_listed ranks = {2, 3, 7, 8, 11};
  const listed_ranks holders{&ranks};
  CHECK(detail::lowest_among(holders, {{0, 20}}) == 2);
  CHECK(detail::lowest_among(holders, {{3, 4}, {7, 9}}) == 3);
  CHECK(detail::lowest_among(holders, {{0, 2}, {4, 7}, {8, 9}}) == 8);
  CHECK(detail::lowest_among(holders, {{4, 7}, {9, 11}}) == -1);
  CHECK(detail::lowest_among(holders, {{12, 20}}) == -1);
  CHECK(detail::lowest_among(holders, {}) == -1);
  const device_map seats(ranks_listed{20, 19, 18, 17, 16, 15, 14, 13, 12, 31, 30, 29});
  ranks_listed devices = {5};  // what is there stays
  detail::devices_among(holders, {{0, 3}, {7, 8}, {9, 12}}, seats, devices);
  CHECK(devices == ranks_listed{5, 18, 13, 29});
}
