// SPDX-License-Identifier: Apache-2.0
// The one door of a process, at which all its worlds are called, and its program too: who calls says which world, who
// and what for. Who is early waits there; who is late, calling a world that is over, is turned away.
// Builds on: transport/socket.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <sys/epoll.h>

#include <reshard/base/refusal.hpp>
#include <reshard/transport/socket.hpp>

namespace reshard {

/// What a connection between processes is for. A program's own purposes begin with own_call(0).
enum class call_for : std::uint32_t { meeting = 1, messages, parting, own = 16 };

/// The n-th purpose of a program's own: the library uses none of them.
constexpr call_for own_call(std::uint32_t n) {
  return static_cast<call_for>(static_cast<std::uint32_t>(call_for::own) + n);
}

/// The first bytes of a connection: what it is for, of which world, and who of how many calls.
struct socket_hello {
  std::uint32_t magic = 0x52534833;  // "RSH3"
  call_for what = call_for::meeting;
  std::uint64_t world = 0;
  std::int64_t from = 0;
  std::int64_t devices = 0;  // 0: it does not say
  std::int64_t turn = 0;     // of several that are alike otherwise, which one
};

namespace detail {
/// Says who calls, as the first thing on a connection, if there is one; returns it.
inline owned_descriptor say_hello(owned_descriptor made, const socket_hello& hello) {
  if (made.open()) send_some(made.number(), reinterpret_cast<const std::byte*>(&hello), sizeof hello);
  return made;
}

}  // namespace detail

/// Calls a door and says who calls; nothing where nobody answers within the limit, or before `wakes` is readable. Who
/// is turned away finds the connection ended.
inline owned_descriptor call_door(const std::string& address, const socket_hello& hello, patience limit,
                                  int wakes = -1) {
  return detail::say_hello(call_address(address, limit, wakes), hello);
}

/// Who has called a process and said who it is, and is not fetched yet. All threads may use it, and it has none of its
/// own: whoever polls or fetches lets in all who call, for all; until then they wait in the kernel's queue, as
/// connected. A world that is being made fetches all the time, one that is made polls eight times a patience; a
/// program that wants who is late to hear so at once polls where number() is readable.
class process_door {
  using clock = std::chrono::steady_clock;

 public:
  /// `early`: how long at most who calls waits to be fetched.
  explicit process_door(listening_socket listening, patience early = default_patience)
      : listening_(std::move(listening)), early_(early), callers_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!callers_.open()) detail::throw_socket_error("cannot wait for who calls");
    watch(listening_.number());
  }
  process_door(const process_door&) = delete;
  process_door& operator=(const process_door&) = delete;

  /// What polls as readable where somebody calls.
  int number() const { return callers_.number(); }
  int port() const { return listening_.port(); }

  /// Lets in who calls, and turns away who is late, who has waited too long, and who says no hello.
  void poll() {
    const std::lock_guard lock(mutex_);
    let_in();
  }
  /// The connection of who called for a purpose, of a world and as one of so many devices; nothing where nobody did
  /// (yet). Several calls that are alike are fetched in their order.
  owned_descriptor fetch(call_for what, std::uint64_t world, rank_t from, rank_t devices = 0, index_t turn = 0) {
    const std::lock_guard lock(mutex_);
    let_in();
    const auto at = std::find_if(known_.begin(), known_.end(), [&](const visitor& v) {
      return v.called_as({.what = what, .world = world, .from = from, .devices = devices, .turn = turn});
    });
    if (at == known_.end()) return owned_descriptor();
    owned_descriptor link = std::move(at->link);
    known_.erase(at);
    return link;
  }

  /// A world begins here. A number serves one: it is refused where it has begun before, or is over.
  void open(std::uint64_t world) {
    const std::lock_guard lock(mutex_);
    if (is_among(open_, world)) refuse("world ", world, " is made at this door already; a number serves one world");
    if (is_among(over_, world)) refuse("world ", world, " is over at this door; a number serves one world");
    open_.push_back(world);
  }
  /// A world is over, whether or not it ever began here: who has called it, or calls it from now on, is turned away.
  /// The last 4096 are remembered; who calls an earlier one is taken for early.
  void close(std::uint64_t world) {
    const std::lock_guard lock(mutex_);
    std::erase(open_, world);
    if (is_among(over_, world)) return;
    if (over_.size() == remembered) over_.erase(over_.begin());
    over_.push_back(world);
    let_in();
    std::erase_if(known_, [&](const visitor& v) { return v.said.world == world; });
  }
  /// How many have called and are not fetched.
  std::size_t waiting() {
    const std::lock_guard lock(mutex_);
    let_in();
    return known_.size();
  }

 private:
  static constexpr std::size_t remembered = 4096;
  struct visitor {
    owned_descriptor link;
    socket_hello said;
    std::size_t bytes;  // of the hello, that have come
    clock::time_point since;

    bool called_as(const socket_hello& other) const {
      return said.what == other.what && said.world == other.world && said.from == other.from &&
             said.devices == other.devices && said.turn == other.turn;
    }
    bool gone() const {
      pollfd end{link.number(), POLLRDHUP, 0};
      return ::poll(&end, 1, 0) == 1;
    }
  };

  static bool is_among(const std::vector<std::uint64_t>& list, std::uint64_t world) {
    return std::find(list.begin(), list.end(), world) != list.end();
  }
  void watch(int number) {
    epoll_event readable = {};
    readable.events = EPOLLIN;
    if (::epoll_ctl(callers_.number(), EPOLL_CTL_ADD, number, &readable) != 0)
      detail::throw_socket_error("cannot wait for who calls");
  }

  void let_in() {
    const auto now = clock::now();
    for (owned_descriptor caller = listening_.accept(); caller.open(); caller = listening_.accept()) {
      watch(caller.number());
      calling_.push_back({std::move(caller), {}, 0, now});
    }
    std::erase_if(calling_, [&](visitor& v) { return is_heard(v); });
    const auto late = [&](const visitor& v) { return now - v.since > early_; };
    std::erase_if(calling_, late), std::erase_if(known_, late);
  }
  /// Hears a hello; whether that is over, with the caller known or turned away.
  bool is_heard(visitor& v) {
    const socket_progress p =
        receive_some(v.link.number(), reinterpret_cast<std::byte*>(&v.said) + v.bytes, sizeof v.said - v.bytes);
    v.bytes += p.bytes;
    if (v.bytes < sizeof v.said) return p.ended;
    if (v.said.magic != socket_hello{}.magic || is_among(over_, v.said.world)) return true;
    // who was gone and came again is there once
    std::erase_if(known_, [&](const visitor& before) { return before.called_as(v.said) && before.gone(); });
    ::epoll_ctl(callers_.number(), EPOLL_CTL_DEL, v.link.number(), nullptr);
    known_.push_back(std::move(v));
    return true;
  }

  std::mutex mutex_;
  listening_socket listening_;
  patience early_;
  owned_descriptor callers_;  // an epoll of those that `calling_` has, and the listening socket
  std::vector<visitor> calling_, known_;
  std::vector<std::uint64_t> open_, over_;
};

}  // namespace reshard
