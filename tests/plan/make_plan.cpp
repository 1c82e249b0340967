// SPDX-License-Identifier: Apache-2.0
// What a plan is refused for, each beside its accepted neighbour; and random plans of one tensor, element by element.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/plan/foreign.hpp>
#include <reshard/plan/volume.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using testing::dice, testing::refused;

namespace {
constexpr transformer small{
    .name = "small", .layers = 2, .hidden = 4, .heads = 2, .groups = 2, .head_dim = 2, .ffn = 4, .vocabulary = 8};
constexpr model tiny = make_transformer(small);

/// A tensor of that shape, whole on each of the ranks 0 .. ranks - 1.
std::vector<shard> whole_on(rank_t ranks, const std::string& name, extents shape,
                            const std::vector<std::string>& states = {"param"}) {
  extents zero = shape;
  for (index_t& at : zero.at) at = 0;
  std::vector<shard> list;
  for (rank_t r = 0; r < ranks; ++r)
    for (const std::string& state : states) list.push_back({r, name, bf16, shape, zero, shape, state});
  return list;
}

/// What planning between two lists is refused with, each with a table of its own.
std::string refusal_of(const std::vector<shard>& from, const std::vector<shard>& to, const placement& where) {
  const tensor_table a{&from}, b{&to};
  const listed_holding have(a, from, shard_list(from).ranks()), want(b, to, shard_list(to).ranks());
  const std::string said = refused([&] { require_plannable(have, want, where); });
  CHECK(refused([&] { make_plan(have, want, 0, where); }) == said);  // whoever plans, or only counts, asks first
  CHECK(refused([&] { volume_of_switch(have, want, where); }) == said);
  return said;
}
placement placed(rank_t from, rank_t to, index_t node = 0, state_set states = parameter_states) {
  return {device_map(from), device_map(to), node, states};
}
}  // namespace

TEST_CASE("each side has as many devices as ranks") {
  const std::vector<shard> two = whole_on(2, "w", {4}), three = whole_on(3, "w", {4});
  CHECK(refusal_of(two, three, placed(2, 3)) == "accepted");
  CHECK(refusal_of(two, three, placed(3, 3)) == "reshard: plan: FROM has 2 ranks, but 3 devices are listed for it");
  CHECK(refusal_of(two, three, placed(1, 3)) == "reshard: plan: FROM has 2 ranks, but 1 devices are listed for it");
  CHECK(refusal_of(two, three, placed(2, 2)) == "reshard: plan: TO has 3 ranks, but 2 devices are listed for it");
  CHECK(refusal_of(two, three, placed(2, 4)) == "reshard: plan: TO has 3 ranks, but 4 devices are listed for it");
}

TEST_CASE("a node has no negative number of devices; none means that all share one") {
  const std::vector<shard> list = whole_on(2, "w", {4});
  for (const index_t node : {0, 1, 8}) CHECK(refusal_of(list, list, placed(2, 2, node)) == "accepted");
  CHECK(refusal_of(list, list, placed(2, 2, -1)) == "reshard: plan: a node of -1 devices");
}

TEST_CASE("both sides hold one model: as many families, their names, their extents along every axis") {
  const std::vector<shard> w = whole_on(1, "w", {2, 3, 4, 5, 6}), v = whole_on(1, "v", {2, 3, 4, 5, 6});
  std::vector<shard> both = w;
  both.insert(both.end(), v.begin(), v.end());
  CHECK(refusal_of(w, w, placed(1, 1)) == "accepted");
  CHECK(refusal_of(w, both, placed(1, 1)) ==
        "reshard: plan: FROM has 1 tensor families and TO 2; both sides hold one model");
  CHECK(refusal_of(both, w, placed(1, 1)) ==
        "reshard: plan: FROM has 2 tensor families and TO 1; both sides hold one model");
  CHECK(refusal_of(w, v, placed(1, 1)) == "reshard: plan: family 0 is w on one side and v on the other");
  for (int axis = 0; axis < family_ndim; ++axis) {
    extents other = {2, 3, 4, 5, 6};
    other.at[axis] = 7;
    CHECK(refusal_of(w, whole_on(1, "w", other), placed(1, 1)) ==
          "reshard: plan: w has extent " + std::to_string(axis + 2) + " along axis " + std::to_string(axis) +
              " on one side and 7 on the other");
  }
  const std::vector<shard> last_differs = whole_on(1, "z", {2});  // every family is looked at, not the first alone
  std::vector<shard> other = v;
  other.insert(other.end(), last_differs.begin(), last_differs.end());
  CHECK(refusal_of(both, other, placed(1, 1)) == "reshard: plan: family 1 is w on one side and z on the other");
}

TEST_CASE("a list that has some optimizer states and not others is not planned as if it had them") {
  const std::vector<shard> some = whole_on(1, "w", {4}, {"param", "master", "exp_avg"}),
                           all = whole_on(1, "w", {4}, {"param", "master", "exp_avg", "exp_avg_sq"});
  const state_set two = only(1) | only(2);
  CHECK(refusal_of(all, all, placed(1, 1, 0, all_states)) == "accepted");
  CHECK(refusal_of(some, some, placed(1, 1, 0, parameter_states | two)) == "accepted");
  CHECK(refusal_of(some, all, placed(1, 1, 0, only(2))) == "accepted");
  CHECK(refusal_of(some, all, placed(1, 1, 0, all_states)) ==
        "reshard: plan: FROM lists states that lie like exp_avg_sq, but not that one, and all are to be planned");
  CHECK(refusal_of(all, some, placed(1, 1, 0, optimizer_states)) ==
        "reshard: plan: TO lists states that lie like exp_avg_sq, but not that one, and all are to be planned");
  const std::vector<shard> parameters = whole_on(1, "w", {4});  // none of a role: nothing is planned of it
  CHECK(refusal_of(parameters, parameters, placed(1, 1, 0, all_states)) == "accepted");
}

TEST_CASE("elements that no rank of FROM holds are refused with their number") {
  const std::vector<shard> half = {{0, "w", bf16, {4, 6}, {0, 0}, {2, 6}}}, all = whole_on(2, "w", {4, 6});
  const tensor_table table{&half, &all};
  const listed_holding from(table, half, 1), to(table, all, 2);
  CHECK(refused([&] { make_plan(from, to, 1, placed(1, 2)); }) ==
        "reshard: plan: rank 1 needs 24 elements of w, and no rank of FROM holds 12 of them");
  CHECK(refused([&] { make_plan(to, from, 0, placed(2, 1)); }) == "accepted");
  CHECK(refused([&] { make_plan(from, to, 2, placed(1, 2)); }) == "accepted");  // a device without a rank needs nothing
}

TEST_CASE("without a placement, rank r sits on device r, all devices share a node, and all states are planned") {
  const space from(tiny, config<tp<2>>{}), to(tiny, config<dp<2>, zero<1>>{});
  const computed_holding have(from), want(to);
  const placement where{device_map(2), device_map(2), 0, all_states};
  for (rank_t device = 0; device < 2; ++device) {
    const plan p = make_plan(have, want, device, where);
    CHECK(p.device == device);
    CHECK(make_plan(have, want, device) == p);
    CHECK(make_plan(from, to, device) == p);
    CHECK(make_plan(from, to, device, where) == p);
    state_set planned;
    for (const transfer& t : p.receives) planned = planned | t.states;
    CHECK(planned == all_states);
    for (const transfer& t : make_plan(from, to, device, placement{device_map(2), device_map(2), 0, only(2)}).receives)
      CHECK(t.states == only(2));
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
    const tensor_table table{&before, &after};
    const listed_holding from(table, before, from_ranks), to(table, after, to_ranks);
    const placement where{device_map(from_devices), device_map(to_devices), node, parameter_states};
    CAPTURE(n);
    CAPTURE(node);
    std::vector<transfer> sent, received;
    for (rank_t device = 0; device < devices; ++device) {
      CAPTURE(device);
      const plan p = make_plan(from, to, device, where);
      without_rank += p == plan{device, {}, {}, {}} ? 1 : 0;
      for (const std::vector<transfer>* list : {&p.sends, &p.receives, &p.retains})
        CHECK(std::is_sorted(list->begin(), list->end(),
                             [](const transfer& a, const transfer& b) { return precedes(a, b); }));
      elements missing = wanted[device];
      const auto take = [&](const transfer& t) {
        CHECK(t.states == parameter_states);
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
  for (const int met : {kept, near, far, without_rank}) CHECK(met > 50);
}
