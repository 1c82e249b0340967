// SPDX-License-Identifier: Apache-2.0
// Planning and figures over any_holding, compiled once: declared here in files with RESHARD_COMPILED_ONCE, defined in
// the one with reshard/compile_once.hpp. In any other file neither.
// Builds on: cost/choose_routing.hpp, cost/direct_stages.hpp, cost/relayed_figures.hpp, plan/relabel.hpp,
// plan/relay.hpp.
#pragma once

#include <optional>
#include <vector>

#include <reshard/cost/choose_routing.hpp>
#include <reshard/cost/direct_stages.hpp>
#include <reshard/cost/relayed_figures.hpp>
#include <reshard/plan/relabel.hpp>
#include <reshard/plan/relay.hpp>

/// Every instance over any_holding, as `extern template` or `template`.
#define RESHARD_PLANNING_OVER_ANY(instance)                                                                           \
  instance plan detail::planned_apart(const any_switch&, rank_t);                                                     \
  instance plan detail::relayed_plan(const any_switch&, rank_t, index_t);                                             \
  instance void detail::route_relay(const any_switch&, index_t, const detail::wanted_hops&, const detail::hop_sink&); \
  instance relabelling relabel(const any_switch&, relabel_by);                                                        \
  instance bytes_t direct_excess(const any_switch&, interval, index_t, sources);                                      \
  instance stages_found direct_stages(const any_switch&, interval, bytes_t, sources);                                 \
  instance bytes_t least_direct_budget(const any_switch&, interval, sources);                                         \
  instance std::optional<double> direct_seconds(const any_switch&, index_t);                                          \
  instance routing_choice choose_relay(const any_switch&, const routing_wishes&);                                     \
  instance routing_choice choose_direct(const any_switch&, const routing_wishes&);                                    \
  instance switch_figures figures_of_relay(const any_switch&, const std::vector<relayed_stream>&, const routing&,     \
                                           index_t, sources)

namespace reshard {
#if defined(RESHARD_COMPILES_ONCE)
RESHARD_PLANNING_OVER_ANY(template);
#elif defined(RESHARD_COMPILED_ONCE)
RESHARD_PLANNING_OVER_ANY(extern template);
#endif
}  // namespace reshard
