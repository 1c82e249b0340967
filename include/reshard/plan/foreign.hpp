// SPDX-License-Identifier: Apache-2.0
// Plans between a framework's own shard list and a computed layout, or between two lists, in one call.
// Builds on: plan/make_plan.hpp, space/listed_holding.hpp.
#pragma once

#include <concepts>

#include <reshard/plan/make_plan.hpp>
#include <reshard/space/listed_holding.hpp>

namespace reshard {

/// Shards gathered from all ranks; the world is that of the highest rank named.
struct shard_list {
  const std::vector<shard>* shards;

  explicit shard_list(const std::vector<shard>& list) : shards(&list) {}
  explicit shard_list(const std::vector<shard>&&) = delete;  // the list must outlive its name
  rank_t ranks() const {
    rank_t highest = -1;
    for (const shard& s : *shards) highest = greatest(highest, s.rank);
    return checked_add(highest, 1);
  }
};

/// Plans the states that the list has; family numbers are those of the space's model. (Templates, so that who includes this and has
/// no list does not compile three planners.)
template <std::same_as<shard_list> List>
plan make_plan(const List& from, const space& to, rank_t device) {
  const tensor_table table(to.which_model());
  const listed_holding have(table, *from.shards, from.ranks());
  const state_set states = have.states_listed();
  return make_plan(have, computed_holding(to, states), device, placement{device_map(have.ranks()), device_map(to.ranks()), 0, states});
}
template <std::same_as<shard_list> List>
plan make_plan(const space& from, const List& to, rank_t device) {
  const tensor_table table(from.which_model());
  const listed_holding want(table, *to.shards, to.ranks());
  const state_set states = want.states_listed();
  return make_plan(computed_holding(from, states), want, device, placement{device_map(from.ranks()), device_map(want.ranks()), 0, states});
}

/// Between two lists; family numbers are those of tensor_table{&from, &to}. States that TO lists and FROM does not are refused.
template <std::same_as<shard_list> List>
plan make_plan(const List& from, const List& to, rank_t device) {
  const tensor_table table{from.shards, to.shards};
  const listed_holding have(table, *from.shards, from.ranks()), want(table, *to.shards, to.ranks());
  const state_set states = want.states_listed();
  return make_plan(have, want, device, placement{device_map(have.ranks()), device_map(want.ranks()), 0, states});
}

}  // namespace reshard
