// SPDX-License-Identifier: Apache-2.0
// Groups: what is added to them, and their end, which starts everything in the background of its communicators.
#include <algorithm>
#include <exception>
#include <mutex>

#include "communicator.hpp"
#include "emulation.hpp"

namespace emulation {
namespace {
thread_local group mine;
std::mutex moved_lock;
moved moved_here;

/// A group's communicators are all blocking, or none.
ncclResult_t mode_of(const ncclComm* comm) {
  if (mine.blocking == -1) mine.blocking = comm->blocking ? 1 : 0;
  return mine.blocking == (comm->blocking ? 1 : 0) ? ncclSuccess : ncclInvalidArgument;
}
void add_stream(group::of_one& part, CUstream_st* stream) {
  if (std::find(part.streams.begin(), part.streams.end(), stream) == part.streams.end()) part.streams.push_back(stream);
}
/// What an operation outside of a group answers: it is a group of its own.
ncclResult_t close(ncclComm* comm, ncclResult_t result) {
  note_error(result);
  const ncclResult_t ended = end_group();
  if (result != ncclSuccess) return result;
  if (ended != ncclSuccess && ended != ncclInProgress) return ended;
  return comm->blocking ? ncclSuccess : static_cast<ncclResult_t>(comm->state.load());
}
/// Self messages need both ends in the group.
ncclResult_t whole(const group& g) {
  for (const auto& [comm, part] : g.parts)
    if (const auto self = part.messages.peers.find(comm->rank); self != part.messages.peers.end())
      if (self->second.sends.bytes != self->second.receives.bytes) return ncclInvalidUsage;
  return ncclSuccess;
}
void start(ncclComm* comm, group::of_one part) {
  comm->state = ncclInProgress;
  {
    const std::lock_guard hold(streams_lock());
    const std::size_t kernels = part.collectives.size() + (part.messages.peers.empty() ? 0 : 1);
    for (CUstream_st* s : part.streams) s->groups_in_progress += static_cast<int>(kernels);
  }
  in_background(comm, [comm, part = std::move(part)] {
    for (const exchange& c : part.collectives) start_exchange(comm, c, part.streams);
    if (!part.messages.peers.empty()) start_exchange(comm, part.messages, part.streams);
    int expected = ncclInProgress;  // a failure stays
    comm->state.compare_exchange_strong(expected, ncclSuccess);
  });
}

}  // namespace

group& this_group() { return mine; }
void note_error(ncclResult_t result) {
  if (result != ncclSuccess && result != ncclInProgress && mine.depth > 0 && mine.error == ncclSuccess)
    mine.error = result;
}
ncclResult_t begin_group() {
  if (mine.depth++ == 0) mine.exceptions = std::uncaught_exceptions();
  return ncclSuccess;
}
ncclResult_t end_group() {
  if (mine.depth == 0) return ncclInvalidUsage;
  if (--mine.depth > 0) return ncclSuccess;
  group whole_group = std::exchange(mine, group{});
  if (whole_group.error == ncclSuccess) whole_group.error = whole(whole_group);
  if (whole_group.error == ncclSuccess && !whole_group.parts.empty() &&
      std::uncaught_exceptions() > whole_group.exceptions)
    stop("ncclGroupEnd is called by an exception: it would start that part of a group which was there before");
  for (ncclComm* comm : whole_group.aborts) reclaim(comm, "ncclCommAbort");
  if (whole_group.error != ncclSuccess) {
    for (const auto& [comm, part] : whole_group.parts)
      fails_with(comm, whole_group.error, "a call of its group failed");
    return whole_group.error;
  }
  for (auto& [comm, part] : whole_group.parts) start(comm, std::move(part));
  bool in_progress = false;
  for (const auto& [comm, part] : whole_group.parts) whole_group.begun.push_back(comm);
  for (ncclComm* comm : whole_group.begun) {
    if (comm->blocking) await_background(comm, "ncclGroupEnd", true);
    in_progress = in_progress || !comm->blocking;
    if (comm->blocking && comm->state != ncclSuccess) return static_cast<ncclResult_t>(comm->state.load());
  }
  return in_progress ? ncclInProgress : ncclSuccess;
}

ncclResult_t add_message(ncclComm* comm, int peer, message m, bool sends, cudaStream_t stream, const char* caller) {
  const ncclResult_t able = ready(comm, caller);
  begin_group();
  if (able != ncclSuccess) return close(comm, able);
  if (comm->revoked) return close(comm, ncclInvalidUsage);
  if (peer < 0 || peer >= comm->ranks || m.at == nullptr || mode_of(comm) != ncclSuccess)
    return close(comm, ncclInvalidArgument);
  const std::string who = std::string(caller) + (sends ? " to rank " : " from rank ") + std::to_string(peer);
  if (m.bytes == 0) stop(who + " without bytes: both ends would have to post it, or neither");
  if (reinterpret_cast<std::uintptr_t>(m.at) % 16 != 0)
    stop(who + ": its address " + address_text(m.at) + " is no multiple of 16");
  check_device_memory(m.at, m.bytes, who);
  m.registered = is_registered(comm, m.at, m.bytes);
  group::of_one& part = mine.parts[comm];
  with_peer& with = part.messages.peers[peer];
  message& place = sends ? with.sends : with.receives;
  if (place.bytes > 0) stop(who + ": a second message in one group");
  place = m;
  add_stream(part, stream_of(stream, caller));
  return close(comm, ncclSuccess);
}
ncclResult_t add_collective(ncclComm* comm, exchange what, cudaStream_t stream, const char* caller) {
  const ncclResult_t able = ready(comm, caller);
  begin_group();
  if (able != ncclSuccess) return close(comm, able);
  if (comm->revoked) return close(comm, ncclInvalidUsage);
  if (mode_of(comm) != ncclSuccess) return close(comm, ncclInvalidArgument);
  mine.parts[comm].collectives.push_back(std::move(what));
  add_stream(mine.parts[comm], stream_of(stream, caller));
  return close(comm, ncclSuccess);
}

void count_moved(const exchange& what, int rank) {
  const std::lock_guard hold(moved_lock);
  ++moved_here.groups;
  for (const auto& [peer, with] : what.peers) {
    moved_here.sends += with.sends.bytes > 0, moved_here.receives += with.receives.bytes > 0;
    moved_here.sent_bytes += with.sends.bytes;
    moved_here.to_itself += peer == rank;
  }
}
moved so_far() {
  const std::lock_guard hold(moved_lock);
  return moved_here;
}

}  // namespace emulation
