// SPDX-License-Identifier: Apache-2.0
// What a person has at hand for one side of a switch: a space, a list of shards, or any Holding; and the holding that
// it is.
// Builds on: space/computed_holding.hpp, space/listed_holding.hpp.
#pragma once

#include <concepts>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <reshard/space/computed_holding.hpp>
#include <reshard/space/listed_holding.hpp>

namespace reshard {

namespace detail {
template <typename L>
concept ListOfShards = std::same_as<L, shard_list> || std::same_as<L, std::vector<shard>>;
}  // namespace detail

/// A space, a shard_list (or vector of shards), or any Holding.
template <typename L>
concept Layout = Holding<L> || std::same_as<L, space> || detail::ListOfShards<L>;

/// The holding that answers for a layout, of the wanted states of a list, all where none are named: itself, computed,
/// or listed.
template <typename H>
  requires Holding<std::remove_cvref_t<H>>
constexpr H&& holding_of(H&& h, const std::optional<state_set>& = {}, const state_list& = adam) {
  return std::forward<H>(h);
}
constexpr computed_holding holding_of(const space& s, const std::optional<state_set>& wanted = {},
                                      const state_list& states = adam) {
  return computed_holding(s, wanted ? *wanted : states.all());
}
inline listed_holding holding_of(const shard_list& list, const std::optional<state_set>& = {},
                                 const state_list& states = adam) {
  return listed_holding(list, states);
}

}  // namespace reshard
