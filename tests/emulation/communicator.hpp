// SPDX-License-Identifier: Apache-2.0
// A communicator: what it was told, the thread that works for it in the background, and what is in flight.
// Builds on: streams.hpp, world.hpp.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <nccl.h>

#include "streams.hpp"
#include "world.hpp"

namespace emulation {

/// One direction of what a group does with a peer.
struct message {
  std::byte* at = nullptr;
  std::size_t bytes = 0;
  bool registered = false;
};
struct with_peer {
  message sends, receives;
};
/// What one kernel moves: sends and receives of a group, or a collective made of such.
struct exchange {
  const char* name = "a group";
  std::uint64_t kind = 0;  // both ends must run the same
  std::map<int, with_peer> peers;
  std::function<void()> after;  // on the device, when all is there
};

}  // namespace emulation

/// Never freed, so that a stale handle is known.
struct ncclComm {
  std::size_t number = 0;
  int ranks = 0, rank = 0, device = 0;
  bool blocking = true;
  std::atomic<bool> aborted{false}, alive{true}, revoked{false};
  std::atomic<int> state{ncclInProgress};
  std::atomic<int> in_flight{0};  // kernels
  std::unique_ptr<emulation::world> shared;
  std::vector<std::uint64_t> posted;  // messages with each peer; of the stream's threads, one after the other
  std::vector<bool> met;              // of the background
  emulation::ticket_ptr last;         // kernel: those of one communicator never overlap
  std::size_t own_bytes = 0;
  bool finalize_called = false;
  std::string error = "no error";

  struct registration {
    std::byte* begin;
    std::size_t bytes;
  };
  std::map<std::uintptr_t, registration> registrations;

  // The background: jobs one after the other.
  std::mutex lock;
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;
  bool working = false, ends = false;
};

namespace emulation {

std::string text(const ncclComm* comm);
/// Stops at a handle that is none, or was destroyed or aborted.
ncclComm* alive(ncclComm* comm, const char* caller);
/// Also stops where it is still ncclInProgress; otherwise the code to answer, or ncclSuccess.
ncclResult_t ready(ncclComm* comm, const char* caller);
ncclComm* make_communicator(int ranks, int rank, bool blocking);
void in_background(ncclComm* comm, std::function<void()> job);
/// Waits for the background; where it takes longer than the host's patience, the test stops.
void await_background(ncclComm* comm, const char* caller, bool for_ever_is_a_fault);
void fails_with(ncclComm* comm, ncclResult_t result, const std::string& why);

/// Puts an exchange on the streams of a group, after first contact with whom it needs. In the background.
void start_exchange(ncclComm* comm, exchange what, std::vector<CUstream_st*> streams);
/// The kernel itself, on a stream's thread.
void run_exchange(ncclComm* comm, const exchange& what);

/// Of the group that this thread has begun.
struct group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  struct of_one {
    exchange messages;
    std::vector<exchange> collectives;
    std::vector<CUstream_st*> streams;
  };
  std::map<ncclComm*, of_one> parts;
  std::vector<ncclComm*> aborts, begun;
  int blocking = -1;   // as of its first communicator
  int exceptions = 0;  // under way in this thread when it began
};
group& this_group();
/// Adds an exchange outside of a group, or in one; what the call answers.
ncclResult_t add_message(ncclComm* comm, int peer, message m, bool sends, cudaStream_t stream, const char* caller);
ncclResult_t add_collective(ncclComm* comm, exchange what, cudaStream_t stream, const char* caller);
ncclResult_t begin_group();
ncclResult_t end_group();
void note_error(ncclResult_t result);

/// The second half of ncclCommAbort and ncclCommDestroy.
void reclaim(ncclComm* comm, const char* caller);
bool is_registered(const ncclComm* comm, const std::byte* at, std::size_t bytes);
void count_moved(const exchange& what, int rank);

}  // namespace emulation
