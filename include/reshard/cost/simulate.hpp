// SPDX-License-Identifier: Apache-2.0
// How long a switch will take on a cluster, and how long at least: its seconds, the floor, the same question in one
// stage, and DynaTrain's policy. Simulated, by a sum over links: nothing is measured.
// Builds on: plan/make_plan.hpp, cost/dynatrain_policy.hpp, cost/floor_seconds.hpp, cost/detail/switch_seconds.hpp.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include <reshard/base/same_seconds.hpp>
#include <reshard/cost/detail/switch_seconds.hpp>
#include <reshard/cost/dynatrain_policy.hpp>
#include <reshard/cost/floor_seconds.hpp>
#include <reshard/plan/make_plan.hpp>

namespace reshard {

/// Predicted seconds of a switch.
struct simulation {
  switch_seconds seconds;                // of the plan
  double floor_seconds = 0;              // no schedule of this placement is faster
  std::optional<double> direct_seconds;  // the plan in one stage; none where it crosses rails that do not meet
  baseline_seconds dynatrain;
};

/// Adds up what the plans of all devices move, one device at a time.
template <Holding From, Holding To>
class simulator {
 public:
  /// Refuses a cluster without speeds. `change` outlives this.
  constexpr explicit simulator(const layout_switch<From, To>& change) : change_(&change), on_(change) {}

  /// A device's plan.
  constexpr void add(const plan& p) { add_streams(p, streams_); }
  /// Once all devices were added: their switch in S stages. A direct plan's seconds are least with one: for all S,
  /// seconds(S) >= seconds(1), as sum over slots of max >= max over sums, and a slot costs stage_us.
  simulation in_stages(index_t stages) const { return in_stages(stages, *change_); }
  /// The simulation in so many stages beside the policy's seconds of `given`, where ranks of TO sit as they did before
  /// they were relabelled.
  simulation in_stages(index_t stages, const layout_switch<From, To>& given) const {
    return beside(seconds_of(on_, streams_, stages), given);
  }
  /// The simulation of a switch of so many seconds, once the direct plans of all devices were added.
  simulation beside(const switch_seconds& seconds, const layout_switch<From, To>& given) const {
    simulation result;
    result.seconds = seconds;
    bool meet = true;
    for (const sized_stream& s : streams_) meet = meet && !on_.apart(s.src, s.dst);
    if (meet) result.direct_seconds = seconds_of(on_, streams_, 1).total();
    result.dynatrain = seconds_of(on_, baseline_plan_of(given));
    // a floor is told below what it is the floor of, where it was above by rounding alone
    result.floor_seconds = floor_seconds(floor_bytes_of(*change_, on_), on_);
    for (const std::optional<double>& told :
         {std::optional(seconds.total()), result.direct_seconds, result.dynatrain.naive, result.dynatrain.synchronous,
          result.dynatrain.asynchronous})
      if (told && same_seconds(*told, result.floor_seconds))
        result.floor_seconds = std::min(result.floor_seconds, *told);
    return result;
  }
  constexpr const port_table& on() const { return on_; }
  constexpr const std::vector<sized_stream>& streams() const { return streams_; }

 private:
  const layout_switch<From, To>* change_;
  port_table on_;
  std::vector<sized_stream> streams_;
};

/// The switch in so many stages.
template <Holding From, Holding To>
[[nodiscard]] simulation simulate(const layout_switch<From, To>& change, index_t stages = 1) {
  simulator all(change);
  for (rank_t device = 0; device < change.devices(); ++device) all.add(make_plan(change, device));
  return all.in_stages(stages);
}

}  // namespace reshard
