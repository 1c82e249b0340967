// SPDX-License-Identifier: Apache-2.0
// What a switch cannot bring: because the devices that held it are lost or empty, box by box, each once, in bytes, and
// as the sentence that refuses it, at the cost of these devices' own boxes; or because FROM never held it.
// Builds on: plan/layout_switch.hpp, plan/plan.hpp, space/any_holding.hpp.
#pragma once

#include <string>
#include <vector>

#include <reshard/plan/layout_switch.hpp>
#include <reshard/plan/plan.hpp>
#include <reshard/space/any_holding.hpp>

namespace reshard {

/// A box that ranks of TO hold and that lost ranks of FROM alone held.
struct lost_box {
  state_set states;
  int family = 0;
  family_box where;
  index_t wanted = 0;  // by how many ranks of TO

  /// volume x the widths of the states, once
  constexpr bytes_t bytes() const { return checked_multiply(where.volume(), states.bytes_per_element()); }
  friend constexpr bool operator==(const lost_box&, const lost_box&) = default;
};

/// Calls sink(lost_box) with { b n t : b a box of FROM whose holders are all lost, t a box of TO, not disjoint }, which
/// are disjoint.
template <Holding From, Holding To, typename Sink>
constexpr void each_lost(const layout_switch<From, To>& change, Sink&& sink) {
  const From& from = change.from();
  for (const role r : roles) {
    const state_set states = change.states().of(r);
    if (states.empty() || !has_role(change.to(), r)) continue;
    for (const interval& ranks : change.lost_ranks())
      for (rank_t rank = ranks.begin; rank < ranks.end; ++rank)
        each_shared(from, rank, r, [&](int f, const family_box& source, const Holders auto& holders) {
          if (holders[0] != rank || living_holders(holders, change.lost_ranks()).count() > 0) return;
          change.to().owners(f, r, source, [&](const family_box& target, const Holders auto& destinations) {
            sink(lost_box{states, f, intersect(source, target), destinations.count()});
          });
        });
  }
}

namespace detail {
/// The sums of bytes() over each_lost, by family; and of all of them.
struct lost_sums {
  std::vector<bytes_t> of;
  bytes_t all = 0;

  template <Holding From, Holding To>
  constexpr explicit lost_sums(const layout_switch<From, To>& change)
      : of(static_cast<std::size_t>(change.to().families()), 0) {
    each_lost(change, [&](const lost_box& b) {
      of[static_cast<std::size_t>(b.family)] += b.bytes();
      all = checked_add(all, b.bytes());
    });
  }
  template <Holding To>
  std::string families(const To& to) const {
    std::string text;
    for (int f = 0; f < to.families(); ++f)
      if (const bytes_t bytes = of[static_cast<std::size_t>(f)]; bytes > 0)
        text += text_of(text.empty() ? "" : ", ", to.family_at(f).name, " ", bytes);
    return text;
  }
};
}  // namespace detail

/// sum over each_lost of bytes(): elements that are lost, each once, however many ranks want it.
template <Holding From, Holding To>
[[nodiscard]] constexpr bytes_t lost_bytes(const layout_switch<From, To>& change) {
  return detail::lost_sums(change).all;
}

/// "wte 1024, fc1 4096": the bytes of lost_bytes per family, in their order.
template <Holding From, Holding To>
[[nodiscard]] std::string lost_families(const layout_switch<From, To>& change) {
  return detail::lost_sums(change).families(change.to());
}

namespace detail {
/// Refuses a switch of which something is lost; the sentence is the same on all devices.
template <Holding From, Holding To>
[[noreturn]] void refuse_lost(const layout_switch<From, To>& change, const lost_sums& lost) {
  refuse("switch: ", lost.all, " bytes that TO holds were on ",
         change.empty_devices().empty() ? "lost" : "lost or empty", " devices alone: ", lost.families(change.to()),
         "; when_lost::leave_out makes the switch without them");
}

/// Refuses a box of TO of which FROM lacks elements.
[[noreturn]] constexpr void refuse_missing(rank_t rank, const family_box& wanted, const family& tensors,
                                           index_t missing) {
  refuse("plan: rank ", rank, " needs ", wanted.volume(), " elements of ", tensors.name, ", and no rank of FROM holds ",
         missing, " of them");
}
}  // namespace detail

/// Refuses where, for a box t of TO, |t| - |padding that is created| != sum over the boxes b of FROM of |b n t|: as the
/// plan of a device that holds t does. A space holds all of its families: of it only the layers are compared.
template <Holding From, Holding To>
constexpr void require_nothing_missing(const layout_switch<From, To>& change) {
  const From& from = change.from();
  const To& to = change.to();
  for (const role r : roles) {
    if (change.states().of(r).empty() || !has_role(to, r)) continue;
    for (int f = 0; f < to.families(); ++f) {
      const family &there = from.family_at(f), &here = to.family_at(f);
      if (known_as<computed_holding>(from) != nullptr && there.extent[axis_of::layer] >= here.extent[axis_of::layer])
        continue;
      to.owners(f, r, here.whole(), [&](const family_box& wanted, const Holders auto& destinations) {
        index_t missing = wanted.volume() - padding_beyond(there, wanted).volume();
        from.owners(f, r, wanted, [&](const family_box& source, const Holders auto&) {
          missing -= intersect(source, wanted).volume();
        });
        if (missing != 0) detail::refuse_missing(destinations[0], wanted, here, missing);
      });
    }
  }
}

/// Refuses where something is lost that may not be, by tensor and bytes.
template <Holding From, Holding To>
constexpr void require_nothing_lost(const layout_switch<From, To>& change) {
  if (change.lost_elements() == when_lost::leave_out || change.lost_ranks().empty()) return;
  if (const detail::lost_sums lost(change); lost.all > 0) detail::refuse_lost(change, lost);
}

}  // namespace reshard
