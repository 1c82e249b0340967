// SPDX-License-Identifier: Apache-2.0
// How late the machine was: by what a thread that does next to nothing overslept. What a test says of silence holds
// only where every thread had its turn.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stop_token>
#include <thread>

namespace testing {

/// Watches from its making on.
class lateness {
  using clock = std::chrono::steady_clock;

 public:
  lateness()
      : watches_([this](const std::stop_token& stop) {
          for (auto last = clock::now(); !stop.stop_requested();) {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            const auto now = clock::now();
            longest_.store(std::max(longest_.load(), (now - last).count()));
            last = now;
          }
        }) {}
  /// By which it was late at most so far.
  clock::duration longest() const { return clock::duration(longest_.load()); }

 private:
  std::atomic<clock::rep> longest_ = 0;
  std::jthread watches_;
};

/// Does something until the machine was late by less than `most` meanwhile; what came of it the last time. Eight times
/// at most, so that a machine that never is fast enough shows.
template <typename What>
auto undisturbed(std::chrono::steady_clock::duration most, What&& what) {
  for (int tried = 0;; ++tried) {
    const lateness late;
    auto result = what();
    if (late.longest() < most || tried == 7) return result;
  }
}

}  // namespace testing
