// SPDX-License-Identifier: Apache-2.0
// Streams and events: a thread for each stream, its work in order, and between streams only the order that events make.
// Builds on: emulation.hpp, rules.hpp.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "emulation.hpp"
#include "rules.hpp"

namespace emulation {

/// Done once a piece of work has ended. Guarded by the device's lock.
struct ticket {
  bool done = false;
  clock::time_point at{};
};
using ticket_ptr = std::shared_ptr<ticket>;

struct work {
  std::string what;                 // "a copy of 5 bytes"; for sentences
  std::vector<ticket_ptr> after{};  // beside the stream's own order
  std::function<void()> run{};      // nothing: an event, a wait
  ticket_ptr end{};
  std::uint64_t number = 0;  // of the process, in order of issue
};

/// The lock of all streams and events of the process, and what is told when anything of theirs changes.
std::mutex& streams_lock();
std::condition_variable& streams_changed();

}  // namespace emulation

/// A stream. Never freed, so that a stale handle is known.
struct CUstream_st {
  std::size_t number;
  unsigned flags;
  int device;
  bool alive = true;
  int groups_in_progress = 0;  // groups that the background has yet to put on it
  emulation::ticket_ptr tail;  // of the last work
  std::deque<emulation::work> queue;
  std::string doing;
};
/// An event. Never freed.
struct CUevent_st {
  std::size_t number;
  unsigned flags;
  bool alive = true;
  emulation::ticket_ptr recorded;
};

namespace emulation {

/// The stream of a handle; 0 and cudaStreamLegacy are the device's default stream. Stops at one that was destroyed.
CUstream_st* stream_of(cudaStream_t handle, const char* caller);
CUevent_st* event_of(cudaEvent_t handle, const char* caller);
CUstream_st* make_stream(unsigned flags);
void destroy_stream(CUstream_st* stream);
CUevent_st* make_event(unsigned flags);

/// The host twin that a test gave a kernel.
std::optional<host_twin> twin_of(const void* kernel);

/// Issues work to a stream; stops where a group is still on its way to it, unless it is the group itself.
ticket_ptr issue(CUstream_st* stream, work piece, const char* caller, bool is_the_group = false);
/// What is issued and has not ended: of a stream, and of the device.
std::vector<ticket_ptr> unfinished(CUstream_st* stream);
std::vector<ticket_ptr> unfinished();
bool ended(const ticket_ptr& t);
/// The host waits, at most its patience; then the sentence says what it waited for.
void wait_for(const std::vector<ticket_ptr>& tickets, const std::string& caller);
/// All that is issued to the device.
void drain(const std::string& caller);
enum class draining { mapping, freeing };
/// What may wait for the whole device: three times in four when it maps, every other time when it frees.
void may_drain(draining why, const char* caller);
/// EMULATION_SYNC=pinned: of all that maps and frees only what makes or frees pinned memory waits, and no abort does.
bool only_pinned_waits();

/// Sentences about streams and events that are alive, and of work that has not ended.
std::vector<std::string> stream_leaks();

}  // namespace emulation
