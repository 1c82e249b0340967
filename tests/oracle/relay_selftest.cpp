// SPDX-License-Identifier: Apache-2.0
//
// Is the oracle of relay right? Plans made by hand, right ones and for every kind of fault a wrong one; figures, live
// bytes and seconds counted by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "relay_figures.hpp"
#include "relay_replay.hpp"
#include "relay_switches.hpp"
#include "relay_time.hpp"

using namespace oracle;
using namespace oracle::relay;

namespace {

// Nodes of 2 with a NIC per GPU: of a byte NVLink takes 0.25 us, a NIC 1 us, a copy (read and write) 0.5 us.
const link_cluster pairs{2, std::vector<link_node>(4, {2, 4e-3, 1e-3, 4e-3, -1}), 10, 50};

flat_set set_of(const std::vector<long>& elements) {
  flat_set set(8, 0);
  for (long e : elements) set[index(e)] = 1;
  return set;
}
const std::vector<long> all{0, 1, 2, 3, 4, 5, 6, 7};

// One tensor of eight elements of two bytes.
question asked(const std::map<long, std::vector<long>>& before, const std::map<long, std::vector<long>>& after,
               routing route, long stages = 1) {
  question q{pairs, {{"param of w", 8, 2}}, {}, {}, route, sources::given_up, stages};
  for (const auto& [device, elements] : before) q.before[device] = {set_of(elements)};
  for (const auto& [device, elements] : after) q.after[device] = {set_of(elements)};
  return q;
}

hop move_of(long src, long dst, const std::vector<long>& elements, long stage, long phase, bool passed = false) {
  return {src, dst, 0, elements, stage, phase, passed};
}

std::set<wrong> kinds(const question& q, const std::vector<hop>& hops) {
  std::set<wrong> found;
  for (const auto& of : judge(q, hops).count) found.insert(of.first);
  return found;
}
using these = std::set<wrong>;

// Device 0 has all, devices 2 and 3 of the next node need it: half goes by each NIC.
const question spread = asked({{0, all}, {1, {}}}, {{2, all}, {3, all}}, routing::always);
const std::vector<hop> spread_plan{move_of(0, 1, {4, 5, 6, 7}, 0, 0, true), move_of(0, 2, {0, 1, 2, 3}, 0, 1),
                                   move_of(1, 3, {4, 5, 6, 7}, 0, 1), move_of(2, 3, {0, 1, 2, 3}, 0, 2),
                                   move_of(3, 2, {4, 5, 6, 7}, 0, 2)};

// The same in two stages.
const question staged = asked({{0, all}, {1, {}}}, {{2, all}, {3, all}}, routing::always, 2);
const std::vector<hop> staged_plan{move_of(0, 1, {4, 5}, 0, 0, true), move_of(0, 1, {6, 7}, 1, 0, true),
                                   move_of(0, 2, {0, 1}, 0, 1),       move_of(0, 2, {2, 3}, 1, 1),
                                   move_of(1, 3, {4, 5}, 0, 1),       move_of(1, 3, {6, 7}, 1, 1),
                                   move_of(2, 3, {0, 1}, 0, 2),       move_of(2, 3, {2, 3}, 1, 2),
                                   move_of(3, 2, {4, 5}, 0, 2),       move_of(3, 2, {6, 7}, 1, 2)};

// Device 0 stays; devices 2, 4 and 6, each on a node of its own, get all of it, one from the other.
const question chain = asked({{0, all}}, {{0, all}, {2, all}, {4, all}, {6, all}}, routing::always);
const std::vector<hop> chain_plan{move_of(0, 0, all, 0, 0), move_of(0, 2, all, 0, 1), move_of(2, 4, all, 0, 2),
                                  move_of(4, 6, all, 0, 3)};

// No relay: device 0 keeps a half and sends it; device 1 gets all that it lacks.
const question direct = asked({{0, all}, {1, {0, 1}}}, {{0, {0, 1, 2, 3}}, {1, all}}, routing::never);
const std::vector<hop> direct_plan{move_of(0, 0, {0, 1, 2, 3}, 0, 0), move_of(1, 1, {0, 1}, 0, 0),
                                   move_of(0, 1, {2, 3, 4, 5, 6, 7}, 0, 0)};

std::vector<hop> without(std::vector<hop> hops, std::size_t i) {
  hops.erase(hops.begin() + static_cast<std::ptrdiff_t>(i));
  return hops;
}
std::vector<hop> with(std::vector<hop> hops, const hop& more) {
  hops.push_back(more);
  return hops;
}
template <typename Change>
std::vector<hop> changed(std::vector<hop> hops, std::size_t i, Change&& change) {
  change(hops.at(i));
  return hops;
}

}  // namespace

TEST_CASE("right plans have no fault") {
  CHECK(judge(spread, spread_plan).sentences() == std::vector<std::string>{});
  CHECK(judge(staged, staged_plan).sentences() == std::vector<std::string>{});
  CHECK(judge(chain, chain_plan).sentences() == std::vector<std::string>{});
  CHECK(judge(direct, direct_plan).sentences() == std::vector<std::string>{});
  // what nobody held is nobody's fault; a device that needs a byte may pass it on
  CHECK(kinds(asked({{0, {1}}}, {{2, {0, 1}}}, routing::always), {move_of(0, 2, {1}, 0, 0)}).empty());
  // phases may stay empty; a device without bytes takes part
  CHECK(kinds(asked({{0, {1}}, {3, {}}}, {{2, {1}}}, routing::always),
              {move_of(0, 3, {1}, 0, 4, true), move_of(3, 2, {1}, 0, 7)})
            .empty());
}

TEST_CASE("what makes no sense") {
  const auto nonsense = [](const std::vector<hop>& hops) {
    return judge(spread, hops).count.count(wrong::nonsense) != 0;
  };
  CHECK(nonsense(with(spread_plan, move_of(0, 1, {8}, 0, 0, true))));
  CHECK(nonsense(with(spread_plan, move_of(0, 1, {-1}, 0, 0, true))));
  CHECK(nonsense(with(spread_plan, move_of(0, 1, {}, 0, 0, true))));
  CHECK(nonsense(with(spread_plan, move_of(0, 1, {0}, 1, 0, true))));
  CHECK(nonsense(with(spread_plan, move_of(0, 1, {0}, -1, 0, true))));
  CHECK(nonsense(with(spread_plan, move_of(0, 1, {0}, 0, -1, true))));
  CHECK(nonsense(with(spread_plan, {0, 1, 1, {0}, 0, 0, true})));
  CHECK(nonsense(with(spread_plan, {0, 1, -1, {0}, 0, 0, true})));
}

TEST_CASE("a byte sent before it arrived, or never there") {
  const auto phase = [](long p) { return [p](hop& h) { h.phase = p; }; };
  CHECK(kinds(spread, changed(spread_plan, 2, phase(0))) == these{wrong::not_there});
  CHECK(kinds(spread, changed(spread_plan, 0, phase(1))) == these{wrong::not_there});
  CHECK(kinds(spread, changed(spread_plan, 3, phase(1))) == these{wrong::not_there});
  CHECK(kinds(spread, changed(spread_plan, 3, phase(9))).empty());
  CHECK(kinds(chain, changed(chain_plan, 2, phase(1))) == these{wrong::not_there, wrong::enters_from});
  CHECK(kinds(spread, changed(spread_plan, 2, [](hop& h) { h.src = 0; })) == these{wrong::not_passed_on});
  CHECK(kinds(spread, changed(spread_plan, 1, [](hop& h) { h.src = 1; })) == these{wrong::not_there});
  CHECK(kinds(direct, changed(direct_plan, 2, phase(1))) == these{wrong::later_phase});
  // one element of four is enough
  CHECK(kinds(spread, with(changed(spread_plan, 0,
                                   [](hop& h) {
                                     h.elements = {4, 5, 6};
                                   }),
                           move_of(0, 1, {7}, 0, 1, true))) == these{wrong::not_there});
}

TEST_CASE("hops of a byte in different stages") {
  const auto stage = [](long s) { return [s](hop& h) { h.stage = s; }; };
  CHECK(kinds(staged, changed(staged_plan, 4, stage(1))) == these{wrong::other_stage});
  CHECK(kinds(staged, changed(staged_plan, 5, stage(0))) == these{wrong::other_stage});
  // also where the slot would do: in place at the end of slot 0 + 0, sent in slot 1 + 1
  CHECK(kinds(staged, changed(staged_plan, 6, stage(1))) == these{wrong::other_stage});
  // a whole stream of its own in another stage is right
  CHECK(kinds(staged, changed(changed(staged_plan, 2, stage(1)), 6, stage(1))).empty());
}

TEST_CASE("a byte that comes twice, or was there") {
  CHECK(kinds(spread, with(spread_plan, move_of(0, 2, {0}, 0, 1))) ==
        these{wrong::twice, wrong::enters_twice, wrong::between_nodes});
  CHECK(kinds(spread, with(spread_plan, move_of(3, 2, {0}, 0, 3))) == these{wrong::twice});
  CHECK(kinds(spread, with(spread_plan, move_of(0, 1, {4}, 0, 0, true))) == these{wrong::twice});
  CHECK(kinds(direct, with(direct_plan, move_of(0, 1, {0}, 0, 0))) == these{wrong::held_already, wrong::twice});
  CHECK(kinds(direct, with(without(direct_plan, 1), move_of(0, 1, {0, 1}, 0, 0))) == these{wrong::held_already});
  CHECK(kinds(spread, with(spread_plan, move_of(1, 0, {4}, 0, 1, true))) ==
        these{wrong::held_already});  // it holds and sends it anyhow
  CHECK(kinds(direct, with(direct_plan, move_of(1, 1, {0}, 0, 0))) == these{wrong::twice});
}

TEST_CASE("a device that takes no part") {
  const question nobody = asked({{0, all}}, {{2, all}, {3, all}}, routing::always);
  CHECK(kinds(nobody, spread_plan).count(wrong::takes_no_part) != 0);
  CHECK(kinds(nobody, {move_of(0, 1, all, 0, 0, true), move_of(1, 2, all, 0, 1), move_of(2, 3, all, 0, 2)})
            .count(wrong::takes_no_part) != 0);
  CHECK(kinds(nobody, {move_of(0, 2, all, 0, 1), move_of(2, 3, all, 0, 2)}).empty());
}

TEST_CASE("a wrong relay mark") {
  const auto mark = [](bool passed) { return [passed](hop& h) { h.passed = passed; }; };
  CHECK(kinds(spread, changed(spread_plan, 0, mark(false))) == these{wrong::flag});
  CHECK(kinds(spread, changed(spread_plan, 1, mark(true))) == these{wrong::flag});
  // needed there and not sent on: both are told
  CHECK(kinds(spread, changed(spread_plan, 4, mark(true))) == these{wrong::flag, wrong::not_passed_on});
}

TEST_CASE("a byte that ends where nobody needs it") {
  const question idle = asked({{0, all}, {1, {}}}, {{2, all}, {3, all}}, routing::always);
  CHECK(kinds(idle, {move_of(0, 1, {4}, 0, 0, true), move_of(0, 2, all, 0, 1), move_of(2, 3, all, 0, 2)}) ==
        these{wrong::not_passed_on});
  CHECK(kinds(spread, changed(spread_plan, 2,
                              [](hop& h) {
                                h.elements = {4, 5, 6};
                              }))
            .count(wrong::not_passed_on) != 0);
}

TEST_CASE("what is retained, wrongly or not") {
  CHECK(kinds(direct, without(direct_plan, 1)) == these{wrong::missing});
  CHECK(kinds(direct, changed(direct_plan, 0, [](hop& h) { h.elements = {0, 1, 2, 3, 4}; })) == these{wrong::retained});
  CHECK(kinds(direct, with(direct_plan, move_of(1, 1, {2}, 0, 0))) == these{wrong::retained, wrong::twice});
  CHECK(kinds(chain, changed(chain_plan, 0, [](hop& h) { h.phase = 1; })) == these{wrong::retained});
  CHECK(kinds(chain, changed(chain_plan, 0, [](hop& h) { h.passed = true; })) == these{wrong::retained});
}

TEST_CASE("what never comes") {
  CHECK(kinds(spread, without(spread_plan, 4)) == these{wrong::missing});
  CHECK(kinds(spread, without(spread_plan, 1)).count(wrong::missing) != 0);
  CHECK(kinds(chain, without(chain_plan, 3)) == these{wrong::missing, wrong::between_nodes});
  CHECK(kinds(direct, without(direct_plan, 2)) == these{wrong::missing});
}

TEST_CASE("never: one phase") {
  question q = spread;
  q.route = routing::never;
  CHECK(kinds(q, spread_plan) == these{wrong::later_phase});
  q = chain;
  q.route = routing::never;
  CHECK(
      kinds(q, {move_of(0, 0, all, 0, 0), move_of(0, 2, all, 0, 0), move_of(0, 4, all, 0, 0), move_of(0, 6, all, 0, 0)})
          .empty());
  CHECK(kinds(q, {move_of(0, 0, all, 0, 0), move_of(0, 2, all, 0, 0), move_of(2, 4, all, 0, 0),
                  move_of(0, 6, all, 0, 0)}) == these{wrong::not_there});
}

TEST_CASE("always: a byte enters a node once, where it is wanted, from where it is") {
  CHECK(kinds(spread, {move_of(0, 2, all, 0, 0), move_of(0, 3, all, 0, 0)}) ==
        these{wrong::enters_twice, wrong::between_nodes});
  // device 3 held it, so nothing enters its node
  const question there = asked({{0, all}, {3, all}}, {{2, all}}, routing::always);
  CHECK(kinds(there, {move_of(0, 2, all, 0, 0)}) == these{wrong::enters_unwanted, wrong::between_nodes});
  CHECK(kinds(there, {move_of(3, 2, all, 0, 0)}).empty());
  // over a node that does not need it
  const question around = asked({{0, all}, {4, {}}}, {{2, all}}, routing::always);
  CHECK(kinds(around, {move_of(0, 4, all, 0, 0, true), move_of(4, 2, all, 0, 1)}) ==
        these{wrong::enters_unwanted, wrong::between_nodes});
  // out of one's node and back
  const question out = asked({{0, all}}, {{1, all}, {2, all}}, routing::always);
  CHECK(kinds(out, {move_of(0, 2, all, 0, 0), move_of(2, 1, all, 0, 1)}) ==
        these{wrong::enters_unwanted, wrong::between_nodes});
  // left in the phase in which it enters
  CHECK(kinds(chain, changed(chain_plan, 3, [](hop& h) { h.phase = 2; })) ==
        these{wrong::not_there, wrong::enters_from});
  CHECK(lacked_by_nodes(chain) == std::map<long, long>{{1, 16}, {2, 16}, {3, 16}});
  CHECK(lacked_by_nodes(there).empty());
}

TEST_CASE("chains: who serves how many") {
  const auto chained = [](const question& q, const std::vector<hop>& hops, long chains) {
    oracle::relay::verdict v;
    look_at_chains(q, hops, chains, v);
    return v.count.count(wrong::chains) == 0;
  };
  CHECK(chained(chain, chain_plan, 1));
  CHECK(!chained(chain, chain_plan, 2));  // two nodes should come from device 0's
  const std::vector<hop> fan{move_of(0, 0, all, 0, 0), move_of(0, 2, all, 0, 1), move_of(0, 4, all, 0, 1),
                             move_of(2, 6, all, 0, 2)};
  CHECK(kinds(chain, fan).empty());
  CHECK(chained(chain, fan, 2));
  CHECK(!chained(chain, fan, 1));
  CHECK(!chained(chain, fan, 3));
  // a node that serves two others, which F = 1 forbids
  CHECK(!chained(
      chain, {move_of(0, 0, all, 0, 0), move_of(0, 2, all, 0, 1), move_of(2, 4, all, 0, 2), move_of(2, 6, all, 0, 2)},
      1));
  // two nodes held it: they serve both, by whichever
  const question two = asked({{0, all}, {2, all}}, {{4, all}, {6, all}}, routing::always);
  CHECK(chained(two, {move_of(0, 4, all, 0, 1), move_of(2, 6, all, 0, 1)}, 1));
  CHECK(!chained(two, {move_of(0, 4, all, 0, 1), move_of(4, 6, all, 0, 2)}, 1));
}

TEST_CASE("figures by hand: spread over two NICs") {
  const figures f = figures_of(spread, spread_plan);
  CHECK(f.moved == 32);
  CHECK(f.relayed == 8);
  CHECK(f.least == 32);
  CHECK(f.retained == 0);
  CHECK(f.inter_node == 16);
  CHECK(f.cross_rail == 0);
  CHECK(f.messages == 5);
  CHECK(f.phases == 3);
  CHECK(f.slots == 3);
  CHECK(f.max_send == 16);
  CHECK(f.max_receive == 16);
  CHECK(f.most_passed == 8);
  // device 0: elements 4 to 7 until slot 0, the others until slot 1; device 1: what it passes on in slots 0 and 1
  CHECK(f.devices.at(0).live == std::vector<long>{16, 8, 0});
  CHECK(f.devices.at(1).live == std::vector<long>{8, 8, 0});
  CHECK(f.devices.at(2).live == std::vector<long>{0, 8, 16});
  CHECK(f.devices.at(3).live == std::vector<long>{0, 8, 16});
  CHECK(f.peak == 16);
  CHECK(f.peak_floor == 16);
  CHECK(f.peak_excess == 8);  // device 1 holds nothing on either side
  CHECK(f.devices.at(1).peak == 8);
  question crossed = spread;
  crossed.cluster.nodes[1].nics = 1;
  CHECK(figures_of(crossed, spread_plan).cross_rail == 8);
}

TEST_CASE("figures by hand: two stages overlap") {
  const figures f = figures_of(staged, staged_plan);
  CHECK(f.slots == 4);
  CHECK(f.messages == 10);
  // of device 0: 4,5 read in slot 0; 0,1,6,7 in slot 1; 2,3 in slot 2
  CHECK(f.devices.at(0).live == std::vector<long>{16, 12, 4, 0});
  // of device 1: 4,5 in slots 0 and 1; 6,7 in slots 1 and 2
  CHECK(f.devices.at(1).live == std::vector<long>{4, 8, 4, 0});
  CHECK(f.devices.at(2).live == std::vector<long>{0, 4, 12, 16});
  CHECK(f.peak_excess == 8);
}

TEST_CASE("figures by hand: sources kept, and sources read by nobody") {
  // device 0 keeps elements 0 to 3 and gives the others to device 1, which held 0 and 1
  const figures f = figures_of(direct, direct_plan);
  CHECK(f.retained == 12);
  CHECK(f.moved == 12);
  CHECK(f.least == 12);
  CHECK(f.messages == 1);
  CHECK(f.devices.at(0).before == 16);
  CHECK(f.devices.at(0).after == 8);
  CHECK(f.devices.at(0).live == std::vector<long>{16});
  CHECK(f.devices.at(1).live == std::vector<long>{16});
  CHECK(f.peak_excess == 0);
  // nobody reads elements 4 to 7 of device 2: gone before slot 0, though the peak begins with what was there
  question q = asked({{0, {0, 1}}, {2, {4, 5, 6, 7}}}, {{2, {0, 1}}}, routing::never, 2);
  const std::vector<hop> hops{move_of(0, 2, {0}, 0, 0), move_of(0, 2, {1}, 1, 0)};
  CHECK(kinds(q, hops).empty());
  CHECK(figures_of(q, hops).devices.at(2).live == std::vector<long>{2, 4});
  CHECK(figures_of(q, hops).devices.at(2).peak == 8);
  CHECK(figures_of(q, hops).devices.at(0).live == std::vector<long>{4, 2});
  q.from = sources::kept;
  CHECK(figures_of(q, hops).devices.at(2).live == std::vector<long>{10, 12});
  CHECK(figures_of(q, hops).devices.at(2).after == 12);
  CHECK(figures_of(q, hops).devices.at(0).live == std::vector<long>{4, 4});
  CHECK(figures_of(q, hops).peak_excess == 0);
}

TEST_CASE("seconds by hand") {
  // slot 0: 8 bytes by NVLink, 2 us, and copied at device 0 alone (device 1 only passes them on), 4 us; one message.
  // slot 1: 8 bytes by each NIC, 8 us; copied: at 0 (held before), 2 and 3 (kept), 4 us. One message a device.
  // slot 2: 8 bytes each way, 2 us; copied at the receivers only, 4 us.
  const link_seconds s = seconds_of(spread, spread_plan);
  CHECK(s.ports == doctest::Approx(16e-6));
  CHECK(s.messages == doctest::Approx(30e-6));
  CHECK(s.slots == doctest::Approx(150e-6));
  CHECK(s.of_port.at({"copy", 0, 0}) == doctest::Approx(8e-6));
  CHECK(s.of_port.at({"copy", 0, 1}) == doctest::Approx(0));
  CHECK(s.of_port.at({"copy", 1, 2}) == doctest::Approx(8e-6));
  CHECK(s.of_port.at({"nic_out", 0, 1}) == doctest::Approx(8e-6));
  CHECK(s.of_port.at({"nvlink_in", 1, 3}) == doctest::Approx(2e-6));
  // slots 0 and 3 as above with half the bytes; slot 1 and 2: NICs 4 us; in slot 1 device 0 sends in two phases
  const link_seconds t = seconds_of(staged, staged_plan);
  CHECK(t.ports == doctest::Approx(2e-6 + 4e-6 + 4e-6 + 2e-6));
  CHECK(t.messages == doctest::Approx(10e-6 + 20e-6 + 10e-6 + 10e-6));
  CHECK(t.slots == doctest::Approx(200e-6));
  // retained bytes are copied once; slots 2 and 3 of the chain, and an empty one before the first, cost as well
  const link_seconds c = seconds_of(chain, chain_plan);
  CHECK(c.of_port.at({"copy", 0, 0}) == doctest::Approx(8e-6 + 8e-6));
  CHECK(c.of_port.at({"copy", 1, 2}) == doctest::Approx(8e-6));  // it sends on what it did not hold before
  CHECK(c.slots == doctest::Approx(200e-6));
  CHECK(c.ports == doctest::Approx(8e-6 + 16e-6 + 16e-6 + 16e-6));
  // messages of one pair and slot, of different stages and phases, are two
  question q = asked({{0, {0, 1}}}, {{2, {0, 1}}}, routing::always, 2);
  CHECK(seconds_of(q, {move_of(0, 2, {0}, 0, 1), move_of(0, 2, {1}, 1, 0)}).messages == doctest::Approx(20e-6));
  CHECK(figures_of(q, {move_of(0, 2, {0}, 0, 1), move_of(0, 2, {1}, 1, 0)}).messages == 2);
  // spines are loaded where numbers differ
  question crossed = spread;
  crossed.cluster.nodes[0].spine = 5e-4;
  crossed.cluster.nodes[1].nics = 1;
  CHECK(seconds_of(crossed, spread_plan).of_port.at({"spine_out", 0, 0}) == doctest::Approx(16e-6));
  CHECK(seconds_of(crossed, spread_plan).of_port.count({"spine_in", 1, 0}) == 0);
  CHECK(seconds_of(crossed, spread_plan).ports == doctest::Approx(4e-6 + 16e-6 + 4e-6));
}

TEST_CASE("floors by hand") {
  const auto floor = [](const question& q) { return floor_of(q, q.taking_part()); };
  CHECK(floor(spread) == doctest::Approx(8e-6));  // 16 bytes into node 1 by two NICs; out of node 0 alike
  CHECK(floor(chain) == doctest::Approx(16e-6));  // into a node with one NIC that takes part
  CHECK(floor(direct) == doctest::Approx(3e-6));  // 12 bytes over device 0's NVLink
  // what several hold counts at the receiver only, and at NVLink and NIC together where other nodes have it too
  CHECK(floor(asked({{0, all}, {1, all}, {2, all}}, {{3, all}}, routing::never)) == doctest::Approx(16 / 5.0 * 1e-6));
  CHECK(floor(asked({{0, all}}, {{0, all}}, routing::never)) == 0);
  // out: only what a single node held and another lacks, each byte once
  CHECK(floor(asked({{0, all}, {4, {0, 1, 2, 3}}}, {{2, all}, {3, {}}, {6, {7}}}, routing::never)) ==
        doctest::Approx(8e-6));  // 8 bytes out of the one NIC of node 0 and 16 into node 1's two
}

TEST_CASE("how evenly the NICs of a node work") {
  const std::vector<move> moves{{0, 2, 10, 0}, {1, 3, 30, 0}, {0, 1, 99, 0}, {1, 5, 20, 1}, {2, 2, 50, 0}};
  const auto works = nic_works(pairs, {0, 1, 2, 3, 5}, moves);
  CHECK(works.at({0, "nic_out"}).bytes == 60);
  CHECK(works.at({0, "nic_out"}).busiest == 50);
  CHECK(works.at({0, "nic_out"}).nics == 2);
  CHECK(works.at({0, "nic_out"}).over_mean() == doctest::Approx(50 / 30.0));
  CHECK(works.at({1, "nic_in"}).over_mean() == doctest::Approx(1.5));
  CHECK(works.at({2, "nic_in"}).over_mean() == doctest::Approx(1));
  CHECK(works.at({1, "nic_out"}).bytes == 0);
}

namespace {

// A right plan at random: every byte has a tree of its own over nodes and devices, with phases that may have gaps.
class random_plan {
 public:
  random_plan(const question& q, std::mt19937_64& random) : q_(&q), random_(&random) {
    q.each_element([&](long what, long element) { add_byte(what, element); });
  }
  std::vector<hop> hops;

 private:
  const question* q_;
  std::mt19937_64* random_;
  std::map<long, long> here_;  // of one byte: device -> the first phase in which it may send it

  long below(long n) { return static_cast<long>((*random_)() % static_cast<std::uint64_t>(n)); }
  long one_of(const std::vector<long>& list) { return list[index(below(length(list)))]; }
  std::vector<long> devices_of(long node) const {
    std::vector<long> devices;
    for (long d : q_->taking_part())
      if (q_->node_of(d) == node) devices.push_back(d);
    return devices;
  }
  void send(long src, long dst, hop byte) {
    byte.src = src, byte.dst = dst;
    byte.phase = here_.at(src) + (below(4) == 0 ? 1 : 0);
    byte.passed = !q_->needs(dst, byte.what, byte.elements[0]);
    here_[dst] = byte.phase + 1;
    hops.push_back(byte);
  }
  // Out of a node that has it: from a device that has it already, or from one that is given it first.
  long sender(long node, const hop& byte) {
    const std::vector<long> devices = devices_of(node);
    std::vector<long> have;
    for (long d : devices)
      if (here_.count(d) != 0) have.push_back(d);
    const long source = one_of(have), by = one_of(devices);
    if (here_.count(by) == 0) send(source, by, byte);
    return by;
  }
  void add_byte(long what, long element) {
    here_.clear();
    const hop byte{0, 0, what, {element}, below(q_->stages), 0, false};
    std::set<long> nodes, lacking;
    for (const auto& of : q_->before)
      if (q_->held(of.first, what, element)) here_[of.first] = 0, nodes.insert(q_->node_of(of.first));
    for (const auto& of : q_->after) {
      if (!q_->needs(of.first, what, element)) continue;
      if (q_->held(of.first, what, element))
        hops.push_back({of.first, of.first, what, {element}, byte.stage, 0, false});
      if (nodes.count(q_->node_of(of.first)) == 0) lacking.insert(q_->node_of(of.first));
    }
    for (long node : lacking) {
      const long by = sender(one_of({nodes.begin(), nodes.end()}), byte);
      send(by, one_of(devices_of(node)), byte);
      nodes.insert(node);
    }
    for (const auto& of : q_->after)
      if (q_->needs(of.first, what, element) && here_.count(of.first) == 0)
        send(sender_within(q_->node_of(of.first)), of.first, byte);
  }
  long sender_within(long node) {
    std::vector<long> have;
    for (const auto& of : here_)
      if (q_->node_of(of.first) == node) have.push_back(of.first);
    return one_of(have);
  }
};

// Breaks a plan in one place; which, or -1 where that place can't be broken so.
int broken(const question& q, std::vector<hop>& hops, std::size_t at, int how) {
  hop& h = hops[at];
  const bool kept = h.src == h.dst, held = q.held(h.src, h.what, h.elements[0]);
  switch (how) {
    case 0: hops.erase(hops.begin() + static_cast<std::ptrdiff_t>(at)); return how;
    case 1: hops.push_back(h); return how;
    case 2: h.passed = !h.passed; return how;
    case 3:  // before it came
      if (kept || held) return -1;
      for (const hop& other : hops)
        if (other.dst == h.src && other.what == h.what && other.elements == h.elements) h.phase = other.phase;
      return how;
    case 4:
      if (kept || held || q.stages == 1) return -1;
      h.stage = (h.stage + 1) % q.stages;
      return how;
    case 5:
      for (long d : q.taking_part())
        if (!kept && d != h.dst && !q.held(d, h.what, h.elements[0]) &&
            std::none_of(hops.begin(), hops.end(), [&](const hop& other) {
              return other.dst == d && other.what == h.what && other.elements == h.elements;
            })) {
          h.src = d;  // which never has it
          return how;
        }
      return -1;
    case 6: h.dst = 1000000; return how;
    default: h.stage = q.stages; return how;
  }
}
constexpr int ways = 8;

}  // namespace

TEST_CASE("random plans: right ones have no fault, and one broken in any place has") {
  switch_generator switches(20261121);
  std::mt19937_64 random(7);
  std::map<int, long> tried, noticed;
  for (int i = 0; i < 48; ++i) {
    asked_switch s = switches.next();
    s.states = {state::param};
    s.lost.clear();
    tensor_numbers numbers;
    question q = question_of(s, numbers);
    q.route = routing::always;
    q.stages = 1 + i % 4;
    const std::vector<hop> right = random_plan(q, random).hops;
    const std::string description = s.describe();
    CAPTURE(description);
    CHECK(judge(q, right).sentences() == std::vector<std::string>{});
    const figures f = figures_of(q, right);
    CHECK(f.moved == f.least);
    CHECK(f.peak >= f.peak_floor);
    for (int n = 0; n < 16; ++n) {
      std::vector<hop> wrong_one = right;
      const int how = broken(q, wrong_one, static_cast<std::size_t>(random() % right.size()), n % ways);
      if (how < 0) continue;
      ++tried[how];
      noticed[how] += judge(q, wrong_one).faults.empty() ? 0 : 1;
    }
  }
  for (const auto& of : tried) {
    CAPTURE(of.first);
    CHECK(of.second >= 20);
    CHECK(noticed[of.first] == of.second);
  }
  CHECK(tried.size() == ways);
}
