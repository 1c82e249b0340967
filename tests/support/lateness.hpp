// SPDX-License-Identifier: Apache-2.0
// How late the machine was: by what threads that do next to nothing overslept, one on each CPU, as a virtual machine
// may lose one CPU alone. What a test says of silence holds only where every thread had its turn.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>
#include <sched.h>

namespace testing {

/// Watches from its making on.
class lateness {
  using clock = std::chrono::steady_clock;

 public:
  lateness() {
    cpu_set_t ours;
    if (sched_getaffinity(0, sizeof ours, &ours) != 0) CPU_ZERO(&ours);
    for (int cpu = 0; cpu < CPU_SETSIZE && std::ssize(watches_) < most_watched; ++cpu)
      if (CPU_ISSET(cpu, &ours)) watches_.emplace_back([this, cpu](const std::stop_token& stop) { watch(stop, cpu); });
  }
  /// By which it was late at most so far.
  clock::duration longest() const { return clock::duration(longest_.load()); }

 private:
  static constexpr int most_watched = 16;

  void watch(const std::stop_token& stop, int cpu) {
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    pthread_setaffinity_np(pthread_self(), sizeof only, &only);  // where it may not, it watches any
    for (auto last = clock::now(); !stop.stop_requested();) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      const auto now = clock::now();
      auto known = longest_.load();
      while (known < (now - last).count() && !longest_.compare_exchange_weak(known, (now - last).count())) {
      }
      last = now;
    }
  }

  std::atomic<clock::rep> longest_ = 0;
  std::vector<std::jthread> watches_;
};

/// What came of something, and by how much the machine was late meanwhile: 0 where that was too little to count.
template <typename Result>
struct timed {
  Result result;
  std::chrono::steady_clock::duration late;
};
/// Does something until the machine was late by less than `most` meanwhile, eight times at most; what came of it the
/// last time. Limits of time are widened by `late`: 0 on all machines but one that never is fast enough.
template <typename What>
auto undisturbed(std::chrono::steady_clock::duration most, What&& what) {
  for (int tried = 0;; ++tried) {
    const lateness watched;
    auto result = what();
    const auto late = watched.longest();
    if (late < most || tried == 7) return timed<decltype(result)>{std::move(result), late < most ? late * 0 : late};
  }
}

}  // namespace testing
