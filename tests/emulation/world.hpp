// SPDX-License-Identifier: Apache-2.0
// What the ranks of a communicator share: a segment of memory where they post what their groups shall move, and the
// files of all their devices' memory. Nobody notices who died. And the meeting at which they get both.
// Builds on: memory.hpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nccl.h>

#include "memory.hpp"

namespace emulation {

inline constexpr int most_ranks = 64;
inline constexpr std::size_t most_segments = 1024;

/// What one rank's kernel says to one peer before anything moves: the pair's n-th message, this rank's side.
struct post {
  std::atomic<std::uint64_t> number;
  std::uint64_t sends, expects, kind;
  std::uint64_t sends_registered;  // the receiver looks whether its own is too
  std::uint64_t segments;          // of the memory of this rank's device where the peer writes
  segment at[most_segments];
};
/// From one rank to one peer. A post may be read until the peer has written its own of the same number: two suffice.
struct pair_state {
  std::atomic<std::uint32_t> greeted;  // first contact
  post posts[2];
  std::atomic<std::uint64_t> written;  // the number of the last message that is whole in the peer's memory
};
struct rank_state {
  std::atomic<std::uint32_t> finalized;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "between processes");

class world {
 public:
  world(int ranks, int segment_fd, std::vector<int> memory_fds);
  world(const world&) = delete;
  ~world();
  pair_state& from_to(int from, int to) const { return pairs_[from * ranks_ + to]; }
  rank_state& of(int rank) const { return states_[rank]; }
  /// A rank's physical memory, mapped here.
  std::byte* memory_of(int rank, std::uint64_t offset);
  int ranks() const { return ranks_; }

 private:
  int ranks_;
  std::size_t bytes_;
  void* at_ = nullptr;
  rank_state* states_ = nullptr;
  pair_state* pairs_ = nullptr;
  std::vector<std::byte*> memories_;
  std::vector<std::size_t> lengths_;
};

/// Begins the meeting of an id in this process, in a thread that serves until all ranks have come.
bool begin_meeting(ncclUniqueId& id);
struct met {
  ncclResult_t result = ncclInProgress;  // ncclInProgress: given up
  std::string why;
  std::unique_ptr<world> shared;
};
/// One rank's part; asks `given_up` now and then.
met meet(const ncclUniqueId& id, int ranks, int rank, const std::function<bool()>& given_up);

}  // namespace emulation
