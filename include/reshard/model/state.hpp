// SPDX-License-Identifier: Apache-2.0
// States: what a training job keeps per parameter element. A state is a value (name, dtype, ZeRO level); the level says
// which rule places it: parameters on every replica, optimizer states where ZeRO-1 puts them. States of one level lie
// alike, so the planner answers once per level and a transfer carries a set of states.
// Builds on: base/refusal.hpp, model/dtype.hpp.
#pragma once

#include <bit>
#include <cstdint>

#include <reshard/base/refusal.hpp>
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
/// where they lie and how wide they are: no list is needed to place or to count them. Made of states one by one, so
/// that each member has a level and a width. Its members are numbers, ascending: `for (const int state : states)`.
class state_set {
 public:
  constexpr state_set() = default;
  /// { number }: a state of a list, of level 1 to 3 and of 1, 2, 4 or 8 bytes an element. Refuses another.
  constexpr state_set(int number, index_t level, bytes_t width) {
    if (number < 0 || number >= max_states)
      refuse("states: there is no state ", number, " of a list; they are 0 to ", max_states - 1);
    if (level < 1 || level > 3)
      refuse("states: state ", number, " is of level ", level,
             "; levels are 1, 2 and 3, the least zero at which a state is sharded");
    if (width != 1 && width != 2 && width != 4 && width != 8)
      refuse("states: state ", number, " has elements of ", width, " bytes; 1, 2, 4 and 8 are supported");
    const index_t log = std::countr_zero(static_cast<std::uint64_t>(width));
    bits_ = 1u << number;
    for (int i = 0; i < 2; ++i) {
      level_[i] = static_cast<std::uint16_t>((level >> i & 1) << number);
      log_width_[i] = static_cast<std::uint16_t>((log >> i & 1) << number);
    }
  }
  /// That of a statistic alone.
  static constexpr state_set of_statistics() { return {1u << statistic_state, 0, 0, 0, 0}; }

  /// sum over the members s of 2^s
  constexpr std::uint32_t bits() const { return bits_; }
  constexpr bool contains(int state_index) const { return (bits_ >> state_index & 1u) != 0; }
  constexpr bool empty() const { return bits_ == 0; }

  /// The role of a member.
  constexpr role role_of(int state_index) const {
    return state_index >= max_states ? role::statistic : role_of_level(digits(level_, state_index));
  }
  /// Bytes of one element of a member.
  constexpr bytes_t width_of(int state_index) const {
    return state_index >= max_states ? width(dtype::fp32) : bytes_t{1} << digits(log_width_, state_index);
  }
  /// sum of width_of(s) over the members: bytes that one element takes
  constexpr bytes_t bytes_per_element() const {
    const std::uint32_t listed = bits_ & ((1u << max_states) - 1), twice = log_width_[0], four_times = log_width_[1];
    return std::popcount(listed & ~twice & ~four_times) + 2 * std::popcount(twice & ~four_times) +
           4 * std::popcount(four_times & ~twice) + 8 * std::popcount(twice & four_times) +
           width(dtype::fp32) * std::popcount(bits_ & (1u << statistic_state));
  }
  /// Whether ZeRO of a level shards any of them: some member's level <= zero.
  constexpr bool sharded_at(index_t zero) const {
    const std::uint32_t one = level_[0] & ~level_[1], two = level_[1] & ~level_[0], three = level_[0] & level_[1];
    return ((zero >= 1 ? one : 0u) | (zero >= 2 ? two : 0u) | (zero >= 3 ? three : 0u)) != 0;
  }

  /// { s in this : keep has bit s }
  constexpr state_set masked(std::uint32_t keep) const {
    const auto part = [keep](std::uint16_t digit) { return static_cast<std::uint16_t>(digit & keep); };
    return {bits_ & keep, part(level_[0]), part(level_[1]), part(log_width_[0]), part(log_width_[1])};
  }

  /// { s in this : role_of(s) == r }
  constexpr state_set of(role r) const {
    if (r == role::statistic) return masked(1u << statistic_state);
    const auto number = static_cast<std::uint32_t>(sharding_level(r));
    const std::uint32_t low = (number & 1u) != 0 ? level_[0] : ~std::uint32_t{level_[0]};
    const std::uint32_t high = (number & 2u) != 0 ? level_[1] : ~std::uint32_t{level_[1]};
    return masked(low & high & ((1u << max_states) - 1));
  }

  friend constexpr bool operator==(const state_set&, const state_set&) = default;
  /// Members of both, that lie alike and are equally wide in both.
  friend constexpr state_set operator&(const state_set& a, const state_set& b) {
    std::uint32_t differ = 0;
    for (int i = 0; i < 2; ++i)
      differ |= static_cast<std::uint32_t>((a.level_[i] ^ b.level_[i]) | (a.log_width_[i] ^ b.log_width_[i]));
    return a.masked(b.bits_ & ~differ);
  }
  /// Members of either. Refuses a member of both that is another state in each: they are sets of two lists.
  friend constexpr state_set operator|(const state_set& a, const state_set& b) {
    const std::uint32_t both = a.bits_ & b.bits_;
    if (both != 0 && (a & b).bits_ != both) refuse_union(a, b, std::countr_zero(both & ~(a & b).bits_));
    const auto sum = [](std::uint16_t x, std::uint16_t y) { return static_cast<std::uint16_t>(x | y); };
    return {a.bits_ | b.bits_, sum(a.level_[0], b.level_[0]), sum(a.level_[1], b.level_[1]),
            sum(a.log_width_[0], b.log_width_[0]), sum(a.log_width_[1], b.log_width_[1])};
  }
  /// Members of the first whose numbers are not in the second.
  friend constexpr state_set operator-(const state_set& a, const state_set& b) { return a.masked(~b.bits_); }

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
  constexpr iterator begin() const { return {bits_}; }
  constexpr iterator end() const { return {0}; }

 private:
  constexpr state_set(std::uint32_t bits, std::uint16_t level_0, std::uint16_t level_1, std::uint16_t width_0,
                      std::uint16_t width_1)
      : bits_(bits), level_{level_0, level_1}, log_width_{width_0, width_1} {}
  [[noreturn]] static constexpr void refuse_union(const state_set& a, const state_set& b, int s) {
    refuse("states: state ", s, " has ", a.width_of(s), " bytes and level ", sharding_level(a.role_of(s)),
           " in one set, and ", b.width_of(s), " bytes and level ", sharding_level(b.role_of(s)),
           " in the other; sets of one list are joined");
  }
  static constexpr int digits(const std::uint16_t (&of)[2], int i) { return (of[0] >> i & 1) + 2 * (of[1] >> i & 1); }

  std::uint32_t bits_ = 0;           // bit i for state i
  std::uint16_t level_[2] = {};      // bit i of each: the binary digits of its level
  std::uint16_t log_width_[2] = {};  // and of the logarithm of its width
};

/// The state of a statistic alone: 4 bytes an element.
inline constexpr state_set statistic_states = state_set::of_statistics();

}  // namespace reshard
