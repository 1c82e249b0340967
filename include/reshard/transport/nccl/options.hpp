// SPDX-License-Identifier: Apache-2.0
// How an end of a world over NCCL works, as its caller says: how messages are exchanged and how long one may be, what
// arenas are, what NCCL is told of the communicator.
// Builds on: transport/exchange/moves.hpp and nccl.h.
#pragma once

#include <vector>

#include <nccl.h>

#include <reshard/transport/exchange/moves.hpp>

namespace reshard {

/// Whether arenas are registered with the communicator, so that a peer may write right into them; then no message lies
/// in a tensor. The same on all devices.
enum class arenas_are { plain, registered };

/// What a message over NCCL holds at most: a stage has one group, or several where it has more for a peer.
inline constexpr bytes_t nccl_round_bytes = bytes_t{256} << 20;

/// How an end of a world over NCCL works.
struct nccl_options {
  exchange_as how = exchange_as::asynchronous;
  bytes_t round_bytes = nccl_round_bytes;
  arenas_are arenas = arenas_are::plain;
  bytes_t fixed_bytes = -1;  // F: what the communicator takes on a device; below 0: as cudaMemGetInfo tells
  /// It never blocks, whatever is said here. Channels per peer are 8 where nobody says (as of NCCL 2.28): NCCL gives
  /// every peer, over NVLink too, as few as the slowest has, which are 2.
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  /// Where one is that is made, as a trainer has it: of all devices of the meeting that live, in ascending order, on
  /// this one's GPU; lent by all of them or none. It does nothing else meanwhile, and is its owner's again when this
  /// world has ended. Where that ends by fail(), or the communicator is not well then, it is aborted and *lent nullptr.
  /// Better one that does not block: a call of one that does has no end where a device is gone.
  ncclComm_t* lent = nullptr;
  std::vector<ncclComm_t> aborted_with = {};  // others of this process that may have work under way when it breaks
};

}  // namespace reshard
