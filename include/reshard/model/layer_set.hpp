// SPDX-License-Identifier: Apache-2.0
// Which global layers a tensor family has: a strictly increasing map from member to layer, and back. Pipeline cuts are
// made on global layers and pulled back through it, so dense layers among MoE ones are no special case.
// Builds on: algebra/interval.hpp.
#pragma once

#include <bit>

#include <reshard/algebra/interval.hpp>

namespace reshard {

/// A subset of the layers [0, layers). All of them without a limit; a proper subset of at most `capacity` layers.
class layer_set {
 public:
  static constexpr index_t capacity = 1024;

  constexpr layer_set() = default;
  static constexpr layer_set all(index_t layers) {
    layer_set result;
    result.members_ = layers;
    result.uniform_ = true;
    return result;
  }
  static constexpr layer_set none() { return {}; }

  /// Adds a layer, each larger than the one before.
  constexpr void append(index_t layer) {
    if (layer < 0 || layer >= capacity)
      refuse("layer ", layer, " of a model whose layers differ: at most ", capacity, " layers are supported there");
    ++members_;
    word_[layer / 64] |= std::uint64_t{1} << (layer % 64);
    for (index_t w = layer / 64 + 1; w <= capacity / 64; ++w) below_[w] = members_;
  }

  constexpr index_t size() const { return members_; }

  /// | { members < layer } |: pulls a cut of global layers back to members.
  constexpr index_t members_below(index_t layer) const {
    if (uniform_ || members_ == 0) return least(layer, members_);
    if (layer >= capacity) return members_;
    const std::uint64_t lower = (std::uint64_t{1} << (layer % 64)) - 1;
    return below_[layer / 64] + std::popcount(word_[layer / 64] & lower);
  }

  /// Members whose layers lie in `layers`: the interval pulled back.
  constexpr interval members_within(interval layers) const {
    if (uniform_) return intersect(layers, {0, members_});
    return {members_below(layers.begin), members_below(layers.end)};
  }

  /// The global layer of a member: the inverse, members_below(layer_of(i)) == i.
  constexpr index_t layer_of(index_t member) const {
    if (uniform_) return member;
    index_t w = 0;
    while (below_[w + 1] <= member) ++w;
    std::uint64_t rest = word_[w];
    for (index_t skip = member - below_[w]; skip > 0; --skip) rest &= rest - 1;
    return w * 64 + std::countr_zero(rest);
  }

  constexpr bool contains(index_t layer) const { return members_below(layer + 1) > members_below(layer); }

 private:
  index_t members_ = 0;
  bool uniform_ = false;
  std::uint64_t word_[capacity / 64 + 1] = {};
  index_t below_[capacity / 64 + 1] = {};
};

}  // namespace reshard
