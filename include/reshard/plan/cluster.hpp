// SPDX-License-Identifier: Apache-2.0
// A cluster as a value: nodes of equal size, their NICs, who uses which, and how fast everything is. A node is an
// NVLink domain; device d is GPU d mod gpus of node floor(d / gpus).
// Builds on: base/integer.hpp.
#pragma once

#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <reshard/base/integer.hpp>

namespace reshard {

/// The speed of what limits nothing.
inline constexpr double no_limit = std::numeric_limits<double>::infinity();

/// Nodes that are alike. Speeds are per direction, in 10^9 bytes a second, 0 where they are not told.
struct node_kind {
  index_t count = 1;
  index_t nics = 0;              // of a node; 0: one for every GPU
  double nvlink_GBps = 0;        // of a GPU
  double nic_GBps = 0;           // of a NIC
  double copy_GBps = 0;          // of a GPU's copy engine, read plus write
  double spine_GBps = no_limit;  // of a node, between NICs of different numbers; 0: they do not meet

  friend constexpr bool operator==(const node_kind&, const node_kind&) = default;
};

namespace detail {
/// Throws "<what> is <value><rest>".
[[noreturn]] inline void refuse_speed(std::string_view what, double value, std::string_view rest) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%g", value);
  refuse("cluster: ", what, " is ", std::string(digits), rest);
}
constexpr void require_speed(std::string_view what, double value) {
  constexpr double least_speed = 1e-9, greatest_speed = 1e9;
  if (!(value >= least_speed && value <= greatest_speed))
    refuse_speed(what, value, "; a speed is above 0, from 1e-9 to 1e9 GB/s");
}
constexpr void require_time(std::string_view what, double value) {
  constexpr double longest = 1e12;
  if (!(value >= 0 && value <= longest)) refuse_speed(what, value, "; a time is 0 to 1e12 microseconds");
}
}  // namespace detail

/// Nodes of so many GPUs. Those of `nodes` in their order; or, where it is empty, as many of `each` as are needed.
struct cluster {
  index_t gpus = 0;  // of a node; 0: all devices share one
  node_kind each = {};
  std::vector<node_kind> nodes = {};
  double message_us = 10;  // what a message costs whoever sends or receives it
  double stage_us = 50;    // what a slot costs

  /// Whether its speeds are told; a shape has none.
  constexpr bool has_speeds() const { return (nodes.empty() ? each : nodes.front()).nic_GBps > 0; }

  /// sum of counts; 0 where there are as many as are needed.
  constexpr index_t node_count() const {
    index_t count = 0;
    for (const node_kind& kind : nodes) count = checked_add(count, kind.count);
    return count;
  }
  constexpr const node_kind& kind_of(index_t node) const {
    for (const node_kind& kind : nodes) {
      if (node < kind.count) return kind;
      node -= kind.count;
    }
    return nodes.empty() ? each : nodes.back();
  }

  /// floor(device / gpus)
  constexpr index_t node_of(rank_t device) const { return gpus == 0 ? 0 : device / gpus; }
  /// The number of the NIC that a device uses, its rail: floor(g nics / gpus) for GPU g of a node.
  constexpr index_t nic_of(rank_t device) const {
    if (gpus == 0) return device;
    const index_t nics = kind_of(node_of(device)).nics, gpu = device % gpus;
    return nics == 0 ? gpu : gpu * nics / gpus;
  }
  constexpr bool one_node(rank_t a, rank_t b) const { return node_of(a) == node_of(b); }
  /// Whether what passes between two devices goes from a NIC of one number to one of another.
  constexpr bool crosses_rails(rank_t a, rank_t b) const { return !one_node(a, b) && nic_of(a) != nic_of(b); }

  /// This cluster with all of its nodes listed: those that there are, or those that so many devices need.
  constexpr cluster for_devices(rank_t devices) const {
    cluster listed = *this;
    if (gpus == 0 || !nodes.empty()) return listed;
    listed.nodes = {each};
    listed.nodes.front().count = greatest(1, ceil_divide(devices, gpus));
    return listed;
  }
  /// node_count() gpus; 0 where there are as many as are needed.
  constexpr rank_t devices() const { return checked_multiply(node_count(), gpus); }

  friend constexpr bool operator==(const cluster&, const cluster&) = default;
};

/// Nodes of so many devices without speeds, as many nodes as are needed.
constexpr cluster nodes_of(index_t gpus) { return {.gpus = gpus}; }

namespace detail {
constexpr void require_node_kind(const node_kind& kind, index_t gpus, bool speeds) {
  if (kind.count < 1) refuse("cluster: ", kind.count, " nodes of a kind; there is at least 1");
  if (kind.nics < 0 || kind.nics > gpus)
    refuse("cluster: a node of ", gpus, " GPUs has ", kind.nics, " NICs; it has 1 to ", gpus);
  if (!speeds && kind.nvlink_GBps == 0 && kind.nic_GBps == 0 && kind.copy_GBps == 0) return;
  require_speed("nvlink_GBps", kind.nvlink_GBps);
  require_speed("nic_GBps", kind.nic_GBps);
  require_speed("copy_GBps", kind.copy_GBps);
  if (kind.spine_GBps != 0 && kind.spine_GBps != no_limit) require_speed("spine_GBps", kind.spine_GBps);
}
}  // namespace detail

/// Refuses a cluster with a count, speed or time that is none, more NICs than GPUs, speeds for some nodes alone, or
/// fewer devices than are named.
constexpr void require_cluster(const cluster& on, rank_t named) {
  if (on.gpus < 0) refuse("cluster: a node of ", on.gpus, " devices");
  if (on.gpus == 0) return;
  detail::require_node_kind(on.nodes.empty() ? on.each : on.nodes.front(), on.gpus, false);
  for (const node_kind& kind : on.nodes) detail::require_node_kind(kind, on.gpus, on.has_speeds());
  detail::require_time("message_us", on.message_us);
  detail::require_time("stage_us", on.stage_us);
  if (!on.nodes.empty() && on.devices() < named)
    refuse("cluster: ", on.node_count(), " nodes of ", on.gpus, " have ", on.devices(), " devices, but device ",
           named - 1, " is named");
}

/// Clusters that a person names, with a NIC for every GPU and no limit between rails. GB200's nodes are domains of 72.
namespace clusters {
/// NVLink 160 GB/s, NICs 25 GB/s.
inline constexpr cluster a800{.gpus = 8, .each = {.nvlink_GBps = 160, .nic_GBps = 25, .copy_GBps = 1300}};
/// NVLink 370 GB/s, NICs 49 GB/s.
inline constexpr cluster h100{.gpus = 8, .each = {.nvlink_GBps = 370, .nic_GBps = 49, .copy_GBps = 2600}};
/// H100's links, and faster copies.
inline constexpr cluster h200{.gpus = 8, .each = {.nvlink_GBps = 370, .nic_GBps = 49, .copy_GBps = 4300}};
/// Domains of 72: NVLink 720 GB/s, NICs 49 GB/s.
inline constexpr cluster gb200{.gpus = 72, .each = {.nvlink_GBps = 720, .nic_GBps = 49, .copy_GBps = 7000}};
}  // namespace clusters

/// One of them by name.
struct named_cluster {
  std::string_view name;
  const cluster* value;
};
/// Clusters that a command line may name.
inline constexpr named_cluster all_named_clusters[] = {
    {"a800", &clusters::a800}, {"h100", &clusters::h100}, {"h200", &clusters::h200}, {"gb200", &clusters::gb200}};

}  // namespace reshard
