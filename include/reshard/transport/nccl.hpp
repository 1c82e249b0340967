// SPDX-License-Identifier: Apache-2.0
// Processes with a GPU each that exchange packed messages over NCCL, and agree over any meeting: sockets or MPI. What
// they move lies in device memory, and the host reads none of it. Kernels for copies come from cuda/copy_kernels.cuh,
// in one .cu of the program.
// Builds on: transport/exchange.hpp, transport/nccl/wire.hpp, cuda/locate_memory.hpp. The one of these to include;
// needs nccl.h and CUDA's runtime.
#pragma once

#include <string>
#include <vector>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define RESHARD_HAS_NVTX 1
#endif

#include <reshard/cuda/locate_memory.hpp>
#include <reshard/transport/exchange.hpp>
#include <reshard/transport/nccl/wire.hpp>
#include <reshard/transport/transport.hpp>

namespace reshard {

namespace detail {

/// A range of a profile's time line, from its making to its end.
class profiled_range {
 public:
  explicit profiled_range([[maybe_unused]] const std::string& name) {
#ifdef RESHARD_HAS_NVTX
    ::nvtxRangePushA(name.c_str());
#endif
  }
  profiled_range(const profiled_range&) = delete;
  profiled_range& operator=(const profiled_range&) = delete;
  ~profiled_range() {
#ifdef RESHARD_HAS_NVTX
    ::nvtxRangePop();
#endif
  }
};

template <Meeting M, typename W>
struct nccl_parts {
  nccl_parts(M& meeting, int gpu, const nccl_options& options) : wire(meeting, gpu, options) {}

  W wire;
};

}  // namespace detail

/// One process's end of a world of GPUs: a transport. Made and used by one thread. What it moves has been written, and
/// is read by nobody else, when a switch begins; the caller's own streams are the caller's to wait for.
template <Meeting M, CopyingWire W = nccl_wire<M>>
class nccl_endpoint : private detail::nccl_parts<M, W>, public exchange<M, W> {
  using parts = detail::nccl_parts<M, W>;
  using moved_by = exchange<M, W>;

 public:
  /// Made by every device of the meeting, which outlives it, each with its own GPU: CUDA's number of it.
  nccl_endpoint(M& meeting, int gpu, const nccl_options& options = {})
      : parts(meeting, gpu, options), moved_by(meeting, parts::wire, options.how, options.round_bytes) {}

  bool reaches(memory_place place) const {
    return place == memory_place{memory_place::kind::device, parts::wire.gpu()};
  }
  void locate(binding& tensors) const {
    const on_device here(parts::wire.gpu());
    locate_memory(tensors);
  }
  /// With F, which is what the communicator and the tables of copies take on this device.
  transport_facts facts() const {
    transport_facts all = moved_by::facts();
    all.fixed_bytes = parts::wire.fixed_bytes();
    return all;
  }
  /// The host can't read what comes: refused where it is asked for.
  void check_messages(bool on) {
    if (on)
      refuse("device ", this->device(),
             " is asked to check messages, and over NCCL they are not: they never are in the host's memory; switch "
             "without checks, or over sockets");
  }
  void move(exchange_moves& m, index_t slot) {
    const detail::profiled_range range(detail::text_of("reshard slot ", slot));
    moved_by::move(m, slot);
  }
};

}  // namespace reshard
