// SPDX-License-Identifier: Apache-2.0
// What a device was given, as a number and words: of each thing the words by hand, and another number for whatever a
// device can be given instead.
#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/layout_switch.hpp>
#include <reshard/switch/detail/given.hpp>

#include "../support/any_role.hpp"
#include "../support/some_switches.hpp"
#include "../support/whole_on.hpp"

using namespace reshard;
using detail::given;

namespace {

const model tiny = make_transformer(
    {.name = "tiny", .layers = 4, .hidden = 8, .heads = 4, .groups = 2, .head_dim = 2, .ffn = 8, .vocabulary = 8});
space of(const char* layout, const model& m = tiny) { return space(m, parse_degrees(layout)); }

/// Whether all are numbers that are not negative, and no two the same.
bool all_differ(const std::vector<given>& all) {
  std::set<std::int64_t> numbers;
  for (const given& g : all) {
    if (g.value < 0) return false;
    numbers.insert(g.value);
  }
  return numbers.size() == all.size();
}
bool all_texts_differ(const std::vector<given>& all) {
  std::set<std::string> texts;
  for (const given& g : all) texts.insert(g.text);
  return texts.size() == all.size();
}

/// Nodes of 8 with NICs of so many GB/s.
cluster nodes(std::vector<node_kind> kinds) {
  cluster on = nodes_of(8);
  on.nodes = std::move(kinds);
  return on;
}

}  // namespace

TEST_CASE("a number of a digest is of its upper 62 bits") {
  digest of;
  of.add(7);
  CHECK(detail::number_of(of) == static_cast<std::int64_t>(of.value() / 4));
}

TEST_CASE("a budget, and what becomes of sources") {
  CHECK(detail::given_budget(no_budget).text == "no budget");
  CHECK(detail::given_budget(4096).text == "a budget of 4096 bytes");
  CHECK(detail::given_budget(4096).value == 4096);
  CHECK(all_differ({detail::given_budget(1), detail::given_budget(2), detail::given_budget(no_budget)}));
  CHECK(detail::given_sources(sources::keep).text == "sources that are kept");
  CHECK(detail::given_sources(sources::release).text == "sources that are released");
  CHECK(all_differ({detail::given_sources(sources::keep), detail::given_sources(sources::release)}));
}

TEST_CASE("a routing: with relay the nodes' NICs and their speeds too") {
  const auto routed = [](relay how, index_t chains, index_t stages, const cluster& on) {
    return detail::given_routing({.how = how, .chains = chains, .stages = stages}, on);
  };
  const cluster even = nodes_of(8);
  CHECK(routed(relay::never, 3, 5, even).text == "direct routes in 5 stages");
  CHECK(routed(relay::never, 3, 5, even).value == routed(relay::never, 2, 5, nodes_of(4)).value);
  CHECK(routed(relay::never, 3, 5, even).value != routed(relay::never, 3, 6, even).value);
  const given usual = routed(relay::always, 2, 4, even);
  CHECK(usual.text == "relay over 2 chains a node in 4 stages, nodes of 8 NICs");
  const auto kind = [](double nic_GBps, rank_t count, index_t nics = 0) {
    node_kind k;
    k.nic_GBps = nic_GBps, k.count = count, k.nics = nics;
    return k;
  };
  const std::vector<given> others = {usual,
                                     routed(relay::always, 3, 4, even),
                                     routed(relay::always, 2, 5, even),
                                     routed(relay::always, 2, 4, nodes({kind(25, 2)})),
                                     routed(relay::always, 2, 4, nodes({kind(25, 3)})),
                                     routed(relay::always, 2, 4, nodes({kind(50, 2)})),
                                     routed(relay::always, 2, 4, nodes({kind(25, 2, 4)})),
                                     routed(relay::always, 2, 4, nodes({kind(25, 2), kind(50, 1, 1)}))};
  CHECK(all_differ(others));
  CHECK(others[6].text == "relay over 2 chains a node in 4 stages, nodes of 4 NICs");
  CHECK(others[7].text == "relay over 2 chains a node in 4 stages, nodes of 8,1 NICs");
}

TEST_CASE("states: which are moved, their names, types and levels, and whether statistics are") {
  const state_list own = parse_state_list("grad:fp8:2,exp_avg:bf16:1,param:fp32:3"),
                   other = parse_state_list("grad:fp8:1,exp_avg:fp16:1,param:fp32:3");
  CHECK(detail::given_states(own, own.all()).text == "the states 0=grad:fp8:2,1=exp_avg:bf16:1,2=param:fp32:3");
  CHECK(detail::given_states(own, own.only(1)).text == "the states 1=exp_avg:bf16:1");
  CHECK(detail::given_states(own, only(statistic_state)).text == "the states of statistics alone");
  const std::vector<given> all = {detail::given_states(own, own.all()),
                                  detail::given_states(own, own.only(0) | own.only(1)),
                                  detail::given_states(own, own.only(1)),
                                  detail::given_states(own, own.only(1) | only(statistic_state)),
                                  detail::given_states(own, only(statistic_state)),
                                  detail::given_states(other, other.only(1)),
                                  detail::given_states(own, own.only(0)),
                                  detail::given_states(other, other.only(0)),
                                  detail::given_states(own, own.only(2))};
  CHECK(all_differ(all));
}

TEST_CASE("a tensor family: its number in words, its name and each extent in the number") {
  const listed_holding three(shard_list(std::vector<shard>{{0, "a", bf16, {2, 3}, {0, 0}, {2, 3}},
                                                           {0, "b", bf16, {2, 3}, {0, 0}, {2, 3}},
                                                           {0, "c", bf16, {3, 2}, {0, 0}, {3, 2}}}));
  CHECK(all_differ({detail::given_family(three, 0), detail::given_family(three, 1), detail::given_family(three, 2)}));
  const computed_holding held(of("tp=2"), adam.all());
  std::vector<given> all;
  for (int f = 0; f < held.families(); ++f) all.push_back(detail::given_family(held, f));
  CHECK(all_texts_differ(all));
  const family& first = held.family_at(0);
  std::string extents;
  for (const index_t e : first.extent) extents += (extents.empty() ? "" : " x ") + std::to_string(e);
  CHECK(all[0].text == "tensor 0 as " + std::string(first.name) + " of " + extents);
  for (const model& m : {make_transformer({.name = "tiny",
                        .layers = 5,
                        .hidden = 8,
                        .heads = 4,
                        .groups = 2,
                        .head_dim = 2,
                        .ffn = 8,
                        .vocabulary = 8}),
                         make_transformer({.name = "tiny",
                         .layers = 4,
                         .hidden = 8,
                         .heads = 4,
                         .groups = 2,
                         .head_dim = 2,
                         .ffn = 8,
                         .vocabulary = 16})}) {
    const computed_holding other(of("tp=2", m), adam.all());
    int same = 0;
    for (int f = 0; f < held.families(); ++f) {
      const family &one = held.family_at(f), &two = other.family_at(f);
      const bool alike = std::equal(std::begin(one.extent), std::end(one.extent), std::begin(two.extent));
      CHECK((detail::given_family(other, f).value == all[static_cast<std::size_t>(f)].value) == alike);
      same += alike ? 1 : 0;
    }
    CHECK(same < held.families());
  }
}

TEST_CASE("runs of numbers, of which eight are told") {
  detail::run_words words;
  CHECK(words.text().empty());
  words.add(0, 6), words.add(7, 1), words.add(6, 1);
  CHECK(words.text() == "0-5,7,6");
  for (rank_t d = 10; d < 20; d += 2) words.add(d, 1);
  CHECK(words.text() == "0-5,7,6,10,12,14,16,18");
  words.add(30, 2);
  CHECK(words.text() == "0-5,7,6,10,12,14,16,18 and 1 runs more");
  words.add(40, 1), words.add(50, 1);
  CHECK(words.text() == "0-5,7,6,10,12,14,16,18 and 3 runs more");
}

TEST_CASE("a placement: where ranks sit, of how many devices and nodes, who is lost and who is empty") {
  const auto placed = [](placement on, const char* from = "dp=4", const char* to = "tp=2,dp=2") {
    return detail::given_placement(layout_switch(of(from), of(to), std::move(on)));
  };
  CHECK(placed({}).text == "FROM on devices 0-3, TO on 0-3 of 4");
  CHECK(placed({.from = device_map({1, 0, 2, 3}), .to = device_map({4, 5, 6, 7}), .devices = 9}).text ==
        "FROM on devices 1,0,2-3, TO on 4-7 of 9");
  CHECK(placed({.on = nodes_of(2)}).text == "FROM on devices 0-3, TO on 0-3 of 4 in nodes of 2");
  CHECK(placed({.on = nodes_of(1)}).text == "FROM on devices 0-3, TO on 0-3 of 4 in nodes of 1");
  std::vector<given> gone;  // the same first or last device, of runs of other lengths
  for (const std::vector<rank_t>& who : {std::vector<rank_t>{0}, {1}, {0, 1}, {0, 1, 2}, {1, 2}}) {
    gone.push_back(placed({.to = device_map({4, 5, 6, 7}), .lost = who}));
    gone.push_back(placed({.to = device_map({4, 5, 6, 7}), .empty = who}));
  }
  CHECK(all_differ(gone));
  const placement without{.to = device_map({4, 1, 3, 5}), .lost = {0, 2}};
  placement left_out = without;
  left_out.lost_elements = when_lost::leave_out;
  CHECK(placed(without).text == "FROM on devices 0-3, TO on 4,1,3,5 of 6, lost 0,2");
  CHECK(placed(left_out).text == "FROM on devices 0-3, TO on 4,1,3,5 of 6, lost 0,2, what is lost left out");
  CHECK(placed({.to = device_map({4, 1, 3, 5}), .empty = {1, 2}}).text ==
        "FROM on devices 0-3, TO on 4,1,3,5 of 6, empty 1-2");
  const std::vector<given> all = {placed({}),
                                  placed({.from = device_map({1, 0, 2, 3})}),
                                  placed({.to = device_map({1, 0, 2, 3})}),
                                  placed({.devices = 5}),
                                  placed({.on = nodes_of(2)}),
                                  placed({.on = nodes_of(4)}),
                                  placed({.lost_elements = when_lost::leave_out}),
                                  placed({.to = device_map({0, 1, 2, 4}), .lost = {3}}),
                                  placed({.to = device_map({0, 1, 2, 4}), .empty = {3}}),
                                  placed({.to = device_map({0, 1, 2, 4})}),
                                  placed(without),
                                  placed(left_out),
                                  placed({.to = device_map({4, 1, 3, 5}), .lost = {0}}),
                                  placed({.to = device_map({4, 1, 3, 5}), .empty = {0, 2}}),
                                  placed({.to = device_map({4, 1, 3, 5}), .lost = {0}, .empty = {2}}),
                                  placed({.to = device_map({4, 1, 3, 5}), .empty = {0, 1, 2}})};
  CHECK(all_differ(all));
  CHECK(all_texts_differ(all));
}

TEST_CASE("a side: degrees, or each box of a list with its holders") {
  CHECK(detail::given_side(computed_holding(of("tp=2"), adam.all())).text == "'tp=2'");
  const auto rows = [](rank_t last, index_t height) {
    return std::vector<shard>{{0, "wte", bf16, {10, 8}, {0, 0}, {height, 8}},
                              {last, "wte", bf16, {10, 8}, {height, 0}, {10 - height, 8}}};
  };
  const auto side = [&](const std::vector<shard>& from) {
    const std::vector<shard> whole = {{0, "wte", bf16, {10, 8}, {0, 0}, {10, 8}}};
    return detail::given_side(layout_switch(from, whole).from());
  };
  const given usual = side(rows(1, 4));
  CHECK(usual.text == "a list of 2 boxes on 2 ranks, hash " + std::to_string(usual.value));
  const std::vector<shard> three = {{0, "wte", bf16, {10, 8}, {0, 0}, {5, 8}},
                                    {2, "wte", bf16, {10, 8}, {5, 0}, {5, 8}}};
  const std::vector<shard> of_others = {{0, "wte", bf16, {10, 8}, {0, 0}, {4, 8}},
                                        {0, "wte", bf16, {10, 8}, {4, 0}, {6, 8}}};
  std::vector<shard> doubled = rows(1, 4),
                     columns = {{0, "wte", bf16, {10, 8}, {0, 0}, {10, 4}}, {1, "wte", bf16, {10, 8}, {0, 4}, {10, 4}}};
  doubled.push_back({1, "wte", bf16, {10, 8}, {0, 0}, {4, 8}});
  const std::vector<given> all = {usual,
                                  side(rows(2, 4)),
                                  side(rows(1, 5)),
                                  side(three),
                                  side(of_others),
                                  side(doubled),
                                  side(columns),
                                  detail::given_side(computed_holding(of("tp=2"), adam.all())),
                                  detail::given_side(computed_holding(of("dp=2"), adam.all()))};
  CHECK(all_differ(all));
  CHECK(side(rows(1, 4)).value == usual.value);
  const auto own = [](rank_t ranks) {
    return detail::given_side(testing::any_role(shard_list(testing::whole_on(ranks, "w", {2, 2}))));
  };
  const auto listed = [](const std::vector<shard>& shards) {
    return detail::given_side(listed_holding(shard_list(shards, 2)));
  };
  const auto part = [](rank_t rank, index_t begin, index_t end, const char* state = "param") {
    return shard{rank, "w", std::string(state) == "param" ? bf16 : fp32, {8}, {begin}, {end - begin}, state};
  };
  CHECK(all_differ({listed({part(0, 0, 4)}), listed({part(0, 2, 4)}), listed({part(0, 0, 2)}), listed({part(1, 0, 4)}),
                    listed({part(0, 0, 4), part(1, 4, 8)}), listed({part(1, 0, 4), part(0, 4, 8)}),
                    listed({part(0, 0, 4, "exp_avg"), part(0, 0, 4, "exp_avg_sq"), part(0, 0, 4, "master")})}));
  CHECK(own(2).text == "a holding of 2 ranks");
  CHECK(all_differ({own(1), own(2), own(3)}));

  const auto layouts = [](const char* from, const char* to) {
    return detail::given_layouts(layout_switch(of(from), of(to)));
  };
  CHECK(layouts("tp=2", "dp=2").text == "FROM as 'tp=2' and TO as 'dp=2'");
  CHECK(
      all_differ({layouts("tp=2", "dp=2"), layouts("dp=2", "tp=2"), layouts("tp=2", "tp=2"), layouts("pp=2", "dp=2")}));
}
