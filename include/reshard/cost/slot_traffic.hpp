// SPDX-License-Identifier: Apache-2.0
// A switch slot by slot: what each device sends and receives in one, by which port, and how long the slot takes. Every
// part of a stream is counted as it is, so the slots' sum is that of cost/detail/switch_seconds.hpp within its 0.02 %.
// Builds on: cost/detail/switch_seconds.hpp.
#pragma once

#include <vector>

#include <reshard/cost/detail/switch_seconds.hpp>

namespace reshard {

/// What a device moves in a slot over one port, and the messages of those bytes.
struct port_traffic {
  bytes_t bytes = 0;
  index_t messages = 0;
  bytes_t across_rails = 0;  // of the bytes: also over the spine

  friend constexpr bool operator==(const port_traffic&, const port_traffic&) = default;
};

/// One device in one slot.
struct device_traffic {
  port_traffic nic_out, nic_in, nvlink_out, nvlink_in;

  constexpr const port_traffic& by(port_kind kind) const {
    switch (kind) {
      case port_kind::nic_out: return nic_out;
      case port_kind::nic_in: return nic_in;
      case port_kind::nvlink_out: return nvlink_out;
      default: return nvlink_in;
    }
  }
};

/// A slot: its seconds, and what every device that takes part moves, by seat.
struct slot_traffic {
  double seconds = 0;
  std::vector<device_traffic> devices;
};

/// Adds a message of so many bytes.
constexpr void add_traffic(const port_table& on, slot_traffic& slot, rank_t src, rank_t dst, bytes_t bytes) {
  device_traffic &from = slot.devices[on.seat_of(src)], &to = slot.devices[on.seat_of(dst)];
  const bool near = on.one_node(src, dst);
  for (port_traffic* one : {near ? &from.nvlink_out : &from.nic_out, near ? &to.nvlink_in : &to.nic_in}) {
    one->bytes += bytes;
    ++one->messages;
    if (on.crosses_rails(src, dst)) one->across_rails += bytes;
  }
}

/// Slot k of a direct switch in S stages, streams of two devices side by side: max over ports (bytes / bandwidth) +
/// message_us x the most messages + stage_us.
[[nodiscard]] constexpr slot_traffic traffic_of_slot(const port_table& on, const std::vector<sized_stream>& streams,
                                                     index_t k, index_t stages) {
  slot_traffic slot{0, std::vector<device_traffic>(on.seats().size())};
  detail::slot_load load(on);
  detail::each_pair(streams, [&](std::size_t first, std::size_t past) {
    const rank_t src = streams[first].src, dst = streams[first].dst;
    bytes_t bytes = 0;
    for (std::size_t i = first; i < past; ++i) {
      const bytes_t part = streams[i].in_stage(k, stages) * streams[i].width;
      load.add_bytes(on, streams[i], static_cast<double>(part));
      bytes += part;
    }
    if (bytes == 0 || src == dst) return;
    load.add_message(on, streams[first]);
    add_traffic(on, slot, src, dst, bytes);
  });
  slot.seconds =
      load.busiest(on).seconds + on.message_seconds() * static_cast<double>(load.most_messages()) + on.slot_seconds();
  return slot;
}

}  // namespace reshard
