// SPDX-License-Identifier: Apache-2.0
// The baseline policy by hand: who sends to whom, when meetings end, and what a message for every tensor costs.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <reshard/cost/dynatrain_policy.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/layout_switch.hpp>
#include <reshard/space/listed_holding.hpp>

#include "../support/any_tensors.hpp"
#include "../support/dice.hpp"
#include "../support/whole_on.hpp"

using namespace reshard;
using testing::any_tensors, testing::any_world, testing::dice, testing::links_in_words, testing::slot_in_words;

namespace {
constexpr cluster links{.gpus = 4, .each = {.nvlink_GBps = 1e-3, .nic_GBps = 1e-4, .copy_GBps = 1}};
constexpr bytes_t all = 48;

std::vector<shard> tensors_on(rank_t ranks, int tensors, const std::vector<std::string>& states = {"param"}) {
  std::vector<shard> shards;
  for (int i = 0; i < tensors; ++i)
    for (const shard& s : testing::whole_on(ranks, std::string(1, static_cast<char>('a' + i)), {6, 4}, states))
      shards.push_back(s);
  return shards;
}
/// So many whole tensors on every rank of both sides.
auto whole(const std::vector<rank_t>& from, const std::vector<rank_t>& to, int tensors = 1) {
  return layout_switch(tensors_on(static_cast<rank_t>(from.size()), tensors),
                       tensors_on(static_cast<rank_t>(to.size()), tensors),
                       {.from = device_map(from), .to = device_map(to), .on = links});
}
}  // namespace

TEST_CASE("a byte comes from the lowest device of the node that holds it, else from the lowest of all") {
  const baseline_plan p = baseline_plan_of(whole({6, 1, 5, 2}, {0, 2, 7, 9}));
  CHECK(p.messages == std::vector<baseline_message>{{1, 0, all, 1}, {5, 7, all, 1}, {1, 9, all, 1}});
  CHECK(p.streams == std::vector<sized_stream>{{1, 0, 24, 2}, {2, 2, 24, 2}, {5, 7, 24, 2}, {1, 9, 24, 2}});
}

TEST_CASE("ranks that sit on devices in falling order are asked by device all the same") {
  const baseline_plan p = baseline_plan_of(whole({5, 3, 1}, {0, 6}));
  CHECK(p.messages == std::vector<baseline_message>{{1, 0, all, 1}, {5, 6, all, 1}});
}

TEST_CASE("a destination counts its tensors by source") {
  std::vector<shard> halves;  // rows 0 to 2 of each tensor on rank 1, the others on rank 0
  for (const char* const name : {"a", "b", "c"})
    for (const rank_t r : {0, 1})
      halves.push_back({.rank = r, .tensor = name, .whole = {6, 4}, .offset = {r == 0 ? 3 : 0, 0}, .shape = {3, 4}});
  const layout_switch change(halves, tensors_on(1, 3), {.to = device_map(std::vector<rank_t>{2}), .on = links});
  CHECK(baseline_plan_of(change).messages ==
        std::vector<baseline_message>{{0, 2, all * 3 / 2, 3}, {1, 2, all * 3 / 2, 3}});
}

TEST_CASE("messages count tensors once for every state") {
  const layout_switch change(tensors_on(1, 3, {"param", "exp_avg", "exp_avg_sq"}),
                             tensors_on(1, 3, {"param", "exp_avg", "exp_avg_sq"}),
                             {.to = device_map(std::vector<rank_t>{1}),
                              .on = links,
                              .states = adam.named("param") | adam.named("exp_avg") | adam.named("exp_avg_sq")});
  CHECK(baseline_plan_of(change).messages == std::vector<baseline_message>{{0, 1, 3 * 24 * 10, 9}});
}

TEST_CASE("tensors of a model are counted by their names, those of every layer and expert") {
  const model m = make_transformer({.name = "m",
                                    .layers = 3,
                                    .hidden = 4,
                                    .heads = 2,
                                    .groups = 2,
                                    .head_dim = 2,
                                    .ffn = 4,
                                    .vocabulary = 4,
                                    .experts = 2,
                                    .expert_ffn = 2});
  const space whole_model(m, parse_degrees(""));
  const layout_switch change(whole_model, whole_model,
                             {.to = device_map(std::vector<rank_t>{1}), .on = links, .states = adam.named("exp_avg")});
  std::set<std::string> names;
  for (int f = 0; f < m.families; ++f)
    if (has_states_of(m[f].kind, role::optimizer))
      for (index_t member = 0; member < m[f].extent[axis_of::layer]; ++member)
        for (index_t expert = 0; expert < m[f].extent[axis_of::expert]; ++expert)
          names.insert(m.tensor({f, member, expert}));
  const baseline_plan found = baseline_plan_of(change);
  REQUIRE(found.messages.size() == 1);
  CHECK(found.messages[0].tensors == std::ssize(names));
}

TEST_CASE("meetings: in XOR order, one after the other for whoever is in both") {
  const port_table on(whole({0}, {0, 1, 2, 3, 4}));
  const auto ends = [&](const std::vector<baseline_message>& messages) {
    return last_meeting_ends(on, messages, [](index_t) { return 1.0; });
  };
  CHECK(ends({}) == 0);
  CHECK(ends({{0, 1, 1000000, 1}}) == doctest::Approx(2));
  CHECK(ends({{0, 1, 1000000, 1}, {1, 0, 3000000, 1}}) == doctest::Approx(4));  // the longer direction
  CHECK(ends({{0, 1, 1000000, 1}, {2, 3, 1000000, 1}}) == doctest::Approx(2));  // side by side
  CHECK(ends({{0, 4, 100000, 1}}) == doctest::Approx(2));                       // a NIC is slower
  // 0 meets 1 (step 1), 2 (step 2) and 3 (step 3); 1 meets 3 in step 2, 2 meets 3 in step 1, 1 meets 2 in step 3:
  // 0-1 ends at 2 and 2-3 at 11, 0-2 and 1-3 begin at 11
  CHECK(ends({{0, 1, 1000000, 1}, {2, 3, 10000000, 1}, {0, 2, 1000000, 1}, {1, 3, 2000000, 1}}) == doctest::Approx(14));
  // 0-3 is last of 0's though it comes first in the list
  CHECK(ends({{0, 3, 1000000, 1}, {0, 1, 1000000, 1}, {1, 2, 5000000, 1}}) == doctest::Approx(8));
}

TEST_CASE("the three modes of three tensors for one neighbour") {
  const auto change = whole({0}, {0, 1}, 3);
  const baseline_seconds found = seconds_of(port_table(change), baseline_plan_of(change));
  const double wire = 3 * all / 1e6;
  CHECK(found.naive.value_or(0) == doctest::Approx(30e-6 + wire + 50e-6));
  CHECK(found.synchronous.value_or(0) == doctest::Approx(10e-6 + wire + 50e-6));
  CHECK(found.asynchronous.value_or(0) == doctest::Approx(10e-6 + wire + 50e-6));
}

namespace {
/// When the last meeting ends: step after step, whoever has bytes for each other.
template <typename Lasts>
double ended_by_steps(rank_t devices, const std::set<std::pair<rank_t, rank_t>>& pairs, Lasts&& lasts) {
  std::map<rank_t, double> free;
  double last = 0;
  for (rank_t step = 1; step < 2 * devices; ++step)
    for (rank_t a = 0; a < devices; ++a)
      if (const rank_t b = a ^ step; a < b && (pairs.contains({a, b}) || pairs.contains({b, a})))
        last = std::max(last, free[a] = free[b] = std::max(free[a], free[b]) + lasts(a, b));
  return last;
}

/// The policy by its words, row by row.
struct counted_policy {
  std::map<std::tuple<rank_t, rank_t, bool>, index_t> elements;                // to, from, whether of the moments
  std::map<std::pair<rank_t, rank_t>, bytes_t> bytes;                          // to, from
  std::map<std::pair<rank_t, rank_t>, std::set<std::pair<int, int>>> tensors;  // each once in every state

  counted_policy(const any_tensors& given, const links_in_words& words) {
    for (const any_tensors::row& row : given.rows)
      for (const rank_t d : row.needs) {
        if (row.had.empty()) continue;
        rank_t source = *row.had.begin();
        for (auto h = row.had.rbegin(); h != row.had.rend(); ++h)
          if (words.node_of(*h) == words.node_of(d)) source = *h;
        if (row.had.contains(d)) source = d;
        elements[{d, source, row.moments}] += row.elements;
        if (source == d) continue;
        bytes[{d, source}] += row.bytes;
        for (int state = row.moments ? 1 : 0; state <= (row.moments ? 2 : 0); ++state)
          tensors[{d, source}].insert({row.tensor, state});
      }
  }
};
}  // namespace

TEST_CASE(
    "any tensors on any devices: who sends how much of which tensors to whom, row by row, and the three seconds") {
  dice random(41);
  int messages = 0, falling = 0, impossible = 0, both_ways = 0;
  for (int n = 0; n < 120; ++n) {
    const any_tensors given(random, random.below(3) == 0);
    const auto change = given.change();
    const port_table on(change);
    const links_in_words words(given.world.on);
    const counted_policy wanted(given, words);
    const baseline_plan told = baseline_plan_of(change);
    std::vector<sized_stream> streams;
    for (const auto& [of, elements] : wanted.elements)
      streams.push_back({std::get<1>(of), std::get<0>(of), elements, std::get<2>(of) ? 8 : 2});
    CHECK(told.streams == streams);
    std::vector<baseline_message> counted;
    for (const auto& [of, bytes] : wanted.bytes)
      counted.push_back({of.second, of.first, bytes, std::ssize(wanted.tensors.at(of))});
    CHECK(told.messages == counted);
    const baseline_seconds found = seconds_of(on, told);
    const bool possible = std::none_of(counted.begin(), counted.end(),
                                       [&](const baseline_message& m) { return words.apart(m.src, m.dst); });
    for (const std::optional<double>& one : {found.naive, found.synchronous, found.asynchronous})
      CHECK(one.has_value() == possible);
    falling += std::is_sorted(given.world.from.begin(), given.world.from.end()) ? 0 : 1;
    impossible += possible ? 0 : 1;
    if (!possible) continue;
    slot_in_words slot;
    std::set<std::pair<rank_t, rank_t>> pairs;
    for (const sized_stream& s : streams) {
      slot.copies(words, s.src, static_cast<double>(s.bytes()));
      if (s.src == s.dst) continue;
      slot.copies(words, s.dst, static_cast<double>(s.bytes()));
      slot.passes(words, s.src, s.dst, static_cast<double>(s.bytes()));
      slot.messages.insert({s.src, s.dst, 0}), pairs.insert({s.src, s.dst});
      both_ways += pairs.contains({s.dst, s.src}) ? 1 : 0, ++messages;
    }
    const double message = 1e-6 * given.world.on.message_us, stage = 1e-6 * given.world.on.stage_us;
    const auto lasts = [&](rank_t a, rank_t b, bool naive) {
      double longest = 0, slowest = no_limit;
      std::size_t most = 0;
      for (const auto& way : {std::pair(a, b), std::pair(b, a)}) {
        if (wanted.bytes.contains(way))
          longest = std::max(longest, static_cast<double>(wanted.bytes.at(way))),
          most = std::max(most, wanted.tensors.at(way).size());
      }
      for (const auto& [port, bytes_per_second] : words.between(a, b)) slowest = std::min(slowest, bytes_per_second);
      return longest / slowest + message * (naive ? static_cast<double>(most) : 1.0);
    };
    const rank_t devices = given.world.part.back() + 1;
    const auto ends = [&](bool naive) {
      return ended_by_steps(devices, pairs, [&](rank_t a, rank_t b) { return lasts(a, b, naive); }) + stage;
    };
    CHECK(*found.synchronous == doctest::Approx(ends(false)).epsilon(1e-12));
    CHECK(*found.naive == doctest::Approx(ends(true)).epsilon(1e-12));
    CHECK(*found.asynchronous ==
          doctest::Approx(slot.longest() + message * static_cast<double>(slot.most_messages()) + stage).epsilon(1e-12));
  }
  std::printf("%d messages, %d of pairs that send both ways; %d with ranks in no order of devices, %d impossible\n",
              messages, both_ways, falling, impossible);
  for (const int met : {messages, both_ways, falling, impossible}) CHECK_DRAWN(met > 10);
}

TEST_CASE("any messages: meetings step after step, each once both are free") {
  dice random(42);
  for (int n = 0; n < 150; ++n) {
    const any_world world(random, true);
    const port_table on(world.change());
    const links_in_words words(world.on);
    std::map<std::pair<rank_t, rank_t>, std::pair<bytes_t, index_t>> both;  // the lower first: the most of each
    std::set<std::pair<rank_t, rank_t>> pairs;
    std::vector<baseline_message> messages;
    for (index_t i = random.below(12); i > 0; --i) {
      const baseline_message m{world.any(random), world.any(random), random.within(1, 5000), random.within(1, 9)};
      if (m.src == m.dst || !pairs.insert({m.src, m.dst}).second) continue;
      messages.push_back(m);
      auto& [bytes, tensors] = both[std::minmax({m.src, m.dst})];
      bytes = std::max(bytes, m.bytes), tensors = std::max(tensors, m.tensors);
    }
    const auto cost = [](index_t tensors) { return 0.01 * static_cast<double>(tensors * tensors); };
    const double wanted = ended_by_steps(world.part.back() + 1, pairs, [&](rank_t a, rank_t b) {
      double slowest = no_limit;  // of the ports that bytes from the lower to the higher pass
      for (const auto& [port, bytes_per_second] : words.between(a, b)) slowest = std::min(slowest, bytes_per_second);
      const auto& [bytes, tensors] = both.at({a, b});
      return cost(tensors) + static_cast<double>(bytes) / slowest;
    });
    CHECK(last_meeting_ends(on, messages, cost) == doctest::Approx(wanted).epsilon(1e-12));
  }
}
