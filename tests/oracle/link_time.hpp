// SPDX-License-Identifier: Apache-2.0
//
// The oracle, on time: seconds of a list of moves on a cluster, slot by slot; floors and the baseline policy by looking
// at every byte on every device. Brute force and obvious on purpose.
#pragma once

#include "plan_check.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace oracle {

// One node of a cluster; GB/s per direction. A spine below 0 has no limit.
struct link_node {
  long nics;
  double nvlink, nic, copy, spine;
};

struct link_cluster {
  long gpus;
  std::vector<link_node> nodes;
  double message_us, stage_us;

  long node_of(long device) const { return device / gpus; }
  const link_node& node(long device) const { return nodes.at(index(node_of(device))); }
  long nic_of(long device) const {  // the n with n gpus / nics <= g, counted up
    const long g = device % gpus, nics = node(device).nics;
    long n = 0;
    while ((n + 1) * gpus <= g * nics) ++n;
    return n;
  }
  bool crosses_rails(long a, long b) const { return node_of(a) != node_of(b) && nic_of(a) != nic_of(b); }
  bool impossible(long a, long b) const { return crosses_rails(a, b) && (node(a).spine == 0 || node(b).spine == 0); }
};

using port_of_links = std::tuple<std::string, long, long>;  // kind, node, and device or NIC of it

// The ports that bytes from one device to another load, with their GB/s.
inline std::vector<std::pair<port_of_links, double>> ports_between(const link_cluster& c, long src, long dst) {
  const long from = c.node_of(src), to = c.node_of(dst);
  if (from == to)
    return {{{"nvlink_out", from, src}, c.node(src).nvlink}, {{"nvlink_in", to, dst}, c.node(dst).nvlink}};
  std::vector<std::pair<port_of_links, double>> ports{{{"nic_out", from, c.nic_of(src)}, c.node(src).nic},
                                                      {{"nic_in", to, c.nic_of(dst)}, c.node(dst).nic}};
  if (c.nic_of(src) != c.nic_of(dst)) {
    if (c.node(src).spine >= 0) ports.push_back({{"spine_out", from, 0}, c.node(src).spine});
    if (c.node(dst).spine >= 0) ports.push_back({{"spine_in", to, 0}, c.node(dst).spine});
  }
  return ports;
}

struct move {  // src == dst: retained
  long src, dst, bytes, stage;
};

struct link_seconds {
  double ports = 0, messages = 0, slots = 0;
  std::map<port_of_links, double> of_port;  // over all slots
  double total() const { return ports + messages + slots; }
};

// The contract's sum over slots, for one phase.
inline link_seconds seconds_of_moves(const link_cluster& c, const std::vector<move>& moves, long stages) {
  link_seconds sum;
  std::map<long, std::vector<move>> in_slot;
  for (const move& m : moves) in_slot[m.stage].push_back(m);
  for (long slot = 0; slot < stages; ++slot) {
    std::map<port_of_links, double> seconds;
    std::set<std::pair<long, long>> pairs;
    for (const move& m : in_slot[slot]) {
      const double gigabytes = static_cast<double>(m.bytes) / 1e9;
      seconds[{"copy", c.node_of(m.src), m.src}] += 2 * gigabytes / c.node(m.src).copy;
      if (m.src == m.dst) continue;
      seconds[{"copy", c.node_of(m.dst), m.dst}] += 2 * gigabytes / c.node(m.dst).copy;
      for (const auto& [port, speed] : ports_between(c, m.src, m.dst)) seconds[port] += gigabytes / speed;
      pairs.insert({m.src, m.dst});
    }
    double longest = 0;
    for (const auto& [port, of_port] : seconds) {
      longest = std::max(longest, of_port);
      sum.of_port[port] += of_port;
    }
    std::map<long, long> sent, received;
    long most = 0;
    for (const auto& [src, dst] : pairs) most = std::max({most, ++sent[src], ++received[dst]});
    sum.ports += longest;
    sum.messages += c.message_us * 1e-6 * static_cast<double>(most);
    sum.slots += c.stage_us * 1e-6;
  }
  return sum;
}

// Who holds every byte: (state, tensor) -> device -> elements, before and after. Lost devices hold nothing.
struct whereabouts {
  using elements_of_devices = std::map<long, flat_set>;
  std::map<std::pair<state, std::string>, elements_of_devices> before, after;

  whereabouts(const model& m, const layout& from, const layout& to, const std::vector<long>& from_devices,
              const std::vector<long>& to_devices, const std::vector<state>& states, const std::set<long>& lost) {
    const auto add = [&](auto& side, const layout& l, const std::vector<long>& devices) {
      for (long rank = 0; rank < length(devices); ++rank)
        for (const state s : states)
          if (lost.count(devices[index(rank)]) == 0)
            for (const auto& [name, set] : held(m, l, rank, s)) {
              flat_set& mine = side[{s, one_name(m, name)}][devices[index(rank)]];
              mine.resize(set.size(), 0);
              for (std::size_t i = 0; i < set.size(); ++i) mine[i] = static_cast<char>(mine[i] | set[i]);
            }
    };
    add(before, from, from_devices);
    add(after, to, to_devices);
  }

  // Calls visit(state, tensor, bytes, devices before, devices after) for every element that somebody held before.
  template <typename Visit>
  void each_element(Visit&& visit) const {
    for (const auto& [what, wanted] : after) {
      const auto found = before.find(what);
      if (found == before.end()) continue;
      const std::size_t elements = wanted.begin()->second.size();
      for (std::size_t i = 0; i < elements; ++i) {
        std::vector<long> had, needs;
        for (const auto& [device, set] : found->second)
          if (set[i] != 0) had.push_back(device);
        for (const auto& [device, set] : wanted)
          if (set[i] != 0) needs.push_back(device);
        if (!had.empty() && !needs.empty()) visit(what.first, what.second, width_of(what.first), had, needs);
      }
    }
  }
};

// The largest of the contract's floors. `part` are the devices that take part.
inline double floor_of(const link_cluster& c, const whereabouts& where, const std::set<long>& part) {
  std::map<long, double> into, out_of, lacks, from_node, to_node;  // bytes, by node or by device
  where.each_element(
      [&](state, const std::string&, long bytes, const std::vector<long>& had, const std::vector<long>& needs) {
        std::set<long> nodes_before, nodes_after;
        for (long d : had) nodes_before.insert(c.node_of(d));
        for (long d : needs) nodes_after.insert(c.node_of(d));
        for (long y : nodes_after)
          if (nodes_before.count(y) == 0) into[y] += static_cast<double>(bytes);
        if (nodes_before.size() == 1) {
          const long y = *nodes_before.begin();
          std::set<long> others = nodes_after;
          others.erase(y);
          if (!others.empty()) out_of[y] += static_cast<double>(bytes);
        }
        bool neighbour_lacks = false;
        for (long d : needs) {
          if (std::find(had.begin(), had.end(), d) != had.end()) continue;
          lacks[d] += static_cast<double>(bytes);
          if (nodes_before == std::set<long>{c.node_of(d)}) from_node[d] += static_cast<double>(bytes);
          if (c.node_of(d) == c.node_of(had[0])) neighbour_lacks = true;
        }
        if (had.size() == 1 && neighbour_lacks) to_node[had[0]] += static_cast<double>(bytes);
      });
  std::map<long, double> nics;  // bytes a second, of a node
  std::set<std::pair<long, long>> counted;
  for (long d : part)
    if (counted.insert({c.node_of(d), c.nic_of(d)}).second) nics[c.node_of(d)] += c.node(d).nic * 1e9;
  double most = 0;
  for (const auto& [y, bytes] : into) most = std::max(most, bytes / nics.at(y));
  for (const auto& [y, bytes] : out_of) most = std::max(most, bytes / nics.at(y));
  for (const auto& [d, bytes] : from_node) most = std::max(most, bytes / (c.node(d).nvlink * 1e9));
  for (const auto& [d, bytes] : to_node) most = std::max(most, bytes / (c.node(d).nvlink * 1e9));
  for (const auto& [d, bytes] : lacks) most = std::max(most, bytes / ((c.node(d).nvlink + c.node(d).nic) * 1e9));
  return most;
}

struct policy_seconds {
  bool possible = true;
  double naive = 0, synchronous = 0, asynchronous = 0;
};

// When the last meeting of a policy ends: every device has a list of peers, in XOR order; two meet as soon as each is
// the other's next and both are free.
template <typename Lasts>
double meetings_end(long devices, const std::set<std::pair<long, long>>& pairs, Lasts&& lasts) {
  long steps = 1;
  while (steps < devices) steps *= 2;
  std::vector<std::vector<long>> next(index(devices));
  for (long step = 1; step < steps; ++step)
    for (long a = 0; a < devices; ++a)
      if (const long b = a ^ step; b < devices && (pairs.count({a, b}) != 0 || pairs.count({b, a}) != 0))
        next[index(a)].push_back(b);
  std::vector<std::size_t> met(index(devices), 0);
  std::vector<double> free(index(devices), 0);
  double last = 0;
  for (bool any = true; any;) {
    any = false;
    for (long a = 0; a < devices; ++a) {
      if (met[index(a)] == next[index(a)].size()) continue;
      const long b = next[index(a)][met[index(a)]];
      if (next[index(b)].at(met[index(b)]) != a) continue;
      const double end = std::max(free[index(a)], free[index(b)]) + lasts(a, b);
      free[index(a)] = free[index(b)] = end;
      last = std::max(last, end);
      ++met[index(a)], ++met[index(b)];
      any = true;
    }
  }
  return last;
}

inline policy_seconds policy_of(const link_cluster& c, const whereabouts& where, const std::set<long>& part) {
  std::map<std::pair<long, long>, long> bytes;
  std::map<std::pair<long, long>, std::set<std::pair<state, std::string>>> tensors;
  where.each_element([&](state s, const std::string& tensor, long width, const std::vector<long>& had,
                         const std::vector<long>& needs) {
    for (long d : needs) {
      long source = *std::min_element(had.begin(), had.end());
      for (long h : had)
        if (c.node_of(h) == c.node_of(d) && (c.node_of(source) != c.node_of(d) || h < source)) source = h;
      if (std::find(had.begin(), had.end(), d) != had.end()) source = d;
      bytes[{source, d}] += width;
      if (source != d) tensors[{source, d}].insert({s, tensor});
    }
  });
  policy_seconds result;
  std::vector<move> moves;
  std::set<std::pair<long, long>> pairs;
  for (const auto& [pair, count] : bytes) {
    moves.push_back({pair.first, pair.second, count, 0});
    if (pair.first == pair.second) continue;
    pairs.insert(pair);
    if (c.impossible(pair.first, pair.second)) result.possible = false;
  }
  if (!result.possible) return result;
  const auto lasts = [&](long a, long b, bool naive) {
    const auto of = [](const auto& map, std::pair<long, long> pair) {
      const auto at = map.find(pair);
      return at == map.end() ? typename std::decay_t<decltype(map)>::mapped_type{} : at->second;
    };
    double slowest = 1e300;
    for (const auto& way : {std::pair(a, b), std::pair(b, a)})
      for (const auto& [port, speed] : ports_between(c, way.first, way.second)) slowest = std::min(slowest, speed);
    const double messages =
        naive ? static_cast<double>(std::max(of(tensors, {a, b}).size(), of(tensors, {b, a}).size())) : 1;
    return messages * c.message_us * 1e-6 +
           static_cast<double>(std::max(of(bytes, {a, b}), of(bytes, {b, a}))) / (slowest * 1e9);
  };
  const long devices = *part.rbegin() + 1;
  const double stage = c.stage_us * 1e-6;
  result.synchronous = meetings_end(devices, pairs, [&](long a, long b) { return lasts(a, b, false); }) + stage;
  result.naive = meetings_end(devices, pairs, [&](long a, long b) { return lasts(a, b, true); }) + stage;
  result.asynchronous = seconds_of_moves(c, moves, 1).total();
  return result;
}

}  // namespace oracle
