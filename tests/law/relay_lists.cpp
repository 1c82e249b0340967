// SPDX-License-Identifier: Apache-2.0
// Relay between layouts and foreign lists of shards, for any three integers that devices agree on, as the library plans
// it: random switches on clusters, every hop of every element against the oracle, both ends alike in order.
// RESHARD_SWITCHES=N throws N of them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <reshard/cost/switch_bytes.hpp>
#include <reshard/io/cluster_json.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/relay.hpp>
#include <reshard/schedule/staged_plan.hpp>
#include <reshard/space/listed_holding.hpp>

#include "../oracle/relay_switches.hpp"
#include "../support/dice.hpp"
#include "../support/expand.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using oracle::relay::asked_switch, oracle::relay::hop, oracle::relay::question;
using testing::dice, testing::to_model;

namespace {

std::vector<rank_t> numbers(const std::vector<long>& list) { return {list.begin(), list.end()}; }

/// Both sides of a switch as spaces, and where they sit.
struct sides {
  explicit sides(const asked_switch& s)
      : asked(s), from(to_model(s.m), parse_degrees(s.from_text)),
        to(to_model(s.m), parse_degrees(s.to_text)), placed{.from = device_map(numbers(s.from_devices)),
                                                            .to = device_map(numbers(s.to_devices)),
                                                            .on = s.shape ? io::load_cluster(s.cluster_text)
                                                                          : io::cluster_from_json(s.cluster_text,
                                                                                                  "cluster"),
                                                            .lost = numbers({s.lost.begin(), s.lost.end()}),
                                                            .lost_elements = when_lost::leave_out} {}
  const asked_switch& asked;
  space from, to;
  placement placed;
};

/// What a layout holds, as a framework lists it.
std::vector<shard> listed(const computed_holding& h) {
  const space& s = h.space();
  std::vector<shard> shards;
  for (rank_t rank = 0; rank < s.ranks(); ++rank)
    for (const int i : all_states)
      each_held(h, rank, adam[i].placed_as(), [&](int f, const family_box& b) {
        const family& of = s.family_at(f);
        for (index_t member = b.dim[0].begin; member < b.dim[0].end; ++member)
          for (index_t expert = b.dim[1].begin; expert < b.dim[1].end; ++expert)
            for (index_t part = b.dim[2].begin; part < b.dim[2].end; ++part) {
              const index_t rows = of.extent[3], columns = of.extent[4];
              shard one{.rank = rank,
                        .tensor = s.tensor_on({f, member, expert}, rank),
                        .type = adam[i].type,
                        .whole = {columns},
                        .offset = {b.dim[4].begin},
                        .shape = {b.dim[4].size()},
                        .state = std::string(adam[i].name)};
              if (!of.vector()) {
                one.whole = {of.extent[2] * rows, columns};
                one.offset = {part * rows + b.dim[3].begin, b.dim[4].begin};
                one.shape = {b.dim[3].size(), b.dim[4].size()};
              }
              shards.push_back(one);
            }
      });
  return shards;
}

/// A staged piece in the oracle's terms, once per state that is asked for.
void add_hops(const sides& of, const oracle::relay::tensor_numbers& tensors, const staged_piece& p,
              std::vector<hop>& hops) {
  const family& which = of.to.family_at(p.tensor.family);
  const std::string name = oracle::one_name(of.asked.m, of.to.tensor_on(p.tensor, 0));
  for (const int i : p.states) {
    const auto what = tensors.find({oracle::all_states[i], name});
    REQUIRE(what != tensors.end());
    hop h{p.src, p.dst, what->second, {}, p.stage, p.phase, p.why == purpose::passed_on};
    for (index_t part = p.where.dim[0].begin; part < p.where.dim[0].end; ++part)
      for (index_t row = p.where.dim[1].begin; row < p.where.dim[1].end; ++row)
        for (index_t column = p.where.dim[2].begin; column < p.where.dim[2].end; ++column)
          h.elements.push_back((part * which.extent[3] + row) * which.extent[4] + column);
    hops.push_back(std::move(h));
  }
}

struct tally {
  long switches = 0, lists = 0, hops = 0, elements = 0, chained = 0, fan = 0, deepest = 0;
};

/// What the library adds up is what the oracle counts.
void check_figures(const switch_figures& f, const oracle::relay::figures& counted) {
  CHECK(f.moved == counted.moved);
  CHECK(f.relayed == counted.relayed);
  CHECK(f.retained == counted.retained);
  CHECK(f.least == counted.least);
  CHECK(f.inter_node == counted.inter_node);
  CHECK(f.cross_rail == counted.cross_rail);
  CHECK(f.messages == counted.messages);
  CHECK(f.slots() == counted.slots);
  CHECK(f.peak_floor == counted.peak_floor);
  CHECK(f.peak_excess == counted.peak_excess);
  for (const device_figures& d : f.devices) {
    const auto at = counted.devices.find(d.device);
    if (at == counted.devices.end()) continue;  // of nobody's
    CHECK(d.send == at->second.send);
    CHECK(d.receive == at->second.receive);
    CHECK(d.passed == at->second.passed);
    CHECK(d.before == at->second.before);
    CHECK(d.after == at->second.after);
    CHECK(d.peak == at->second.peak);
  }
}

/// A stream of e elements has S parts, as equal as can be.
void check_parts(const std::vector<staged_piece>& pieces, index_t stages) {
  std::map<std::tuple<rank_t, rank_t, int, std::uint32_t, std::uint64_t>, std::map<index_t, index_t>> streams;
  for (const staged_piece& p : pieces)
    streams[{p.src, p.dst, p.phase, p.states.bits(), p.stream}][p.stage] += p.where.volume();
  for (const auto& of : streams) {
    index_t elements = 0;
    for (const auto& part : of.second) elements += part.second;
    CHECK(static_cast<index_t>(of.second.size()) == std::min(elements, stages));
    for (const auto& part : of.second) {
      CHECK(part.second >= elements / stages);
      CHECK(part.second <= (elements + stages - 1) / stages);
    }
  }
}

/// Every device's plan alone; both ends list a message alike; every hop is right, and the phases are those told.
template <typename Switch>
void check_routing(const sides& of, const Switch& change, const routing& how, tally& seen) {
  oracle::relay::tensor_numbers tensors;
  question q = question_of(of.asked, tensors);
  q.stages = how.stages;
  q.route = how.how == relay::always ? oracle::relay::routing::always : oracle::relay::routing::never;
  using message = std::tuple<rank_t, rank_t, index_t, int>;
  std::map<message, std::vector<staged_piece>> sent, received;
  std::vector<hop> hops;
  index_t phases = 1;
  const sources after_use = of.asked.keep_sources ? sources::keep : sources::release;
  figure_collector collected(change, how, phases_of(change, how), figures_of::whole_switch, after_use);
  for (rank_t device = 0; device < change.devices(); ++device) {
    const plan own = make_plan(change, device, how);
    collected.add(own);
    const staged_plan p = stage_plan(own, change, how.stages);
    check_parts(p.sends, how.stages);
    for (const staged_piece& piece : p.sends) sent[{piece.src, piece.dst, piece.stage, piece.phase}].push_back(piece);
    for (const auto* list : {&p.receives, &p.retains})
      for (const staged_piece& piece : *list) {
        CHECK(piece.dst == device);
        phases = std::max<index_t>(phases, piece.phase + 1);
        add_hops(of, tensors, piece, hops);
        if (list == &p.receives) received[{piece.src, piece.dst, piece.stage, piece.phase}].push_back(piece);
      }
  }
  CHECK(sent == received);
  CHECK(phases == phases_of(change, how));
  oracle::relay::verdict v = judge(q, hops);
  if (how.how == relay::always) look_at_chains(q, hops, static_cast<long>(how.chains), v);
  for (const std::string& sentence : v.sentences()) FAIL_CHECK(sentence);
  if (v.faults.empty()) check_figures(collected.figures(), oracle::relay::figures_of(q, hops));
  ++seen.switches;
  seen.hops += static_cast<long>(hops.size());
  seen.deepest = std::max<long>(seen.deepest, static_cast<long>(phases));
  bool chain = false;
  for (const hop& h : hops) {
    seen.elements += static_cast<long>(h.elements.size());
    chain = chain ||
            (q.node_of(h.src) != q.node_of(h.dst) && !q.node_has(q.before, q.node_of(h.src), h.what, h.elements.at(0)));
  }
  seen.chained += chain ? 1 : 0;
  seen.fan += how.chains > 1 ? 1 : 0;
}

/// The switch between layouts, and in turn from a list, to a list and between two.
void check_sides(const sides& of, long number, const routing& how, tally& seen) {
  const computed_holding from = holding_of(of.from), to = holding_of(of.to);
  check_routing(of, layout_switch(of.from, of.to, of.placed), how, seen);
  const tensor_table table(of.from.model());
  ++seen.lists;
  if (number % 3 == 0) {
    check_routing(of, layout_switch(listed_holding(table, listed(from), of.from.ranks()), of.to, of.placed), how, seen);
  } else if (number % 3 == 1) {
    check_routing(of, layout_switch(of.from, listed_holding(table, listed(to), of.to.ranks()), of.placed), how, seen);
  } else {
    check_routing(of,
                  layout_switch(listed_holding(table, listed(from), of.from.ranks()),
                                listed_holding(table, listed(to), of.to.ranks()), of.placed),
                  how, seen);
  }
}

void check_random(std::uint64_t seed, long cases) {
  oracle::relay::switch_generator random(seed);
  dice integers(64);
  tally seen;
  for (long i = 0; i < cases; ++i) {
    asked_switch s = random.next();
    s.states.assign(std::begin(oracle::all_states), std::end(oracle::all_states));
    const routing how{integers.below(8) == 0 ? relay::never : relay::always, integers.within(1, 5),
                      integers.coin() ? 1 : integers.within(2, 9)};
    const std::string description = s.describe();
    CAPTURE(description);
    CAPTURE(how.chains);
    CAPTURE(how.stages);
    check_sides(sides(s), i, how, seen);
  }
  std::printf(
      "{\"plans\":%ld,\"foreign_lists\":%ld,\"hops\":%ld,\"elements\":%ld,\"with_chains\":%ld,"
      "\"F_above_1\":%ld,\"most_phases\":%ld}\n",
      seen.switches, seen.lists, seen.hops, seen.elements, seen.chained, seen.fan, seen.deepest);
  if (cases >= 160) CHECK_DRAWN(seen.chained >= 50);
}

}  // namespace

TEST_CASE("thirty random switches between layouts and lists, for the mutants") {
  check_random(testing::seed() + 65, 30);
}

TEST_CASE("random switches between layouts and lists, for any F and S" * doctest::test_suite("many")) {
  check_random(testing::seed() + 66, testing::asked_for("RESHARD_SWITCHES", testing::tries(testing::thrown(160))));
}
