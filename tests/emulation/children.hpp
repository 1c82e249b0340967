// SPDX-License-Identifier: Apache-2.0
// Processes of the emulation's own tests: forked before any call, what they say on stderr caught, ended when they hang.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nccl.h>

#include "emulation.hpp"

namespace children {

struct outcome {
  int code = -1;  // exit code; -signal where a signal ended it
  std::string words;
  bool says(const std::string& part) const { return words.find(part) != words.npos; }
};
using settings = std::map<std::string, std::string>;

/// What the processes of one test share.
struct board {
  std::atomic<int> id_there{0}, flags[16];
  ncclUniqueId id;
  void wait(int flag, int value = 1) {
    while (flags[flag] < value) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
};
inline void check(ncclResult_t result) {
  if (result != ncclSuccess && result != ncclInProgress) {
    std::fprintf(stderr, "NCCL answered %s\n", ncclGetErrorString(result));
    ::_exit(3);
  }
}
inline void check(cudaError_t result) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "CUDA answered %s\n", cudaGetErrorName(result));
  ::_exit(3);
}
inline void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  ::_exit(4);
}

class family {
 public:
  family() {
    void* at = ::mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    shared = new (at) board;
  }
  family(const family&) = delete;
  ~family() {
    for (const child& c : children_)
      if (c.pid > 0) ::kill(c.pid, SIGKILL), ::waitpid(c.pid, nullptr, 0);
    for (const child& c : children_) ::close(c.words);
    ::munmap(shared, sizeof(board));
  }
  /// A process that runs body(board) and then has nothing left.
  void start(const settings& environment, const std::function<void(board&)>& body) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    std::fflush(stdout);  // or a child that exits would say it again
    const pid_t pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      ::dup2(ends[1], 2);
      for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
      body(*shared);
      emulation::finish();
      ::_exit(0);
    }
    ::close(ends[1]);
    children_.push_back({pid, ends[0]});
  }
  void signal(std::size_t which, int number) { ::kill(children_[which].pid, number); }
  outcome wait(std::size_t which, double seconds = 60) {
    child& c = children_[which];
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    outcome found;
    int status = 0;
    while (::waitpid(c.pid, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > until) return found.words = "it hangs", found;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    c.pid = -1;
    found.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    char piece[4096];
    ::fcntl(c.words, F_SETFL, O_NONBLOCK);
    for (ssize_t n; (n = ::read(c.words, piece, sizeof piece)) > 0;)
      found.words.append(piece, static_cast<std::size_t>(n));
    return found;
  }
  board* shared;

 private:
  struct child {
    pid_t pid;
    int words;
  };
  std::vector<child> children_;
};

inline outcome alone(const std::function<void()>& body, settings environment = {}) {
  environment.emplace("EMULATION_PATIENCE_MS", "700");
  family one;
  one.start(environment, [&](board&) { body(); });
  return one.wait(0);
}
/// n ranks, each on a device of its own.
inline std::vector<outcome> ranks(int n, const std::function<void(int, board&)>& body, settings environment = {}) {
  environment.emplace("EMULATION_PATIENCE_MS", "3000");
  family all;
  for (int r = 0; r < n; ++r)
    all.start(environment, [&](board& b) {
      check(cudaSetDevice(r));
      body(r, b);
    });
  std::vector<outcome> found;
  for (int r = 0; r < n; ++r) found.push_back(all.wait(static_cast<std::size_t>(r)));
  return found;
}

inline ncclResult_t settle(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    check(ncclCommGetAsyncError(comm, &state));
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return state;
}
/// A communicator over any number of ranks, not blocking; rank 0 makes the id.
inline ncclComm_t join(int n, int rank, board& b, bool wait = true) {
  if (rank == 0) {
    check(ncclGetUniqueId(&b.id));
    b.id_there = 1;
  }
  while (b.id_there == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  check(ncclCommInitRankConfig(&comm, n, b.id, rank, &config));
  if (wait) check(settle(comm));
  return comm;
}
inline void leave(ncclComm_t comm) {
  check(ncclCommFinalize(comm));
  check(settle(comm));
  check(ncclCommDestroy(comm));
}
struct stream {
  cudaStream_t here = nullptr;
  stream() { check(cudaStreamCreateWithFlags(&here, cudaStreamNonBlocking)); }
  stream(const stream&) = delete;
  ~stream() { check(cudaStreamDestroy(here)); }
};
/// Memory of ncclMemAlloc, of one rank's pattern where asked.
struct buffer {
  std::byte* at = nullptr;
  std::size_t bytes;
  explicit buffer(std::size_t n) : bytes(n) { check(ncclMemAlloc(reinterpret_cast<void**>(&at), n)); }
  buffer(const buffer&) = delete;
  ~buffer() { check(ncclMemFree(at)); }
};

}  // namespace children
