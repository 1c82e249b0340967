// SPDX-License-Identifier: Apache-2.0
// How long devices wait for one another, and what a device throws that could not go on because of another: the same
// for threads and for processes.
// Builds on: nothing of the library.
#pragma once

#include <chrono>
#include <stdexcept>

namespace reshard {

/// How long a device waits for another before it gives up.
using patience = std::chrono::milliseconds;
/// 10 minutes.
inline constexpr patience default_patience = std::chrono::minutes(10);

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
