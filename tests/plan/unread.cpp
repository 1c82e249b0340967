// SPDX-License-Identifier: Apache-2.0
// What a device holds of FROM and neither sends nor retains: by hand for one matrix, and element by element, state by
// state, for layouts of a model.
#include <doctest/doctest.h>

#include <array>
#include <initializer_list>
#include <set>
#include <utility>
#include <vector>

#include <reshard/plan/unread.hpp>

#include <reshard/plan/make_plan.hpp>

#include "../support/points.hpp"
#include "../support/tiny.hpp"

using namespace reshard;

namespace {

/// A state, and where in a family: layer, expert, part, row, column.
using unread_element = std::pair<int, std::array<index_t, 6>>;
using unread_elements = std::multiset<unread_element>;

void add_elements(unread_elements& to, state_set states, int f, const family_box& b) {
  testing::each_point(b, [&](const index_t(&x)[family_ndim]) {
    for (const int s : states) to.insert({s, {f, x[0], x[1], x[2], x[3], x[4]}});
  });
}
template <typename From, typename To>
unread_elements unread_of(const layout_switch<From, To>& change, rank_t device,
                          std::initializer_list<const std::vector<transfer>*> without) {
  unread_elements all;
  detail::each_held_but(change, device, without, [&](state_set states, const tensor_id& t, const box<3>& part) {
    add_elements(all, states, t.family, family_box_of(t, part));
  });
  return all;
}
/// The same, one element after the other.
template <typename From, typename To>
unread_elements unread_one_by_one(const layout_switch<From, To>& change, rank_t device,
                                  const std::vector<const std::vector<transfer>*>& without) {
  unread_elements held, taken, left;
  if (change.from_rank(device) < 0) return left;
  for (const role r : roles)
    if (const state_set states = change.states().of(r); !states.empty())
      each_held(change.from(), change.from_rank(device), r,
                [&](int f, const family_box& b) { add_elements(held, states, f, b); });
  for (const std::vector<transfer>* list : without)
    for (const transfer& t : *list) add_elements(taken, t.states, t.family, t.where);
  for (const unread_element& one : held)
    if (taken.count(one) == 0) left.insert(one);
  return left;
}

/// Two matrices of 4 rows and 6 columns; device 0 has the upper rows of both, and device 1 the lower.
shard_list upper_and_lower() {
  std::vector<shard> list;
  for (const char* name : {"m", "n"})
    for (rank_t r = 0; r < 2; ++r) list.push_back({r, name, bf16, {4, 6}, {2 * r, 0}, {2, 6}});
  return list;
}
transfer of_matrix(int f, interval rows, interval columns, state_set states) {
  return {.states = states, .family = f, .where = {{{0, 1}, {0, 1}, {0, 1}, rows, columns}}};
}
}  // namespace

TEST_CASE("what is held is told but for the transfers of its family that have one of its states") {
  const listed_holding side(upper_and_lower());
  const layout_switch change(side, side);
  const state_set params = change.states();
  const std::vector<transfer> none, sends{of_matrix(0, {0, 2}, {3, 6}, params)},
      retains{of_matrix(0, {0, 1}, {0, 2}, params), of_matrix(1, {0, 2}, {0, 6}, params)},
      others{of_matrix(0, {0, 2}, {0, 6}, only(2)), of_matrix(0, {2, 4}, {0, 6}, params)};
  const auto left = [&](rank_t device, std::initializer_list<const std::vector<transfer>*> without) {
    return unread_of(change, device, without).size();
  };
  CHECK(left(0, {}) == 2 * 2 * 6);
  CHECK(left(0, {&none}) == 24);
  CHECK(left(0, {&others}) == 24);  // another state's, and rows that device 0 has not
  CHECK(left(0, {&sends}) == 24 - 6);
  CHECK(left(0, {&sends, &retains}) == 24 - 6 - 2 - 12);
  CHECK(left(0, {&retains, &sends, &retains}) == 4);  // again and again, in any order
  CHECK(left(1, {&sends, &retains}) == 24);           // not of its rows
  const unread_elements rest = unread_of(change, 0, {&sends, &retains});
  const unread_elements wanted{
      {0, {0, 0, 0, 0, 0, 2}}, {0, {0, 0, 0, 0, 1, 0}}, {0, {0, 0, 0, 0, 1, 1}}, {0, {0, 0, 0, 0, 1, 2}}};
  CHECK(rest == wanted);
}

TEST_CASE("a device without a rank of FROM holds nothing, and states that do not move are not told") {
  const listed_holding side(upper_and_lower());
  const layout_switch more(side, side, {.devices = 3});
  CHECK(unread_of(more, 2, {}).empty());
  const layout_switch gone(testing::tiny_switch(1, "dp=2", "dp=1").from(), testing::tiny_switch(1, "dp=2", "dp=1").to(),
                           {.states = only(1), .lost = {1}});
  CHECK(unread_of(gone, 1, {}).empty());
  const unread_elements first = unread_of(gone, 0, {});
  std::set<int> states;
  for (const unread_element& one : first) states.insert(one.first);
  CHECK(states == std::set<int>{1});
}

TEST_CASE("of plans between layouts: each element of each state that is held and in no transfer, once") {
  const auto model = make_transformer(
      {.name = "small", .layers = 2, .hidden = 4, .heads = 2, .groups = 2, .head_dim = 2, .ffn = 4, .vocabulary = 8});
  std::size_t unread = 0;
  for (const auto& [from, to] : {std::pair("dp=4,zero=1", "tp=2,pp=2,zero=1"), std::pair("tp=2,dp=2", "pp=2"),
                                 std::pair("dp=4,zero=2", "dp=2,tp=2,zero=1"), std::pair("pp=2,dp=2", "dp=4")}) {
    const layout_switch change(space(model, parse_degrees(from)), space(model, parse_degrees(to)));
    for (rank_t device = 0; device < change.devices(); ++device) {
      const plan p = make_plan(change, device);
      CHECK(unread_of(change, device, {}) == unread_one_by_one(change, device, {}));
      CHECK(unread_of(change, device, {&p.sends}) == unread_one_by_one(change, device, {&p.sends}));
      const unread_elements left = unread_of(change, device, {&p.sends, &p.retains});
      CHECK(left == unread_one_by_one(change, device, {&p.sends, &p.retains}));
      unread += left.size();
    }
  }
  CHECK(unread > 1000);
}
