// SPDX-License-Identifier: Apache-2.0
// Processes of a test: forked, each the device of its number, with an address where it is called and a place in shared
// memory where it leaves what it found. A process that hangs is ended, and the test fails.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <reshard/transport/socket.hpp>

#include "left_behind.hpp"

namespace testing {

class processes {
 public:
  explicit processes(long devices) : pids_(static_cast<std::size_t>(devices), -1) {
    const std::size_t bytes = sizeof(left_behind) * pids_.size();
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    for (std::size_t d = 0; d < pids_.size(); ++d) new (static_cast<left_behind*>(at) + d) left_behind;
    left_ = static_cast<left_behind*>(at);
    for (std::size_t d = 0; d < pids_.size(); ++d) {
      listening_.emplace_back("127.0.0.1:0");
      addresses.push_back("127.0.0.1:" + std::to_string(listening_.back()->port()));
    }
  }
  processes(const processes&) = delete;
  ~processes() {
    for (const pid_t pid : pids_)
      if (pid > 0) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
    ::munmap(left_, sizeof(left_behind) * pids_.size());
  }

  /// Starts device d as body(its listening socket, what it leaves behind).
  template <typename Body>
  void start(long d, Body&& body) {
    const auto at = static_cast<std::size_t>(d);
    const pid_t pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid > 0) {
      pids_[at] = pid;
      listening_[at].reset();
      return;
    }
    reshard::listening_socket mine = std::move(*listening_[at]);
    listening_.clear();  // nobody else answers for the others
    int code = 0;
    try {
      body(std::move(mine), left_[at]);
    } catch (const std::exception& e) {
      left_[at].say(e.what());
      code = 1;
    } catch (...) {
      left_[at].say("an exception of no standard kind");
      code = 2;
    }
    ::_exit(code);
  }
  template <typename Body>
  void start_all(Body&& body) {
    for (std::size_t d = 0; d < pids_.size(); ++d)
      start(static_cast<long>(d),
            [&](reshard::listening_socket l, left_behind& left) { body(static_cast<long>(d), std::move(l), left); });
  }

  /// Waits until all but `stopped` have ended; whether they did in time.
  bool ended_within(double seconds, long but = -1) {
    const double end = now() + seconds;
    for (long d = 0; d < static_cast<long>(pids_.size()); ++d)
      if (d != but && !ended_by(d, end)) return false;
    return true;
  }
  /// Kills one with SIGKILL and waits until it is gone, and its connections with it.
  bool kill_and_wait(long d) {
    send_signal(d, SIGKILL);
    return ended_by(d, now() + 20);
  }
  /// To one that has not ended, as far as ended_within has seen.
  void send_signal(long d, int number) {
    if (const pid_t pid = pids_[static_cast<std::size_t>(d)]; pid > 0) ::kill(pid, number);
  }
  left_behind& of(long d) { return left_[d]; }
  /// Seconds by which the machine was late for who does next to nothing, in all of ended_within: no process of a test
  /// can be held to a limit more exactly than that.
  double late() const { return late_; }
  std::size_t count() const { return pids_.size(); }

  std::vector<std::string> addresses;

 private:
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  bool ended_by(long d, double end) {
    for (pid_t& pid = pids_[static_cast<std::size_t>(d)]; pid > 0;) {
      const double looked = now();
      if (::waitpid(pid, nullptr, WNOHANG) == pid) pid = -1;
      else if (looked > end) return false;
      else std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (const double passed = now() - looked; passed > 0.1) late_ += passed;
    }
    return true;
  }

  std::vector<pid_t> pids_;
  std::vector<std::optional<reshard::listening_socket>> listening_;
  left_behind* left_;
  double late_ = 0;
};

}  // namespace testing
