// SPDX-License-Identifier: Apache-2.0
// Hops of a switch with relay: of small switches all of them by hand, and of any switch element by element, with each
// hop of a stream carrying the same, as every device, every node and the holders' nodes see them.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/lost.hpp>
#include <reshard/plan/relay.hpp>

#include "../support/any_tensors.hpp"
#include "../support/dice.hpp"
#include "../support/relayed_elements.hpp"
#include "../support/whole_on.hpp"

using namespace reshard;
using testing::any_seats, testing::any_tensors, testing::dice;

namespace {

using devices = std::vector<rank_t>;
using texts = std::set<std::string>;

/// "0>2 phase 1: 0-6", of the first tensor's elements; of the others with its number before.
std::string text_of_hop(const transfer& t) {
  const interval part = t.where.dim[axis_of::column];
  return std::to_string(t.src) + ">" + std::to_string(t.dst) + " phase " + std::to_string(t.phase) + ": " +
         (t.family == 0 ? "" : "tensor " + std::to_string(t.family) + " ") + std::to_string(part.begin) + "-" +
         std::to_string(part.end) + (t.why == purpose::passed_on ? ", passed on" : "");
}

/// A vector, whole on all devices of each side.
auto whole(const devices& from, const devices& to, index_t gpus, const devices& lost = {}, index_t elements = 12) {
  return layout_switch(testing::whole_on(std::ssize(from), "w", {elements}),
                       testing::whole_on(std::ssize(to), "w", {elements}),
                       {.from = device_map(from), .to = device_map(to), .on = nodes_of(gpus), .lost = lost});
}
template <typename Switch>
texts hops(const Switch& change, index_t chains = 1) {
  texts all;
  each_relayed(change, chains, [&](const transfer& t) { CHECK(all.insert(text_of_hop(t)).second); });
  return all;
}

}  // namespace

TEST_CASE("a node that holds serves F nodes, and each of those one more, until all that need it have it") {
  CHECK(hops(whole({0}, {1, 2, 3}, 1)) == texts{"0>1 phase 1: 0-12", "1>2 phase 2: 0-12", "2>3 phase 3: 0-12"});
  CHECK(hops(whole({0}, {1, 2, 3}, 1), 2) == texts{"0>1 phase 1: 0-12", "0>2 phase 1: 0-12", "1>3 phase 2: 0-12"});
  CHECK(hops(whole({0}, {1, 2, 3}, 1), 3) == texts{"0>1 phase 1: 0-12", "0>2 phase 1: 0-12", "0>3 phase 1: 0-12"});
  CHECK(hops(whole({0}, {3, 0, 1}, 1)) == texts{"0>1 phase 1: 0-12", "1>3 phase 2: 0-12"});
}

TEST_CASE(
    "several nodes that hold share the first F n, a part each; what does not come from them comes in both parts") {
  const texts shared = {"0>2 phase 1: 0-6",  "1>2 phase 1: 6-12", "0>3 phase 1: 0-6",
                        "1>3 phase 1: 6-12", "2>4 phase 2: 0-6",  "2>4 phase 2: 6-12"};
  CHECK(hops(whole({0, 1}, {2, 3, 4}, 1)) == shared);
  CHECK(hops(whole({0, 1}, {0, 2, 3, 4}, 1)) == shared);
  CHECK(hops(whole({0, 1}, {2}, 1)) == texts{"0>2 phase 1: 0-6", "1>2 phase 1: 6-12"});
  // who is lost holds nothing
  CHECK(hops(whole({0, 1}, {2}, 1, {0})) == texts{"1>2 phase 1: 0-12"});
}

TEST_CASE("a vector of fewer elements than holders: those that send nothing have it for their own node, whole") {
  // Part q of destination k comes from holder (2 k + q) mod 3, so that one sends several destinations various parts.
  CHECK(hops(whole({0, 1, 2}, {3, 4, 5, 6}, 1, {}, 2), 2) ==
        texts{"0>3 phase 1: 0-1", "1>3 phase 1: 1-2", "2>4 phase 1: 0-1", "0>4 phase 1: 1-2", "1>5 phase 1: 0-1",
              "2>5 phase 1: 1-2", "0>6 phase 1: 0-1", "1>6 phase 1: 1-2"});
  // Nodes of two: the second of the three that hold sends nothing to the fourth, and all to its own device 3.
  CHECK(hops(whole({0, 2, 4}, {3, 6}, 2, {}, 2)) == texts{"4>6 phase 1: 0-1", "0>6 phase 1: 1-2", "2>3 phase 0: 0-2"});
  // The third sends the first half to the fourth, by its device 5, which lacks it; the other to that device alone.
  CHECK(hops(whole({0, 2, 4}, {5, 6}, 2, {}, 2)) ==
        texts{"4>5 phase 0: 0-1", "5>6 phase 1: 0-1", "4>5 phase 0: 1-2", "0>6 phase 1: 1-2"});
}

TEST_CASE("inside a node: holders send a part each, or, where fewer than lack it, scatter it to be exchanged") {
  CHECK(hops(whole({0, 1}, {2}, 4)) == texts{"0>2 phase 0: 0-6", "1>2 phase 0: 6-12"});
  CHECK(hops(whole({0}, {1, 2, 3}, 4)) == texts{"0>1 phase 0: 0-4", "0>2 phase 0: 4-8", "0>3 phase 0: 8-12",
                                                "1>2 phase 1: 0-4", "1>3 phase 1: 0-4", "2>1 phase 1: 4-8",
                                                "2>3 phase 1: 4-8", "3>1 phase 1: 8-12", "3>2 phase 1: 8-12"});
  CHECK(hops(whole({0, 1}, {2, 3}, 4)) ==
        texts{"0>2 phase 0: 0-6", "1>2 phase 0: 6-12", "0>3 phase 0: 0-6", "1>3 phase 0: 6-12"});
  CHECK(hops(whole({0, 1}, {0, 1}, 4)).empty());
  CHECK(hops(whole({0, 1}, {0, 2}, 0)) == texts{"0>2 phase 0: 0-6", "1>2 phase 0: 6-12"});  // all devices on one node
}

TEST_CASE("between nodes each device carries its share; carriers that lack it have it in phase 0, others in phase 1") {
  CHECK(hops(whole({0}, {2, 3}, 2)) ==
        texts{"0>2 phase 1: 0-6", "0>3 phase 1: 6-12", "2>3 phase 2: 0-6", "3>2 phase 2: 6-12"});
  CHECK(hops(whole({0}, {1, 2, 3}, 2)) == texts{"0>1 phase 0: 6-12", "0>1 phase 1: 0-6", "0>2 phase 1: 0-6",
                                                "1>3 phase 1: 6-12", "2>3 phase 2: 0-6", "3>2 phase 2: 6-12"});
  // Holders take turns at handing to carriers that have not: device 0 to 2, device 1 to 3.
  const texts four = hops(whole({0, 1}, {2, 3, 4, 5, 6, 7}, 4));
  const texts handed = {"0>2 phase 0: 6-9", "1>3 phase 0: 9-12", "0>2 phase 1: 0-3", "0>3 phase 1: 0-3",
                        "1>2 phase 1: 3-6", "1>3 phase 1: 3-6",  "2>3 phase 1: 6-9", "3>2 phase 1: 9-12",
                        "0>4 phase 1: 0-3", "1>5 phase 1: 3-6",  "2>6 phase 1: 6-9", "3>7 phase 1: 9-12"};
  CHECK(std::includes(four.begin(), four.end(), handed.begin(), handed.end()));
  CHECK(four.size() == handed.size() + 4 * 3);  // and each of the other node's to its three neighbours
  for (const char* last : {"4>5 phase 2: 0-3", "5>4 phase 2: 3-6", "6>7 phase 2: 6-9", "7>4 phase 2: 9-12"})
    CHECK(four.count(last) == 1);
  // A chain of three nodes passes a quarter on by each device: what a device needs itself is delivered.
  const texts chain = hops(whole({0}, {2, 3, 4, 5}, 2));
  CHECK(chain == texts{"0>2 phase 1: 0-6", "0>3 phase 1: 6-12", "2>3 phase 2: 0-6", "3>2 phase 2: 6-12",
                       "2>4 phase 2: 0-6", "3>5 phase 2: 6-12", "4>5 phase 3: 0-6", "5>4 phase 3: 6-12"});
}

TEST_CASE("carriers that do not need a piece pass it on, on both nodes") {
  std::vector<shard> from = testing::whole_on(1, "w", {12}), to;
  for (const rank_t rank : {1, 2, 3}) from.push_back({rank, "x", bf16, {2}, {0}, {2}});
  to.push_back({0, "x", bf16, {2}, {0}, {2}}), to.push_back({1, "x", bf16, {2}, {0}, {2}});
  to.push_back({2, "x", bf16, {2}, {0}, {2}}), to.push_back({2, "w", bf16, {12}, {0}, {12}});
  const layout_switch change(shard_list(from, 4), shard_list(to, 3),
                             {.to = device_map(devices{1, 2, 3}), .on = nodes_of(2)});
  CHECK(hops(change) ==
        texts{"0>1 phase 0: 6-12, passed on", "0>2 phase 1: 0-6, passed on", "1>3 phase 1: 6-12", "2>3 phase 2: 0-6"});
}

namespace {

/// What a device has of a stream comes to it at once, and leaves it whole by every hop: by device and stream, the boxes
/// of each of its hops. Streams that are none are 0.
template <typename Switch>
void check_streams(const Switch& change, index_t chains) {
  using boxes = std::multiset<std::tuple<int, std::string>>;
  using hop = std::tuple<int, rank_t, rank_t>;
  std::map<std::tuple<rank_t, std::uint32_t, std::uint64_t>, std::map<hop, boxes>> streams;
  each_relayed(change, chains, [&](const transfer& t) {
    std::string where;
    for (const interval& part : t.where.dim) where += std::to_string(part.begin) + "-" + std::to_string(part.end) + " ";
    for (const rank_t device : {t.src, t.dst})
      streams[{device, t.states.bits(), t.stream}][{t.phase, t.src, t.dst}].insert({t.family, where});
    CHECK(t.stream != 0);
  });
  for (const auto& [stream, ways] : streams)
    for (const auto& [way, all] : ways) CHECK(all == ways.begin()->second);
}

/// By holders: those of phase 1 from one node to another.
template <typename Switch>
int check_holders(const Switch& change, index_t chains) {
  const index_t gpus = change.node_devices();
  std::vector<transfer> wanted, told;
  each_relayed(change, chains, [&](const transfer& t) {
    if (gpus != 0 && t.phase == 1 && t.src / gpus != t.dst / gpus) wanted.push_back(t);
  });
  each_relayed_by_holders(change, chains, [&](const transfer& t) { told.push_back(t); });
  const auto before = [](const transfer& a, const transfer& b) { return precedes(a, b); };
  std::sort(wanted.begin(), wanted.end(), before), std::sort(told.begin(), told.end(), before);
  CHECK(told == wanted);
  return static_cast<int>(told.size());
}

/// A device's plan sends to where the whole switch says, and nowhere else.
template <typename Switch>
void check_sent(const Switch& change, index_t chains) {
  std::map<std::pair<rank_t, rank_t>, int> wanted, told;
  each_relayed(change, chains, [&](const transfer& t) { ++wanted[{t.src, t.dst}]; });
  for (rank_t d = 0; d < change.devices(); ++d)
    for (const transfer& t : make_plan(change, d, {relay::always, chains, 1}).sends) ++told[{t.src, t.dst}];
  CHECK(told == wanted);
}

struct met_hops {
  int chained = 0, passed = 0, between = 0;
};
template <typename Switch>
void check_hops(const Switch& change, index_t chains, met_hops& met) {
  const testing::relayed_counts counts = testing::relayed_elements(change, {relay::always, chains, 3}).replay();
  CHECK(counts.faults == 0);
  CHECK(counts.into_nodes == counts.least_into_nodes);
  check_streams(change, chains);
  check_sent(change, chains);
  met.between += check_holders(change, chains) > 0 ? 1 : 0;
  met.chained += counts.phases > 3 ? 1 : 0, met.passed += counts.passed > 0 ? 1 : 0;
}

const model few = make_transformer(
    {.name = "few", .layers = 4, .hidden = 4, .heads = 2, .groups = 2, .head_dim = 2, .ffn = 4, .vocabulary = 4});
constexpr const char* layouts[] = {
    "", "dp=3", "tp=2", "tp=2,dp=2,zero=1", "pp=2,dp=2", "pp=4,dp=2", "pp=2,tp=2,dp=2", "dp=4,zero=1", "pp=4", "dp=7"};

}  // namespace

TEST_CASE("lists of tensors on any nodes: every element arrives once, after who sends it has it") {
  dice random(71);
  met_hops met;
  for (int n = 0; n < 50; ++n) {
    const any_tensors given(random, true);
    const auto change = given.change();
    if (lost_bytes(change) > 0) continue;  // needed, and comes from nobody
    CAPTURE(n);
    check_hops(change, random.within(1, 2), met);
  }
  CHECK_DRAWN(met.chained > 2);
  CHECK_DRAWN(met.passed > 10);
  CHECK_DRAWN(met.between > 20);
}

TEST_CASE("layouts on any devices of nodes: ranks that meet no other node's have all that they need") {
  dice random(72);
  met_hops met;
  int lost = 0;
  for (int n = 0; n < 36; ++n) {
    const space from(few, parse_degrees(layouts[random.below(std::size(layouts))])),
        to(few, parse_degrees(layouts[random.below(std::size(layouts))]));
    placement placed{.on = nodes_of(random.within(1, 4))};
    const bool in_order = random.coin();  // whole pipeline stages on a node
    if (!in_order) placed.from = device_map(any_seats(random, from.ranks(), from.ranks() + 2));
    placed.to = in_order ? device_map(to.ranks()) : device_map(any_seats(random, to.ranks(), to.ranks() + 2));
    placed.on.each.nics = random.below(placed.on.gpus + 1);
    placed.states = adam.named("param") | adam.named("master");
    if (const rank_t gone = from.ranks() - 1; gone > 1 && !in_order && random.below(3) == 0)
      if (const rank_t device = placed.from.device_of(gone); placed.to.rank_of(device) < 0)
        placed.lost = {device}, placed.lost_elements = when_lost::leave_out;
    const layout_switch change(from, to, placed);
    if (!placed.lost.empty() && lost_bytes(change) > 0) continue;
    lost += placed.lost.empty() ? 0 : 1;
    CAPTURE(n);
    check_hops(change, random.within(1, 2), met);
  }
  CHECK_DRAWN(lost > 1);
  CHECK_DRAWN(met.chained > 2);
  CHECK_DRAWN(met.passed > 10);
}

TEST_CASE("a holder that sends parts to several nodes, not in the order of the parts, sends all of them") {
  const auto change = whole({0, 1, 2}, {3, 4, 5, 6}, 1, {}, 2);
  check_sent(change, 2);
  CHECK(check_holders(change, 2) == 8);
}
