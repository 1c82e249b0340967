// SPDX-License-Identifier: Apache-2.0
// From which nodes to which nodes a piece goes, by its holders and its destinations. With n nodes that hold it and F
// chains each, d nodes of destinations, and d' of these that do not hold it:
//   d' <= F n   holders share the d, and nothing is sent to those that hold it;
//   d' > F n    holders share the first F n of the d'; each of the others has it from the node F n before it.
// Builds on: plan/device_map.hpp, plan/relay/holder_key.hpp, plan/relay/node_sets.hpp.
#pragma once

#include <cstdint>
#include <list>
#include <map>

#include <reshard/plan/device_map.hpp>
#include <reshard/plan/relay/holder_key.hpp>
#include <reshard/plan/relay/node_sets.hpp>

namespace reshard::detail {

/// The nodes of a piece, and how it goes from one to the next.
struct node_route {
  const node_set* holders = nullptr;
  const node_set* all = nullptr;           // that destinations are on
  const needing_nodes* needing = nullptr;  // where chains are needed
  index_t heads = 0;                       // destinations that holders share
  std::uint64_t key = 0;
};

/// Routes between nodes of so many devices, with so many chains a node that holds; each is made once for two sets of
/// ranks. Both maps of devices outlive it.
class node_routes {
 public:
  node_routes(const device_map& from, const device_map& to, index_t gpus, index_t chains)
      : from_(&from), to_(&to), gpus_(gpus), chains_(chains) {}
  node_routes(const node_routes&) = delete;  // routes point into it

  /// The route from these nodes to those; stays where it is as long as this does.
  template <Holders Having, Holders Wanting>
  const node_route& between(const Having& holders, const Wanting& destinations) {
    const std::uint64_t having = holder_key(holders), wanting = holder_key(destinations);
    const std::uint64_t key = mixed_key(having, wanting);
    if (const auto found = routes_.find(key); found != routes_.end()) return found->second;
    node_route way;
    way.key = key;
    way.holders = nodes_of(mixed_key(having, 1), holders, *from_);
    way.all = nodes_of(mixed_key(wanting, 2), destinations, *to_);
    way.heads = way.all->count();
    if (const index_t most = checked_multiply(chains_, way.holders->count()); most < way.heads) {
      const needing_nodes& needing = needing_.emplace_back(*way.all, *way.holders);
      if (needing.count() > most) way.needing = &needing, way.heads = most;
    }
    return routes_.emplace(key, way).first->second;
  }

 private:
  template <Holders All>
  const node_set* nodes_of(std::uint64_t key, const All& all, const device_map& seats) {
    const auto found = nodes_.find(key);
    return &(found != nodes_.end() ? found : nodes_.emplace(key, nodes_of_holders(all, seats, gpus_)).first)->second;
  }

  const device_map* from_;
  const device_map* to_;
  index_t gpus_;
  index_t chains_;
  std::map<std::uint64_t, node_set> nodes_;
  std::map<std::uint64_t, node_route> routes_;
  std::list<needing_nodes> needing_;
};

}  // namespace reshard::detail
