// SPDX-License-Identifier: Apache-2.0
// What NCCL hands out, each with an owner that gives it back: a communicator that never blocks, device memory that
// messages lie in; and what a call says when it fails.
// Builds on: cuda/on_device.hpp and nccl.h.
#pragma once

#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nccl.h>

#include <reshard/cuda/on_device.hpp>

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 19, 0)
#error "reshard: this NCCL is older than 2.19, the oldest that reshard knows"
#endif

namespace reshard {

namespace detail {

/// Throws what NCCL says where a call failed; what goes on in the background has not.
inline void require_nccl(ncclResult_t code, const char* what, ncclComm_t comm = nullptr) {
  if (code == ncclSuccess || code == ncclInProgress) return;
  const char* const last = ::ncclGetLastError(comm);
  const std::string more = last != nullptr && *last != '\0' ? text_of("; it says: ", last) : std::string();
  throw std::runtime_error(text_of("reshard: NCCL could not ", what, ": ", ::ncclGetErrorString(code), more));
}

inline bool went_wrong(ncclResult_t code) { return code != ncclSuccess && code != ncclInProgress; }

/// What NCCL says of calls that are made as one group: of the first that failed, which is the last, and then it starts
/// none of them; else of the group's end. They throw nothing, as a group that an exception ends goes half.
template <typename Calls>
ncclResult_t in_one_group(const Calls& calls) {
  static_assert(noexcept(calls()), "what may throw is done before the group");
  require_nccl(::ncclGroupStart(), "begin a group");
  const ncclResult_t called = calls(), ended = ::ncclGroupEnd();
  return went_wrong(called) ? called : ended;
}

}  // namespace detail

/// A communicator over the current device, or none yet. Whoever calls it waits for state() to be ncclSuccess.
class nccl_communicator {
 public:
  nccl_communicator() = default;
  nccl_communicator(const nccl_communicator&) = delete;
  nccl_communicator& operator=(const nccl_communicator&) = delete;
  ~nccl_communicator() {
    if (comm_ != nullptr && !lent_) static_cast<void>(::ncclCommAbort(comm_));
  }

  /// Begins to make it, in the background.
  ncclResult_t begin(int ranks, const ncclUniqueId& id, int rank, ncclConfig_t config) {
    config.blocking = 0;
    return ::ncclCommInitRankConfig(&comm_, ranks, id, rank, &config);
  }
  /// Goes on with one that is somebody else's, and is made.
  void borrow(ncclComm_t made) { comm_ = made, lent_ = true; }
  bool lent() const { return lent_; }
  ncclComm_t get() const { return comm_; }
  explicit operator bool() const { return comm_ != nullptr; }
  /// Somebody else has ended it.
  void forget() { comm_ = nullptr; }

  /// ncclInProgress, ncclSuccess, or what went wrong.
  ncclResult_t state() const {
    ncclResult_t told = ncclSuccess;
    detail::require_nccl(::ncclCommGetAsyncError(comm_, &told), "say how a communicator is", comm_);
    return told;
  }
  ncclResult_t finalize() const { return ::ncclCommFinalize(comm_); }
  /// After finalize.
  void destroy() { detail::require_nccl(::ncclCommDestroy(std::exchange(comm_, nullptr)), "destroy a communicator"); }
  /// Ends it and others, whatever they are at, in one group: one by one the first would wait for what another is at.
  /// Where there can be no group that is better still than to let them go on.
  void abort(const std::vector<ncclComm_t>& others) {
    const bool together = !detail::went_wrong(::ncclGroupStart());
    ncclResult_t worst = ncclSuccess;
    const auto note = [&](ncclResult_t code) {
      if (detail::went_wrong(code)) worst = code;
    };
    for (const ncclComm_t other : others)
      if (other != nullptr && other != comm_) note(::ncclCommAbort(other));
    if (const ncclComm_t mine = std::exchange(comm_, nullptr); mine != nullptr) note(::ncclCommAbort(mine));
    if (together) note(::ncclGroupEnd());
    detail::require_nccl(worst, "abort communicators");
  }

 private:
  ncclComm_t comm_ = nullptr;
  bool lent_ = false;
};

/// Memory of the current device that messages may lie in, registered with a communicator where one is given.
class nccl_memory {
 public:
  explicit nccl_memory(int device, bytes_t bytes, std::shared_ptr<nccl_communicator> with = nullptr)
      : device_(device), with_(std::move(with)) {
    const on_device here(device);
    detail::require_nccl(::ncclMemAlloc(&data_, static_cast<std::size_t>(bytes)), "allocate memory of a device");
    if (!with_) return;
    const ncclResult_t code = ::ncclCommRegister(with_->get(), data_, static_cast<std::size_t>(bytes), &handle_);
    if (code == ncclSuccess || code == ncclInProgress) return;
    static_cast<void>(::ncclMemFree(data_));
    detail::require_nccl(code, "register memory of a device", with_->get());
  }
  nccl_memory(const nccl_memory&) = delete;
  nccl_memory& operator=(const nccl_memory&) = delete;
  ~nccl_memory() {
    const on_device here(device_, std::nothrow);
    if (with_ && *with_ && handle_ != nullptr) static_cast<void>(::ncclCommDeregister(with_->get(), handle_));
    static_cast<void>(::ncclMemFree(data_));
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  int device_;
  std::shared_ptr<nccl_communicator> with_;
  void* data_ = nullptr;
  void* handle_ = nullptr;
};

}  // namespace reshard
