// SPDX-License-Identifier: Apache-2.0
// NCCL's functions about communicators.
#include <nccl.h>

#include <mutex>
#include <optional>

#include "communicator.hpp"
#include "emulation.hpp"

using namespace emulation;

namespace {
ncclResult_t code_of(int failure) { return static_cast<ncclResult_t>(failure); }

int channels_asked_for = NCCL_CONFIG_UNDEF_INT;

ncclResult_t begin_communicator(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank, bool blocking) {
  if (ranks < 1 || rank < 0 || rank >= ranks || comm == nullptr) return ncclInvalidArgument;
  if (ranks > most_ranks) stop("more than " + std::to_string(most_ranks) + " ranks: the emulation's limit");
  may_drain(draining::mapping, "ncclCommInitRank");
  ncclComm* made = make_communicator(ranks, rank, blocking);
  *comm = made;
  if (!count_own(made->device, std::size_t{8} << 20)) {
    fails_with(made, ncclUnhandledCudaError, "no device memory is left for a communicator");
    return ncclUnhandledCudaError;
  }
  made->own_bytes = std::size_t{8} << 20;
  in_background(made, [made, id] {
    met result = meet(id, made->ranks, made->rank, [&] { return made->aborted.load(); });
    if (result.result == ncclSuccess) made->shared = std::move(result.shared);
    if (result.result != ncclInProgress) fails_with(made, result.result, result.why);
  });
  if (!blocking) return ncclInProgress;
  if (this_group().depth > 0) {
    this_group().begun.push_back(made);
    return ncclSuccess;
  }
  await_background(made, "ncclCommInitRank", true);
  return code_of(made->state);
}
/// The job of finalizing: what is issued ends, then all ranks say that they have come so far.
void finalize_in_background(ncclComm* comm) {
  comm->finalize_called = true;
  comm->state = ncclInProgress;
  in_background(comm, [comm] {
    const auto wait_until = [&](const auto& satisfied) {
      while (!comm->aborted && !satisfied()) std::this_thread::sleep_for(std::chrono::microseconds(100));
    };
    wait_until([&] { return comm->in_flight == 0; });
    comm->shared->of(comm->rank).finalized.store(1, std::memory_order_release);
    for (int r = 0; r < comm->ranks; ++r)
      wait_until([&] { return comm->shared->of(r).finalized.load(std::memory_order_acquire) == 1; });
    comm->state = ncclSuccess;
  });
}
}  // namespace

std::optional<int> emulation::channels_per_net_peer() {
  return channels_asked_for == NCCL_CONFIG_UNDEF_INT ? std::nullopt : std::optional(channels_asked_for);
}
ncclResult_t ncclGetVersion(int* version) {
  EMULATED(ncclGetVersion, ncclInternalError);
  if (failure == 0) *version = NCCL_VERSION_CODE;
  return code_of(failure);
}
const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "unknown result code";
  }
}
const char* ncclGetLastError(ncclComm_t comm) {
  static thread_local std::string words;
  if (comm == nullptr) return "no error";
  const std::lock_guard hold(comm->lock);
  words = comm->error;
  return words.c_str();
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  EMULATED(ncclGetUniqueId, ncclSystemError);
  if (failure != 0) return code_of(failure);
  return begin_meeting(*id) ? ncclSuccess : ncclSystemError;
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  EMULATED_IN_CONTEXT(ncclCommInitRank, ncclUnhandledCudaError);
  if (failure != 0) return code_of(failure);
  return begin_communicator(comm, ranks, id, rank, true);
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  EMULATED_IN_CONTEXT(ncclCommInitRankConfig, ncclUnhandledCudaError);
  if (failure != 0) {
    if (comm != nullptr) *comm = nullptr;
    return code_of(failure);
  }
  if (config != nullptr && (config->magic != 0xcafebeef || config->size != sizeof(ncclConfig_t)))
    return ncclInvalidArgument;
  const int blocking = config == nullptr ? NCCL_CONFIG_UNDEF_INT : config->blocking;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
  channels_asked_for = config == nullptr ? NCCL_CONFIG_UNDEF_INT : config->nChannelsPerNetPeer;
#endif
  if (blocking != NCCL_CONFIG_UNDEF_INT && blocking != 0 && blocking != 1) return ncclInvalidArgument;
  return begin_communicator(comm, ranks, id, rank, blocking != 0);
}
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int ids, ncclUniqueId* id,
                                      ncclConfig_t* config) {
  EMULATED_IN_CONTEXT(ncclCommInitRankScalable, ncclUnhandledCudaError);
  if (failure != 0) return code_of(failure);
  return ids < 1 ? ncclInvalidArgument
                 : begin_communicator(comm, ranks, id[0], rank, config == nullptr || config->blocking != 0);
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  EMULATED(ncclCommFinalize, ncclInternalError);
  if (failure != 0) return code_of(failure);
  if (const ncclResult_t able = ready(comm, "ncclCommFinalize"); able != ncclSuccess) return able;
  if (comm->revoked) stop("ncclCommFinalize of " + text(comm) + ", which was revoked");
  if (comm->finalize_called) return ncclInvalidArgument;
  finalize_in_background(comm);
  if (!comm->blocking) return ncclInProgress;
  await_background(comm, "ncclCommFinalize", true);
  return code_of(comm->state);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  EMULATED(ncclCommDestroy, ncclInternalError);
  if (comm == nullptr) return code_of(failure);
  if (const ncclResult_t able = ready(comm, "ncclCommDestroy"); able != ncclSuccess) return able;
  if (comm->in_flight > 0) stop("ncclCommDestroy of " + text(comm) + ", whose work is in flight");
  if (!comm->registrations.empty())
    stop("ncclCommDestroy of " + text(comm) + ": " + plural(comm->registrations.size(), "registration") + " left");
  if (!comm->finalize_called && !comm->revoked) finalize_in_background(comm);
  reclaim(comm, "ncclCommDestroy");
  return code_of(failure);
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  EMULATED(ncclCommAbort, ncclInternalError);
  if (comm == nullptr) return code_of(failure);
  alive(comm, "ncclCommAbort");
  if (comm->aborted) stop("ncclCommAbort of " + text(comm) + ", which is being aborted");
  comm->aborted = true;  // at once, in a group too: there, only what waits for the device is left to its end
  if (this_group().depth > 0) this_group().aborts.push_back(comm);
  else reclaim(comm, "ncclCommAbort");
  return code_of(failure);
}
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  EMULATED(ncclCommRevoke, ncclInternalError);
  if (failure != 0) return code_of(failure);
  alive(comm, "ncclCommRevoke");
  if (flags != 0) return ncclInvalidArgument;
  comm->revoked = true;
  comm->state = ncclInProgress;
  in_background(comm, [comm] {
    while (comm->in_flight > 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    comm->state = ncclSuccess;
  });
  if (!comm->blocking) return ncclInProgress;
  await_background(comm, "ncclCommRevoke", true);
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  EMULATED(ncclCommGetAsyncError, ncclInternalError);
  if (failure != 0) return code_of(failure);
  alive(comm, "ncclCommGetAsyncError");
  static counted told("ncclCommGetAsyncError.state");
  if (const int injected = told.fails(ncclRemoteError); injected != 0)
    fails_with(comm, code_of(injected), "an injected failure");
  *state = code_of(comm->state);
  return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  EMULATED(ncclCommCount, ncclInternalError);
  if (failure != 0) return code_of(failure);
  if (const ncclResult_t able = ready(comm, "ncclCommCount"); able != ncclSuccess) return able;
  *count = comm->ranks;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  EMULATED(ncclCommCuDevice, ncclInternalError);
  if (failure != 0) return code_of(failure);
  if (const ncclResult_t able = ready(comm, "ncclCommCuDevice"); able != ncclSuccess) return able;
  *device = comm->device;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  EMULATED(ncclCommUserRank, ncclInternalError);
  if (failure != 0) return code_of(failure);
  if (const ncclResult_t able = ready(comm, "ncclCommUserRank"); able != ncclSuccess) return able;
  *rank = comm->rank;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  EMULATED(ncclGroupStart, ncclInternalError);
  return failure != 0 ? code_of(failure) : begin_group();
}
ncclResult_t ncclGroupEnd() {
  EMULATED(ncclGroupEnd, ncclSystemError);
  if (failure != 0) note_error(code_of(failure));
  const ncclResult_t result = end_group();
  return failure != 0 ? code_of(failure) : result;
}
