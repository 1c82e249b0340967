// SPDX-License-Identifier: Apache-2.0
// States: what a training job keeps per parameter element. A state is a value (name, dtype, role); the role says which
// rule places it: parameters on every replica, optimizer states where ZeRO puts them. States of one role lie alike, so
// the planner answers once per role and a transfer carries a set of states.
// Builds on: model/dtype.hpp.
#pragma once

#include <reshard/model/dtype.hpp>

namespace reshard {

/// Which rule places a state, named after what ZeRO shards at its levels: optimizer states from 1 on, gradients from 2,
/// parameters from 3. Statistics (model/family.hpp) are never sharded, and parameters alone have the others.
enum class role { parameter, optimizer, gradient, statistic };
/// Every role, once.
inline constexpr role roles[] = {role::parameter, role::optimizer, role::gradient, role::statistic};

/// The least ZeRO level at which states of a role are sharded; of statistics none is.
constexpr index_t sharding_level(role r) {
  return r == role::optimizer ? 1 : r == role::gradient ? 2 : r == role::parameter ? 3 : index_t{1} << 62;
}

/// One of the values kept per parameter element: its name, its type, and the rule that places it.
struct state {
  std::string_view name;
  dtype type;
  role placed_as;
};

/// Mixed-precision Adam, 14 bytes a parameter: bf16 weights, fp32 master weights and both moments; and the fp32 value
/// of a statistic, which is called as a parameter's is.
inline constexpr state adam_states[] = {{"param", dtype::bf16, role::parameter},
                                        {"master", dtype::fp32, role::optimizer},
                                        {"exp_avg", dtype::fp32, role::optimizer},
                                        {"exp_avg_sq", dtype::fp32, role::optimizer},
                                        {"param", dtype::fp32, role::statistic}};
/// How many states adam_states has.
inline constexpr int state_count = 5;

/// A subset of adam_states, bit i for state i.
struct state_set {
  unsigned bits = 0;

  constexpr bool contains(int state_index) const { return (bits >> state_index & 1u) != 0; }
  constexpr bool empty() const { return bits == 0; }

  /// sum of width(s.type) over the members: bytes that one element takes
  constexpr bytes_t bytes_per_element() const {
    bytes_t bytes = 0;
    for (int i = 0; i < state_count; ++i)
      if (contains(i)) bytes += width(adam_states[i].type);
    return bytes;
  }
  friend constexpr bool operator==(const state_set&, const state_set&) = default;
  friend constexpr state_set operator&(state_set a, state_set b) { return {a.bits & b.bits}; }
  friend constexpr state_set operator|(state_set a, state_set b) { return {a.bits | b.bits}; }
};

/// { state_index }: one state alone.
constexpr state_set only(int state_index) { return {1u << state_index}; }

/// { s : s.placed_as == r }
constexpr state_set states_of(role r) {
  state_set result;
  for (int i = 0; i < state_count; ++i)
    if (adam_states[i].placed_as == r) result = result | only(i);
  return result;
}

/// { s : s.name == name }: a parameter's and a statistic's, of one name.
constexpr state_set states_named(std::string_view name) {
  state_set result;
  for (int i = 0; i < state_count; ++i)
    if (adam_states[i].name == name) result = result | only(i);
  return result;
}

/// Every state: 14 bytes an element of a parameter, 4 of a statistic.
inline constexpr state_set all_states{(1u << state_count) - 1};
/// master, exp_avg and exp_avg_sq: 12 bytes an element.
inline constexpr state_set optimizer_states = states_of(role::optimizer);
/// param: 2 bytes an element of a parameter, 4 of a statistic.
inline constexpr state_set parameter_states = states_of(role::parameter) | states_of(role::statistic);

}  // namespace reshard
