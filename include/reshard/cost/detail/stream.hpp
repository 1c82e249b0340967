// SPDX-License-Identifier: Apache-2.0
// Streams: all that one device sends one other, or keeps, for the states of one role, as a count of elements. Neither
// tensors nor stages are expanded: stage k of S has the k-th of S equal parts of each.
// Builds on: plan/plan.hpp, algebra/interval.hpp.
#pragma once

#include <vector>

#include <reshard/algebra/interval.hpp>
#include <reshard/plan/plan.hpp>

namespace reshard {

/// So many elements that go from src to dst, of `width` bytes in all states together; src == dst: retained.
struct sized_stream {
  rank_t src = 0;
  rank_t dst = 0;
  index_t elements = 0;
  bytes_t width = 0;

  constexpr bytes_t bytes() const { return elements * width; }
  /// Elements in stage k of S; min(elements, S) stages have any.
  constexpr index_t in_stage(index_t k, index_t stages) const { return even_part({0, elements}, k, stages).size(); }
  friend constexpr bool operator==(const sized_stream&, const sized_stream&) = default;
};

/// Appends what a device receives and retains: every stream of a switch once, where it arrives, those of a pair of
/// devices side by side.
constexpr void add_streams(const plan& p, std::vector<sized_stream>& streams) {
  for (const std::vector<transfer>* list : {&p.receives, &p.retains}) {
    const transfer* before = nullptr;
    for (const transfer& t : *list) {
      if (before == nullptr || before->src != t.src || before->states != t.states)
        streams.push_back({t.src, t.dst, 0, t.states.bytes_per_element()});
      streams.back().elements = checked_add(streams.back().elements, t.where.volume());
      before = &t;
    }
  }
}

}  // namespace reshard
