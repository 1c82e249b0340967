// SPDX-License-Identifier: Apache-2.0
// Floors: seconds that no schedule of a switch goes below, whoever sends to whom, under its placement. Each counts a
// byte once.
//   of node y:    I(y) / NICs and O(y) / NICs, I(y) being what TO ranks on y hold and no FROM rank on y did, O(y) what
//                 FROM ranks on y alone held and another node needs and lacks, NICs those of devices that take part;
//   of device d:  what it lacks and only others of its node held, and what it alone held and another of its node
//                 lacks, both over NVLink; all that it lacks over NVLink + its NIC.
// What is created or lost is brought by nobody and counts nowhere.
// Builds on: cost/detail/port_table.hpp, plan/lost.hpp.
#pragma once

#include <vector>

#include <reshard/cost/detail/port_table.hpp>
#include <reshard/plan/lost.hpp>

namespace reshard {

/// Bytes that must pass a node's NICs in and out, those of its lowest device that takes part: I(y) and O(y).
struct node_floor {
  bytes_t in = 0;
  bytes_t out = 0;
};
/// Bytes that a device must take in at all, take in from its node, and give out to its node.
struct device_floor {
  bytes_t lacks = 0;
  bytes_t from_node = 0;
  bytes_t to_node = 0;
};
/// By seat of the port table; of nodes the lowest seat's is told.
struct floor_bytes {
  std::vector<node_floor> nodes;
  std::vector<device_floor> devices;
};

namespace detail {

/// Adds pieces, each with its holders on both sides, to the bytes that must pass.
class floor_counter {
 public:
  constexpr explicit floor_counter(const port_table& on)
      : on_(&on), held_on_(on.seats().size(), 0), needed_on_(held_on_), held_by_(held_on_) {
    sums_.nodes.resize(on.seats().size()), sums_.devices.resize(on.seats().size());
  }
  constexpr void add(bytes_t bytes, const Holders auto& holders, const device_map& from, const Holders auto& wanted,
                     const device_map& to) {
    ++piece_;
    index_t nodes = 0;
    std::size_t only_node = 0, only = 0;
    for (index_t i = 0; i < holders.count(); ++i) {
      only = on_->seat_of(from.device_of(holders[i]));
      held_by_[only] = piece_;
      only_node = on_->seats()[only].node_seat;
      if (held_on_[only_node] != piece_) ++nodes;
      held_on_[only_node] = piece_;
    }
    bool leaves_node = false, leaves_device = false;
    for (index_t k = 0; k < wanted.count(); ++k) {
      const std::size_t d = on_->seat_of(to.device_of(wanted[k])), y = on_->seats()[d].node_seat;
      if (held_on_[y] != piece_ && needed_on_[y] != piece_) sums_.nodes[y].in += bytes;
      needed_on_[y] = piece_;
      if (y != only_node) leaves_node = true;
      if (held_by_[d] == piece_) continue;
      sums_.devices[d].lacks += bytes;
      if (nodes == 1 && y == only_node) sums_.devices[d].from_node += bytes, leaves_device = true;
    }
    if (nodes == 1 && leaves_node) sums_.nodes[only_node].out += bytes;
    if (holders.count() == 1 && leaves_device) sums_.devices[only].to_node += bytes;
  }
  constexpr const floor_bytes& sums() const { return sums_; }

 private:
  const port_table* on_;
  floor_bytes sums_;
  index_t piece_ = 0;
  std::vector<index_t> held_on_, needed_on_, held_by_;  // the last piece that is, by seat
};

template <Holding From, Holding To, Holding Sources>
constexpr floor_bytes floor_bytes_over(const layout_switch<From, To>& change, const Sources& sources,
                                       const port_table& on) {
  floor_counter count(on);
  for (const role r : roles) {
    const bytes_t width = change.states().of(r).bytes_per_element();
    if (width == 0 || !has_role(change.to(), r)) continue;
    for (int f = 0; f < change.to().families(); ++f)
      change.to().owners(f, r, change.to().family_at(f).whole(), [&](const family_box& target, const auto& wanted) {
        sources.owners(f, r, target, [&](const family_box& source, const auto& holders) {
          count.add(checked_multiply(intersect(source, target).volume(), width), holders, change.from_devices(), wanted,
                    change.to_devices());
        });
      });
  }
  return count.sums();
}

}  // namespace detail

/// The bytes of the floors, from each distinct piece once.
template <Holding From, Holding To>
[[nodiscard]] constexpr floor_bytes floor_bytes_of(const layout_switch<From, To>& change, const port_table& on) {
  if (change.lost_ranks().empty()) return detail::floor_bytes_over(change, change.from(), on);
  return detail::floor_bytes_over(change, living_holding(change.from(), change.lost_ranks()), on);
}

/// The largest of the floors, in seconds.
[[nodiscard]] constexpr double floor_seconds(const floor_bytes& floors, const port_table& on) {
  double most = 0;
  const auto take = [&most](bytes_t bytes, double bytes_per_second) {
    const double seconds = static_cast<double>(bytes) / bytes_per_second;
    if (seconds > most) most = seconds;
  };
  std::vector<double> nics(on.seats().size(), 0);  // of a node, at its lowest seat
  for (std::size_t i = 0; i < on.seats().size(); ++i)
    if (const port_table::seat& s = on.seats()[i]; s.nic_seat == i) nics[s.node_seat] += s.kind.nic_GBps * 1e9;
  for (std::size_t i = 0; i < on.seats().size(); ++i) {
    const port_table::seat& s = on.seats()[i];
    if (s.node_seat == i) take(floors.nodes[i].in, nics[i]), take(floors.nodes[i].out, nics[i]);
    const device_floor& device = floors.devices[i];
    take(device.from_node, s.kind.nvlink_GBps * 1e9);
    take(device.to_node, s.kind.nvlink_GBps * 1e9);
    take(device.lacks, (s.kind.nvlink_GBps + s.kind.nic_GBps) * 1e9);
  }
  return most;
}

}  // namespace reshard
