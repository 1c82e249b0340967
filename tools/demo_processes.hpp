// SPDX-License-Identifier: Apache-2.0
// The devices of a measurement as processes: forked, each with an address, leaving what they found in shared memory.
#pragma once

#include <cerrno>
#include <cstdio>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <reshard/transport/sockets.hpp>

namespace demo {

/// A process has failed, and said so.
struct processes_failed : std::runtime_error {
  processes_failed() : std::runtime_error("a process failed") {}
};

/// Calls body(device, addresses, listening socket, what it leaves) in a process for every device; what they left. One
/// that fails says why on stderr, and this throws once all have ended.
template <typename Found, typename Body>
std::vector<Found> on_processes(reshard::rank_t devices, Body&& body) {
  const auto count = static_cast<std::size_t>(devices);
  void* shared = ::mmap(nullptr, count * sizeof(Found), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw std::runtime_error("reshard: no memory for the processes to share");
  Found* const all = static_cast<Found*>(shared);
  for (std::size_t d = 0; d < count; ++d) new (all + d) Found;
  std::vector<reshard::listening_socket> listening;
  std::vector<std::string> addresses;
  for (std::size_t d = 0; d < count; ++d) {
    listening.emplace_back("127.0.0.1:0");
    addresses.push_back("127.0.0.1:" + std::to_string(listening.back().port()));
  }
  std::fflush(stdout);
  std::size_t started = 0;
  for (; started < count; ++started) {
    const pid_t child = ::fork();
    if (child < 0) break;  // the others hear that it did not come
    if (child > 0) continue;
    int code = 0;
    try {
      reshard::listening_socket mine = std::move(listening[started]);
      listening.clear();
      body(static_cast<reshard::rank_t>(started), addresses, std::move(mine), all[started]);
    } catch (const std::exception& e) {
      // of what all hear only the lowest device speaks
      if (started == 0) std::fprintf(stderr, "%s\n", e.what());
      code = 1;
    }
    std::fflush(stdout);
    ::_exit(code);
  }
  listening.clear();
  bool right = started == count;
  for (std::size_t ended = 0; ended < started;) {
    int status = 0;
    if (::wait(&status) > 0) right = right && status == 0, ++ended;
    else if (errno != EINTR) break;
  }
  std::vector<Found> found(all, all + count);
  ::munmap(shared, count * sizeof(Found));
  if (!right) throw processes_failed();
  return found;
}

}  // namespace demo
