// SPDX-License-Identifier: Apache-2.0
// What a plan is refused for, each beside its accepted neighbour; and random plans of one tensor, element by element.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/plan/relabel.hpp>
#include <reshard/plan/relay.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/space/cover.hpp>

#include "../support/any_role.hpp"
#include "../support/any_tensors.hpp"
#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/strict_list.hpp"
#include "../support/whole_on.hpp"

using namespace reshard;
using testing::dice, testing::refused, testing::whole_on;

namespace {
constexpr transformer small{
    .name = "small", .layers = 2, .hidden = 4, .heads = 2, .groups = 2, .head_dim = 2, .ffn = 4, .vocabulary = 8};
constexpr model tiny = make_transformer(small);
}  // namespace

TEST_CASE("elements that no rank of FROM holds are refused with their number") {
  const std::vector<shard> half = {{0, "w", bf16, {4, 6}, {0, 0}, {2, 6}}}, all = whole_on(2, "w", {4, 6});
  CHECK(refused([&] { static_cast<void>(make_plan(layout_switch(half, all), 1)); }) ==
        "reshard: plan: rank 1 needs 24 elements of w, and no rank of FROM holds 12 of them");
  CHECK(refused([&] { static_cast<void>(make_plan(layout_switch(all, half), 0)); }) == "accepted");
  CHECK(refused([&] { static_cast<void>(make_plan(layout_switch(half, all), 2)); }) ==
        "accepted");  // no rank there: nothing is needed
}

TEST_CASE("without a placement, rank r sits on device r, all devices share a node, and all states are planned") {
  const space from(tiny, config<tp<2>>{}), to(tiny, config<dp<2>, zero<1>>{});
  const layout_switch placed(from, to, {device_map(2), device_map(2), {}, all_states}),
      optimizer(from, to, {.states = only(2)});
  for (rank_t device = 0; device < 2; ++device) {
    const plan p = make_plan(placed, device);
    CHECK(p.device == device);
    CHECK(make_plan(layout_switch(from, to), device) == p);
    state_set planned;
    for (const transfer& t : p.receives) planned = planned | t.states;
    CHECK(planned == states_of(tensor_kind::parameter, all_states));
    for (const transfer& t : make_plan(optimizer, device).receives) CHECK(t.states == only(2));
    CHECK_FALSE(make_plan(optimizer, device).receives.empty());
  }
}

namespace {
constexpr index_t rows = 8, columns = 6;

/// Random cuts of a matrix into a grid, each cell on some of the ranks.
std::vector<shard> random_grid(dice& random, rank_t ranks) {
  const auto cuts = [&](index_t extent) {
    std::set<index_t> at{0, extent};
    for (index_t n = random.below(4); n > 0; --n) at.insert(random.below(extent));
    return std::vector<index_t>(at.begin(), at.end());
  };
  const std::vector<index_t> down = cuts(rows), across = cuts(columns);
  std::vector<shard> list;
  for (std::size_t i = 0; i + 1 < down.size(); ++i)
    for (std::size_t j = 0; j + 1 < across.size(); ++j) {
      const rank_t first = random.below(ranks);
      const index_t one_in = random.within(1, 3);
      for (rank_t r = 0; r < ranks; ++r)
        if (r == first || random.below(one_in) == 0)
          list.push_back({r,
                          "w",
                          bf16,
                          {rows, columns},
                          {down[i], across[j]},
                          {down[i + 1] - down[i], across[j + 1] - across[j]}});
    }
  return list;
}
std::vector<rank_t> random_devices(dice& random, rank_t ranks, rank_t devices) {
  std::vector<rank_t> all;
  for (rank_t d = 0; d < devices; ++d) all.push_back(d);
  for (std::size_t i = all.size(); i > 1; --i)
    std::swap(all[i - 1], all[static_cast<std::size_t>(random.below(static_cast<index_t>(i)))]);
  all.resize(static_cast<std::size_t>(ranks));
  return all;
}
using elements = std::set<std::pair<index_t, index_t>>;
elements elements_of(index_t row, index_t past_row, index_t column, index_t past_column) {
  elements result;
  for (index_t i = row; i < past_row; ++i)
    for (index_t j = column; j < past_column; ++j) result.emplace(i, j);
  return result;
}
/// What each device holds of the matrix.
std::map<rank_t, elements> held_by_device(const std::vector<shard>& list, const std::vector<rank_t>& devices) {
  std::map<rank_t, elements> held;
  for (const shard& s : list)
    held[devices[static_cast<std::size_t>(s.rank)]].merge(
        elements_of(s.offset.at[0], s.offset.at[0] + s.shape.at[0], s.offset.at[1], s.offset.at[1] + s.shape.at[1]));
  return held;
}
}  // namespace

TEST_CASE(
    "random plans: each element arrives once, from a holder, on the node where one is; kept where it was; both ends "
    "agree") {
  dice random(11);
  int kept = 0, near = 0, far = 0, without_rank = 0;
  for (int n = 0; n < 300; ++n) {
    const rank_t from_ranks = random.within(1, 7), to_ranks = random.within(1, 7),
                 devices = std::max(from_ranks, to_ranks) + random.below(4);
    const index_t node = random.below(4);
    const std::vector<shard> before = random_grid(random, from_ranks), after = random_grid(random, to_ranks);
    const std::vector<rank_t> from_devices = random_devices(random, from_ranks, devices),
                              to_devices = random_devices(random, to_ranks, devices);
    auto had = held_by_device(before, from_devices), wanted = held_by_device(after, to_devices);
    const layout_switch change(shard_list(before, from_ranks), shard_list(after, to_ranks),
                               {device_map(from_devices), device_map(to_devices), nodes_of(node)});
    CAPTURE(n);
    CAPTURE(node);
    std::vector<transfer> sent, received;
    for (rank_t device = 0; device < devices; ++device) {
      CAPTURE(device);
      const plan p = make_plan(change, device);
      without_rank += p == plan{device, {}, {}, {}, {}, {}} ? 1 : 0;
      for (const std::vector<transfer>* list : {&p.sends, &p.receives, &p.retains})
        CHECK(std::is_sorted(list->begin(), list->end(),
                             [](const transfer& a, const transfer& b) { return precedes(a, b); }));
      elements missing = wanted[device];
      const auto take = [&](const transfer& t) {
        CHECK(t.states == only(0));
        for (const auto& e :
             elements_of(t.where.dim[3].begin, t.where.dim[3].end, t.where.dim[4].begin, t.where.dim[4].end)) {
          CHECK(had[t.src].contains(e));
          CHECK(missing.erase(e) == 1);
          CHECK((t.src == device) == had[device].contains(e));
          if (t.src == device) ++kept;
          if (t.src == device || node == 0) continue;
          bool on_my_node = false;
          for (rank_t d = device / node * node; d < (device / node + 1) * node; ++d)
            on_my_node = on_my_node || had[d].contains(e);
          CHECK(on_my_node == (t.src / node == device / node));
          ++(on_my_node ? near : far);
        }
      };
      for (const transfer& t : p.receives) {
        CHECK(t.src != device);
        take(t);
      }
      for (const transfer& t : p.retains) take(t);
      CHECK(missing.empty());
      for (const transfer& t : p.sends) CHECK(t.src == device);
      sent.insert(sent.end(), p.sends.begin(), p.sends.end());
      received.insert(received.end(), p.receives.begin(), p.receives.end());
    }
    const auto ordered = [](std::vector<transfer>& list) {
      std::sort(list.begin(), list.end(), [](const transfer& a, const transfer& b) { return precedes(a, b); });
    };
    ordered(sent);
    ordered(received);
    CHECK(sent == received);
  }
  std::printf("elements: %d kept, %d from the same node, %d from others; %d devices with nothing to do\n", kept, near,
              far, without_rank);
  for (const int met : {kept, near, far, without_rank}) CHECK_DRAWN(met > 50);
}

namespace {
/// Columns of each row, by tensor, whether of the moments, and row.
using row_columns = std::map<std::tuple<std::string, bool, index_t>, index_t>;
template <typename Switch>
void add_columns(row_columns& all, const Switch& change, const std::vector<transfer>& list) {
  for (const transfer& t : list) {
    const bool moments = t.states == (adam.named("exp_avg") | adam.named("exp_avg_sq"));
    CHECK((moments || t.states == only(0)));
    for (index_t row = t.where.dim[axis_of::row].begin; row < t.where.dim[axis_of::row].end; ++row)
      all[{std::string(change.to().family_at(t.family).name), moments, row}] += t.where.dim[axis_of::column].size();
  }
}
}  // namespace

TEST_CASE("any tensors, lost ones among them: each row is kept, comes from the node that has it, or is lost") {
  dice random(12);
  int lost = 0, empty = 0, near = 0, far = 0;
  for (int n = 0; n < 100; ++n) {
    const testing::any_tensors given(random, false);
    const auto change = given.change();
    const testing::links_in_words words(given.world.on);
    std::vector<transfer> sent, received;
    for (rank_t d = 0; d < change.devices(); ++d) {
      const plan p = make_plan(change, d);
      row_columns comes, stays, gone, wanted_comes, wanted_stays, wanted_gone;
      add_columns(comes, change, p.receives), add_columns(stays, change, p.retains), add_columns(gone, change, p.lost);
      CHECK(p.creates.empty());
      std::map<std::pair<int, bool>, index_t> at;  // the row's number
      for (const testing::any_tensors::row& row : given.rows) {
        const index_t number = at[{row.tensor, row.moments}]++;
        if (!row.needs.contains(d)) continue;
        const std::string name(1, static_cast<char>('a' + row.tensor));
        (row.had.empty()       ? wanted_gone
         : row.had.contains(d) ? wanted_stays
                               : wanted_comes)[{name, row.moments, number}] = row.elements;
        for (const transfer& t : p.receives) {
          if (change.to().family_at(t.family).name != name || (t.states == only(0)) == row.moments ||
              !t.where.dim[axis_of::row].contains(number))
            continue;
          CHECK(row.had.contains(t.src));
          const bool here = std::any_of(row.had.begin(), row.had.end(),
                                        [&](rank_t h) { return words.node_of(h) == words.node_of(d); });
          if (given.world.on.node_count() > 1) CHECK((words.node_of(t.src) == words.node_of(d)) == here);
          ++(here ? near : far);
        }
      }
      CHECK(comes == wanted_comes);
      CHECK(stays == wanted_stays);
      CHECK(gone == wanted_gone);
      lost += gone.empty() ? 0 : 1;
      sent.insert(sent.end(), p.sends.begin(), p.sends.end());
      received.insert(received.end(), p.receives.begin(), p.receives.end());
    }
    for (std::vector<transfer>* list : {&sent, &received})
      std::sort(list->begin(), list->end(), [](const transfer& a, const transfer& b) { return precedes(a, b); });
    CHECK(sent == received);
    empty += given.world.empty.empty() ? 0 : 1;
  }
  std::printf("%d devices lose rows, %d switches with empty devices; parts of rows: %d from the node, %d from others\n",
              lost, empty, near, far);
  for (const int met : {lost, empty, near, far}) CHECK_DRAWN(met > 20);
}

TEST_CASE("rows that only TO's padding has are created by whoever holds them; the others come or stay") {
  const space from(tiny, parse_degrees("dp=2")), to(tiny, parse_degrees("tp=2,dp=2,pad=5"));  // 8 rows become 10
  const layout_switch change(from, to);
  for (rank_t d = 0; d < 4; ++d) {
    const plan p = make_plan(change, d);
    index_t created = 0;
    for (const transfer& t : p.creates) {
      CHECK(t.src == d);
      CHECK(t.dst == d);
      CHECK(t.where.dim[axis_of::row] == interval{8, 10});
      created += t.where.volume() * std::popcount(t.states.bits());
    }
    CHECK(created == (d % 2 == 0 ? 0 : 2 * 4 * 2 * 4));  // two rows of four, of embedding and output, in four states
    CHECK(p.lost.empty());
    const bytes_t held = held_bytes(change.to(), d, change.states());
    CHECK(total_bytes(p.receives) + total_bytes(p.retains) + total_bytes(p.creates) == held);
    CHECK((total_bytes(p.receives) == 0) == (d < 2));
  }
}

TEST_CASE("tensors that have no statistics have none to move, also where a holding would answer for them") {
  const std::vector<shard> before = whole_on(3, "w", {4, 6}), after = whole_on(4, "w", {4, 6});
  const placement placed{.from = device_map({0, 1, 5}),
                         .to = device_map({1, 2, 3, 4}),
                         .on = nodes_of(2),
                         .states = adam.named("param"),
                         .lost = {5}};
  REQUIRE(!placed.states->of(role::statistic).empty());
  const layout_switch usual(listed_holding(shard_list(before)), listed_holding(shard_list(after)), placed);
  const layout_switch careless(testing::any_role(shard_list(before)), testing::any_role(shard_list(after)), placed);
  CHECK(volume_of(careless) == volume_of(usual));
  CHECK(volume_of(careless).moved == 3 * 48);
  CHECK(lost_bytes(careless) == 0);
  CHECK(relabel(careless).given == relabel(usual).given);
  CHECK(refused([&] { require_nothing_missing(careless); }) == "accepted");
  for (rank_t d = 0; d < usual.devices(); ++d) {
    CHECK(make_plan(careless, d) == make_plan(usual, d));
    CHECK(make_plan(careless, d, {relay::always, 1, 1}) == make_plan(usual, d, {relay::always, 1, 1}));
  }
  // lost with all that had it: in the states that it has, once
  placement gone = placed;
  gone.lost = {0, 5}, gone.empty = {1}, gone.lost_elements = when_lost::leave_out;
  CHECK(lost_bytes(layout_switch(testing::any_role(shard_list(before)), testing::any_role(shard_list(after)), gone)) ==
        48);
}

TEST_CASE("a device without a rank of a side asks nothing of that side; sides of any kind give the same plans") {
  const std::vector<shard> before = whole_on(2, "w", {4, 6}), after = whole_on(3, "w", {4, 6});
  const placement placed{.from = device_map({1, 4}), .to = device_map({0, 1, 2}), .on = nodes_of(2), .devices = 7};
  const layout_switch strict(testing::strict_list(shard_list(before)), testing::strict_list(shard_list(after)), placed);
  const layout_switch usual(before, after, placed);
  const any_switch any(any_holding(listed_holding(shard_list(before))), any_holding(listed_holding(shard_list(after))),
                       placed);
  for (rank_t d = 0; d < 9; ++d) {
    const plan p = make_plan(usual, d);
    CHECK(make_plan(strict, d) == p);
    CHECK(make_plan(any, d) == p);
    CHECK(total_bytes(p.receives) == (d == 0 || d == 2 ? 48 : 0));
    CHECK(total_bytes(p.retains) == (d == 1 ? 48 : 0));
  }
}

TEST_CASE("what no rank ever held is told as such, also where ranks are lost and nothing may be") {
  const std::vector<shard> half = {{0, "w", bf16, {6, 4}, {0, 0}, {2, 4}},
                                   {1, "w", bf16, {6, 4}, {2, 0}, {2, 4}},
                                   {2, "w", bf16, {6, 4}, {2, 0}, {2, 4}}},
                           all = whole_on(1, "w", {6, 4});
  const layout_switch change(half, all, {.to = device_map(std::vector<rank_t>{3}), .lost = {1}});
  CHECK(refused([&] { static_cast<void>(make_plan(change, 3)); }) ==
        "reshard: plan: rank 0 needs 24 elements of w, and no rank of FROM holds 8 of them");
}

TEST_CASE("all five lists are in order, also of a list of states that does not begin with parameters") {
  const state_list own = parse_state_list("exp_avg:fp32:1,param:bf16:3");
  const space from(tiny, parse_degrees("dp=3,zero=1")), to(tiny, parse_degrees("tp=2,dp=2,pad=5"));
  const layout_switch change(
      from, to, {.to = device_map({1, 0, 4, 5}), .list = own, .lost = {2}, .lost_elements = when_lost::leave_out});
  int several[5] = {};
  for (rank_t d = 0; d < change.devices(); ++d) {
    const plan p = make_plan(change, d);
    int at = 0;
    for (const std::vector<transfer>* list : {&p.sends, &p.receives, &p.retains, &p.creates, &p.lost}) {
      CHECK(std::is_sorted(list->begin(), list->end(),
                           [](const transfer& a, const transfer& b) { return precedes(a, b); }));
      const auto of = [&](int state) {
        return std::any_of(list->begin(), list->end(), [&](const transfer& t) { return t.states.contains(state); });
      };
      several[at++] += of(0) && of(1) ? 1 : 0;
    }
  }
  CHECK(several[1] > 0);
  CHECK(several[3] > 0);  // rows of embedding and output, in both states
}
