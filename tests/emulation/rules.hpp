// SPDX-License-Identifier: Apache-2.0
// What all of the emulation stands on: the sentence that stops a test, the numbers of its environment, dice, and the
// count of every call, some of which fail on demand.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace emulation {

/// Writes "emulation: SENTENCE" and ends the process.
[[noreturn]] void stop(const std::string& sentence);
/// The same for handlers of signals, which may not allocate: "emulation: WORDS, at ADDRESS".
[[noreturn]] void stop_at_fault(const char* words, std::uintptr_t address);

/// A whole number of the environment, or what holds without it.
long setting(const char* name, long otherwise);
bool setting_is(const char* name, const char* value);

using clock = std::chrono::steady_clock;
/// How long a host may wait for its device, or in a call that blocks.
clock::duration patience();

/// A sequence of numbers drawn from the seed and a name of its own, so that threads don't take each other's.
class dice {
 public:
  explicit dice(std::uint64_t name);
  std::uint64_t next();
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

 private:
  std::uint64_t state_;
};
/// Drawn by the host's calls, under a lock.
std::uint64_t draw(std::uint64_t below);
/// The number that a next sequence is named by.
std::uint64_t next_name();
/// Mixed into all sequences: the device of the process.
void mix_seed(std::uint64_t number);

/// A time that a thing takes without need: mostly short, now and then long.
std::chrono::microseconds some_time(dice& from);
void take_time(dice& from);

/// Marks this thread as one of the device's: it may not call CUDA or NCCL.
void is_device_thread();
bool on_device_thread();

/// A call of the emulation, from its first line to its last; `is_inside` tells of one in this thread.
class visit {
 public:
  visit();
  visit(const visit&) = delete;
  ~visit();
};

/// The calls of one function. A static of it is in every function that the emulation defines.
class counted {
 public:
  explicit counted(const char* name);
  /// Counts a call, and stops what no thread or process may do. Whether it fails: then the code, else 0.
  int fails(int usual_code);
  const char* name() const { return name_; }
  long calls() const { return calls_.load(std::memory_order_relaxed); }

 private:
  const char* name_;
  std::atomic<long> calls_{0};
};

/// Registers what is checked at exit, once.
void watch_exit();
/// Appends the counts to EMULATION_COUNTS.
void write_counts();

std::string plural(std::size_t n, const std::string& word);
std::string address_text(const void* address);

}  // namespace emulation

/// First line of every emulated function: `failure` is the code that a call shall answer, or 0.
#define EMULATED(function, usual_code)                \
  const emulation::visit within_this;                 \
  static emulation::counted calls_of_this(#function); \
  const int failure = calls_of_this.fails(static_cast<int>(usual_code))
