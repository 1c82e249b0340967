// SPDX-License-Identifier: Apache-2.0
// The figures of a whole switch with relay from its streams: what figure_collector adds up from every device's plan,
// without making one.
// Builds on: cost/switch_bytes.hpp, cost/detail/relayed_streams.hpp.
#pragma once

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include <reshard/cost/detail/relayed_streams.hpp>
#include <reshard/cost/switch_bytes.hpp>

namespace reshard {

namespace detail {

/// The flows of every device in one direction, each device's by states and stream.
inline std::vector<std::vector<stream_flow>> flows_by_device(const std::vector<relayed_stream>& streams, rank_t devices,
                                                             rank_t sized_stream::*own, rank_t sized_stream::*peer) {
  std::vector<stream_end> ends;
  for (const relayed_stream& s : streams)
    if (const sized_stream& on = s.sized; on.src != on.dst)
      ends.push_back(
          {on.*own, on.*peer, {s.states, s.stream, on.elements, on.width, s.phase, s.phase, s.why, s.stays}});
  std::vector<std::vector<stream_flow>> found(static_cast<std::size_t>(devices));
  each_flow(std::move(ends), [&](const stream_end& first, const stream_flow& flow) {
    found[static_cast<std::size_t>(first.own)].push_back(flow);
  });
  return found;
}

/// The bytes of every link, by destination and source.
inline std::vector<link_figures> link_bytes(const std::vector<relayed_stream>& streams) {
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
  return sums;
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
      device_figures d = detail::figures_of_plan(change, kept, after_use);
      d.send = sent[i], d.receive = received[i];
      const relayed_memory memory(d.before, d.retained, d.created + d.lost, in[i], out[i], after_use);
      d.passed = memory.passed();
      d.peak = memory.peak(how.stages, f.slots(), d.after);
      detail::add_device(f, d);
    }
  });
  for (const link_figures& one : detail::link_bytes(streams))
    detail::add_link(f, one, change.on(), change.node_devices());
  return f;
}

}  // namespace reshard
