// SPDX-License-Identifier: Apache-2.0
// A shard as a framework describes it: which rank holds which rectangle of which named tensor; and the list of a
// world's shards. Ids and numbers, no pointers.
// Builds on: model/dtype.hpp, model/family.hpp.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <reshard/base/refusal.hpp>
#include <reshard/model/dtype.hpp>
#include <reshard/model/family.hpp>

namespace reshard {

/// Up to five numbers, one per dimension of a tensor.
struct extents {
  int ndim = 0;
  index_t at[family_ndim] = {};

  constexpr extents() = default;
  constexpr extents(std::initializer_list<index_t> list) {
    if (list.size() > family_ndim)
      refuse("a tensor of ", list.size(), " dimensions; at most ", family_ndim, " are supported");
    for (const index_t number : list) at[ndim++] = number;
  }
  friend constexpr bool operator==(const extents&, const extents&) = default;
};

/// What one rank holds of one tensor: { x : offset <= x < offset + shape }, of a tensor of extents `whole`. Its element
/// type is that of its state in the list of states.
struct shard {
  rank_t rank = 0;
  std::string tensor;
  dtype type = dtype::bf16;
  extents whole;
  extents offset;
  extents shape;
  std::string state = "param";
};

/// Shards of ranks 0 .. ranks() - 1; move a long list in.
class shard_list {
 public:
  /// The world is that of the highest rank named.
  shard_list(std::vector<shard> shards) : shards_(std::move(shards)) {
    for (const shard& s : shards_) ranks_ = greatest(ranks_, checked_add(s.rank, 1));
  }
  /// Ranks that are not named hold nothing.
  shard_list(std::vector<shard> shards, rank_t ranks) : shards_(std::move(shards)), ranks_(ranks) {}

  rank_t ranks() const { return ranks_; }
  const std::vector<shard>& shards() const { return shards_; }

 private:
  std::vector<shard> shards_;
  rank_t ranks_ = 0;
};

}  // namespace reshard
