// SPDX-License-Identifier: Apache-2.0
// Who holds what: the one question that the planner asks. Any type that answers it can be planned from and to: a
// computed layout (computed_holding.hpp), a list (listed_holding.hpp), or one of a user's own.
// Builds on: model/model.hpp.
#pragma once

#include <compare>
#include <concepts>
#include <optional>

#include <reshard/model/model.hpp>

namespace reshard {

/// Where a tensor comes in a rank's memory, among the rank's tensors of one role.
struct storage_order {
  index_t section = 0;  // before, in or after the layers
  index_t layer = 0;
  index_t family = 0;
  index_t expert = 0;

  /// The order of a buffer that packs parameters in reverse.
  constexpr storage_order reversed() const { return {-section, -layer, -family, -expert}; }
  friend constexpr auto operator<=>(const storage_order&, const storage_order&) = default;
  friend constexpr bool operator==(const storage_order&, const storage_order&) = default;
};

/// All ranks that have one box, ascending: r.count() of them, r[i] the i-th.
///   r.index_of(rank)      its i, or -1 where it has no such box;
///   r.count_below(rank)   how many are lower;
///   r.contains(rank)      index_of(rank) >= 0.
template <typename R>
concept Holders = requires(const R& r, rank_t rank, index_t i) {
  { r.count() } -> std::same_as<index_t>;
  { r[i] } -> std::same_as<rank_t>;
  { r.index_of(rank) } -> std::same_as<index_t>;
  { r.count_below(rank) } -> std::same_as<index_t>;
  { r.contains(rank) } -> std::same_as<bool>;
};

namespace detail {
// What stands for the sinks of algorithms when a holding is asked whether it is one.
struct any_held {
  constexpr void operator()(int, const family_box&) const {}
};
struct any_shared {
  constexpr void operator()(int, const family_box&, const Holders auto&) const {}
};
struct any_owned {
  constexpr void operator()(const family_box&, const Holders auto&) const {}
};
}  // namespace detail

/// A holding h of `h.families()` families by ranks 0 .. h.ranks() - 1:
///   h.states()                        the states that it answers for;
///   h.held(f, rank, role, sink)       sink(f, box) for every box of the family that the rank has;
///   h.shared(f, rank, role, sink)     sink(f, box, holders) for the same boxes, with the Holders of each;
///   h.owners(f, role, within, sink)   sink(box, holders) once for every distinct box that meets `within`;
///   h.order_of(tensor, rank, role)    where the rank's copy of a tensor comes in its memory.
/// Laws: two boxes of a family and role are equal or disjoint; owners(f, role, b) of a box b that a rank has is b with
/// what shared() says of it.
template <typename H>
concept Holding = requires(const H& h, rank_t rank, int f, const family_box& within) {
  { h.ranks() } -> std::same_as<rank_t>;
  { h.states() } -> std::same_as<state_set>;
  { h.families() } -> std::same_as<int>;
  { h.family_at(f) } -> std::convertible_to<const family&>;
  h.held(f, rank, role::parameter, detail::any_held{});
  h.shared(f, rank, role::parameter, detail::any_shared{});
  h.owners(f, role::parameter, within, detail::any_owned{});
  { h.order_of(tensor_id{}, rank, role::parameter) } -> std::same_as<storage_order>;
};

/// wanted & h.states(), all of its own where none are named. Refuses a state that is another
/// one there: of another width, or sharded from another level on.
template <typename H>
constexpr state_set states_asked_of(const H& h, const std::optional<state_set>& wanted) {
  const state_set own = h.states();
  if (!wanted) return own;
  const state_set both = *wanted & own;
  for (const int s : wanted->masked(own.bits()) - both)
    refuse("state ", s, " is asked for with ", wanted->width_of(s), " bytes and level ",
           sharding_level(wanted->role_of(s)), ", and the layout has it with ", own.width_of(s), " bytes and level ",
           sharding_level(own.role_of(s)), "; name states by the list of the layout");
  return both;
}

/// Whether a holding has tensors that have states of a role.
template <typename H>
constexpr bool has_role(const H& h, role r) {
  for (int f = 0; f < h.families(); ++f)
    if (has_states_of(h.family_at(f).kind, r)) return true;
  return false;
}

/// held() of every family.
template <Holding H, typename Sink>
constexpr void each_held(const H& h, rank_t rank, role r, Sink&& sink) {
  for (int f = 0; f < h.families(); ++f) h.held(f, rank, r, sink);
}
/// shared() of every family.
template <Holding H, typename Sink>
constexpr void each_shared(const H& h, rank_t rank, role r, Sink&& sink) {
  for (int f = 0; f < h.families(); ++f) h.shared(f, rank, r, sink);
}

}  // namespace reshard
