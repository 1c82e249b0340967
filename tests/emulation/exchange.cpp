// SPDX-License-Identifier: Apache-2.0
// The kernel of a group: it posts what this rank does with each peer, spins until every peer has posted the mirror of
// it, then writes into the memory of peers, and waits until they have written into its own. Nothing ends it but that,
// or an abort. And what comes before: first contact, and the streams that the group is put on.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <thread>

#include "communicator.hpp"

namespace emulation {
namespace {

/// Waits a little more each time.
class spin {
 public:
  void pause() {
    std::this_thread::sleep_for(time_);
    time_ = std::min(time_ * 2, std::chrono::microseconds(500));
  }
  void begin_anew() { time_ = std::chrono::microseconds(10); }

 private:
  std::chrono::microseconds time_{10};
};
bool ended_by_host(const ncclComm* comm) { return comm->aborted || comm->revoked; }

void say(ncclComm* comm, int peer, const with_peer& mine, std::uint64_t kind) {
  const std::uint64_t number = ++comm->posted[static_cast<std::size_t>(peer)];
  post& p = comm->shared->from_to(comm->rank, peer).posts[number % 2];
  p.sends = mine.sends.bytes, p.expects = mine.receives.bytes, p.kind = kind;
  p.sends_registered = mine.sends.registered;
  p.segments = 0;
  if (mine.receives.bytes > 0) {
    check_device_memory(mine.receives.at, mine.receives.bytes, "a receive of NCCL");
    const auto list = segments_of(mine.receives.at, mine.receives.bytes);
    if (list.size() > most_segments)
      stop("a message of more than " + std::to_string(most_segments) + " mappings: the emulation's limit");
    std::copy(list.begin(), list.end(), p.at);
    p.segments = list.size();
  }
  p.number.store(number, std::memory_order_release);
}
/// Whether the peer has posted; stops where that is not the mirror of what this rank posted.
bool mirrored(const ncclComm* comm, int peer, const with_peer& mine, std::uint64_t kind) {
  const std::uint64_t number = comm->posted[static_cast<std::size_t>(peer)];
  const post& his = comm->shared->from_to(peer, comm->rank).posts[number % 2];
  if (his.number.load(std::memory_order_acquire) != number) return false;
  const std::string between = "message " + std::to_string(number) + " between ranks " + std::to_string(comm->rank) +
                              " and " + std::to_string(peer) + ": ";
  if (his.kind != kind) stop(between + "the ends do not run the same function");
  if (his.sends != mine.receives.bytes || his.expects != mine.sends.bytes)
    stop(between + "rank " + std::to_string(comm->rank) + " sends " + std::to_string(mine.sends.bytes) +
         " bytes and expects " + std::to_string(mine.receives.bytes) + ", rank " + std::to_string(peer) + " expects " +
         std::to_string(his.expects) + " and sends " + std::to_string(his.sends));
  if (his.sends > 0 && his.sends_registered != static_cast<std::uint64_t>(mine.receives.registered))
    stop(between + "one end's buffer is registered, the other's is not");
  return true;
}

/// A message on its way into a peer's memory.
struct sending {
  int peer;
  const std::byte* from;
  std::size_t bytes, done = 0, chunk = 0;
  std::vector<segment> to;
};
void write_chunk(ncclComm* comm, sending& s) {
  std::size_t left = std::min(s.chunk, s.bytes - s.done), at = s.done;
  for (const segment& place : s.to) {
    if (at >= place.bytes) {
      at -= place.bytes;
      continue;
    }
    const std::size_t now = std::min(left, static_cast<std::size_t>(place.bytes) - at);
    std::memcpy(comm->shared->memory_of(s.peer, place.offset + at), s.from + s.done, now);
    s.done += now, left -= now, at = 0;
    if (left == 0) return;
  }
}
/// All messages of the kernel, a chunk here, a chunk there.
bool write_all(ncclComm* comm, const exchange& what, dice& random) {
  std::vector<sending> all;
  for (const auto& [peer, mine] : what.peers) {
    if (mine.sends.bytes == 0 || peer == comm->rank) continue;
    const post& his = comm->shared->from_to(peer, comm->rank).posts[comm->posted[static_cast<std::size_t>(peer)] % 2];
    all.push_back({peer,
                   device_view(mine.sends.at, mine.sends.bytes, use::read),
                   mine.sends.bytes,
                   0,
                   std::max<std::size_t>(4096, mine.sends.bytes / (1 + random.below(4))),
                   {his.at, his.at + his.segments}});
  }
  while (!all.empty()) {
    if (ended_by_host(comm)) return false;
    const auto at = all.begin() + static_cast<std::ptrdiff_t>(random.below(all.size()));
    write_chunk(comm, *at);
    if (at->done == at->bytes) {
      comm->shared->from_to(comm->rank, at->peer)
          .written.store(comm->posted[static_cast<std::size_t>(at->peer)], std::memory_order_release);
      all.erase(at);
    } else {
      take_time(random);
    }
  }
  return true;
}
/// Spins until all peers satisfy; false where the host ended it.
template <typename Satisfied>
bool spin_until(ncclComm* comm, const exchange& what, Satisfied&& satisfied) {
  spin waiting;
  for (const auto& [peer, mine] : what.peers)
    for (waiting.begin_anew(); peer != comm->rank && !satisfied(peer, mine); waiting.pause())
      if (ended_by_host(comm)) return false;
  return !ended_by_host(comm);
}
bool move_all(ncclComm* comm, const exchange& what) {
  dice random(next_name());
  if (ended_by_host(comm)) return false;
  for (const auto& [peer, mine] : what.peers)
    if (peer != comm->rank) say(comm, peer, mine, what.kind);
  if (!spin_until(comm, what, [&](int peer, const with_peer& m) { return mirrored(comm, peer, m, what.kind); }))
    return false;
  if (const auto self = what.peers.find(comm->rank); self != what.peers.end())
    std::memmove(device_view(self->second.receives.at, self->second.receives.bytes, use::write),
                 device_view(self->second.sends.at, self->second.sends.bytes, use::read), self->second.sends.bytes);
  if (!write_all(comm, what, random)) return false;
  return spin_until(comm, what, [&](int peer, const with_peer& m) {
    return m.receives.bytes == 0 || comm->shared->from_to(peer, comm->rank).written.load(std::memory_order_acquire) ==
                                        comm->posted[static_cast<std::size_t>(peer)];
  });
}

/// First contact with those that the exchange needs; false where it was given up.
bool contact(ncclComm* comm, const exchange& what) {
  static const std::size_t each = static_cast<std::size_t>(setting("EMULATION_PEER_KIB", 4096)) << 10;
  std::vector<int> fresh;
  for (const auto& [peer, mine] : what.peers)
    if (peer != comm->rank && !comm->met[static_cast<std::size_t>(peer)]) fresh.push_back(peer);
  for (const int peer : fresh) {
    if (!count_own(comm->device, each)) {
      fails_with(comm, ncclUnhandledCudaError,
                 "no device memory is left for the connection to rank " + std::to_string(peer));
      return false;
    }
    comm->own_bytes += each;
    comm->shared->from_to(comm->rank, peer).greeted.store(1, std::memory_order_release);
  }
  spin waiting;
  for (const int peer : fresh) {
    while (comm->shared->from_to(peer, comm->rank).greeted.load(std::memory_order_acquire) == 0) {
      if (ended_by_host(comm)) return false;
      waiting.pause();
    }
    comm->met[static_cast<std::size_t>(peer)] = true;
  }
  return true;
}
void no_longer_in_progress(const std::vector<CUstream_st*>& streams) {
  const std::lock_guard hold(streams_lock());
  for (CUstream_st* s : streams) --s->groups_in_progress;
}

}  // namespace

void run_exchange(ncclComm* comm, const exchange& what) {
  if (move_all(comm, what)) {
    if (what.after) what.after();
    count_moved(what, comm->rank);
    return;
  }
  for (const auto& [peer, mine] : what.peers)  // nobody knows what an abort leaves
    if (mine.receives.bytes > 0) {
      std::byte* at = device_view(mine.receives.at, mine.receives.bytes, use::write);
      std::memset(at, 0xdb, std::min<std::size_t>(mine.receives.bytes, 64));
    }
}

void start_exchange(ncclComm* comm, exchange what, std::vector<CUstream_st*> streams) {
  const bool there = contact(comm, what) && !ended_by_host(comm);
  if (there) {
    std::vector<std::uint64_t> uses;
    std::size_t bytes = 0;
    for (const auto& [peer, mine] : what.peers)
      for (const message* m : {&mine.sends, &mine.receives})
        if (m->bytes > 0)
          uses.push_back(begin_use(m->at, m->bytes, what.name + (" of " + text(comm)))), bytes += m->bytes;
    work kernel{what.name + (" of " + text(comm)) + ", " + std::to_string(bytes) + " bytes", {}, {}};
    if (comm->last != nullptr) kernel.after.push_back(comm->last);
    for (std::size_t i = 1; i < streams.size(); ++i)  // the group's streams are joined before it and after it
      for (const ticket_ptr& t : unfinished(streams[i])) kernel.after.push_back(t);
    ++comm->in_flight;
    kernel.run = [comm, what = std::move(what), uses] {
      run_exchange(comm, what);
      for (const std::uint64_t u : uses) end_use(u);
      --comm->in_flight;
    };
    comm->last = issue(streams[0], std::move(kernel), "a group of NCCL", true);
    for (std::size_t i = 1; i < streams.size(); ++i)
      issue(streams[i], {"a wait for a group of NCCL", {comm->last}, {}}, "a group of NCCL", true);
  }
  no_longer_in_progress(streams);
}

}  // namespace emulation
