// SPDX-License-Identifier: Apache-2.0
// Plans with relay: devices pass on what they received, so that a byte enters a node once and leaves and enters it by
// all of its NICs. Each device derives its own plan alone; the cost is that of its own pieces and peers, and of those
// ranks of its node whose pipeline stages meet other nodes; where it is not known which these are, as of lists, all.
// Builds on: plan/make_plan.hpp, plan/relay/router.hpp, plan/routing.hpp.
#pragma once

#include <vector>

#include <reshard/plan/make_plan.hpp>
#include <reshard/plan/relay/router.hpp>
#include <reshard/plan/routing.hpp>

namespace reshard {

namespace detail {

/// Calls visit(sources): FROM, or what lives of it.
template <Holding From, Holding To, typename Visit>
void with_sources(const layout_switch<From, To>& change, Visit&& visit) {
  if (change.lost_ranks().empty()) visit(change.from());
  else visit(living_holding(change.from(), change.lost_ranks()));
}

template <Holding From, Holding To, Holding Sources>
void route_relay(const layout_switch<From, To>& change, const Sources& sources, const node_rails& rails, index_t chains,
                 interval nodes, wanted_hops wanted, const hop_sink& sink) {
  relay_router<From, To, Sources> route(change, sources, rails, chains, sink);
  for (wanted.node = nodes.begin; wanted.node < nodes.end; ++wanted.node) {
    route.enter(wanted);
    for (const role r : roles)
      if (const state_set states = change.states().of(r); !states.empty() && has_role(change.to(), r))
        route.route(r, states);
  }
}

/// Routes the hops of all nodes of a switch, node by node.
template <Holding From, Holding To>
void route_relay(const layout_switch<From, To>& change, index_t chains, const wanted_hops& wanted,
                 const hop_sink& sink) {
  const node_rails rails(change);
  const index_t gpus = change.node_devices();
  const interval nodes{0, gpus == 0 ? 1 : ceil_divide(change.devices(), gpus)};
  with_sources(change, [&](const auto& sources) { route_relay(change, sources, rails, chains, nodes, wanted, sink); });
}

/// The plan of one device with relay in so many chains.
template <Holding From, Holding To>
plan relayed_plan(const layout_switch<From, To>& change, rank_t device, index_t chains) {
  plan result;
  result.device = device;
  if (change.from_rank(device) < 0 && change.to_rank(device) < 0) return result;
  const index_t node = change.node_devices() == 0 ? 0 : device / change.node_devices();
  const node_rails rails(change);
  with_sources(change, [&](const auto& sources) {
    keep_all(change, sources, result);
    route_relay(
        change, sources, rails, chains, {node, node + 1}, {.device = device},
        hop_sink::of([&](const transfer& t) { (t.src == device ? result.sends : result.receives).push_back(t); }));
  });
  sort_plan(result);
  return result;
}

}  // namespace detail

/// Calls sink(transfer) with every transfer of a switch with relay once, where it arrives, node by node; retained ones
/// are not among them.
template <Holding From, Holding To, typename Sink>
void each_relayed(const layout_switch<From, To>& change, index_t chains, Sink&& sink) {
  detail::route_relay(change, chains, {}, detail::hop_sink::of(sink));
}

/// Calls sink(transfer) with those of them by which a node that held bytes before the switch sends them to another
/// node. Costs the nodes of FROM, not those of TO.
template <Holding From, Holding To, typename Sink>
void each_relayed_by_holders(const layout_switch<From, To>& change, index_t chains, Sink&& sink) {
  detail::route_relay(change, chains, {.from_holders = true}, detail::hop_sink::of(sink));
}

/// The plan of one device, as it is routed. Without relay that of make_plan(change, device). With relay every element
/// that a TO rank holds arrives exactly once as well, or is retained, created or lost, and what is sent was held before
/// or arrived in an earlier phase. Refuses F < 1.
template <Holding From, Holding To>
[[nodiscard]] constexpr plan make_plan(const layout_switch<From, To>& change, rank_t device, const routing& how) {
  if (how.how == relay::never) return make_plan(change, device);
  if (how.chains < 1) refuse("relay: ", how.chains, " chains of each node; there is at least 1");
  return detail::relayed_plan(change, device, how.chains);
}

/// 1 + the highest phase of any transfer.
template <Holding From, Holding To>
[[nodiscard]] index_t phases_of(const layout_switch<From, To>& change, const routing& how) {
  index_t phases = 1;
  if (how.how == relay::always)
    each_relayed(change, how.chains, [&](const transfer& t) { phases = greatest(phases, t.phase + 1); });
  return phases;
}

}  // namespace reshard
