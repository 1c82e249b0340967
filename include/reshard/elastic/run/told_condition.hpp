// SPDX-License-Identifier: Apache-2.0
// A condition that counts how often it was told, so that who looks first and then waits misses nothing that came
// between.
// Builds on: base/patience.hpp.
#pragma once

#include <condition_variable>
#include <cstdint>

#include <reshard/base/patience.hpp>

namespace reshard::detail {

/// Told and asked with the mutex of its waiters held.
class told_condition {
 public:
  void notify_all() {
    ++times_;
    all_.notify_all();
  }
  std::uint64_t times() const { return times_; }

  template <typename Lock, typename Until>
  void wait(Lock& lock, const Until& until) {
    all_.wait(lock, until);
  }
  template <typename Lock>
  void wait_for(Lock& lock, patience longest) {
    all_.wait_for(lock, longest);
  }
  template <typename Lock, typename Until>
  void wait_for(Lock& lock, patience longest, const Until& until) {
    all_.wait_for(lock, longest, until);
  }

 private:
  std::condition_variable_any all_;
  std::uint64_t times_ = 0;
};

}  // namespace reshard::detail
