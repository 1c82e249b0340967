// SPDX-License-Identifier: Apache-2.0
// A store that a process of its own serves, to be killed, stopped and started again: the journal and the address stay.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <reshard/elastic/store_server.hpp>

#include "own_folder.hpp"

namespace testing {

/// A port that is nobody else's, though nobody listens there yet.
class own_port {
 public:
  own_port() : held_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    reshard::detail::set_option(held_.number(), SOL_SOCKET, SO_REUSEADDR);
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    REQUIRE(::bind(held_.number(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
    REQUIRE(::getsockname(held_.number(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    address = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  }
  std::string address;

 private:
  reshard::owned_descriptor held_;
};

/// A process to be killed and stopped; who derives from it starts it, and kills it before what it uses goes.
class struck_process {
 public:
  struck_process() = default;
  struck_process(const struck_process&) = delete;
  void kill() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  /// SIGSTOP: it stands still by then.
  void signal(int number) {
    ::kill(pid_, number);
    if (number == SIGSTOP) ::waitpid(pid_, nullptr, WUNTRACED);
  }

 protected:
  pid_t pid_ = -1;
};

class store_process : public struck_process {
 public:
  explicit store_process(std::string journal) : journal_(std::move(journal)) { start(); }
  ~store_process() { kill(); }  // before its folder goes

  const std::string& address() const { return port_.address; }
  void start() {
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ > 0) return;
    ::close_range(3, ~0U, 0);  // the ends of others, who want to see them closed
    try {
      reshard::store_server(reshard::listening_socket(port_.address), journal_).serve(-1);
    } catch (const std::exception& e) {
      static_cast<void>(!::write(2, e.what(), std::string(e.what()).size()));
    }
    ::_exit(1);
  }
  /// Seconds of a core that it has used.
  double used() const {
    clockid_t clock;
    timespec now = {};
    REQUIRE(::clock_getcpuclockid(pid_, &clock) == 0);
    REQUIRE(::clock_gettime(clock, &now) == 0);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

 private:
  std::string journal_;
  own_port port_;
};

}  // namespace testing
