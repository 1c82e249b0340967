// SPDX-License-Identifier: Apache-2.0
//
// The oracle, on relabelling: every permutation of TO's ranks over TO's devices that the contract admits, judged by
// every byte on every device. Brute force and obvious on purpose.
#pragma once

#include "link_time.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace oracle {

struct relabelled {
  double seconds = 0;  // the largest over nodes of max(I, O) / bandwidth of the NICs
  long retained = 0;
};

// Bytes by the devices that held them and the ranks of TO that need them.
struct relabel_question {
  link_cluster c;
  std::vector<long> to_devices;  // of each rank, before
  std::set<long> part;           // the devices that take part
  std::map<std::pair<std::set<long>, std::set<long>>, long> bytes;

  relabel_question(const link_cluster& on, const whereabouts& where, std::vector<long> devices, std::set<long> taking)
      : c(on), to_devices(std::move(devices)), part(std::move(taking)) {
    where.each_element(
        [&](state, const std::string&, long width, const std::vector<long>& had, const std::vector<long>& needs) {
          std::set<long> ranks;
          for (long d : needs) ranks.insert(std::find(to_devices.begin(), to_devices.end(), d) - to_devices.begin());
          bytes[{std::set<long>(had.begin(), had.end()), ranks}] += width;
        });
  }

  relabelled judge(const std::vector<long>& devices) const {
    std::map<long, double> into, out_of, nics;
    relabelled result;
    for (const auto& [who, count] : bytes) {
      std::set<long> nodes_before, nodes_after;
      for (long d : who.first) nodes_before.insert(c.node_of(d));
      for (long rank : who.second) {
        nodes_after.insert(c.node_of(devices.at(index(rank))));
        if (who.first.count(devices.at(index(rank))) != 0) result.retained += count;
      }
      for (long y : nodes_after)
        if (nodes_before.count(y) == 0) into[y] += static_cast<double>(count);
      for (long y : nodes_before) {
        std::set<long> others = nodes_after;
        others.erase(y);
        if (nodes_before.size() == 1 && !others.empty()) out_of[y] += static_cast<double>(count);
      }
    }
    std::set<std::pair<long, long>> counted;
    for (long d : part)
      if (counted.insert({c.node_of(d), c.nic_of(d)}).second) nics[c.node_of(d)] += c.node(d).nic * 1e9;
    for (const auto& [y, count] : into) result.seconds = std::max(result.seconds, count / nics.at(y));
    for (const auto& [y, count] : out_of) result.seconds = std::max(result.seconds, count / nics.at(y));
    return result;
  }

  // Ranks that share a node before share one after, and those with one GPU number have one after.
  bool keeps_nodes_and_rails(const std::vector<long>& devices) const {
    for (std::size_t a = 0; a < devices.size(); ++a)
      for (std::size_t b = 0; b < a; ++b) {
        if (c.node_of(to_devices[a]) == c.node_of(to_devices[b]) && c.node_of(devices[a]) != c.node_of(devices[b]))
          return false;
        if (to_devices[a] % c.gpus == to_devices[b] % c.gpus && devices[a] % c.gpus != devices[b] % c.gpus)
          return false;
      }
    return true;
  }
  // Ranks of one group that share a node before share one after.
  bool keeps_groups(const std::vector<long>& devices, const std::vector<long>& group_of) const {
    for (std::size_t a = 0; a < devices.size(); ++a)
      for (std::size_t b = 0; b < a; ++b)
        if (group_of[a] == group_of[b] && c.node_of(to_devices[a]) == c.node_of(to_devices[b]) &&
            c.node_of(devices[a]) != c.node_of(devices[b]))
          return false;
    return true;
  }
  bool same_devices(std::vector<long> devices) const {
    std::vector<long> given = to_devices;
    std::sort(given.begin(), given.end());
    std::sort(devices.begin(), devices.end());
    return devices == given;
  }

  // Calls visit(devices) with every order of TO's devices over TO's ranks.
  template <typename Visit>
  void each_order(Visit&& visit) const {
    std::vector<long> devices = to_devices;
    std::sort(devices.begin(), devices.end());
    do visit(devices);
    while (std::next_permutation(devices.begin(), devices.end()));
  }
  // With every permutation of nodes and of GPU numbers that leaves TO's devices who they are.
  template <typename Visit>
  void each_of_nodes_and_numbers(Visit&& visit) const {
    std::set<long> node_set, gpu_set;
    for (long d : to_devices) node_set.insert(c.node_of(d)), gpu_set.insert(d % c.gpus);
    const std::vector<long> nodes(node_set.begin(), node_set.end()), gpus(gpu_set.begin(), gpu_set.end());
    std::vector<long> to_node = nodes;
    do {
      std::vector<long> to_gpu = gpus;
      do {
        std::map<long, long> node, gpu;
        for (std::size_t i = 0; i < nodes.size(); ++i) node[nodes[i]] = to_node[i];
        for (std::size_t i = 0; i < gpus.size(); ++i) gpu[gpus[i]] = to_gpu[i];
        std::vector<long> devices;
        for (long d : to_devices) devices.push_back(node[c.node_of(d)] * c.gpus + gpu[d % c.gpus]);
        if (same_devices(devices)) visit(devices);
      } while (std::next_permutation(to_gpu.begin(), to_gpu.end()));
    } while (std::next_permutation(to_node.begin(), to_node.end()));
  }
};

// The least seconds of all that were seen, and the most retained among those.
struct best_relabelled {
  relabelled best{1e300, -1};
  long seen = 0;
  void see(const relabelled& one) {
    ++seen;
    if (one.seconds < best.seconds * (1 - 1e-12)) best = one;
    else if (one.seconds <= best.seconds * (1 + 1e-12)) best.retained = std::max(best.retained, one.retained);
  }
};

}  // namespace oracle
