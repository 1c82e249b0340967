// SPDX-License-Identifier: Apache-2.0
//
// The oracle, on relay: seconds of transfers with stages and phases, slot by slot; the floor; and how evenly the NICs
// of a node work. Written from the contract alone (engine, "Seconds"); brute force and obvious on purpose.
#pragma once

#include "relay_replay.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace oracle::relay {

// Bytes that the copy engines of both ends copy for a hop: what the source held before, what the receiver keeps.
struct copied {
  long at_source = 0, at_destination = 0;
};
inline copied copied_of(const question& q, const hop& h) {
  copied c;
  const long width = q.tensors[index(h.what)].width;
  for (long element : h.elements)
    if (q.held(h.src, h.what, element)) c.at_source += width;
  if (!h.passed && h.src != h.dst) c.at_destination = length(h.elements) * width;
  return c;
}

// Adds the seconds that a hop takes at every port.
inline void add_ports(const question& q, const hop& h, std::map<port_of_links, double>& seconds) {
  const link_cluster& c = q.cluster;
  const copied bytes = copied_of(q, h);
  seconds[{"copy", c.node_of(h.src), h.src}] += 2e-9 * static_cast<double>(bytes.at_source) / c.node(h.src).copy;
  if (h.src == h.dst) return;
  seconds[{"copy", c.node_of(h.dst), h.dst}] += 2e-9 * static_cast<double>(bytes.at_destination) / c.node(h.dst).copy;
  const double moved = static_cast<double>(length(h.elements) * q.tensors[index(h.what)].width);
  for (const auto& [port, speed] : ports_between(c, h.src, h.dst)) seconds[port] += 1e-9 * moved / speed;
}

// The contract's sum over slots; phases as in the hops.
inline link_seconds seconds_of(const question& q, const std::vector<hop>& hops) {
  std::map<long, std::vector<const hop*>> in_slot;
  long phases = 1;
  for (const hop& h : hops) {
    in_slot[h.slot()].push_back(&h);
    phases = std::max(phases, h.phase + 1);
  }
  link_seconds sum;
  for (long slot = 0; slot < q.stages + phases - 1; ++slot) {
    std::map<port_of_links, double> seconds;
    std::set<std::tuple<long, long, long, long>> messages;
    for (const hop* h : in_slot[slot]) {
      add_ports(q, *h, seconds);
      if (h->src != h->dst) messages.insert({h->src, h->dst, h->stage, h->phase});
    }
    double longest = 0;
    for (const auto& [port, of_port] : seconds) {
      longest = std::max(longest, of_port);
      sum.of_port[port] += of_port;
    }
    std::map<long, long> sent, received;
    long most = 0;
    for (const auto& m : messages) most = std::max({most, ++sent[std::get<0>(m)], ++received[std::get<1>(m)]});
    sum.ports += longest;
    sum.messages += q.cluster.message_us * 1e-6 * static_cast<double>(most);
    sum.slots += q.cluster.stage_us * 1e-6;
  }
  return sum;
}

// GB/s of a node's NICs that count: those of the devices in `part`, which FROM or TO has a rank on.
inline std::map<long, double> nics_of_nodes(const link_cluster& c, const std::set<long>& part) {
  std::map<long, double> speed;
  std::set<std::pair<long, long>> counted;
  for (long d : part)
    if (counted.insert({c.node_of(d), c.nic_of(d)}).second) speed[c.node_of(d)] += c.node(d).nic;
  return speed;
}

// floor_seconds: the largest of the contract's floors.
inline double floor_of(const question& q, const std::set<long>& part) {
  std::map<long, long> into = lacked_by_nodes(q), out_of, from_node, to_node, lacks;
  q.each_element([&](long what, long element) {
    const long width = q.tensors[index(what)].width;
    std::set<long> holders, holder_nodes, wanting, wanting_nodes;
    for (const auto& of : q.before)
      if (q.held(of.first, what, element)) holders.insert(of.first), holder_nodes.insert(q.node_of(of.first));
    for (const auto& of : q.after)
      if (q.needs(of.first, what, element)) wanting.insert(of.first), wanting_nodes.insert(q.node_of(of.first));
    for (long y : holder_nodes) wanting_nodes.erase(y);
    if (holder_nodes.size() == 1 && !wanting_nodes.empty()) out_of[*holder_nodes.begin()] += width;
    bool neighbour = false;
    for (long d : wanting) {
      if (holders.count(d) != 0) continue;
      lacks[d] += width;
      if (holder_nodes == std::set<long>{q.node_of(d)}) from_node[d] += width;
      neighbour = neighbour || q.node_of(d) == q.node_of(*holders.begin());
    }
    if (holders.size() == 1 && neighbour) to_node[*holders.begin()] += width;
  });
  const std::map<long, double> nics = nics_of_nodes(q.cluster, part);
  double most = 0;
  const auto at = [&](const std::map<long, long>& bytes, auto&& speed) {
    for (const auto& [who, count] : bytes) most = std::max(most, 1e-9 * static_cast<double>(count) / speed(who));
  };
  for (const auto* bytes : {&into, &out_of}) at(*bytes, [&](long y) { return nics.at(y); });
  for (const auto* bytes : {&from_node, &to_node}) at(*bytes, [&](long d) { return q.cluster.node(d).nvlink; });
  at(lacks, [&](long d) { return q.cluster.node(d).nvlink + q.cluster.node(d).nic; });
  return most;
}

// Bytes by the NICs of a node that count, in one direction.
struct nic_work {
  long bytes = 0, busiest = 0, nics = 0;
  double over_mean() const {
    return static_cast<double>(busiest) * static_cast<double>(nics) / static_cast<double>(bytes);
  }
};

// By node and direction ("nic_out", "nic_in"), for moves between devices of any size.
inline std::map<std::pair<long, std::string>, nic_work> nic_works(const link_cluster& c, const std::set<long>& part,
                                                                  const std::vector<move>& moves) {
  std::map<port_of_links, long> by_nic;
  for (long d : part)
    for (const char* way : {"nic_out", "nic_in"}) by_nic[{way, c.node_of(d), c.nic_of(d)}];
  for (const move& m : moves) {
    if (c.node_of(m.src) == c.node_of(m.dst)) continue;
    by_nic[{"nic_out", c.node_of(m.src), c.nic_of(m.src)}] += m.bytes;
    by_nic[{"nic_in", c.node_of(m.dst), c.nic_of(m.dst)}] += m.bytes;
  }
  std::map<std::pair<long, std::string>, nic_work> works;
  for (const auto& [port, bytes] : by_nic) {
    nic_work& w = works[{std::get<1>(port), std::get<0>(port)}];
    w.bytes += bytes, w.busiest = std::max(w.busiest, bytes), ++w.nics;
  }
  return works;
}

}  // namespace oracle::relay
