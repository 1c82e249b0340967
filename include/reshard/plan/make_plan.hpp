// SPDX-License-Identifier: Apache-2.0
// Routing: what one device sends, receives and retains when its world goes from one holding to another. Each device derives
// its own plan from the two holdings alone; the cost is that of its own pieces and peers, not of the world.
// Builds on: space/holding.hpp (any two types that model Holding), plan/source.hpp, plan/device_map.hpp, plan/transfer.hpp.
#pragma once

#include <reshard/plan/device_map.hpp>
#include <reshard/plan/source.hpp>
#include <reshard/plan/transfer.hpp>
#include <reshard/space/holding.hpp>

namespace reshard {

/// Where the two worlds sit, and what is to be planned. Defaults: rank r on device r, all devices on one node, all states.
struct placement {
  device_map from;
  device_map to;
  index_t node_devices = 0;  // devices of a node; 0: all share one
  state_set states = all_states;
};

namespace detail {

/// A piece's holders on one node, in rank order, or all of them.
template <typename Holders>
class node_holders {
 public:
  constexpr node_holders(const Holders& all, const device_map& map, index_t node_devices, index_t node)
      : all_(&all), count_(0) {
    map.ranks_on({node * node_devices, (node + 1) * node_devices}, ranks_);
    for (const interval& r : ranks_) count_ += all.count_below(r.end) - all.count_below(r.begin);
  }
  constexpr index_t count() const { return count_; }
  constexpr rank_t operator[](index_t i) const {
    for (const interval& r : ranks_) {
      const index_t first = all_->count_below(r.begin), here = all_->count_below(r.end) - first;
      if (i < here) return (*all_)[first + i];
      i -= here;
    }
    return -1;
  }
  constexpr index_t index_of(rank_t rank) const {
    index_t index = 0;
    for (const interval& r : ranks_) {
      const index_t first = all_->count_below(r.begin);
      if (r.contains(rank)) return index + all_->count_below(rank) - first;
      index += all_->count_below(r.end) - first;
    }
    return -1;
  }

 private:
  const Holders* all_;
  index_t count_;
  std::vector<interval> ranks_;
};

template <Holding From, Holding To>
class router {
 public:
  constexpr router(const From& from, const To& to, const placement& where, rank_t device)
      : from_(&from), to_(&to), where_(&where), device_(device), from_rank_(where.from.rank_of(device)),
        to_rank_(where.to.rank_of(device)) {}

  constexpr void receives(role r, state_set states, plan& out) const {
    if (to_rank_ < 0) return;
    to_->held(to_rank_, r, [&](int f, const family_box& target, const auto& destinations) {
      const index_t k = destinations.index_of(to_rank_), of = destinations.count();
      index_t missing = target.volume();
      from_->owners(f, r, target, [&](const family_box& source, const auto& holders) {
        const family_box piece = intersect(source, target);
        missing -= piece.volume();
        if (from_rank_ >= 0 && holders.contains(from_rank_)) {
          out.retains.push_back({device_, device_, states, f, piece});
          return;
        }
        const auto from_holders = [&](const auto& admitted) {
          const piece_cut cut = cut_piece(piece, from_->family_at(f), admitted.count(), of);
          for (index_t q = 0; q < cut.parts; ++q) {
            const rank_t source_rank = admitted[holder_of_part(k, q, cut.parts, admitted.count())];
            out.receives.push_back({where_->from.device_of(source_rank), device_, states, f, cut.part(piece, q)});
          }
        };
        if (one_node()) return from_holders(holders);
        const node_holders near(holders, where_->from, where_->node_devices, node_of(device_));
        if (near.count() > 0) from_holders(near);
        else from_holders(holders);
      });
      if (missing != 0)
        refuse("plan: rank ", to_rank_, " needs ", target.volume(), " elements of ", to_->family_at(f).name, ", and no rank of FROM holds ",
               missing, " of them");
    });
  }

  constexpr void sends(role r, state_set states, plan& out) const {
    if (from_rank_ < 0) return;
    from_->held(from_rank_, r, [&](int f, const family_box& source, const auto& holders) {
      to_->owners(f, r, source, [&](const family_box& target, const auto& destinations) {
        const family_box piece = intersect(source, target);
        const family& which = from_->family_at(f);
        const index_t of = destinations.count();
        const auto send = [&](const piece_cut& cut, index_t k, index_t q) {
          const rank_t device = where_->to.device_of(destinations[k]);
          if (const rank_t was = where_->from.rank_of(device); was >= 0 && holders.contains(was)) return;
          out.sends.push_back({device_, device, states, f, cut.part(piece, q)});
        };
        const piece_cut far = cut_piece(piece, which, holders.count(), of);
        const index_t index = holders.index_of(from_rank_);
        if (one_node()) {
          destinations_of_holder(index, holders.count(), of, far.parts, [&](index_t k, index_t q) { send(far, k, q); });
          return;
        }
        // destinations of this node share the holders of this node
        const node_holders near(holders, where_->from, where_->node_devices, node_of(device_));
        const piece_cut cut = cut_piece(piece, which, near.count(), of);
        std::vector<interval> here;
        where_->to.ranks_on({node_of(device_) * where_->node_devices, (node_of(device_) + 1) * where_->node_devices}, here);
        const index_t near_index = near.index_of(from_rank_);
        for (const interval& ranks : here)
          for (index_t k = destinations.count_below(ranks.begin); k < destinations.count_below(ranks.end); ++k)
            for (index_t q = 0; q < cut.parts; ++q)
              if (holder_of_part(k, q, cut.parts, near.count()) == near_index) send(cut, k, q);
        // destinations of nodes without a holder share them all
        destinations_of_holder(index, holders.count(), of, far.parts, [&](index_t k, index_t q) {
          const index_t node = node_of(where_->to.device_of(destinations[k]));
          if (node == node_of(device_)) return;
          if (node_holders(holders, where_->from, where_->node_devices, node).count() == 0) send(far, k, q);
        });
      });
    });
  }

 private:
  constexpr bool one_node() const { return where_->node_devices == 0; }
  constexpr index_t node_of(rank_t device) const { return device / where_->node_devices; }

  const From* from_;
  const To* to_;
  const placement* where_;
  rank_t device_;
  rank_t from_rank_;
  rank_t to_rank_;
};

/// A transfer carries all planned states of its role: a list that has some of them and not others cannot be planned from or to.
template <Holding H>
constexpr void require_states(const H& h, state_set planned, std::string_view side) {
  if constexpr (requires { h.states_listed(); })
    for (const role r : roles) {
      const state_set wanted = states_of(r) & planned, listed = wanted & h.states_listed();
      for (int s = 0; s < state_count && !listed.empty(); ++s)
        if (wanted.contains(s) && !listed.contains(s))
          refuse("plan: ", side, " lists states that lie like ", adam_states[s].name, ", but not that one, and all are to be planned");
    }
}

}  // namespace detail

/// Refuses holdings of different models, maps of the wrong size, and lists of some of the planned states.
template <Holding From, Holding To>
constexpr void require_plannable(const From& from, const To& to, const placement& where) {
  if (where.from.ranks() != from.ranks())
    refuse("plan: FROM has ", from.ranks(), " ranks, but ", where.from.ranks(), " devices are listed for it");
  if (where.to.ranks() != to.ranks())
    refuse("plan: TO has ", to.ranks(), " ranks, but ", where.to.ranks(), " devices are listed for it");
  if (where.node_devices < 0) refuse("plan: a node of ", where.node_devices, " devices");
  if (from.families() != to.families())
    refuse("plan: FROM has ", from.families(), " tensor families and TO ", to.families(), "; both sides hold one model");
  for (int f = 0; f < from.families(); ++f) {
    const family &a = from.family_at(f), &b = to.family_at(f);
    if (a.name != b.name) refuse("plan: family ", f, " is ", a.name, " on one side and ", b.name, " on the other");
    for (int i = 0; i < family_ndim; ++i)
      if (a.extent[i] != b.extent[i])
        refuse("plan: ", a.name, " has extent ", a.extent[i], " along axis ", i, " on one side and ", b.extent[i], " on the other");
  }
  detail::require_states(from, where.states, "FROM");
  detail::require_states(to, where.states, "TO");
}

/// The plan of one device. Every element that its TO rank holds arrives exactly once, or is retained iff the device's FROM
/// rank held it. Lists are in the order of `precedes`, the same at both ends.
template <Holding From, Holding To>
constexpr plan make_plan(const From& from, const To& to, rank_t device, const placement& where) {
  require_plannable(from, to, where);
  plan result;
  result.device = device;
  for (std::vector<transfer>* list : {&result.sends, &result.receives, &result.retains}) list->reserve(256);
  const detail::router<From, To> route(from, to, where, device);
  for (const role r : roles) {
    const state_set states = states_of(r) & where.states;
    if (states.empty()) continue;
    route.receives(r, states, result);
    route.sends(r, states, result);
  }
  sort_transfers(result.sends, [](const transfer& t) { return t.dst; });
  sort_transfers(result.receives, [](const transfer& t) { return t.src; });
  sort_transfers(result.retains, [](const transfer& t) { return t.src; });
  return result;
}

template <Holding From, Holding To>
constexpr plan make_plan(const From& from, const To& to, rank_t device) {
  return make_plan(from, to, device, placement{device_map(from.ranks()), device_map(to.ranks())});
}

/// The same from two spaces, built from nothing.
constexpr plan make_plan(const space& from, const space& to, rank_t device, const placement& where) {
  return make_plan(computed_holding(from, where.states), computed_holding(to, where.states), device, where);
}
constexpr plan make_plan(const space& from, const space& to, rank_t device) {
  return make_plan(from, to, device, placement{device_map(from.ranks()), device_map(to.ranks())});
}

}  // namespace reshard
