// SPDX-License-Identifier: Apache-2.0
// Hops of a switch with relay as one node sees them: which are wanted, and how a piece, or a part of one, that no other
// node is sent passes from the h devices here that hold it to the l that lack it:
//   h >= l   holders send it to each of the l in phase 0, and share it by plan/detail/source.hpp;
//   h < l    holders scatter it over the l in phase 0, at most a part each, which exchange the parts in phase 1.
// Builds on: base/sink.hpp, plan/relay/holder_key.hpp, plan/detail/source.hpp, plan/transfer.hpp.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include <reshard/base/sink.hpp>
#include <reshard/plan/detail/source.hpp>
#include <reshard/plan/relay/holder_key.hpp>
#include <reshard/plan/transfer.hpp>

namespace reshard::detail {

/// Along which axis a box is cut among so many: the first, of layers, experts, parts, rows and columns, along which no
/// part is 17/1024 of the mean, or more, above it; else that with the least.
constexpr int even_axis(const family_box& b, index_t parts) {
  int best = axis_of::layer;
  index_t best_excess = std::numeric_limits<index_t>::max();  // of the largest part, in 1/1024 of the mean
  for (int axis = 0; axis < family_ndim; ++axis) {
    const index_t extent = b.dim[axis].size();
    const index_t largest = ceil_divide(extent, parts) * parts;
    const index_t excess = (largest - extent) * 1024 / extent;
    if (excess <= 16) return axis;
    if (excess < best_excess) best = axis, best_excess = excess;
  }
  return best;
}

/// Which hops a caller wants: those of one device; or, without one, all that end on a node, or all by which its holders
/// send what they hold to other nodes.
struct wanted_hops {
  index_t node = 0;
  rank_t device = -1;
  bool from_holders = false;
};

using hop_sink = sink<const transfer&>;

/// What a router knows of the node that it is at.
class node_hops {
 protected:
  explicit node_hops(const hop_sink& sink) : sink_(&sink) {}

  /// From here on, hops of this node, which has these devices.
  void enter(const wanted_hops& wanted, interval devices) {
    wanted_ = wanted, devices_ = devices;
    holds_.assign(static_cast<std::size_t>(devices.size()), 0), needs_ = holds_;
  }
  /// From here on, hops of this piece of a family.
  void take_up(int f, const family& tensors, const family_box& piece) {
    family_ = f, tensors_ = tensors, piece_ = piece;
  }

  std::size_t place(rank_t device) const { return static_cast<std::size_t>(device - devices_.begin); }

  /// What holders of the node have for devices of the node, and for no other. `key` is that of the piece, alike at both
  /// ends: streams are told by it.
  void within_node(const family_box& part, std::uint64_t key) {
    const index_t having = static_cast<index_t>(holding_.size()), lacking = static_cast<index_t>(lacking_.size());
    if (having >= lacking) {
      const piece_cut cut = cut_piece(part, tensors_, having, lacking);
      for (index_t q = 0; q < cut.parts; ++q) {
        const std::uint64_t parts = static_cast<std::uint64_t>(cut.parts) << 32 | static_cast<std::uint64_t>(q);
        for (index_t k = 0; k < lacking; ++k)
          hop(holding_[static_cast<std::size_t>(holder_of_part(k, q, cut.parts, having))],
              lacking_[static_cast<std::size_t>(k)], 0, purpose::delivered, mixed_key(mixed_key(key, 1), parts) | 1,
              cut.part(part, q));
      }
      return;
    }
    const int axis = even_axis(part, lacking);
    for (index_t k = 0; k < lacking; ++k) {
      family_box box = part;
      box.dim[axis] = even_part(part.dim[axis], k, lacking);
      if (box.dim[axis].empty()) continue;
      const rank_t first = lacking_[static_cast<std::size_t>(k)];
      const std::uint64_t stream = mixed_key(mixed_key(key, 0), static_cast<std::uint64_t>(k)) | 1;
      hop(holding_[static_cast<std::size_t>(k % having)], first, 0, purpose::delivered, stream, box);
      for (const rank_t device : lacking_)
        if (device != first) hop(first, device, 1, purpose::delivered, stream, box);
    }
  }

  /// Gives one hop to the sink, if it is wanted.
  void hop(rank_t src, rank_t dst, index_t phase, purpose why, std::uint64_t stream, const family_box& box) {
    if (wanted_.device >= 0 ? wanted_.device != src && wanted_.device != dst
                            : devices_.contains(dst) == wanted_.from_holders)
      return;
    if (phase > most_phases)
      refuse("relay: a byte would pass ", phase, " devices one after the other; at most ", most_phases,
             ", so that more chains are needed");
    (*sink_)(transfer{src, dst, states_, family_, box, static_cast<int>(phase), why, stream});
  }

  wanted_hops wanted_;
  state_set states_;
  family_box piece_;
  family tensors_;                            // the family of piece_
  std::vector<rank_t> holding_, lacking_;     // devices of the node, of one piece
  std::vector<unsigned char> holds_, needs_;  // the same by place

 private:
  const hop_sink* sink_;
  interval devices_;
  int family_ = 0;
};

}  // namespace reshard::detail
