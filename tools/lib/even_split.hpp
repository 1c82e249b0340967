// SPDX-License-Identifier: Apache-2.0
// The load that an even split would put on every sender: of each piece (a FROM box and a TO box that meet) each
// destination that lacks it takes an equal share from every holder that the node rule admits: those on its node, or all
// where that has none. Brute force over all ranks and boxes; it knows nothing of the router's formula.
#pragma once

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include <reshard/plan/make_plan.hpp>

namespace testing {

/// Bytes that each FROM rank would send.
inline std::vector<double> even_split_load(const reshard::computed_switch& change) {
  using namespace reshard;
  const computed_holding &from = change.from(), &to = change.to();
  const index_t node = change.node_devices();
  struct holder_list {
    family_box box;
    std::vector<rank_t> ranks;
  };
  const auto collect = [](const computed_holding& h, int f) {
    std::vector<holder_list> lists;
    for (rank_t r = 0; r < h.ranks(); ++r)
      h.held(f, r, role::parameter, [&](int, const family_box& b) {
        const auto at = std::find_if(lists.begin(), lists.end(), [&](const holder_list& l) { return l.box == b; });
        if (at == lists.end()) lists.push_back({b, {r}});
        else at->ranks.push_back(r);
      });
    return lists;
  };
  std::vector<double> load(static_cast<std::size_t>(from.ranks()), 0.0);
  for (int f = 0; f < from.families(); ++f) {
    const auto sources = collect(from, f), targets = collect(to, f);
    for (const holder_list& a : sources)
      for (const holder_list& b : targets) {
        const family_box piece = intersect(a.box, b.box);
        if (piece.empty()) continue;
        const double bytes = static_cast<double>(piece.volume()) * 2.0;
        for (const rank_t dst : b.ranks) {
          const rank_t device = change.to_devices().device_of(dst);
          std::vector<rank_t> admitted;
          bool kept = false;
          for (const rank_t src : a.ranks) {
            const rank_t at = change.from_devices().device_of(src);
            kept = kept || at == device;
            if (node == 0 || at / node == device / node) admitted.push_back(src);
          }
          if (kept) continue;
          if (admitted.empty()) admitted = a.ranks;
          for (const rank_t src : admitted)
            load[static_cast<std::size_t>(src)] += bytes / static_cast<double>(admitted.size());
        }
      }
  }
  return load;
}

/// One switch whose balance is claimed, as (preset, FROM, TO, first device of TO).
struct balanced_switch {
  const char* model;
  const char* from;
  const char* to;
  reshard::rank_t first_to_device = 0;
};

inline constexpr balanced_switch balanced_switches[] = {
    {"llama2-70b", "tp=4,pp=8,dp=2", "tp=8,pp=16,dp=1"},
    {"llama2-70b", "tp=8,pp=8,dp=2", "tp=8,pp=8,dp=4"},
    {"llama2-70b", "tp=8,pp=8,dp=4", "tp=8,pp=8,dp=1"},
    {"llama2-70b", "tp=4,pp=4,dp=8", "tp=8,pp=4,dp=4"},
    {"llama2-70b", "tp=8,pp=4,dp=8", "tp=8,pp=10,dp=1"},
    {"llama2-7b", "tp=2,pp=16,dp=4", "tp=4,pp=32,dp=1"},
    {"llama2-7b", "tp=2,pp=16,dp=8", "tp=2,pp=16,dp=2", 256},
    {"qwen3-235b-a22b", "tp=4,pp=8,dp=4,ep=16,split=account", "tp=8,pp=16,dp=1,ep=8,split=account"},
    {"qwen3-235b-a22b", "tp=4,pp=8,dp=4,ep=16,split=account", "tp=8,pp=1,dp=16,ep=8,split=account"},
    {"qwen3-30b-a3b", "tp=2,pp=2,dp=8,ep=4", "tp=4,pp=4,dp=1,ep=4"},
    {"qwen3-30b-a3b", "tp=4,pp=1,dp=8,ep=8", "tp=4,pp=1,dp=4,ep=4"},
};

/// Busiest sender of the plan over the busiest of the even split; bytes of the states of `param`.
inline double balance_ratio(const balanced_switch& s, reshard::index_t node_devices, const reshard::space& from,
                            const reshard::space& to) {
  using namespace reshard;
  std::vector<rank_t> devices;
  for (rank_t r = 0; r < to.ranks(); ++r) devices.push_back(s.first_to_device + r);
  const layout_switch change(from, to,
                             {.to = device_map(devices), .on = nodes_of(node_devices), .states = parameter_states});
  const std::vector<double> even = even_split_load(change);
  double busiest = 0;
  for (rank_t r = 0; r < from.ranks(); ++r)
    busiest = std::max(busiest,
                       static_cast<double>(total_bytes(make_plan(change, change.from_devices().device_of(r)).sends)));
  return busiest / *std::max_element(even.begin(), even.end());
}

}  // namespace testing
