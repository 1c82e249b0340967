// SPDX-License-Identifier: Apache-2.0
// The shared segment, and memory of peers.
#include "world.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emulation {

world::world(int ranks, int segment_fd, std::vector<int> memory_fds) : ranks_(ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  bytes_ = sizeof(rank_state) * n + 64 + sizeof(pair_state) * n * n;
  at_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, segment_fd, 0);
  if (at_ == MAP_FAILED) stop("the segment of a communicator can't be mapped");
  states_ = static_cast<rank_state*>(at_);  // zeros are a good beginning for all of it
  pairs_ = reinterpret_cast<pair_state*>(static_cast<std::byte*>(at_) + (sizeof(rank_state) * n + 63) / 64 * 64);
  ::close(segment_fd);
  for (const int fd : memory_fds) {
    struct stat file {};
    void* at = ::fstat(fd, &file) != 0 ? MAP_FAILED
                                       : ::mmap(nullptr, static_cast<std::size_t>(file.st_size), PROT_READ | PROT_WRITE,
                                                MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (at == MAP_FAILED) stop("a peer's memory can't be mapped");
    memories_.push_back(static_cast<std::byte*>(at));
    lengths_.push_back(static_cast<std::size_t>(file.st_size));
    ::close(fd);
  }
}
world::~world() {
  ::munmap(at_, bytes_);
  for (std::size_t i = 0; i < memories_.size(); ++i) ::munmap(memories_[i], lengths_[i]);
}
std::byte* world::memory_of(int rank, std::uint64_t offset) {
  return memories_[static_cast<std::size_t>(rank)] + offset;
}

}  // namespace emulation
