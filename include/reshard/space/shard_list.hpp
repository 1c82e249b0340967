// SPDX-License-Identifier: Apache-2.0
// A world's shards in one value: what a framework gathers from all ranks and hands over.
// Builds on: space/shard.hpp.
#pragma once

#include <utility>
#include <vector>

#include <reshard/space/shard.hpp>

namespace reshard {

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
