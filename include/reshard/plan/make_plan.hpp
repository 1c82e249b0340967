// SPDX-License-Identifier: Apache-2.0
// Routing: what one device sends, receives, retains and creates in a switch. Each device derives its own plan from the
// two holdings alone; the cost is that of its own pieces and peers, not of the world.
// Builds on: plan/lost.hpp, plan/detail/source.hpp, plan/node_holders.hpp, plan/plan.hpp.
#pragma once

#include <concepts>
#include <type_traits>
#include <vector>

#include <reshard/plan/detail/source.hpp>
#include <reshard/plan/lost.hpp>
#include <reshard/plan/node_holders.hpp>
#include <reshard/plan/plan.hpp>

namespace reshard {

namespace detail {

/// `Sources` is FROM, or what lives of it.
template <Holding From, Holding To, Holding Sources>
class router {
 public:
  constexpr router(const layout_switch<From, To>& change, const Sources& sources, rank_t device)
      : change_(&change), from_(&sources), to_(&change.to()), device_(device), from_rank_(change.from_rank(device)),
        to_rank_(change.to_rank(device)) {}

  /// What stays: retained, created and lost boxes. Calls other(f, piece, holders, k, wanted) for every piece that does
  /// not, k being this one of the `wanted` destinations.
  template <typename Other>
  constexpr void keeps(role r, const state_set& states, plan& out, Other&& other) const {
    if (to_rank_ < 0) return;
    each_shared(*to_, to_rank_, r, [&](int f, const family_box& target, const Holders auto& destinations) {
      const index_t k = destinations.index_of(to_rank_), wanted = destinations.count();
      index_t missing = target.volume() - create(f, target, states, out);
      from_->owners(f, r, target, [&](const family_box& source, const Holders auto& holders) {
        const family_box piece = intersect(source, target);
        missing -= piece.volume();
        if (from_rank_ >= 0 && holders.contains(from_rank_))
          out.retains.push_back({device_, device_, states, f, piece});
        else other(f, piece, holders, k, wanted);
      });
      if constexpr (!std::is_same_v<From, Sources>)
        if (missing != 0) missing -= lose(f, r, target, states, out);
      if (missing != 0) refuse_missing(to_rank_, target, to_->family_at(f), missing);
    });
  }

  constexpr void receives(role r, const state_set& states, plan& out) const {
    keeps(r, states, out, [&](int f, const family_box& piece, const Holders auto& holders, index_t k, index_t wanted) {
      const auto from_holders = [&](const auto& admitted) {
        const piece_cut cut = cut_piece(piece, from_->family_at(f), admitted.count(), wanted);
        for (index_t q = 0; q < cut.parts; ++q) {
          const rank_t source_rank = admitted[holder_of_part(k, q, cut.parts, admitted.count())];
          out.receives.push_back(
              {change_->from_devices().device_of(source_rank), device_, states, f, cut.part(piece, q)});
        }
      };
      if (one_node()) return from_holders(holders);
      const node_holders near = holders_on(holders, node_of(device_));
      if (near.count() > 0) from_holders(near);
      else from_holders(holders);
    });
  }

  constexpr void sends(role r, const state_set& states, plan& out) const {
    if (from_rank_ < 0) return;
    each_shared(*from_, from_rank_, r, [&](int f, const family_box& source, const Holders auto& holders) {
      const index_t index = holders.index_of(from_rank_), all = holders.count();
      to_->owners(f, r, source, [&](const family_box& target, const Holders auto& destinations) {
        const family_box piece = intersect(source, target);
        const index_t wanted = destinations.count();
        const auto send = [&](const piece_cut& cut, index_t k, index_t q) {
          const rank_t device = change_->to_devices().device_of(destinations[k]);
          if (const rank_t was = change_->from_rank(device); was >= 0 && holders.contains(was)) return;
          out.sends.push_back({device_, device, states, f, cut.part(piece, q)});
        };
        const piece_cut far = cut_piece(piece, from_->family_at(f), all, wanted);
        if (one_node()) {
          destinations_of_holder(index, all, wanted, far.parts, [&](index_t k, index_t q) { send(far, k, q); });
          return;
        }
        // destinations of this node share the holders of this node
        const node_holders near = holders_on(holders, node_of(device_));
        const piece_cut cut = cut_piece(piece, from_->family_at(f), near.count(), wanted);
        const index_t near_index = near.index_of(from_rank_);
        std::vector<interval> neighbours;
        change_->to_devices().ranks_on(devices_of_node(node_of(device_)), neighbours);
        for (const interval& ranks : neighbours)
          for (index_t k = destinations.count_below(ranks.begin); k < destinations.count_below(ranks.end); ++k)
            for (index_t q = 0; q < cut.parts; ++q)
              if (holder_of_part(k, q, cut.parts, near.count()) == near_index) send(cut, k, q);
        // destinations of nodes without a holder share them all
        destinations_of_holder(index, all, wanted, far.parts, [&](index_t k, index_t q) {
          const index_t node = node_of(change_->to_devices().device_of(destinations[k]));
          if (node != node_of(device_) && holders_on(holders, node).count() == 0) send(far, k, q);
        });
      });
    });
  }

 private:
  /// Rows of the vocabulary that only TO's padding has begin as zeros; how many elements.
  constexpr index_t create(int f, const family_box& target, const state_set& states, plan& out) const {
    const family_box fresh = padding_beyond(from_->family_at(f), target);
    if (fresh.empty()) return 0;
    out.creates.push_back({device_, device_, states, f, fresh});
    return fresh.volume();
  }

  /// What lost ranks alone held of a box, left out or refused; how many elements.
  constexpr index_t lose(int f, role r, const family_box& target, const state_set& states, plan& out) const {
    index_t lost = 0;
    from_->lost(f, r, target, [&](const family_box& source) {
      const family_box piece = intersect(source, target);
      lost += piece.volume();
      out.lost.push_back({device_, device_, states, f, piece});
    });
    if (lost > 0 && change_->lost_elements() == when_lost::refuse) refuse_lost(*change_, lost_sums(*change_));
    return lost;
  }

  constexpr bool one_node() const { return change_->node_devices() == 0; }
  constexpr index_t node_of(rank_t device) const { return device / change_->node_devices(); }
  constexpr interval devices_of_node(index_t node) const {
    return {node * change_->node_devices(), (node + 1) * change_->node_devices()};
  }
  template <Holders All>
  constexpr node_holders<All> holders_on(const All& all, index_t node) const {
    return {all, change_->from_devices(), devices_of_node(node)};
  }

  const layout_switch<From, To>* change_;
  const Sources* from_;
  const To* to_;
  rank_t device_;
  rank_t from_rank_;
  rank_t to_rank_;
};

/// Routes every role, over FROM or what lives of it.
template <Holding From, Holding To, Holding Sources>
constexpr void route_all(const layout_switch<From, To>& change, const Sources& sources, plan& result) {
  const router<From, To, Sources> route(change, sources, result.device);
  for (const role r : roles) {
    const state_set states = change.states().of(r);
    if (states.empty() || !has_role(change.to(), r)) continue;
    route.receives(r, states, result);
    route.sends(r, states, result);
  }
}

/// What stays on the device, in every role.
template <Holding From, Holding To, Holding Sources>
constexpr void keep_all(const layout_switch<From, To>& change, const Sources& sources, plan& result) {
  const router<From, To, Sources> route(change, sources, result.device);
  for (const role r : roles)
    if (const state_set states = change.states().of(r); !states.empty() && has_role(change.to(), r))
      route.keeps(r, states, result, [](int, const family_box&, const auto&, index_t, index_t) {});
}

constexpr void sort_plan(plan& p) {
  sort_transfers(p.sends, &transfer::dst);
  sort_transfers(p.receives, &transfer::src);
  sort_transfers(p.retains, &transfer::src);
  sort_transfers(p.creates, &transfer::src);
  sort_transfers(p.lost, &transfer::src);
}

/// make_plan(change, device).
template <Holding From, Holding To>
constexpr plan planned(const layout_switch<From, To>& change, rank_t device) {
  plan result;
  result.device = device;
  for (std::vector<transfer>* list : {&result.sends, &result.receives, &result.retains}) list->reserve(64);
  if (change.lost_ranks().empty()) route_all(change, change.from(), result);
  else route_all(change, living_holding(change.from(), change.lost_ranks()), result);
  sort_plan(result);
  return result;
}
/// planned, not inline, so that who declares an instance `extern` does not compile it again.
template <Holding From, Holding To>
plan planned_apart(const layout_switch<From, To>& change, rank_t device) {
  return planned(change, device);
}

}  // namespace detail

/// The plan of one device. Every element that its TO rank holds arrives exactly once, or is retained iff the device's
/// living FROM rank held it, or is created iff it is padding that FROM does not have, or is lost iff lost ranks of FROM
/// alone held it. Lists are in the order of `precedes`, the same at both ends. A device that no rank sits on, also one
/// past the switch's devices(), as those of a larger world are, has nothing to do: its plan is empty.
template <Holding From, Holding To>
[[nodiscard]] constexpr plan make_plan(const layout_switch<From, To>& change, rank_t device) {
  if constexpr (std::same_as<From, any_holding> && std::same_as<To, any_holding>)
    return detail::planned_apart(change, device);
  else return detail::planned(change, device);
}

}  // namespace reshard
