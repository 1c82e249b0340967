// SPDX-License-Identifier: Apache-2.0
// Who holds what after a torn switch, from its stages, how many are in place, and who survives; as the list of shards
// from which an ordinary switch goes on, as one survivor's binding over its old and new arrays, and what nobody holds.
// Builds on: schedule/staged_plan.hpp, algebra/refine.hpp, switch/ending.hpp, memory/binding.hpp, plan/unread.hpp,
// space/shard.hpp.
#pragma once

#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <reshard/algebra/refine.hpp>
#include <reshard/algebra/region.hpp>
#include <reshard/memory/binding.hpp>
#include <reshard/memory/tensor_names.hpp>
#include <reshard/plan/relay.hpp>
#include <reshard/plan/unread.hpp>
#include <reshard/schedule/staged_plan.hpp>
#include <reshard/space/shard.hpp>
#include <reshard/switch/detail/relay_arena.hpp>
#include <reshard/switch/ending.hpp>

namespace reshard {

/// A box of one tensor, and the survivors (devices) that have it in their old arrays, and in their new ones.
struct torn_box {
  state_set states;
  tensor_id tensor;
  box<3> where;
  std::vector<rank_t> in_old, in_new;

  bool lost() const { return in_old.empty() && in_new.empty(); }
};

namespace detail {

/// Who has a box in old arrays, and in new ones.
struct torn_copies {
  std::vector<rank_t> in_old, in_new;
};

}  // namespace detail

/// Who holds what after a torn switch of S stages, of which a survivor was told that C are in place. Of FROM, one
/// that held
///   what it sends or retains in stages >= C,        and what it does neither with, where C < u;
///   without u all of it;
/// of TO what it receives or retains in stages < here, or < max C: these are in place on all, who know it or not. Cut
/// so that any two boxes of a tensor and state are equal or disjoint, each once; and what TO holds and no survivor has,
/// without holders. By states, tensor and box. The cost is that of all survivors' plans.
template <Holding From, Holding To>
[[nodiscard]] std::vector<torn_box> torn_boxes(const layout_switch<From, To>& change, index_t stages,
                                               const std::vector<torn_share>& survivors, const routing& route = {}) {
  using detail::torn_copies;
  std::map<std::pair<unsigned, tensor_id>, std::vector<labelled_box<3, torn_copies>>> tensors;
  const auto has = [&](state_set states, const tensor_id& tensor, const box<3>& b, rank_t device,
                       auto torn_copies::*in) {
    refine(tensors[{static_cast<unsigned>(states.bits()), tensor}], b, [&](torn_copies& copies) {
      if (std::vector<rank_t>& all = copies.*in; all.empty() || all.back() != device) all.push_back(device);
    });
  };
  index_t in_place = 0;
  for (const torn_share& of : survivors) in_place = greatest(in_place, of.in_place);
  const auto add = [&](const std::vector<staged_piece>& list, const torn_share& of, bool old_arrays) {
    for (const staged_piece& p : list)
      if (old_arrays ? p.stage >= of.in_place : p.stage < greatest(in_place, of.here))
        has(p.states, p.tensor, p.where, of.device, old_arrays ? &torn_copies::in_old : &torn_copies::in_new);
  };
  for (const torn_share& of : survivors) {
    plan whole = make_plan(change, of.device, route);
    staged_plan p = stage_plan(whole, change, stages);
    const detail::streams_of coming(p.receives);
    const auto passes = [&](const auto& sent) { return coming.has(sent); };
    std::erase_if(p.sends, passes);
    std::erase_if(whole.sends, passes);
    std::erase_if(p.receives, [](const staged_piece& r) { return r.why == purpose::passed_on; });
    const auto stands = [&](state_set states, const tensor_id& tensor, const box<3>& b) {
      has(states, tensor, b, of.device, &torn_copies::in_old);
    };
    if (!of.unread_kept) {
      detail::each_held_but(change, of.device, {}, stands);
    } else {
      add(p.sends, of, true);
      add(p.retains, of, true);
      if (of.in_place < *of.unread_kept)
        detail::each_held_but(change, of.device, {&whole.sends, &whole.retains}, stands);
    }
    for (const auto* list : {&p.receives, &p.retains, &p.creates}) add(*list, of, false);
  }
  for (const role r : roles) {
    const state_set states = change.states().of(r);
    for (int f = 0; f < change.to().families() && !states.empty(); ++f)
      if (has_states_of(change.to().family_at(f).kind, r))
        each_tensor(f, change.to().family_at(f).whole(), [&](const tensor_id& tensor, const box<3>& whole) {
          refine(tensors[{static_cast<unsigned>(states.bits()), tensor}], whole, [](torn_copies&) {});
        });
  }
  std::vector<torn_box> result;
  for (auto& [key, parts] : tensors) {
    std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return precedes(a.where, b.where); });
    const family_box whole = change.to().family_at(key.second.family).whole();
    for (auto& [where, copies] : parts)
      if (whole.contains(family_box_of(key.second, where)))
        result.push_back(
            {change.states().masked(key.first), key.second, where, std::move(copies.in_old), std::move(copies.in_new)});
  }
  return result;
}
/// Who holds what after an ending that all its survivors were told alike.
template <Holding From, Holding To>
[[nodiscard]] std::vector<torn_box> torn_boxes(const layout_switch<From, To>& change, const ended::torn& end,
                                               const routing& route = {}) {
  std::vector<torn_share> shares;
  for (const rank_t device : end.survivors) {
    shares.push_back({device, end.in_place, end.in_place, {}});
    if (end.unread_kept) shares.back().unread_kept = (*end.unread_kept)[static_cast<std::size_t>(device)];
  }
  return torn_boxes(change, end.stages, shares, route);
}

/// Elements that nobody holds after a torn switch, a state at a time: those that no survivor held of FROM, and those
/// that one did and gave away before their new copies stood.
struct lost_elements {
  index_t sole_held = 0, given_away = 0;

  std::string text() const {
    return detail::text_of("lost are ", sole_held, " elements that only the dead held, and ", given_away,
                           " that a survivor had given back before their new copies stood");
  }
};
/// The elements of a torn switch without a holder, told apart by why; at the cost of the survivors' holdings.
template <Holding From, Holding To>
[[nodiscard]] lost_elements lost_after(const layout_switch<From, To>& change, const std::vector<torn_box>& boxes,
                                       const std::vector<rank_t>& survivors) {
  std::map<std::pair<unsigned, tensor_id>, region<3>> lost;
  lost_elements result;
  for (const torn_box& b : boxes)
    if (b.lost()) lost[{static_cast<unsigned>(b.states.bits()), b.tensor}].add(b.where);
  const auto elements = [&] {
    index_t all = 0;
    for (const auto& [key, where] : lost) all += where.volume() * std::popcount(static_cast<unsigned>(key.first));
    return all;
  };
  const index_t all = elements();
  for (const rank_t device : survivors)
    detail::each_held_but(change, device, {}, [&](state_set states, const tensor_id& tensor, const box<3>& b) {
      const auto at = lost.find({static_cast<unsigned>(states.bits()), tensor});
      if (at != lost.end()) at->second.remove(b);
    });
  result.sole_held = elements();
  result.given_away = all - result.sole_held;
  return result;
}

/// The side FROM of the switch that goes on after a torn one, with what its placement needs: rank i sits on devices[i],
/// the i-th survivor. What nobody holds is listed for a last rank, on a device that is lost; with when_lost::leave_out
/// the switch goes on without it.
struct torn_layout {
  shard_list shards;
  std::vector<rank_t> devices;
  std::vector<rank_t> lost;
  state_list list = adam;

  /// Where it sits; `to` is where the ranks of the side TO shall.
  placement placed(const device_map& to) const {
    return {.from = device_map(devices), .to = to, .list = list, .lost = lost, .lost_elements = when_lost::leave_out};
  }
};
/// The list of what the boxes say, and where its ranks sit. Refuses where something is lost and no device is.
template <Holding From, Holding To>
[[nodiscard]] torn_layout layout_after(const layout_switch<From, To>& change, const std::vector<torn_box>& boxes,
                                       const std::vector<rank_t>& survivors) {
  const tensor_names names = names_of(change.to());
  std::vector<shard> shards;
  std::vector<rank_t> devices = survivors, lost;
  const auto list = [&](const torn_box& b, rank_t rank) {
    const family& of = change.to().family_at(b.tensor.family);
    const index_t rows = of.extent[axis_of::row], columns = of.extent[axis_of::column];
    const interval row = b.where.dim[1], column = b.where.dim[2];
    for (const int s : b.states)
      for (index_t part = b.where.dim[0].begin; part < b.where.dim[0].end; ++part) {
        shard one{rank,
                  names(b.tensor),
                  change.list()[s].type,
                  {columns},
                  {column.begin},
                  {column.size()},
                  std::string(change.list()[s].name)};
        if (!of.vector()) {
          one.whole = {of.extent[axis_of::part] * rows, columns};
          one.offset = {part * rows + row.begin, column.begin};
          one.shape = {row.size(), column.size()};
        }
        shards.push_back(std::move(one));
      }
  };
  for (rank_t device = 0; device < change.devices() && lost.empty(); ++device)
    if (std::find(survivors.begin(), survivors.end(), device) == survivors.end()) lost.push_back(device);
  for (const torn_box& b : boxes) {
    for (std::size_t i = 0; i < survivors.size(); ++i)
      if (std::count(b.in_old.begin(), b.in_old.end(), survivors[i]) +
              std::count(b.in_new.begin(), b.in_new.end(), survivors[i]) >
          0)
        list(b, static_cast<rank_t>(i));
    if (b.lost() && lost.empty()) refuse("torn switch: all devices survive, and nobody holds all of ", names(b.tensor));
    if (b.lost()) list(b, static_cast<rank_t>(survivors.size()));
  }
  devices.insert(devices.end(), lost.begin(), lost.end());
  const auto ranks = static_cast<rank_t>(devices.size());
  return {shard_list(std::move(shards), ranks), std::move(devices), std::move(lost), change.list()};
}

/// One survivor's part of the boxes as a binding over the arrays that it had in the torn switch. It owns nothing: the
/// arrays' owners give them back.
[[nodiscard]] inline binding binding_after(const std::vector<torn_box>& boxes, rank_t device,
                                           const binding& old_tensors, const binding& new_tensors) {
  binding held("what device " + std::to_string(device) + " holds of a torn switch", {},
               old_tensors.boxes().empty() ? new_tensors.list() : old_tensors.list());
  for (const torn_box& b : boxes) {
    const auto has = [&](const std::vector<rank_t>& list) {
      return std::find(list.begin(), list.end(), device) != list.end();
    };
    if (!has(b.in_old) && !has(b.in_new)) continue;
    const binding& in = has(b.in_new) ? new_tensors : old_tensors;
    for (const int s : b.states) in.meet({s, b.tensor, b.where}, [&](const bound_box& part) { held.add(part); });
  }
  held.seal();
  return held;
}

}  // namespace reshard
