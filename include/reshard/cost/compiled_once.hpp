// SPDX-License-Identifier: Apache-2.0
// Planning and figures over any_holding, compiled once: with RESHARD_COMPILED_ONCE defined they are declared here and
// defined by the one file that includes reshard/compile_once.hpp. Without it nothing is declared.
// Builds on: cost/choose_routing.hpp, cost/relayed_figures.hpp, plan/relabel.hpp.
#pragma once

#ifdef RESHARD_COMPILED_ONCE

#include <optional>
#include <vector>

#include <reshard/cost/choose_routing.hpp>
#include <reshard/cost/direct_stages.hpp>
#include <reshard/cost/relayed_figures.hpp>
#include <reshard/plan/relabel.hpp>
#include <reshard/plan/relay.hpp>

namespace reshard {

template <>
[[nodiscard]] plan make_plan(const any_switch& change, rank_t device);

/// Every instance over any_holding, `extern template` or `template`.
#define RESHARD_PLANNING_OVER_ANY(instance)                                                                           \
  instance plan detail::relayed_plan(const any_switch&, rank_t, index_t);                                             \
  instance void detail::route_relay(const any_switch&, index_t, const detail::wanted_hops&, const detail::hop_sink&); \
  instance relabelling relabel(const any_switch&, relabel_by);                                                        \
  instance bytes_t direct_excess(const any_switch&, interval, index_t, sources);                                      \
  instance std::optional<index_t> direct_stages(const any_switch&, interval, bytes_t, sources);                       \
  instance bytes_t least_direct_budget(const any_switch&, interval, sources);                                         \
  instance std::optional<double> direct_seconds(const any_switch&, index_t);                                          \
  instance routing_choice choose_relay(const any_switch&, const routing_wishes&);                                     \
  instance routing_choice choose_direct(const any_switch&, const routing_wishes&);                                    \
  instance switch_figures figures_of_relay(const any_switch&, const std::vector<relayed_stream>&, const routing&,     \
                                           index_t, sources)

RESHARD_PLANNING_OVER_ANY(extern template);

}  // namespace reshard

#endif
