// SPDX-License-Identifier: Apache-2.0
// The figures of a whole switch with relay from its streams: what figure_collector adds up from every device's plan,
// without making one.
// Builds on: cost/switch_bytes.hpp, cost/detail/relayed_streams.hpp.
#pragma once

#include <algorithm>
#include <tuple>
#include <vector>

#include <reshard/cost/detail/relayed_streams.hpp>
#include <reshard/cost/switch_bytes.hpp>

namespace reshard {

namespace detail {

/// The flows of every device in one direction, each device's by states and stream.
inline std::vector<std::vector<stream_flow>> flows_by_device(const std::vector<relayed_stream>& streams, rank_t devices,
                                                             rank_t sized_stream::*own, rank_t sized_stream::*peer) {
  std::vector<const relayed_stream*> sorted;
  for (const relayed_stream& s : streams)
    if (s.sized.src != s.sized.dst) sorted.push_back(&s);
  const auto key = [&](const relayed_stream* s) {
    return std::tuple(s->sized.*own, s->states, s->stream, s->sized.*peer);
  };
  std::sort(sorted.begin(), sorted.end(),
            [&](const relayed_stream* a, const relayed_stream* b) { return key(a) < key(b); });
  std::vector<std::vector<stream_flow>> found(static_cast<std::size_t>(devices));
  rank_t first_peer = 0;
  for (const relayed_stream* s : sorted) {
    std::vector<stream_flow>& mine = found[static_cast<std::size_t>(s->sized.*own)];
    if (mine.empty() || mine.back().key() != std::tuple(s->states, s->stream)) {
      mine.push_back({s->states, s->stream, 0, s->sized.width, s->phase, s->phase, s->why, s->stays});
      first_peer = s->sized.*peer;
    }
    stream_flow& flow = mine.back();
    flow.first = least(flow.first, s->phase), flow.last = greatest(flow.last, s->phase);
    if (s->sized.*peer == first_peer) flow.elements += s->sized.elements;
  }
  return found;
}

/// Bytes and messages of all links.
inline void add_links(switch_figures& f, const std::vector<relayed_stream>& streams, const cluster& on, index_t node) {
  std::vector<link_figures> links;
  for (const relayed_stream& s : streams)
    if (s.sized.src != s.sized.dst) links.push_back({s.sized.src, s.sized.dst, s.sized.bytes()});
  std::sort(links.begin(), links.end(), [](const link_figures& a, const link_figures& b) {
    return std::tuple(a.dst, a.src) < std::tuple(b.dst, b.src);
  });
  std::vector<link_figures> sums;
  for (const link_figures& one : links) {
    if (!sums.empty() && sums.back().src == one.src && sums.back().dst == one.dst) sums.back().bytes += one.bytes;
    else sums.push_back(one);
  }
  for (const link_figures& one : sums) {
    if (node != 0 && one.src / node != one.dst / node) f.inter_node = checked_add(f.inter_node, one.bytes);
    if (on.crosses_rails(one.src, one.dst)) f.cross_rail = checked_add(f.cross_rail, one.bytes);
  }
  std::sort(sums.begin(), sums.end(), [](const link_figures& a, const link_figures& b) {
    return std::tuple(-a.bytes, a.dst, a.src) < std::tuple(-b.bytes, b.dst, b.src);
  });
  constexpr std::size_t links_kept = 6;
  sums.resize(std::min(sums.size(), links_kept));
  f.busiest = sums;
}

}  // namespace detail

/// The figures of streams that relayed_streams_of made, in so many stages and phases.
template <Holding From, Holding To>
[[nodiscard]] switch_figures figures_of_relay(const layout_switch<From, To>& change,
                                              const std::vector<relayed_stream>& streams, const routing& how,
                                              index_t phases, sources after_use = sources::release) {
  switch_figures f;
  f.how = how, f.phases = phases, f.after_use = after_use;
  if (!change.lost_ranks().empty()) f.lost = lost_bytes(change);
  const auto in = detail::flows_by_device(streams, change.devices(), &sized_stream::dst, &sized_stream::src);
  const auto out = detail::flows_by_device(streams, change.devices(), &sized_stream::src, &sized_stream::dst);
  std::vector<bytes_t> sent(static_cast<std::size_t>(change.devices()), 0), received = sent;
  for (const relayed_stream& s : streams) {
    if (s.sized.src == s.sized.dst) continue;
    sent[static_cast<std::size_t>(s.sized.src)] += s.sized.bytes();
    received[static_cast<std::size_t>(s.sized.dst)] += s.sized.bytes();
  }
  detail::with_sources(change, [&](const auto& from) {
    for (rank_t device = 0; device < change.devices(); ++device) {
      const std::size_t i = static_cast<std::size_t>(device);
      plan kept;
      kept.device = device;
      detail::keep_all(change, from, kept);
      device_figures d{.device = device,
                       .send = sent[i],
                       .receive = received[i],
                       .retained = total_bytes(kept.retains),
                       .created = total_bytes(kept.creates),
                       .before = held_bytes(change.from(), change.from_rank(device), change.states()),
                       .after = held_bytes(change.to(), change.to_rank(device), change.states()),
                       .lost = total_bytes(kept.lost)};
      const relayed_memory memory(d.before, d.retained, d.created + d.lost, in[i], out[i], after_use);
      d.passed = memory.passed();
      f.least = checked_add(f.least, d.after - d.retained - d.created - d.lost);
      if (after_use == sources::keep) d.after += d.before - d.retained;
      d.peak = memory.peak(how.stages, f.slots(), d.after);
      f.moved = checked_add(f.moved, d.receive - d.passed);
      f.relayed = checked_add(f.relayed, d.passed);
      f.retained = checked_add(f.retained, d.retained);
      f.created = checked_add(f.created, d.created);
      f.max_send = greatest(f.max_send, d.send), f.max_receive = greatest(f.max_receive, d.receive);
      f.peak = greatest(f.peak, d.peak), f.peak_floor = greatest(f.peak_floor, d.floor());
      f.peak_excess = greatest(f.peak_excess, d.peak - d.floor());
      f.devices.push_back(d);
    }
  });
  detail::add_links(f, streams, change.on(), change.node_devices());
  return f;
}

}  // namespace reshard
