// SPDX-License-Identifier: Apache-2.0
// What a switch costs, in figures: per device and over all of them, collected device by device, so that no more than one
// device's plan is ever in memory.
// Builds on: schedule/memory.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>
#include <vector>

#include <reshard/schedule/memory.hpp>

namespace reshard {

/// A switch that is to be told about.
struct switch_question {
  const computed_holding* from;
  const computed_holding* to;
  placement where;
  rank_t devices = 0;  // devices are 0 .. devices - 1
  index_t stages = 1;
};

/// One device's plan, cut into stages where there are several.
struct device_plan {
  plan whole;
  std::vector<staged_piece> sends, receives, retains;  // empty with one stage
};

struct device_figures {
  rank_t device = 0;
  bytes_t send = 0, receive = 0, retained = 0;
  bytes_t before = 0, after = 0, peak = 0;

  constexpr bytes_t floor() const { return greatest(before, after); }
};

/// Bytes that pass from one device to another in the whole switch.
struct link_figures {
  rank_t src = 0, dst = 0;
  bytes_t bytes = 0;
};

struct switch_figures {
  bytes_t moved = 0, relayed = 0, retained = 0, least = 0, inter_node = 0;
  index_t messages = 0;
  bytes_t max_send = 0, max_receive = 0, peak = 0, peak_floor = 0, peak_excess = 0;
  double planning_seconds = 0;
  std::vector<device_figures> devices;
  std::vector<link_figures> busiest;  // descending
};

/// Plans one device.
inline device_plan plan_device(const switch_question& asked, rank_t device) {
  device_plan result{make_plan(*asked.from, *asked.to, device, asked.where), {}, {}, {}};
  if (asked.stages == 1) return result;
  const auto cut = [&](const std::vector<transfer>& list) { return stage_transfers(list, *asked.to, asked.where.to, asked.stages); };
  result.sends = cut(result.whole.sends);
  result.receives = cut(result.whole.receives);
  result.retains = cut(result.whole.retains);
  return result;
}

namespace detail {

/// How many coordinates lie in one of the boxes, which it reorders. They are parted along every dimension in which none reaches
/// across, so that only boxes which overlap or interlock are subtracted from each other.
template <int N>
index_t union_volume(std::span<box<N>> boxes, int dim = 0) {
  if (boxes.size() == 1) return boxes[0].volume();
  if (dim == N) {
    region<N> all;
    for (const box<N>& b : boxes) all.add(b);
    return all.volume();
  }
  std::sort(boxes.begin(), boxes.end(), [dim](const box<N>& a, const box<N>& b) { return a.dim[dim].begin < b.dim[dim].begin; });
  index_t elements = 0;
  for (std::size_t first = 0, past = 0; first < boxes.size(); first = past) {
    index_t end = boxes[first].dim[dim].end;
    for (past = first + 1; past < boxes.size() && boxes[past].dim[dim].begin < end; ++past) end = greatest(end, boxes[past].dim[dim].end);
    elements = checked_add(elements, union_volume(boxes.subspan(first, past - first), dim + 1));
  }
  return elements;
}

/// Bytes that a device sends and does not retain, each once however many read them: retained boxes are disjoint, so they count
/// |sent or retained| - |retained|.
inline bytes_t leaving_bytes(const plan& p) {
  const auto key = [](const transfer* t) { return std::pair(t->states.bits, t->family); };
  std::vector<const transfer*> all;
  for (const std::vector<transfer>* list : {&p.sends, &p.retains})
    for (const transfer& t : *list) all.push_back(&t);
  std::sort(all.begin(), all.end(), [&](const transfer* a, const transfer* b) { return key(a) < key(b); });
  bytes_t bytes = -total_bytes(p.retains);
  std::vector<box<family_ndim>> boxes;
  for (std::size_t first = 0, past = 0; first < all.size(); first = past) {
    boxes.clear();
    for (past = first; past < all.size() && key(all[past]) == key(all[first]); ++past) boxes.push_back(all[past]->where);
    bytes += union_volume(std::span(boxes)) * all[first]->states.bytes_per_element();
  }
  return bytes;
}

/// replay_memory for one stage, from whole families.
inline bytes_t one_stage_peak(bytes_t before, bytes_t after, const plan& p) {
  const bytes_t live = leaving_bytes(p) + total_bytes(p.retains) + total_bytes(p.receives);
  return greatest(greatest(before, after), live);
}

/// How many distinct (peer, stage) a list has, and per peer its bytes: sink(peer, bytes).
template <typename List, typename Peer, typename Stage, typename Sink>
index_t count_messages(const List& list, Peer&& peer, Stage&& stage, Sink&& sink) {
  std::vector<std::pair<rank_t, index_t>> met;
  met.reserve(list.size());
  for (std::size_t first = 0, past = 0; first < list.size(); first = past) {  // lists are in order of peers
    bytes_t bytes = 0;
    for (past = first; past < list.size() && peer(list[past]) == peer(list[first]); ++past) {
      bytes += list[past].bytes();
      if (met.empty() || met.back() != std::pair(peer(list[past]), stage(list[past]))) met.emplace_back(peer(list[past]), stage(list[past]));
    }
    sink(peer(list[first]), bytes);
  }
  std::sort(met.begin(), met.end());
  return std::unique(met.begin(), met.end()) - met.begin();
}

}  // namespace detail

/// Adds up figures, device by device. Of a whole switch every device is added once, and its transfers count where they arrive;
/// of one device's view, those that leave it count too.
class figure_collector {
 public:
  enum class view { whole_switch, one_device };
  static constexpr std::size_t links_kept = 6;

  figure_collector(const switch_question& asked, view told) : asked_(&asked), view_(told) {}

  void add(const device_plan& p) {
    const rank_t device = p.whole.device, was = asked_->where.from.rank_of(device), is = asked_->where.to.rank_of(device);
    const state_set states = asked_->where.states;
    device_figures d{.device = device, .send = total_bytes(p.whole.sends), .receive = total_bytes(p.whole.receives),
                     .retained = total_bytes(p.whole.retains), .before = was < 0 ? 0 : held_bytes(*asked_->from, was, states),
                     .after = is < 0 ? 0 : held_bytes(*asked_->to, is, states)};
    d.peak = asked_->stages == 1
                 ? detail::one_stage_peak(d.before, d.after, p.whole)
                 : replay_memory(d.before, d.after, p.receives, p.sends, p.whole.retains, asked_->stages).peak;
    f_.retained = checked_add(f_.retained, d.retained);
    f_.moved = checked_add(f_.moved, d.receive);
    f_.least = checked_add(f_.least, d.after - d.retained);
    const auto source = [](const auto& t) { return t.src; };
    const auto target = [](const auto& t) { return t.dst; };
    add_side(p.whole.receives, p.receives, source, [device](rank_t peer, bytes_t bytes) { return link_figures{peer, device, bytes}; });
    if (view_ == view::one_device) {
      f_.moved = checked_add(f_.moved, d.send);
      f_.least = checked_add(f_.least, d.send);
      add_side(p.whole.sends, p.sends, target, [device](rank_t peer, bytes_t bytes) { return link_figures{device, peer, bytes}; });
    }
    f_.max_send = greatest(f_.max_send, d.send);
    f_.max_receive = greatest(f_.max_receive, d.receive);
    f_.peak = greatest(f_.peak, d.peak);
    f_.peak_floor = greatest(f_.peak_floor, d.floor());
    f_.peak_excess = greatest(f_.peak_excess, d.peak - d.floor());
    f_.devices.push_back(d);
  }
  void took(double seconds) { f_.planning_seconds += seconds; }
  const switch_figures& figures() const { return f_; }

 private:
  template <typename Peer, typename Link>
  void add_side(const std::vector<transfer>& whole, const std::vector<staged_piece>& staged, Peer&& peer, Link&& link) {
    const auto keep = [&](rank_t other, bytes_t bytes) {
      const link_figures one = link(other, bytes);
      const index_t node = asked_->where.node_devices;
      if (node != 0 && one.src / node != one.dst / node) f_.inter_node = checked_add(f_.inter_node, bytes);
      std::vector<link_figures>& top = f_.busiest;
      if (top.size() == links_kept && top.back().bytes >= bytes) return;
      if (top.size() == links_kept) top.pop_back();
      top.insert(std::upper_bound(top.begin(), top.end(), one, [](const link_figures& a, const link_figures& b) { return a.bytes > b.bytes; }), one);
    };
    if (asked_->stages == 1) f_.messages += detail::count_messages(whole, peer, [](const transfer&) { return index_t{0}; }, keep);
    else f_.messages += detail::count_messages(staged, peer, [](const staged_piece& t) { return t.stage; }, keep);
  }

  const switch_question* asked_;
  view view_;
  switch_figures f_;
};

/// Runs `work` and returns the seconds it took.
template <typename Work>
double timed(Work&& work) {
  const auto begun = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

}  // namespace reshard
