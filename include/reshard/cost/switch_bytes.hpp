// SPDX-License-Identifier: Apache-2.0
// What a switch costs, in figures: per device and over all of them, added up device by device, so that no more than one
// device's plan is ever in memory.
// Builds on: plan/lost.hpp, plan/routing.hpp, schedule/memory_replay.hpp, schedule/relayed_memory.hpp,
// schedule/staged_plan.hpp, space/cover.hpp.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <reshard/base/each_run.hpp>
#include <reshard/plan/lost.hpp>
#include <reshard/plan/routing.hpp>
#include <reshard/schedule/memory_replay.hpp>
#include <reshard/schedule/relayed_memory.hpp>
#include <reshard/schedule/staged_plan.hpp>
#include <reshard/space/cover.hpp>

namespace reshard {

/// A device's part of a switch in bytes: sent and received, also what is passed on, retained, created; held before it,
/// after it and at the peak; lost; and of what it receives that which it only passes on. Where sources are kept, after
/// it is all that it holds on either side.
struct device_figures {
  rank_t device = 0;
  bytes_t send = 0, receive = 0, retained = 0, created = 0;
  bytes_t before = 0, after = 0, peak = 0;
  bytes_t lost = 0;
  bytes_t passed = 0;

  constexpr bytes_t floor() const { return greatest(before, after); }
};

/// Bytes that pass from one device to another in the whole switch.
struct link_figures {
  rank_t src = 0, dst = 0;
  bytes_t bytes = 0;
};

/// A switch in figures: sums and maxima over its devices, each device's own, and the links with the most bytes. What is
/// lost counts once, however many devices want it.
struct switch_figures {
  routing how;
  index_t phases = 1;
  sources after_use = sources::release;
  bytes_t moved = 0, relayed = 0, retained = 0, created = 0, lost = 0, least = 0, inter_node = 0, cross_rail = 0;
  index_t messages = 0;
  bytes_t max_send = 0, max_receive = 0, peak = 0, peak_floor = 0, peak_excess = 0;
  // the least u of devices that hold what nobody reads (schedule/memory_replay.hpp)
  std::optional<index_t> unread_kept = {};
  std::vector<device_figures> devices;
  std::vector<link_figures> busiest;  // descending

  constexpr index_t slots() const { return how.stages + phases - 1; }
};

namespace detail {

/// How many coordinates lie in one of the boxes, which it reorders. They are parted along every dimension in which none
/// reaches across, so that only boxes which overlap or interlock are subtracted from each other.
template <int N>
index_t union_volume(std::span<box<N>> boxes, int dim = 0) {
  if (boxes.size() == 1) return boxes[0].volume();
  if (dim == N) {
    region<N> all;
    for (const box<N>& b : boxes) all.add(b);
    return all.volume();
  }
  std::sort(boxes.begin(), boxes.end(),
            [dim](const box<N>& a, const box<N>& b) { return a.dim[dim].begin < b.dim[dim].begin; });
  index_t elements = 0;
  for (std::size_t first = 0, past = 0; first < boxes.size(); first = past) {
    index_t end = boxes[first].dim[dim].end;
    for (past = first + 1; past < boxes.size() && boxes[past].dim[dim].begin < end; ++past)
      end = greatest(end, boxes[past].dim[dim].end);
    elements = checked_add(elements, union_volume(boxes.subspan(first, past - first), dim + 1));
  }
  return elements;
}

/// Bytes that a device sends and does not retain, each once however many read them: retained boxes are disjoint, so
/// they count |sent or retained| - |retained|.
inline bytes_t leaving_bytes(const plan& p) {
  const auto key = [](const transfer* t) { return std::pair(t->states.bits(), t->family); };
  std::vector<const transfer*> all;
  for (const std::vector<transfer>* list : {&p.sends, &p.retains})
    for (const transfer& t : *list) all.push_back(&t);
  std::sort(all.begin(), all.end(), [&](const transfer* a, const transfer* b) { return key(a) < key(b); });
  bytes_t bytes = -total_bytes(p.retains);
  std::vector<box<family_ndim>> boxes;
  const auto alike = [&](std::size_t i, std::size_t j) { return key(all[i]) == key(all[j]); };
  each_run(all.size(), alike, [&](std::size_t first, std::size_t past) {
    boxes.clear();
    for (std::size_t i = first; i < past; ++i) boxes.push_back(all[i]->where);
    bytes += union_volume(std::span(boxes)) * all[first]->states.bytes_per_element();
  });
  return bytes;
}

/// Messages of a list in which all that two devices exchange in a stage is consecutive.
template <typename List, typename Stage>
index_t count_messages(const List& list, Stage&& stage) {
  index_t messages = 0;
  for (std::size_t i = 0; i < list.size(); ++i)
    messages += i == 0 || list[i].src != list[i - 1].src || list[i].dst != list[i - 1].dst ||
                        stage(list[i]) != stage(list[i - 1])
                    ? 1
                    : 0;
  return messages;
}

/// What a device keeps of FROM's beside TO's.
constexpr bytes_t kept_beside(const device_figures& d, sources after_use) {
  return after_use == sources::keep ? d.before - d.retained : 0;
}

/// A device's figures by its plan: all but the peak, and what it passes on.
template <Holding From, Holding To>
[[nodiscard]] device_figures figures_of_plan(const layout_switch<From, To>& change, const plan& p, sources after_use) {
  device_figures d{.device = p.device,
                   .send = total_bytes(p.sends),
                   .receive = total_bytes(p.receives),
                   .retained = total_bytes(p.retains),
                   .created = total_bytes(p.creates),
                   .before = held_bytes(change.from(), change.from_rank(p.device), change.states()),
                   .after = held_bytes(change.to(), change.to_rank(p.device), change.states()),
                   .lost = total_bytes(p.lost)};
  d.after += kept_beside(d, after_use);
  return d;
}

/// Adds a device, and what arrives at it, to the sums and maxima of its switch.
inline void add_device(switch_figures& f, const device_figures& d) {
  f.retained = checked_add(f.retained, d.retained);
  f.moved = checked_add(f.moved, d.receive - d.passed);
  f.relayed = checked_add(f.relayed, d.passed);
  f.created = checked_add(f.created, d.created);
  f.least = checked_add(f.least, d.after - kept_beside(d, f.after_use) - d.retained - d.created - d.lost);
  f.max_send = greatest(f.max_send, d.send);
  f.max_receive = greatest(f.max_receive, d.receive);
  f.peak = greatest(f.peak, d.peak);
  f.peak_floor = greatest(f.peak_floor, d.floor());
  f.peak_excess = greatest(f.peak_excess, d.peak - d.floor());
  f.devices.push_back(d);
}

/// Adds all that passes over a link; of links with equal bytes those that are added first count as busier.
inline void add_link(switch_figures& f, const link_figures& one, const cluster& on, index_t node_devices) {
  constexpr std::size_t links_kept = 6;
  if (node_devices != 0 && one.src / node_devices != one.dst / node_devices)
    f.inter_node = checked_add(f.inter_node, one.bytes);
  if (on.crosses_rails(one.src, one.dst)) f.cross_rail = checked_add(f.cross_rail, one.bytes);
  if (f.busiest.size() == links_kept && f.busiest.back().bytes >= one.bytes) return;
  if (f.busiest.size() == links_kept) f.busiest.pop_back();
  f.busiest.insert(std::upper_bound(f.busiest.begin(), f.busiest.end(), one,
                                    [](const link_figures& a, const link_figures& b) { return a.bytes > b.bytes; }),
                   one);
}

}  // namespace detail

/// Whom figures tell of: of a whole switch every device is added once, and its transfers count where they arrive; of
/// one device's view, those that leave it count too.
enum class figures_of { whole_switch, one_device };

/// Adds up the figures of a switch from its devices' plans, one device at a time.
template <Holding From, Holding To>
class figure_collector {
 public:
  /// `change` outlives this.
  figure_collector(const layout_switch<From, To>& change, index_t stages, figures_of told,
                   sources after_use = sources::release)
      : figure_collector(change, {.stages = stages}, 1, told, after_use) {}
  /// Collects a switch that is routed so, of so many phases, within a budget.
  figure_collector(const layout_switch<From, To>& change, const routing& how, index_t phases, figures_of told,
                   sources after_use = sources::release, bytes_t budget = no_budget)
      : change_(&change), told_(told), budget_(budget) {
    f_.how = how, f_.phases = phases, f_.after_use = after_use;
    if (told == figures_of::whole_switch && !change.lost_ranks().empty()) f_.lost = lost_bytes(change);
  }

  /// A device's plan, cut into the stages unless there is one.
  void add(const plan& p) {
    if (f_.how.how == relay::always) return add_relayed(p);
    if (f_.how.stages > 1) return add(p, stage_plan(p, *change_, f_.how.stages));
    const auto whole = [](const transfer&) { return index_t{0}; };
    f_.messages += detail::count_messages(p.receives, whole);
    if (told_ == figures_of::one_device) f_.messages += detail::count_messages(p.sends, whole);
    device_figures d = detail::figures_of_plan(*change_, p, f_.after_use);
    const bytes_t leaving = detail::leaving_bytes(p), unread = d.before - d.retained - leaving;
    // of whole families, without cutting them to tensors
    const bool stays = f_.after_use == sources::keep;
    add(p, d, unread, {d.retained + leaving + (stays ? unread : 0) + d.receive + d.created + d.lost});
  }
  void add(const plan& p, const staged_plan& cut) {
    const auto stage = [](const staged_piece& t) { return t.stage; };
    f_.messages += detail::count_messages(cut.receives, stage);
    if (told_ == figures_of::one_device) f_.messages += detail::count_messages(cut.sends, stage);
    device_figures d = detail::figures_of_plan(*change_, p, f_.after_use);
    add(p, d, d.before - d.retained - detail::leaving_bytes(p),
        live_bytes(d.before, cut.receives, cut.sends, p.retains, f_.how.stages, d.created + d.lost, f_.after_use));
  }
  const switch_figures& figures() const { return f_; }

 private:
  void add_relayed(const plan& p) {
    f_.messages += relayed_messages(p.receives, f_.how.stages);
    if (told_ == figures_of::one_device) f_.messages += relayed_messages(p.sends, f_.how.stages);
    device_figures d = detail::figures_of_plan(*change_, p, f_.after_use);
    const relayed_memory memory(p, d.before, f_.after_use);
    d.passed = memory.passed();
    add(p, d, memory.unread(), memory.live(f_.how.stages, f_.slots()));
  }
  /// A device, with what nobody reads of its FROM's, and what it holds in each slot: without that, unless it is kept.
  void add(const plan& p, device_figures& d, bytes_t unread, const std::vector<bytes_t>& live) {
    d.peak = peak_of(live, d.floor());
    add(p, d);
    if (unread == 0) return;
    index_t u = f_.how.stages;
    if (f_.after_use == sources::release && budget_ != no_budget) {
      std::vector<bytes_t> there = live;
      for (bytes_t& bytes : there) bytes += unread;
      u = unread_kept(live, there, checked_add(d.floor(), budget_), f_.how.stages, f_.phases - 1);
    }
    f_.unread_kept = least(f_.unread_kept.value_or(u), u);
  }
  void add(const plan& p, const device_figures& d) {
    detail::add_device(f_, d);
    add_links(p.receives);
    if (told_ == figures_of::one_device) {
      bytes_t passed = 0;
      for (const transfer& t : p.sends) passed += t.why == purpose::passed_on ? t.bytes() : 0;
      f_.relayed = checked_add(f_.relayed, passed);
      f_.moved = checked_add(f_.moved, d.send - passed);
      f_.least = checked_add(f_.least, d.send - passed);
      f_.lost = checked_add(f_.lost, d.lost);
      add_links(p.sends);
    }
  }

  /// Adds the links of a list in order of peers.
  void add_links(const std::vector<transfer>& list) {
    const auto same_link = [&](std::size_t i, std::size_t j) {
      return list[i].src == list[j].src && list[i].dst == list[j].dst;
    };
    detail::each_run(list.size(), same_link, [&](std::size_t first, std::size_t past) {
      link_figures one{list[first].src, list[first].dst, 0};
      for (std::size_t i = first; i < past; ++i) one.bytes += list[i].bytes();
      detail::add_link(f_, one, change_->on(), change_->node_devices());
    });
  }

  const layout_switch<From, To>* change_;
  figures_of told_;
  bytes_t budget_;
  switch_figures f_;
};

}  // namespace reshard
