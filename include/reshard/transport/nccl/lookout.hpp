// SPDX-License-Identifier: Apache-2.0
// How a process waits for its GPU: never in a call that blocks, but by looking again and again, and hearing its meeting
// between two looks, so that who is gone is heard of. What began just now is soon there, and is looked for at once; for
// what takes longer it sleeps.
// Builds on: transport/meeting.hpp.
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include <reshard/transport/meeting.hpp>

namespace reshard {

/// What a process does between two looks at its GPU; the meeting outlives it.
template <Meeting M>
class lookout {
  using clock = std::chrono::steady_clock;

 public:
  explicit lookout(M& meeting) : meeting_(&meeting) {}

  M& meeting() const { return *meeting_; }
  /// Hears the meeting, if not just now; whether it did.
  bool hear() {
    const auto now = clock::now();
    if (now - heard_ < std::chrono::microseconds(100)) return false;
    heard_ = now;
    meeting_->poll();
    return true;
  }
  /// Something began or ended here.
  void stir() { stirred_ = clock::now(); }
  /// For 50 us after something began or ended here, when the next is soon there, it looks again at once; from then on
  /// it sleeps. A sleep of 20 us is one of about 70, by the slack of Linux' timers.
  void wait_a_little() const {
    if (clock::now() - stirred_ < std::chrono::microseconds(50)) std::this_thread::yield();
    else std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  void pause() {
    hear();
    wait_a_little();
  }
  /// What is thrown where a whole patience was waited for something.
  peer_missing in_vain(const std::string& something) const {
    return peer_missing(detail::text_of("reshard: device ", meeting_->device(), " waited ", meeting_->waits().count(),
                                        " ms in vain for ", something));
  }

 private:
  M* meeting_;
  clock::time_point heard_ = {}, stirred_ = {};
};

}  // namespace reshard
