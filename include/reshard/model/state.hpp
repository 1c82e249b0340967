// SPDX-License-Identifier: Apache-2.0
// States: what a training job keeps per parameter element. A state is a value (name, dtype, ZeRO level); the level says
// which rule places it: parameters on every replica, optimizer states where ZeRO-1 puts them. States of one level lie
// alike, so the planner answers once per level and a transfer carries a set of states.
// Builds on: model/dtype.hpp.
#pragma once

#include <bit>
#include <cstdint>

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
/// The role of a level: sharding_level(role_of_level(l)) == l for l in 1 .. 3.
constexpr role role_of_level(index_t level) {
  return level == 1 ? role::optimizer : level == 2 ? role::gradient : level == 3 ? role::parameter : role::statistic;
}

/// One of the values kept per parameter element: its name, its type, and the least ZeRO level at which it is sharded.
struct state {
  std::string_view name;
  dtype type;
  index_t level;

  /// The rule that places it.
  constexpr role placed_as() const { return role_of_level(level); }
  friend constexpr bool operator==(const state&, const state&) = default;
};

/// States of one list, at most.
inline constexpr int max_states = 16;
/// The number of the one state that a statistic has, past those of any list: fp32, and called as a parameter's is.
inline constexpr int statistic_state = max_states;

/// A subset of a list's states (model/state_list.hpp), and of the state of a statistic, with what their list says of
/// where they lie and how wide they are: no list is needed to place or to count them. Its members are numbers,
/// ascending: `for (const int state : states)`.
struct state_set {
  std::uint32_t bits = 0;           // bit i for state i
  std::uint16_t level[2] = {};      // bit i of each: the binary digits of its level
  std::uint16_t log_width[2] = {};  // and of the logarithm of its width

  constexpr bool contains(int state_index) const { return (bits >> state_index & 1u) != 0; }
  constexpr bool empty() const { return bits == 0; }

  /// The role of a member.
  constexpr role role_of(int state_index) const {
    return state_index >= max_states ? role::statistic : role_of_level(digits(level, state_index));
  }
  /// Bytes of one element of a member.
  constexpr bytes_t width_of(int state_index) const {
    return state_index >= max_states ? width(dtype::fp32) : bytes_t{1} << digits(log_width, state_index);
  }
  /// sum of width_of(s) over the members: bytes that one element takes
  constexpr bytes_t bytes_per_element() const {
    const std::uint32_t listed = bits & ((1u << max_states) - 1), twice = log_width[0], four_times = log_width[1];
    return std::popcount(listed & ~twice & ~four_times) + 2 * std::popcount(twice & ~four_times) +
           4 * std::popcount(four_times & ~twice) + 8 * std::popcount(twice & four_times) +
           width(dtype::fp32) * std::popcount(bits & (1u << statistic_state));
  }
  /// Whether ZeRO of a level shards any of them: some member's level <= zero.
  constexpr bool sharded_at(index_t zero) const {
    const std::uint32_t one = level[0] & ~level[1], two = level[1] & ~level[0], three = level[0] & level[1];
    return ((zero >= 1 ? one : 0u) | (zero >= 2 ? two : 0u) | (zero >= 3 ? three : 0u)) != 0;
  }

  /// { s in this : keep has bit s }
  constexpr state_set masked(std::uint32_t keep) const {
    const auto part = [keep](std::uint16_t digit) { return static_cast<std::uint16_t>(digit & keep); };
    return {bits & keep, {part(level[0]), part(level[1])}, {part(log_width[0]), part(log_width[1])}};
  }

  /// { s in this : role_of(s) == r }
  constexpr state_set of(role r) const {
    if (r == role::statistic) return masked(1u << statistic_state);
    const auto number = static_cast<std::uint32_t>(sharding_level(r));
    const std::uint32_t low = (number & 1u) != 0 ? level[0] : ~std::uint32_t{level[0]};
    const std::uint32_t high = (number & 2u) != 0 ? level[1] : ~std::uint32_t{level[1]};
    return masked(low & high & ((1u << max_states) - 1));
  }

  friend constexpr bool operator==(const state_set&, const state_set&) = default;
  /// Members of both, that lie alike and are equally wide in both.
  friend constexpr state_set operator&(const state_set& a, const state_set& b) {
    std::uint32_t differ = 0;
    for (int i = 0; i < 2; ++i)
      differ |= static_cast<std::uint32_t>((a.level[i] ^ b.level[i]) | (a.log_width[i] ^ b.log_width[i]));
    return a.masked(b.bits & ~differ);
  }
  /// Members of either; sets of one list.
  friend constexpr state_set operator|(const state_set& a, const state_set& b) {
    const auto sum = [](std::uint16_t x, std::uint16_t y) { return static_cast<std::uint16_t>(x | y); };
    return {a.bits | b.bits,
            {sum(a.level[0], b.level[0]), sum(a.level[1], b.level[1])},
            {sum(a.log_width[0], b.log_width[0]), sum(a.log_width[1], b.log_width[1])}};
  }
  /// Members of the first whose numbers are not in the second.
  friend constexpr state_set operator-(const state_set& a, const state_set& b) { return a.masked(~b.bits); }

  /// Goes through the members.
  struct iterator {
    std::uint32_t rest;
    constexpr int operator*() const { return std::countr_zero(rest); }
    constexpr iterator& operator++() {
      rest &= rest - 1;
      return *this;
    }
    friend constexpr bool operator==(const iterator&, const iterator&) = default;
  };
  constexpr iterator begin() const { return {bits}; }
  constexpr iterator end() const { return {0}; }

 private:
  static constexpr int digits(const std::uint16_t (&of)[2], int i) { return (of[0] >> i & 1) + 2 * (of[1] >> i & 1); }
};

/// The state of a statistic alone: 4 bytes an element.
inline constexpr state_set statistic_states{1u << statistic_state};

}  // namespace reshard
