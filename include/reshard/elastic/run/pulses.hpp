// SPDX-License-Identifier: Apache-2.0
// Pulses: connections of their own between a few members of a world, over which each says that it lives, from a thread
// that does nothing else. The end of a connection, and silence for the patience, are evidence of a death; more they are
// not.
// Builds on: elastic/member_name.hpp, transport/socket.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>

#include <reshard/elastic/member_name.hpp>
#include <reshard/transport/socket.hpp>

namespace reshard::detail {

/// How a member was found to be gone.
enum class found_gone { ended, silent };

/// Who calls whom: each of n members, in an order in which neighbours are on other nodes where there are any, calls the
/// next two. So everybody is heard by up to four.
struct pulse_peer {
  member_name name;
  std::string address, node;
};
/// The order: the first member of each node, then the second of each, ..; nodes by their names, members as given.
inline std::vector<pulse_peer> by_turns_of_nodes(const std::vector<pulse_peer>& all) {
  std::vector<std::pair<std::pair<std::size_t, std::string>, std::size_t>> order;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto before =
        static_cast<std::size_t>(std::count_if(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(i),
                                               [&](const pulse_peer& p) { return p.node == all[i].node; }));
    order.push_back({{before, all[i].node}, i});
  }
  std::sort(order.begin(), order.end());
  std::vector<pulse_peer> result;
  for (const auto& one : order) result.push_back(all[one.second]);
  return result;
}

/// One member's pulses. Its thread hears and beats; who is gone is told once for each world.
class pulses {
  using clock = std::chrono::steady_clock;

 public:
  using told = std::function<void(const member_name&, found_gone, double silent_seconds)>;

  pulses(const member_name& me, listening_socket listening, patience wait, told tell)
      : me_(me), listening_(std::move(listening)), wait_(wait), tell_(std::move(tell)),
        wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), thread_([this] { run(); }) {}
  pulses(const pulses&) = delete;
  ~pulses() {
    ends_.store(true);
    wake();
    thread_.join();
  }

  int port() const { return listening_.port(); }
  /// This member ends, and is still of the world: its connections end as those of who died.
  void abandon() { abandons_.store(true); }
  /// From now on the members of this world are heard; `world` is its number, which both ends of a connection say.
  void hear(std::uint64_t world, const std::vector<pulse_peer>& members) {
    const std::lock_guard lock(mutex_);
    next_ = {world, members};
    changed_ = true;
    wake();
  }

 private:
  struct hello {
    std::uint64_t magic = 0x3145534C55505352u;  // "RSPULSE1"
    std::uint64_t world = 0;
    char from[member_name::most_characters + 1] = {};
  };
  struct line {
    member_name peer = {};
    owned_descriptor link;
    std::string address = {};  // where this one calls; empty where it is called
    bool known = false;        // who called has said who it is
    bool left = false;         // in good order
    hello said = {};
    std::size_t heard_bytes = 0;
    int turned_away = 0;
    clock::time_point heard = clock::now();
    clock::time_point called = {};
  };

  void wake() const {
    const std::uint64_t one = 1;
    static_cast<void>(::write(wake_.number(), &one, sizeof one));
  }

  void run() {
    auto beaten = clock::now(), turned = clock::now();
    while (!ends_.load()) {
      take_world();
      const auto now = clock::now();
      if (now - turned > wait_ / 2)  // it was away itself
        for (line& l : lines_) l.heard = now;
      turned = now;
      accept_callers();
      call_out(now);
      for (line& l : lines_) hear(l);
      read_to_ends();
      if (now - beaten >= wait_ / 4) {
        beaten = now;
        for (std::vector<line>* all : {&lines_, &early_})  // to who is early, too: this process lives
          for (line& l : *all)
            if (l.link.open()) send_some(l.link.number(), reinterpret_cast<const std::byte*>("."), 1);
      }
      judge(clock::now());
      sleep(beaten);
    }
    if (abandons_.load()) return;
    leave();
    for (const auto end = clock::now() + wait_ / 4; !left_.empty() && clock::now() < end; sleep(clock::now()))
      read_to_ends();
  }
  void take_world() {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(changed_, false)) return;
    world_ = next_.first;
    told_.clear();
    leave();
    lines_.clear();
    const std::vector<pulse_peer> order = by_turns_of_nodes(next_.second);
    const std::size_t n = order.size();
    for (std::size_t i = 0; i < n; ++i) {
      if (order[i].name != me_) continue;
      for (std::size_t step = 1; step <= 2 && step < n; ++step) {
        const std::size_t after = (i + step) % n, before = (i + n - step) % n;
        line& out = lines_.emplace_back();
        out.peer = order[after].name, out.address = order[after].address, out.known = true;
        lines_.emplace_back().peer = order[before].name;  // it calls
      }
    }
  }
  /// Who is left in good order is not found dead by it. A connection that is closed on unread bytes takes back what it
  /// said last, so it is read to its end.
  void leave() {
    for (line& l : lines_) {
      if (!l.link.open()) continue;
      send_some(l.link.number(), reinterpret_cast<const std::byte*>("b"), 1);
      ::shutdown(l.link.number(), SHUT_WR);
      l.heard = clock::now();
      left_.push_back(std::move(l));
    }
  }
  void read_to_ends() {
    std::array<std::byte, 64> bytes;
    std::erase_if(left_, [&](line& l) {
      for (;;) {
        const socket_progress p = receive_some(l.link.number(), bytes.data(), bytes.size());
        if (p.ended) return true;
        if (p.bytes < bytes.size()) return clock::now() - l.heard > wait_;
      }
    });
  }
  void accept_callers() {
    for (owned_descriptor caller = listening_.accept(); caller.open(); caller = listening_.accept()) {
      early_.emplace_back();
      early_.back().link = std::move(caller);
    }
    for (line& e : early_) {
      auto* const into = reinterpret_cast<std::byte*>(&e.said);
      const socket_progress p = receive_some(e.link.number(), into + e.heard_bytes, sizeof(hello) - e.heard_bytes);
      e.heard_bytes += p.bytes;
      const hello none;
      if (p.ended || (e.heard_bytes == sizeof(hello) && e.said.magic != none.magic)) e.link.close();
      if (e.heard_bytes < sizeof(hello) || !e.link.open()) continue;
      e.said.from[member_name::most_characters] = 0;
      for (line& l : lines_)
        if (e.said.world == world_ && !l.link.open() && l.address.empty() && l.peer.text() == e.said.from) {
          l.link = std::move(e.link);
          l.known = true;
          l.heard = clock::now();
          break;
        }
    }
    const auto now = clock::now();
    std::erase_if(early_, [&](const line& e) { return !e.link.open() || now - e.heard > 8 * wait_; });
  }
  void call_out(clock::time_point now) {
    for (line& l : lines_) {
      if (l.address.empty() || l.link.open() || l.left || is_told(l.peer) || now - l.called < wait_ / 8) continue;
      l.called = now;
      l.link = call_address(l.address, wait_ / 8);
      // Nobody listens where it said that it would: its process is gone. Once may be an accident of the network.
      if (!l.link.open() && clock::now() - now < wait_ / 16 && ++l.turned_away == 3) say(l, found_gone::ended);
      if (!l.link.open()) continue;
      hello mine;
      mine.world = world_;
      std::memcpy(mine.from, me_.text().data(), me_.text().size());
      send_some(l.link.number(), reinterpret_cast<const std::byte*>(&mine), sizeof mine);
    }
  }
  void hear(line& l) {
    if (!l.link.open() || !l.known) return;
    std::array<std::byte, 64> bytes;
    for (;;) {
      const socket_progress p = receive_some(l.link.number(), bytes.data(), bytes.size());
      if (p.bytes > 0) l.heard = clock::now(), l.heard_bytes += p.bytes;
      l.left =
          l.left || std::count(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(p.bytes), std::byte{'b'}) > 0;
      if (l.left) return l.link.close();
      if (p.ended) {
        l.link.close();
        if (l.address.empty() || l.heard_bytes > 0) say(l, found_gone::ended);  // who was never heard may be another
        return;
      }
      if (p.bytes < bytes.size()) return;
    }
  }
  void judge(clock::time_point now) {
    for (line& l : lines_)
      if (!l.left && !is_told(l.peer) && now - l.heard > wait_) say(l, found_gone::silent);
  }
  void say(const line& l, found_gone how) {
    if (is_told(l.peer)) return;
    told_.push_back(l.peer);
    tell_(l.peer, how, std::chrono::duration<double>(clock::now() - l.heard).count());
  }
  bool is_told(const member_name& who) const { return has_member(told_, who); }

  void sleep(clock::time_point beaten) {
    std::vector<pollfd> waiting = {{wake_.number(), POLLIN, 0}, {listening_.number(), POLLIN, 0}};
    bool calls = false;
    for (const std::vector<line>* all : {&lines_, &early_, &left_})
      for (const line& l : *all) {
        if (l.link.open()) waiting.push_back({l.link.number(), POLLIN, 0});
        else calls = calls || !l.address.empty();
      }
    const auto until = std::chrono::duration_cast<patience>(beaten + wait_ / 4 - clock::now()) + patience(1);
    const auto limit = calls ? std::min(until, wait_ / 8 + patience(1)) : until;
    ::poll(waiting.data(), waiting.size(), static_cast<int>(std::max<std::int64_t>(limit.count(), 1)));
    std::uint64_t drained = 0;
    static_cast<void>(::read(wake_.number(), &drained, sizeof drained));
  }

  member_name me_;
  listening_socket listening_;
  patience wait_;
  told tell_;
  owned_descriptor wake_;
  std::atomic<bool> ends_ = false, abandons_ = false;
  std::mutex mutex_;  // of next_ and changed_
  std::pair<std::uint64_t, std::vector<pulse_peer>> next_;
  bool changed_ = false;
  std::uint64_t world_ = 0;
  std::vector<line> lines_, early_, left_;
  member_list told_;
  std::thread thread_;
};

}  // namespace reshard::detail
