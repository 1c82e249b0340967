// SPDX-License-Identifier: Apache-2.0
// Rails: whose share of [0, 1) each device of a node carries. By hand for a few clusters; of drawn ones that NICs carry
// the same, their users too, and that as much as can be stays with the NIC of its number.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <reshard/plan/relay/rails.hpp>

#include "../support/dice.hpp"
#include "../support/tiny.hpp"

using namespace reshard;
using testing::dice;

namespace {

using numbers = std::vector<index_t>;
constexpr index_t one = node_rails::grain;

device_map on(const std::vector<rank_t>& devices) { return device_map(devices); }

/// Between replicas on these devices; nodes of so many GPUs, of the given kinds.
computed_switch replicas(const std::vector<rank_t>& from, const std::vector<rank_t>& to, const cluster& nodes) {
  static const model m = testing::tiny(1);
  const auto side = [](std::size_t n) { return space(m, parse_degrees("dp=" + std::to_string(n))); };
  return {side(from.size()), side(to.size()), {.from = on(from), .to = on(to), .on = nodes}};
}
std::vector<rank_t> range(rank_t begin, rank_t end) {
  std::vector<rank_t> all;
  for (rank_t d = begin; d < end; ++d) all.push_back(d);
  return all;
}
node_kind kind(index_t count, index_t nics) {
  node_kind k;
  k.count = count, k.nics = nics;
  return k;
}
cluster nodes(index_t gpus, std::vector<node_kind> kinds) {
  cluster of = nodes_of(gpus);
  of.nodes = std::move(kinds);
  return of;
}
/// Where segments begin, in parts of so many.
numbers bounds(const node_rails& rails, index_t parts) {
  numbers all;
  for (index_t s = 0; s < rails.segments(); ++s) all.push_back(rails.segment_of({0, parts}, s).begin);
  return all;
}

/// What a node's devices carry is what the comment of rails.hpp says, of the GPUs that take part and NICs.
void check_shares(const node_rails& rails, index_t node, index_t gpus, index_t nics, index_t most_nics,
                  const std::set<index_t>& users) {
  std::map<index_t, index_t> of_gpu, of_nic, at_home, users_of;
  for (const index_t g : users) ++users_of[g * nics / gpus];
  const numbers& carriers = rails.carriers(node);
  REQUIRE(static_cast<index_t>(carriers.size()) == rails.segments());
  index_t past = 0;
  for (index_t s = 0; s < rails.segments(); ++s) {
    const interval segment = rails.segment_of({0, one}, s);
    CHECK(segment.begin == past);
    CHECK(!segment.empty());
    past = segment.end;
    const index_t gpu = carriers[static_cast<std::size_t>(s)], nic = gpu * nics / gpus;
    CHECK(users.count(gpu) == 1);
    of_gpu[gpu] += segment.size(), of_nic[nic] += segment.size();
    at_home[nic] += intersect(segment, even_part({0, one}, nic, most_nics)).size();
  }
  CHECK(past == one);
  const index_t used = static_cast<index_t>(users_of.size());
  for (const auto& [nic, count] : users_of) {
    CHECK(of_nic[nic] >= one / used);
    CHECK(of_nic[nic] <= one / used + 1);
    CHECK(at_home[nic] == std::min(of_nic[nic], even_part({0, one}, nic, most_nics).size()));
    for (const index_t g : users)
      if (g * nics / gpus == nic) {
        CHECK(of_gpu[g] >= of_nic[nic] / count);
        CHECK(of_gpu[g] <= of_nic[nic] / count + 1);
      }
  }
}

}  // namespace

TEST_CASE("where all devices share one node there are no rails") {
  const computed_switch change = replicas(range(0, 4), range(0, 2), {});
  CHECK(node_rails(change).segments() == -1);
}

TEST_CASE("nodes that are alike: a segment for each GPU, whatever NICs it shares") {
  for (const index_t nics : {0, 4, 2, 1}) {
    cluster alike = nodes_of(4);
    alike.each.nics = nics;
    const computed_switch change = replicas(range(0, 8), range(4, 12), alike);
    const node_rails rails(change);
    CHECK(bounds(rails, 100) == numbers{0, 25, 50, 75});
    CHECK(rails.segment_of({10, 30}, 1).begin == 15);
    CHECK(rails.segment_of({10, 30}, 1).end == 20);
    CHECK(rails.segment_of({10, 30}, 3).end == 30);
    constexpr index_t very_long = index_t{1} << 60;
    CHECK(rails.segment_of({1, very_long + 1}, 1) == interval{very_long / 4 + 1, very_long / 2 + 1});
    for (const index_t node : {0, 1, 2}) CHECK(rails.carriers(node) == numbers{0, 1, 2, 3});
  }
}

TEST_CASE("two of four GPUs carry their own quarters and one other each") {
  const computed_switch change = replicas({0, 1, 2, 3}, {5, 7}, nodes_of(4));
  const node_rails rails(change);
  CHECK(bounds(rails, 4) == numbers{0, 1, 2, 3});
  CHECK(rails.carriers(0) == numbers{0, 1, 2, 3});
  CHECK(rails.carriers(1) == numbers{1, 1, 3, 3});
  const computed_switch last = replicas({0, 1, 2, 3}, {6, 7}, nodes_of(4));
  CHECK(node_rails(last).carriers(1) == numbers{2, 3, 2, 3});
  const computed_switch three = replicas({0, 1, 2, 3}, {4, 5, 7}, nodes_of(4));
  const node_rails thirds(three);
  CHECK(bounds(thirds, 12) == numbers{0, 3, 6, 7, 8, 9});
  CHECK(thirds.carriers(0) == numbers{0, 1, 2, 2, 2, 3});
  CHECK(thirds.carriers(1) == numbers{0, 1, 0, 1, 3, 3});
}

TEST_CASE("nodes of fewer NICs beside nodes of more") {
  const computed_switch change = replicas(range(0, 12), {0}, nodes(4, {kind(1, 4), kind(2, 2)}));
  const node_rails rails(change);
  CHECK(bounds(rails, 4) == numbers{0, 1, 2, 3});
  CHECK(rails.carriers(0) == numbers{0, 1, 2, 3});
  // NIC 0 has rails 0 and 2, and each of its two users one of them; NIC 1 has rails 1 and 3
  CHECK(rails.carriers(1) == numbers{0, 2, 1, 3});
  CHECK(rails.carriers(2) == rails.carriers(1));
}

TEST_CASE("a share that lies in two rails, and one of them cut by another node") {
  const computed_switch change = replicas(range(0, 12), {0}, nodes(6, {kind(1, 4), kind(1, 2)}));
  const node_rails rails(change);
  CHECK(bounds(rails, 24) == numbers{0, 3, 4, 6, 10, 12, 14, 15, 18, 20});
  CHECK(rails.carriers(0) == numbers{0, 1, 1, 2, 2, 3, 3, 4, 5, 5});
  CHECK(rails.carriers(1) == numbers{0, 0, 1, 3, 4, 1, 2, 2, 4, 5});
}

TEST_CASE("three kinds of nodes in one run of devices") {
  const computed_switch change = replicas(range(0, 16), {0}, nodes(4, {kind(1, 4), kind(2, 2), kind(1, 1)}));
  const node_rails rails(change);
  CHECK(bounds(rails, 4) == numbers{0, 1, 2, 3});
  CHECK(rails.carriers(0) == numbers{0, 1, 2, 3});
  CHECK(rails.carriers(1) == numbers{0, 2, 1, 3});
  CHECK(rails.carriers(2) == numbers{0, 2, 1, 3});
  CHECK(rails.carriers(3) == numbers{0, 1, 2, 3});
  const computed_switch thirds = replicas(range(0, 6), {0}, nodes(3, {kind(2, 1)}));
  CHECK(bounds(node_rails(thirds), 3) == numbers{0, 1, 2});
}

TEST_CASE("which devices take part is told by both sides, each with gaps") {
  const computed_switch change = replicas({12, 1, 0, 8}, {9, 13, 8, 2}, nodes_of(4));
  const node_rails rails(change);
  CHECK(bounds(rails, 12) == numbers{0, 3, 6, 9, 10, 11});
  CHECK(rails.carriers(0) == numbers{0, 1, 2, 0, 1, 2});
  CHECK(rails.carriers(2) == numbers{0, 1, 0, 1, 1, 1});
  CHECK(rails.carriers(3) == numbers{0, 1, 0, 1, 1, 1});
}

TEST_CASE("drawn clusters: NICs carry the same, and their users, and as much as can be on the rail of its number") {
  dice random(67);
  int partial = 0, kinds_seen = 0, many = 0;
  for (int n = testing::thrown(250); n > 0; --n) {
    const index_t gpus = random.within(1, 6), count = random.within(2, 5);
    cluster of = nodes_of(gpus);
    if (random.coin()) of.each.nics = random.within(0, gpus);
    else
      for (index_t left = count; left > 0; left -= of.nodes.back().count)
        of.nodes.push_back(kind(random.within(1, left), random.within(0, gpus)));
    std::vector<rank_t> sides[2];
    const rank_t begin = random.below(3), end = gpus * count - random.below(3);
    for (rank_t d = begin; d < std::max(end, begin + 1) && d < gpus * count; ++d) {
      const std::int64_t which = random.below(8);
      if (which != 7) sides[which % 2].push_back(d);
      if (which < 2) sides[1 - which % 2].push_back(d);
    }
    if (sides[0].empty() || sides[1].empty()) continue;
    const computed_switch change = replicas(sides[0], sides[1], of);
    if (change.node_devices() == 0) continue;
    std::map<index_t, std::set<index_t>> users;
    for (const auto& side : sides)
      for (const rank_t d : side) users[d / gpus].insert(d % gpus);
    const auto nics_of = [&](index_t node) {
      const index_t nics = of.kind_of(node).nics;
      return nics == 0 ? gpus : nics;
    };
    index_t most = 1;
    for (const auto& [node, gs] : users) most = std::max(most, nics_of(node));
    const node_rails rails(change);
    for (const auto& [node, gs] : users) {
      check_shares(rails, node, gpus, nics_of(node), most, gs);
      partial += static_cast<index_t>(gs.size()) < gpus ? 1 : 0;
    }
    kinds_seen += of.nodes.size() > 1 ? 1 : 0, many += rails.segments() > gpus ? 1 : 0;
  }
  CHECK_DRAWN(partial > 100);
  CHECK_DRAWN(kinds_seen > 50);
  CHECK_DRAWN(many > 50);
}
