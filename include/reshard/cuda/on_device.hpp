// SPDX-License-Identifier: Apache-2.0
// Which device is current in a thread, for a while. No context comes into being but on the device that is asked for: it
// takes hundreds of MiB, and where every process of a node made one on device 0, that device would have them all.
// Builds on: cuda/detail/driver.hpp.
#pragma once

#include <exception>
#include <new>

#include <reshard/cuda/detail/driver.hpp>

namespace reshard {

/// Makes a device current as long as it lives, and then the context that was, whoever made it. In a thread where none
/// was, its device is current again if it has a context; else the new one stays: cudaSetDevice makes a context on the
/// device that it names, so to go back to one that nobody has used would make one there.
class on_device {
 public:
  explicit on_device(int device) { enter(device); }
  /// For what gives back: where the device can't be made current, it goes all the same.
  on_device(int device, std::nothrow_t) {
    try {
      enter(device);
    } catch (const std::exception&) {
    }
  }
  on_device(const on_device&) = delete;
  on_device& operator=(const on_device&) = delete;
  ~on_device() {
    if (!left_) return;
    if (context_ != nullptr) {
      static_cast<void>(driver_->make_current(context_));
      return;
    }
    unsigned flags = 0;
    int active = 0;
    if (driver_->primary_context_state(before_, &flags, &active) == CUDA_SUCCESS && active != 0)
      detail::forget_failure(::cudaSetDevice(before_));
  }

 private:
  void enter(int device) {
    detail::require_cuda(::cudaGetDevice(&before_), "say which device is current");
    if (before_ == device) return;
    driver_ = &detail::cuda_driver::get();
    const CUresult asked = driver_->current_context(&context_);
    if (asked != CUDA_ERROR_NOT_INITIALIZED) driver_->require(asked, "say which context is current");
    detail::require_cuda(::cudaSetDevice(device), "use a device");
    left_ = true;
  }

  const detail::cuda_driver* driver_ = nullptr;
  int before_ = 0;
  CUcontext context_ = nullptr;
  bool left_ = false;
};

}  // namespace reshard
