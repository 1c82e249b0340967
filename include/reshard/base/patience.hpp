// SPDX-License-Identifier: Apache-2.0
// How long devices wait for one another, and what a device throws that could not go on because of another: the same
// for threads and for processes.
// Builds on: nothing of the library.
#pragma once

#include <chrono>
#include <stdexcept>
#include <utility>

namespace reshard {

/// How long a device waits for another before it gives up.
using patience = std::chrono::milliseconds;
/// 10 minutes.
inline constexpr patience default_patience = std::chrono::minutes(10);

/// How long has been waited in vain, from the making or the last progress on. Who was away itself, stopped or on a
/// machine that stood still, has not waited meanwhile; a look takes milliseconds, so however short the patience is, it
/// ends.
class vain_wait {
  using clock = std::chrono::steady_clock;

 public:
  explicit vain_wait(patience limit) : limit_(limit) {}
  void progressed() { since_ = clock::now(); }
  /// Whether that was as long as the patience; asked again and again.
  bool over() {
    constexpr patience longest_look{250};
    const auto now = clock::now();
    if (now - std::exchange(looked_, now) > longest_look) since_ = now;
    return now - since_ >= limit_;
  }

 private:
  patience limit_;
  clock::time_point since_ = clock::now(), looked_ = since_;
};

/// This device could not go on because another one failed; what() says which and why.
class peer_failed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// This device waited for another in vain.
class peer_missing : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace reshard
