// SPDX-License-Identifier: Apache-2.0
// The ports that bytes pass on a cluster, each in one direction: a device's NVLink, a NIC, a node's spine where it has
// a limit; and a device's copy engine. Which of them a transfer loads, and how fast each is.
// Builds on: plan/layout_switch.hpp.
#pragma once

#include <string_view>
#include <vector>

#include <reshard/plan/layout_switch.hpp>

namespace reshard {

/// What limits how fast bytes pass; all but the copy engine are of one direction.
enum class port_kind { nic_out, nic_in, nvlink_out, nvlink_in, spine_out, spine_in, copy };
/// What JSON calls them, in their order.
inline constexpr std::string_view port_names[] = {"nic_out",   "nic_in",   "nvlink_out", "nvlink_in",
                                                  "spine_out", "spine_in", "copy"};

/// A port, known by its kind and a device: its own; of a NIC or spine, the lowest that takes part.
struct port {
  port_kind kind = port_kind::nic_out;
  rank_t device = 0;
  double bytes_per_second = 0;  // 0: no device that takes part uses it

  friend constexpr bool operator==(const port&, const port&) = default;
};

/// All ports of a switch's cluster, by number. Only devices on which a living rank sits take part, and have a seat; no
/// other sends or receives, and only their NICs count.
class port_table {
 public:
  /// A device that takes part; the lowest seats that use its NIC and that are on its node.
  struct seat {
    rank_t device = 0;
    index_t node = 0;
    index_t nic = 0;
    std::size_t nic_seat = 0;
    std::size_t node_seat = 0;
    node_kind kind;
  };

  /// Refuses a cluster without speeds.
  template <Holding From, Holding To>
  constexpr explicit port_table(const layout_switch<From, To>& change)
      : message_us_(change.on().message_us), stage_us_(change.on().stage_us) {
    const cluster& on = change.on();
    if (!on.has_speeds()) refuse("simulate: the cluster has no speeds; a name or a file has, a shape has none");
    seat_of_.resize(static_cast<std::size_t>(change.devices()), 0);
    for (rank_t d = 0; d < change.devices(); ++d) {
      if (change.from_rank(d) < 0 && change.to_rank(d) < 0) continue;
      const std::size_t i = seats_.size();
      seat here{d, on.node_of(d), on.nic_of(d), i, i, on.kind_of(on.node_of(d))};
      if (i > 0 && seats_[i - 1].node == here.node) {
        here.node_seat = seats_[i - 1].node_seat;
        if (seats_[i - 1].nic == here.nic) here.nic_seat = seats_[i - 1].nic_seat;
      }
      seat_of_[static_cast<std::size_t>(d)] = i;
      seats_.push_back(here);
    }
    ports_.resize(seats_.size() * std::size(port_names));
    for (const seat& s : seats_) {
      const std::size_t own = seat_of(s.device);
      add(port_kind::nvlink_out, own, s.kind.nvlink_GBps), add(port_kind::nvlink_in, own, s.kind.nvlink_GBps);
      add(port_kind::nic_out, s.nic_seat, s.kind.nic_GBps), add(port_kind::nic_in, s.nic_seat, s.kind.nic_GBps);
      if (s.kind.spine_GBps != no_limit)
        add(port_kind::spine_out, s.node_seat, s.kind.spine_GBps),
            add(port_kind::spine_in, s.node_seat, s.kind.spine_GBps);
      add(port_kind::copy, own, s.kind.copy_GBps);
    }
  }

  constexpr const std::vector<port>& ports() const { return ports_; }
  /// Ascending by device.
  constexpr const std::vector<seat>& seats() const { return seats_; }
  /// The number of the seat of a device that takes part.
  constexpr std::size_t seat_of(rank_t device) const { return seat_of_[static_cast<std::size_t>(device)]; }
  constexpr const seat& of(rank_t device) const { return seats_[seat_of(device)]; }
  constexpr double message_seconds() const { return message_us_ * 1e-6; }
  constexpr double slot_seconds() const { return stage_us_ * 1e-6; }

  constexpr bool one_node(rank_t a, rank_t b) const { return of(a).node == of(b).node; }
  /// Whether bytes go from a NIC of one number to one of another.
  constexpr bool crosses_rails(rank_t src, rank_t dst) const {
    return !one_node(src, dst) && of(src).nic != of(dst).nic;
  }
  /// Whether they would do so at a node whose NICs of different numbers do not meet.
  constexpr bool apart(rank_t src, rank_t dst) const {
    return crosses_rails(src, dst) && (of(src).kind.spine_GBps == 0 || of(dst).kind.spine_GBps == 0);
  }

  /// Calls sink(number) with the ports that bytes from src to another device load. Inside a node the NVLinks; between
  /// nodes the NICs, and both spines where the NICs' numbers differ.
  template <typename Sink>
  constexpr void each_port(rank_t src, rank_t dst, Sink&& sink) const {
    const seat &out = of(src), &in = of(dst);
    if (out.node == in.node) {
      sink(number(port_kind::nvlink_out, seat_of(src)));
      sink(number(port_kind::nvlink_in, seat_of(dst)));
      return;
    }
    sink(number(port_kind::nic_out, out.nic_seat));
    sink(number(port_kind::nic_in, in.nic_seat));
    if (out.nic == in.nic) return;
    if (out.kind.spine_GBps != no_limit) sink(number(port_kind::spine_out, out.node_seat));
    if (in.kind.spine_GBps != no_limit) sink(number(port_kind::spine_in, in.node_seat));
  }
  constexpr std::size_t copy_engine(rank_t device) const { return number(port_kind::copy, seat_of(device)); }

 private:
  constexpr std::size_t number(port_kind kind, std::size_t place) const {
    return static_cast<std::size_t>(kind) * seats_.size() + place;
  }
  constexpr void add(port_kind kind, std::size_t place, double gigabytes) {
    ports_[number(kind, place)] = {kind, seats_[place].device, gigabytes * 1e9};
  }

  double message_us_;
  double stage_us_;
  std::vector<port> ports_;
  std::vector<seat> seats_;
  std::vector<std::size_t> seat_of_;  // by device
};

/// Refuses what crosses rails where those do not meet, by its first transfer.
template <typename Transfers>
constexpr void require_rails_meet(const port_table& ports, const Transfers& transfers) {
  for (const auto& t : transfers)
    if (ports.apart(t.src, t.dst))
      refuse("simulate: device ", t.src, " sends to device ", t.dst,
             " over NICs of different numbers, which do not meet where spine_GBps is 0");
}

}  // namespace reshard
