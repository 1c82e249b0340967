// SPDX-License-Identifier: Apache-2.0
// Clusters thrown by dice, and what passes which of their ports, by the contract's words: counted up, not divided.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <reshard/cost/slot_traffic.hpp>
#include <reshard/plan/layout_switch.hpp>
#include <reshard/space/listed_holding.hpp>

#include "dice.hpp"
#include "whole_on.hpp"

namespace testing {

/// At least so many devices, on nodes that differ: fewer NICs than GPUs, spines with a limit, without, or not meeting.
inline reshard::cluster any_cluster(dice& random, reshard::rank_t devices) {
  const auto speed = [&] { return static_cast<double>(random.within(1, 9)) * 1e-6; };  // what moves is tiny
  reshard::cluster on{.gpus = random.within(1, 4),
                      .message_us = static_cast<double>(random.below(4)),
                      .stage_us = static_cast<double>(random.below(4))};
  for (reshard::index_t there = 0; there * on.gpus < devices; there += on.nodes.back().count) {
    const std::int64_t spine = random.below(4);
    on.nodes.push_back({.count = random.within(1, 2),
                        .nics = random.below(on.gpus + 1),
                        .nvlink_GBps = speed(),
                        .nic_GBps = speed(),
                        .copy_GBps = speed() * 3,
                        .spine_GBps = spine == 0   ? 0
                                      : spine == 1 ? reshard::no_limit
                                                   : speed()});
  }
  return on;
}

/// Injective: so many of the devices 0 .. devices - 1, in any order.
inline std::vector<reshard::rank_t> any_seats(dice& random, reshard::rank_t ranks, reshard::rank_t devices) {
  std::vector<reshard::rank_t> free, seats;
  for (reshard::rank_t d = 0; d < devices; ++d) free.push_back(d);
  for (reshard::rank_t r = 0; r < ranks; ++r) {
    const auto at = free.begin() + random.below(static_cast<std::int64_t>(free.size()));
    seats.push_back(*at);
    free.erase(at);
  }
  return seats;
}

/// One tensor, whole on every rank of both sides: who sits where is what matters.
inline auto seated(const std::vector<reshard::rank_t>& from, const std::vector<reshard::rank_t>& to,
                   const reshard::cluster& on, const std::vector<reshard::rank_t>& lost,
                   const std::vector<reshard::rank_t>& empty) {
  return reshard::layout_switch(whole_on(static_cast<reshard::rank_t>(from.size()), "w", {2, 2}),
                                whole_on(static_cast<reshard::rank_t>(to.size()), "w", {2, 2}),
                                {.from = reshard::device_map(from),
                                 .to = reshard::device_map(to),
                                 .on = on,
                                 .lost = lost,
                                 .lost_elements = reshard::when_lost::leave_out,
                                 .empty = empty});
}

/// A kind and, of a NIC, a node and its number; of a spine, a node; else a device.
using port_in_words = std::tuple<std::string, reshard::index_t, reshard::index_t>;

/// A cluster node by node, and what the contract says of its ports.
struct links_in_words {
  reshard::index_t gpus;
  std::vector<reshard::node_kind> nodes;

  explicit links_in_words(const reshard::cluster& on) : gpus(on.gpus) {
    for (const reshard::node_kind& kind : on.nodes)
      nodes.insert(nodes.end(), static_cast<std::size_t>(kind.count), kind);
  }
  reshard::index_t node_of(reshard::rank_t device) const {
    reshard::index_t node = 0;
    while ((node + 1) * gpus <= device) ++node;
    return node;
  }
  const reshard::node_kind& node(reshard::rank_t device) const {
    return nodes.at(static_cast<std::size_t>(node_of(device)));
  }
  reshard::index_t nic_of(reshard::rank_t device) const {
    const reshard::index_t gpu = device - node_of(device) * gpus;
    const reshard::index_t nics = node(device).nics == 0 ? gpus : node(device).nics;
    reshard::index_t nic = 0;
    while ((nic + 1) * gpus <= gpu * nics) ++nic;
    return nic;
  }
  bool across(reshard::rank_t a, reshard::rank_t b) const { return node_of(a) != node_of(b) && nic_of(a) != nic_of(b); }
  bool apart(reshard::rank_t a, reshard::rank_t b) const {
    return across(a, b) && std::min(node(a).spine_GBps, node(b).spine_GBps) == 0;
  }
  port_in_words nic(const char* way, reshard::rank_t d) const { return {way, node_of(d), nic_of(d)}; }
  port_in_words spine(const char* way, reshard::rank_t d) const { return {way, node_of(d), 0}; }
  /// What bytes from one device to another pass, in bytes a second.
  std::map<port_in_words, double> between(reshard::rank_t src, reshard::rank_t dst) const {
    std::map<port_in_words, double> ports;
    if (node_of(src) == node_of(dst)) {
      ports[{"nvlink_out", src, 0}] = 1e9 * node(src).nvlink_GBps;
      ports[{"nvlink_in", dst, 0}] = 1e9 * node(dst).nvlink_GBps;
      return ports;
    }
    ports[nic("nic_out", src)] = 1e9 * node(src).nic_GBps;
    ports[nic("nic_in", dst)] = 1e9 * node(dst).nic_GBps;
    if (across(src, dst)) {
      if (node(src).spine_GBps != reshard::no_limit) ports[spine("spine_out", src)] = 1e9 * node(src).spine_GBps;
      if (node(dst).spine_GBps != reshard::no_limit) ports[spine("spine_in", dst)] = 1e9 * node(dst).spine_GBps;
    }
    return ports;
  }
};

/// What is in a slot, in seconds by port and as messages: from, to, phase.
struct slot_in_words {
  std::map<port_in_words, double> seconds;
  std::set<std::tuple<reshard::rank_t, reshard::rank_t, int>> messages;

  void copies(const links_in_words& on, reshard::rank_t device, double bytes) {
    seconds[{"copy", device, 0}] += 2 * bytes / (1e9 * on.node(device).copy_GBps);
  }
  void passes(const links_in_words& on, reshard::rank_t src, reshard::rank_t dst, double bytes) {
    for (const auto& [port, bytes_per_second] : on.between(src, dst)) seconds[port] += bytes / bytes_per_second;
  }
  double longest() const {
    double most = 0;
    for (const auto& [port, of_port] : seconds) most = std::max(most, of_port);
    return most;
  }
  /// The most that a device sends, or receives.
  reshard::index_t most_messages() const {
    std::map<reshard::rank_t, reshard::index_t> sent, received;
    reshard::index_t most = 0;
    for (const auto& [src, dst, phase] : messages) most = std::max({most, ++sent[src], ++received[dst]});
    return most;
  }
};

/// A switch of few devices on any cluster; now and then some devices of FROM are lost, or empty.
struct any_world {
  std::vector<reshard::rank_t> from, to, lost, empty, part;
  reshard::cluster on;

  any_world(dice& random, bool meet) {
    const reshard::rank_t devices = random.within(2, 12);
    from = any_seats(random, random.within(1, devices), devices);
    to = any_seats(random, random.within(1, devices), devices);
    on = any_cluster(random, devices);
    for (reshard::node_kind& kind : on.nodes) kind.spine_GBps = meet && kind.spine_GBps == 0 ? 1e-6 : kind.spine_GBps;
    for (reshard::rank_t d = 0; d < devices; ++d) {
      const bool before = std::find(from.begin(), from.end(), d) != from.end(),
                 after = std::find(to.begin(), to.end(), d) != to.end();
      const bool gone = before && !after && random.below(4) == 0, stale = before && !gone && random.below(8) == 0;
      if (gone) lost.push_back(d);
      if (stale) empty.push_back(d);
      if (after || (before && !gone && !stale)) part.push_back(d);
    }
  }
  auto change() const { return seated(from, to, on, lost, empty); }
  reshard::rank_t any(dice& random) const { return part[static_cast<std::size_t>(random.below(std::ssize(part)))]; }
};

/// What a port of the table is in words.
inline port_in_words in_words(const reshard::port& p, const links_in_words& words) {
  const std::string kind(reshard::port_names[static_cast<std::size_t>(p.kind)]);
  if (kind.starts_with("nic")) return {kind, words.node_of(p.device), words.nic_of(p.device)};
  if (kind.starts_with("spine")) return {kind, words.node_of(p.device), 0};
  return {kind, p.device, 0};
}

/// Bytes of each message of a slot: from, to, phase.
using traffic_in_words = std::map<std::tuple<reshard::rank_t, reshard::rank_t, int>, reshard::bytes_t>;

/// A device's traffic is what these say.
inline void check_traffic(const reshard::device_traffic& told, const links_in_words& words, reshard::rank_t device,
                          const traffic_in_words& moved) {
  reshard::device_traffic wanted;
  for (const auto& [message, bytes] : moved) {
    const auto& [src, dst, phase] = message;
    if (src != device && dst != device) continue;
    const bool near = words.node_of(src) == words.node_of(dst), out = src == device;
    reshard::port_traffic& port =
        near ? (out ? wanted.nvlink_out : wanted.nvlink_in) : (out ? wanted.nic_out : wanted.nic_in);
    port.bytes += bytes, ++port.messages, port.across_rails += words.across(src, dst) ? bytes : 0;
  }
  CHECK(told.nic_out == wanted.nic_out);
  CHECK(told.nic_in == wanted.nic_in);
  CHECK(told.nvlink_out == wanted.nvlink_out);
  CHECK(told.nvlink_in == wanted.nvlink_in);
  CHECK(told.by(reshard::port_kind::nic_out) == wanted.nic_out);
  CHECK(told.by(reshard::port_kind::nic_in) == wanted.nic_in);
  CHECK(told.by(reshard::port_kind::nvlink_out) == wanted.nvlink_out);
  CHECK(told.by(reshard::port_kind::nvlink_in) == wanted.nvlink_in);
}

}  // namespace testing
