// SPDX-License-Identifier: Apache-2.0
// Seconds with relay: what is told of streams is the formula over the staged pieces of all plans.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include <reshard/cost/choose_routing.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/schedule/staged_plan.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tiny.hpp"

using namespace reshard;
using testing::dice;

namespace {

constexpr const char* layouts[] = {"dp=2", "tp=2,dp=2,zero=1",      "pp=2,dp=3",   "tp=4,dp=2",
                                   "dp=8", "pp=2,tp=2,zero=1,dp=2", "dp=3,zero=1", ""};

cluster links(index_t gpus, double copy_GBps = 0.9) {
  return {.gpus = gpus,
          .each = {.nics = gpus / 2, .nvlink_GBps = 0.4, .nic_GBps = 0.05, .copy_GBps = copy_GBps, .spine_GBps = 0.06}};
}

/// The contract's words, from staged pieces: what every port has in every slot.
template <Holding From, Holding To>
switch_seconds by_pieces(const layout_switch<From, To>& change, const routing& how, index_t phases) {
  const cluster& on = change.on();
  const index_t slots = how.stages + phases - 1;
  std::vector<std::map<std::tuple<std::string, index_t>, double>> load(static_cast<std::size_t>(slots));
  std::vector<std::set<std::tuple<rank_t, rank_t, index_t>>> messages(static_cast<std::size_t>(slots));
  const auto bandwidth = [&](const std::string& port) {
    const node_kind& k = on.each;
    return 1e9 * (port.starts_with("nic")      ? k.nic_GBps
                  : port.starts_with("nvlink") ? k.nvlink_GBps
                  : port.starts_with("spine")  ? k.spine_GBps
                                               : k.copy_GBps);
  };
  for (rank_t d = 0; d < change.devices(); ++d) {
    const plan p = make_plan(change, d, how);
    const staged_plan cut = stage_plan(p, change, how.stages);
    std::set<std::pair<std::uint32_t, std::uint64_t>> came;
    for (const staged_piece& s : cut.receives) came.insert({s.states.bits(), s.stream});
    const auto add = [&](const staged_piece& s, const std::string& port, index_t number, double times = 1) {
      load[static_cast<std::size_t>(s.slot())][{port, number}] += times * static_cast<double>(s.bytes());
    };
    for (const staged_piece& s : cut.retains) add(s, "copy", d, 2);
    for (const staged_piece& s : cut.sends) {
      const bool inside = on.one_node(s.src, s.dst);
      if (came.count({s.states.bits(), s.stream}) == 0) add(s, "copy", d, 2);
      add(s, inside ? "nvlink out" : "nic out", inside ? d : 100 * on.node_of(d) + on.nic_of(d));
      if (on.crosses_rails(s.src, s.dst)) add(s, "spine out", on.node_of(d));
      messages[static_cast<std::size_t>(s.slot())].insert({s.src, s.dst, s.phase});
    }
    for (const staged_piece& s : cut.receives) {
      const bool inside = on.one_node(s.src, s.dst);
      if (s.why == purpose::delivered) add(s, "copy", d, 2);
      add(s, inside ? "nvlink in" : "nic in", inside ? d : 100 * on.node_of(d) + on.nic_of(d));
      if (on.crosses_rails(s.src, s.dst)) add(s, "spine in", on.node_of(d));
    }
  }
  switch_seconds sum;
  for (std::size_t t = 0; t < load.size(); ++t) {
    double most = 0;
    for (const auto& [port, bytes] : load[t]) most = std::max(most, bytes / bandwidth(std::get<0>(port)));
    std::map<rank_t, index_t> out, in;
    index_t busiest = 0;
    for (const auto& [src, dst, phase] : messages[t]) busiest = std::max({busiest, ++out[src], ++in[dst]});
    sum.ports += most, sum.messages += 1e-6 * on.message_us * static_cast<double>(busiest);
    sum.slots += 1e-6 * on.stage_us;
  }
  return sum;
}

}  // namespace

TEST_CASE("seconds of streams are those of their staged pieces, slot by slot") {
  dice random(3);
  int chained = 0;
  for (int n = 0; n < 50; ++n) {
    const model m = testing::tiny(2);
    const bool chain = n % 10 == 9;  // from one node to three others
    const space from(m, parse_degrees(chain ? "dp=2" : layouts[random.below(std::size(layouts))])),
        to(m, parse_degrees(chain ? "dp=8" : layouts[random.below(std::size(layouts))]));
    // in half of them copying takes longest, so what is copied where shows
    const double copy_GBps = n % 2 == 0 ? 0.9 : 0.02;
    const layout_switch change(from, to, {.on = links(chain ? 2 : 2 * random.within(1, 2), copy_GBps)});
    const routing how{relay::always, chain ? 1 : random.within(1, 2), random.coin() ? random.within(1, 9) : 300};
    relayed_streams streams = relayed_streams_of(change, how.chains);
    const port_table on(change);
    const relayed_seconds told(on, streams);
    const switch_seconds a = told.of_stages(how.stages), b = by_pieces(change, how, told.phases());
    CAPTURE(how.stages);
    CAPTURE(n);
    CHECK(told.phases() == phases_of(change, how));
    CHECK(a.messages == doctest::Approx(b.messages).epsilon(1e-9));
    CHECK(a.slots == doctest::Approx(b.slots).epsilon(1e-9));
    CHECK(a.total() == doctest::Approx(b.total()).epsilon(1e-3));
    relayed_streams one_by_one;
    index_t messages = 0;
    double slots = 0;
    for (rank_t d = 0; d < change.devices(); ++d) {
      const plan p = make_plan(change, d, how);
      one_by_one.add(p);
      messages += relayed_messages(p.receives, how.stages);
    }
    CHECK(relayed_seconds(on, one_by_one).of_stages(how.stages).total() == doctest::Approx(a.total()).epsilon(1e-12));
    CHECK(told.messages(how.stages) == messages);
    for (index_t t = 0; t < how.stages + told.phases() - 1; ++t)
      slots += traffic_of_slot(on, streams.streams(), t, how.stages).seconds;
    CHECK(slots == doctest::Approx(b.total()).epsilon(1e-9));
    chained += told.phases() > 3 ? 1 : 0;
  }
  std::printf("%d of 50 with chains\n", chained);
  CHECK(chained > 3);
}

TEST_CASE("streams of fewer elements than stages are counted as they are, and decide the seconds where all are") {
  const model few = make_transformer(
      {.name = "few", .layers = 2, .hidden = 4, .heads = 2, .groups = 2, .head_dim = 2, .ffn = 6, .vocabulary = 8});
  dice random(4);
  int moved = 0;
  for (int n = 0; n < 16; ++n) {
    const space from(few, parse_degrees(random.coin() ? "dp=2" : "tp=2,dp=2,zero=1")),
        to(few, parse_degrees(random.coin() ? "dp=8" : "pp=2,dp=3"));
    const layout_switch change(from, to, {.on = links(2 * random.within(1, 2))});
    relayed_streams streams = relayed_streams_of(change, 1);
    const port_table on(change);
    const relayed_seconds told(on, streams);
    index_t longest = 0;
    for (const relayed_stream& s : streams.streams()) longest = std::max(longest, s.sized.elements);
    const index_t stages = longest + random.within(1, 40);
    const switch_seconds a = told.of_stages(stages), b = by_pieces(change, {relay::always, 1, stages}, told.phases());
    CHECK(a.ports == doctest::Approx(b.ports).epsilon(1e-9));
    CHECK(a.messages == doctest::Approx(b.messages).epsilon(1e-9));
    const double enough = a.slots + (a.ports + a.messages) / 2, ended = told.of_stages(stages, enough).total();
    CHECK(ended > enough);
    CHECK(ended < a.total());
    CHECK(told.of_stages(stages, a.total()).total() == a.total());
    moved += b.messages > 0 ? 1 : 0;
  }
  CHECK_DRAWN(moved > 10);
}

TEST_CASE("sources that send to one device alone are as many messages as they are") {
  for (const auto& sit :
       {std::vector<rank_t>{0, 1}, std::vector<rank_t>{98, 99}}) {  // few streams for so high a source
    const layout_switch change(space(testing::tiny(2), parse_degrees("tp=2")),
                               space(testing::tiny(2), parse_degrees("dp=1")),
                               {.from = device_map(sit), .to = device_map(std::vector<rank_t>{2}), .on = links(1)});
    relayed_streams streams = relayed_streams_of(change, 1);
    const port_table on(change);
    const relayed_seconds told(on, streams);
    const switch_seconds by_hand = by_pieces(change, {relay::always, 1, 3}, told.phases());
    CHECK(by_hand.messages == doctest::Approx(3 * 2 * 1e-6 * change.on().message_us));
    CHECK(told.of_stages(3).messages == doctest::Approx(by_hand.messages).epsilon(1e-9));
    CHECK(told.messages(3) == 3 * 2);
  }
}

TEST_CASE("streams of a long chain are in order as well, whatever order they came in") {
  const layout_switch change(space(testing::tiny(1), parse_degrees("dp=1")),
                             space(testing::tiny(1), parse_degrees("dp=300")),
                             {.on = nodes_of(1), .states = parameter_states});
  std::vector<transfer> came;
  each_relayed(change, 1, [&](const transfer& t) { came.push_back(t); });
  relayed_streams streams;
  for (auto t = came.rbegin(); t != came.rend(); ++t) streams.add(*t);
  CHECK(streams.phases() > 290);  // each of one source, so that groups by phase and source would be 300 x 300
  const auto before = [](const relayed_stream& a, const relayed_stream& b) { return a.key() < b.key(); };
  CHECK(std::is_sorted(streams.streams().begin(), streams.streams().end(), before));
  CHECK(streams.streams().size() == 299);
  // what was moved from is empty, and takes others
  relayed_streams taken = std::move(streams);
  streams.add(came.front());
  CHECK(streams.streams().size() == 1);
  CHECK(taken.streams().size() == 299);
}

TEST_CASE("the best number of stages is the first of 1, 2, 4 .. with the fewest seconds") {
  const layout_switch change(space(testing::tiny(2), parse_degrees("dp=2")),
                             space(testing::tiny(2), parse_degrees("dp=8")), {.on = links(2)});
  relayed_streams streams = relayed_streams_of(change, 1);
  const port_table on(change);
  const relayed_seconds told(on, streams);
  index_t best = 1;
  for (index_t stages = 1; stages <= 4096; stages *= 2)
    if (told.of_stages(stages).total() < told.of_stages(best).total()) best = stages;
  CHECK(told.best_stages(4096) == best);
  CHECK(best > 1);
  CHECK(told.best_stages(1) == 1);
  CHECK_REFUSED((void)told.of_stages(0), "simulate: 0 stages; there is at least 1");
}
