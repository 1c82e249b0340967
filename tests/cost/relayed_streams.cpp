// SPDX-License-Identifier: Apache-2.0
// Seconds with relay: what is told of streams is the formula over the staged pieces of all plans.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <reshard/cost/choose_routing.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/schedule/staged_plan.hpp>

#include "../support/any_links.hpp"
#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/relayed_slot.hpp"
#include "../support/tiny.hpp"

using namespace reshard;
using testing::any_world, testing::slot_of, testing::dice, testing::in_words, testing::links_in_words,
    testing::slot_in_words;
using testing::traffic_in_words;

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

namespace {
constexpr state_set master = adam.named("master"), moments = adam.named("exp_avg") | adam.named("exp_avg_sq");

/// A stream on a hop by its key, counted up from the transfers.
struct summed {
  index_t elements = 0;
  bytes_t width = 0;
  purpose why = purpose::delivered;
  bool stays = false, from_another = false;
};
using summed_streams = std::map<std::tuple<int, rank_t, rank_t, std::uint32_t, std::uint64_t>, summed>;

/// Hops as they come, in no order: nobody checks that a device had what it sends.
std::vector<transfer> any_hops(dice& random, const any_world& world, int phases, index_t most, index_t count = 20) {
  std::vector<transfer> all;
  for (index_t i = random.within(1, count); i > 0; --i) {
    transfer t{
        .src = world.any(random), .dst = world.any(random), .states = random.coin() ? master : moments, .where = {}};
    t.phase = static_cast<int>(random.below(phases));
    t.stream = static_cast<std::uint64_t>(random.within(1, 3)) << (random.coin() ? 0 : 40);
    if (t.src == t.dst) t.phase = 0, t.stream = 0;
    t.where = {{{0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, random.within(1, most)}}};
    t.why = (t.dst + t.phase + static_cast<int>(t.stream % 7)) % 3 == 0 ? purpose::passed_on : purpose::delivered;
    if (t.src == t.dst) t.why = purpose::delivered;
    for (index_t times = random.below(5) == 0 ? 2 : 1; times > 0; --times)
      all.insert(all.begin() + random.below(std::ssize(all) + 1), t);
  }
  return all;
}
/// Whether the source needs what it sends.
bool needed(const transfer& t) {
  return (t.src + static_cast<int>(t.stream % 5) + (t.states == master ? 1 : 0)) % 2 == 0;
}

summed_streams summed_up(const std::vector<transfer>& hops) {
  summed_streams all;
  for (const transfer& t : hops) {
    summed& one = all[{t.phase, t.src, t.dst, t.states.bits(), t.stream}];
    one.elements += t.where.volume();
    one.width = t.states == master ? 4 : 8;
    one.why = t.why;
    one.stays = t.phase <= 1 && needed(t);
    one.from_another = t.phase > 1;
    for (const transfer& came : hops)
      if (t.phase == 1 && came.phase == 0 && came.src != came.dst && came.dst == t.src && came.stream == t.stream &&
          came.states == t.states)
        one.from_another = true;
  }
  return all;
}

void check_streams(relayed_streams& streams, const summed_streams& wanted) {
  const std::vector<relayed_stream>& told = streams.streams();
  REQUIRE(told.size() == wanted.size());
  std::size_t i = 0;
  for (const auto& [key, one] : wanted) {
    const relayed_stream& s = told[i++];
    CHECK(s.key() == key);
    CHECK(s.sized.elements == one.elements);
    CHECK(s.sized.width == one.width);
    CHECK(s.why == one.why);
    CHECK(s.stays == one.stays);
    CHECK((s.source == had::from_another) == one.from_another);
  }
  CHECK(streams.phases() == (wanted.empty() ? 1 : std::get<0>(wanted.rbegin()->first) + 1));
}
}  // namespace

TEST_CASE("any hops in any order: each stream of a hop once, by its key; what came in phase 0 is not had before") {
  dice random(21);
  int merged = 0, came = 0, asked_less = 0;
  for (int n = 0; n < 200; ++n) {
    const any_world world(random, true);
    const std::vector<transfer> hops =
        any_hops(random, world, static_cast<int>(random.within(1, 4)), 20, random.coin() ? 20 : 90);
    relayed_streams streams;
    CHECK(streams.streams().empty());
    CHECK(streams.phases() == 1);
    const std::size_t looked_at = random.coin() ? hops.size() / 2 : hops.size();  // between them, too
    int asked = 0, may_ask = 0;
    for (std::size_t i = 0; i < hops.size(); ++i) {
      const transfer& t = hops[i];
      if (i == looked_at) check_streams(streams, summed_up({hops.begin(), hops.begin() + static_cast<int>(i)}));
      streams.add(t, [&] { return ++asked, needed(t); });
      const bool follows = i > 0 && hops[i - 1].phase <= 1 && hops[i - 1].src == t.src &&
                           hops[i - 1].states == t.states && hops[i - 1].stream == t.stream;
      may_ask += t.phase <= 1 && !follows ? 1 : 0;
    }
    const summed_streams wanted = summed_up(hops);
    check_streams(streams, wanted);
    if (wanted.size() == hops.size() && looked_at == hops.size()) CHECK(asked == may_ask);
    asked_less += asked < std::ssize(hops) ? 1 : 0;
    merged += wanted.size() < hops.size() ? 1 : 0;
    for (const auto& [key, one] : wanted) came += std::get<0>(key) == 1 && one.from_another ? 1 : 0;
  }
  std::printf("%d with streams that come in parts, %d streams that came in phase 0, %d times less was asked\n", merged,
              came, asked_less);
  for (const int met : {merged, came, asked_less}) CHECK_DRAWN(met > 10);
}

TEST_CASE("what a plan receives and retains is had before where nothing says otherwise, and stays with nobody") {
  plan p;
  p.receives = {
      {.src = 1, .dst = 0, .states = master, .where = {{{0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 3}}}, .stream = 9}};
  p.retains = {{.src = 0, .dst = 0, .states = master, .where = {{{0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 4}}}}};
  p.sends = {{.src = 0, .dst = 2, .states = master, .where = {{{0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 5}}}, .stream = 8}};
  relayed_streams streams;
  streams.add(p);
  const std::vector<relayed_stream>& told = streams.streams();
  REQUIRE(told.size() == 2);
  CHECK(told[0].sized == sized_stream{0, 0, 4, 4});
  CHECK(told[1].sized == sized_stream{1, 0, 3, 4});
  for (const relayed_stream& s : told) {
    CHECK_FALSE(s.stays);
    CHECK(s.source == had::before);
  }
}

namespace {
struct slots_in_words {
  switch_seconds sum;
  index_t messages = 0;
};
/// All slots, by the contract's words; what each moves is checked on the way.
slots_in_words slots_of(const any_world& world, const port_table& on, const std::vector<relayed_stream>& streams,
                        index_t phases, index_t stages) {
  const links_in_words words(world.on);
  const auto exact = [&](const relayed_stream& s, index_t k) {
    return static_cast<double>(s.sized.in_stage(k, stages) * s.sized.width);
  };
  const auto even = [&](const relayed_stream& s, index_t k) {
    return s.sized.elements < stages ? exact(s, k) : static_cast<double>(s.sized.bytes()) / static_cast<double>(stages);
  };
  slots_in_words all;
  for (index_t t = 0; t < stages + phases - 1; ++t) {
    const slot_in_words slot = slot_of(words, streams, t, stages, exact);
    const double waits = 1e-6 * world.on.message_us * static_cast<double>(slot.most_messages());
    all.sum.ports += slot_of(words, streams, t, stages, even).longest();
    all.sum.messages += waits;
    all.sum.slots += 1e-6 * world.on.stage_us;
    all.messages += std::ssize(slot.messages);
    traffic_in_words moved;
    for (const relayed_stream& s : streams)
      if (const index_t k = t - s.phase; k >= 0 && k < stages && s.sized.src != s.sized.dst)
        if (const index_t elements = s.sized.in_stage(k, stages); elements > 0)
          moved[{s.sized.src, s.sized.dst, s.phase}] += elements * s.sized.width;
    const slot_traffic told = traffic_of_slot(on, streams, t, stages);
    CHECK(told.seconds == doctest::Approx(slot.longest() + waits + 1e-6 * world.on.stage_us).epsilon(1e-11));
    for (const rank_t d : world.part) check_traffic(told.devices[on.seat_of(d)], words, d, moved);
  }
  return all;
}
}  // namespace

TEST_CASE("any streams in any number of stages: seconds, messages and traffic, slot by slot and port by port") {
  dice random(22);
  int short_ones = 0, passed = 0, later = 0;
  for (int n = 0; n < 100; ++n) {
    const any_world world(random, true);
    const port_table on(world.change());
    relayed_streams streams;
    for (const transfer& t : any_hops(random, world, static_cast<int>(random.within(1, 4)), 9)) streams.add(t);
    const relayed_seconds told(on, streams);
    CHECK(told.phases() == streams.phases());
    const index_t stages = random.within(1, 9);
    const slots_in_words wanted = slots_of(world, on, streams.streams(), told.phases(), stages);
    const switch_seconds found = told.of_stages(stages);
    CHECK(found.ports == doctest::Approx(wanted.sum.ports).epsilon(1e-11));
    CHECK(found.messages == doctest::Approx(wanted.sum.messages).epsilon(1e-11));
    CHECK(found.slots == doctest::Approx(wanted.sum.slots).epsilon(1e-11));
    CHECK(told.messages(stages) == wanted.messages);
    const links_in_words words(world.on);
    slot_in_words whole;
    for (int phase = 0; phase < told.phases(); ++phase)
      for (const auto& [port, seconds] :
           slot_of(words, streams.streams(), phase, 1, [](const relayed_stream&s, index_t) {
             return static_cast<double>(s.sized.bytes());
           }).seconds)
        whole.seconds[port] += seconds;
    CHECK(found.busiest.seconds == doctest::Approx(whole.longest()).epsilon(1e-11));
    if (whole.longest() > 0)
      CHECK(whole.seconds.at(in_words({found.busiest.kind, found.busiest.device, 0}, words)) ==
            doctest::Approx(whole.longest()).epsilon(1e-11));
    for (const relayed_stream& s : streams.streams()) {
      short_ones += s.sized.elements < stages ? 1 : 0, later += s.phase > 1 ? 1 : 0;
      passed += s.why == purpose::passed_on ? 1 : 0;
    }
  }
  std::printf("%d streams shorter than stages, %d passed on, %d of phases from 2 on\n", short_ones, passed, later);
  for (const int met : {short_ones, passed, later}) CHECK_DRAWN(met > 50);
}

TEST_CASE("of any streams the best number of stages is the least of 1, 2, 4 .. with the fewest seconds") {
  dice random(23);
  std::map<index_t, int> chosen;
  for (int n = 0; n < 150; ++n) {
    any_world world(random, true);
    world.on.message_us = random.coin() ? 0 : static_cast<double>(random.within(1, 40));
    world.on.stage_us = random.coin() ? 0 : static_cast<double>(random.within(1, 40));
    const port_table on(world.change());
    relayed_streams streams;
    for (const transfer& t : any_hops(random, world, static_cast<int>(random.within(1, 4)), random.coin() ? 9 : 400))
      streams.add(t);
    const relayed_seconds told(on, streams);
    const index_t most = random.within(1, 70);
    std::vector<std::pair<index_t, double>> all;
    double fewest = told.of_stages(1).total();
    for (index_t stages = 1; stages <= most; stages *= 2) {
      all.emplace_back(stages, told.of_stages(stages).total());
      fewest = std::min(fewest, all.back().second);
      const double enough = all.back().second * 0.7, some = told.of_stages(stages, enough).total();
      CHECK(some > enough);
      CHECK(some <= all.back().second);
      CHECK(told.of_stages(stages, all.back().second).total() == all.back().second);
    }
    const auto best =
        std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.second <= fewest * (1 + 1e-9); });
    CHECK(told.best_stages(most) == best->first);
    ++chosen[best->first];
  }
  for (const auto& [stages, times] : chosen) std::printf("S=%d %d times; ", static_cast<int>(stages), times);
  std::printf("\n");
  CHECK_DRAWN(chosen.size() > 5);
}
