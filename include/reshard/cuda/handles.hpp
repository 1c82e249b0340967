// SPDX-License-Identifier: Apache-2.0
// What CUDA hands out, each with an owner that gives it back: streams, events, pinned memory; and what a call says when
// it fails.
// Builds on: base/integer.hpp, base/text.hpp and cuda_runtime_api.h.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <utility>

#include <cuda_runtime_api.h>

#include <reshard/base/integer.hpp>
#include <reshard/base/text.hpp>

#if CUDART_VERSION < 12000
#error "reshard: this CUDA is older than 12.0, the oldest that reshard knows"
#endif

namespace reshard {

namespace detail {

/// Throws what CUDA says where a call failed.
inline void require_cuda(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  static_cast<void>(::cudaGetLastError());  // where it is not kept for good, nobody else shall find it
  throw std::runtime_error(
      text_of("reshard: CUDA could not ", what, ": ", ::cudaGetErrorString(code), " (", ::cudaGetErrorName(code), ")"));
}

/// What gives back tells of no failure, and nobody else shall find it by cudaGetLastError.
inline void forget_failure(cudaError_t code) {
  if (code != cudaSuccess) static_cast<void>(::cudaGetLastError());
}
/// Whether what a query asks for is so; no waiting. That it is not yet so is an error to CUDA, which a caller would
/// find after a launch of its own: nothing is left of it.
inline bool is_ready(cudaError_t code, const char* what) {
  if (code == cudaErrorNotReady) forget_failure(code);
  else require_cuda(code, what);
  return code == cudaSuccess;
}

}  // namespace detail

/// A stream of its own, that does not wait for the default one.
class cuda_stream {
 public:
  cuda_stream() { detail::require_cuda(::cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream"); }
  cuda_stream(const cuda_stream&) = delete;
  cuda_stream& operator=(const cuda_stream&) = delete;
  ~cuda_stream() { detail::forget_failure(::cudaStreamDestroy(stream_)); }

  cudaStream_t get() const { return stream_; }
  /// Whether all that was given to it is done; no waiting.
  bool idle() const { return detail::is_ready(::cudaStreamQuery(stream_), "do what a stream was given"); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// An event, which is no clock.
class cuda_event {
 public:
  cuda_event() { detail::require_cuda(::cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "make an event"); }
  cuda_event(cuda_event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  cuda_event& operator=(cuda_event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~cuda_event() {
    if (event_ != nullptr) detail::forget_failure(::cudaEventDestroy(event_));
  }

  /// It happens once all that the stream was given before is done.
  void record(const cuda_stream& in) { detail::require_cuda(::cudaEventRecord(event_, in.get()), "record an event"); }
  /// What the stream is given from now on waits for it.
  void precedes(const cuda_stream& later) const {
    detail::require_cuda(::cudaStreamWaitEvent(later.get(), event_, 0), "let a stream wait for an event");
  }
  /// Whether it has happened, or never was recorded; no waiting.
  bool happened() const { return detail::is_ready(::cudaEventQuery(event_), "do what an event waits for"); }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Host memory that a device's copies read without a detour.
class pinned_memory {
 public:
  explicit pinned_memory(bytes_t bytes) {
    detail::require_cuda(::cudaHostAlloc(&data_, static_cast<std::size_t>(bytes), cudaHostAllocDefault),
                         "pin memory of the host");
  }
  pinned_memory(const pinned_memory&) = delete;
  pinned_memory& operator=(const pinned_memory&) = delete;
  ~pinned_memory() {
    if (data_ != nullptr) detail::forget_failure(::cudaFreeHost(data_));
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  /// It stays until the process ends.
  void leave() { data_ = nullptr; }

 private:
  void* data_ = nullptr;
};

}  // namespace reshard
