// SPDX-License-Identifier: Apache-2.0
// Pulses: connections of their own between a few members of a world, over which each says that it lives, from a thread
// that does nothing else. The end of a connection, and silence for the patience, are evidence of a death; more they are
// not. They have a listening socket of their own, as they answer who calls before this member knows its world.
// Builds on: elastic/run/pulse_line.hpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>

#include <reshard/elastic/run/pulse_line.hpp>

namespace reshard::detail {

/// How a member was found to be gone.
enum class found_gone { ended, silent };

/// A member, where its pulses are called, and its node.
struct pulse_peer {
  member_name name;
  std::string address, node;
};
/// The first member of each node, then the second of each, ..; nodes by their names, members as given. Each calls the
/// next two in this order, which are on other nodes where there are any; so everybody is heard by up to four.
inline std::vector<pulse_peer> by_turns_of_nodes(const std::vector<pulse_peer>& all) {
  std::vector<std::pair<std::pair<std::size_t, std::string>, std::size_t>> order;
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::size_t before = 0;
    for (std::size_t j = 0; j < i; ++j) before += all[j].node == all[i].node ? 1 : 0;
    order.push_back({{before, all[i].node}, i});
  }
  std::sort(order.begin(), order.end());
  std::vector<pulse_peer> result;
  for (const auto& one : order) result.push_back(all[one.second]);
  return result;
}

/// One member's pulses. Its thread hears and beats; who is gone is told once for each world.
class pulses {
  using clock = pulse_clock;

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
        for (pulse_line& l : lines_) l.heard = now;
      turned = now;
      accept_callers();
      call_out(now);
      hear_all();
      if (now - beaten >= wait_ / 4) {
        beaten = now;
        for (const std::vector<pulse_line>* all : {&lines_, &early_})  // to who is early, too: this process lives
          for (const pulse_line& l : *all) l.beat();
      }
      sleep(beaten);
    }
    if (abandons_.load()) return;
    leave();
    for (const auto end = clock::now() + wait_ / 4; !left_.empty() && clock::now() < end; sleep(clock::now()))
      hear_to_ends();
  }
  void take_world() {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(changed_, false)) return;
    world_ = next_.first;
    told_.clear();
    leave();
    const std::vector<pulse_peer> order = by_turns_of_nodes(next_.second);
    const std::size_t n = order.size();
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t step = 1; step <= 2 && step < n && order[i].name == me_; ++step) {
        const pulse_peer &after = order[(i + step) % n], &before = order[(i + n - step) % n];
        lines_.push_back({.peer = after.name, .address = after.address});
        lines_.push_back({.peer = before.name});  // it calls
      }
  }
  /// Who is left in good order is not found dead by it.
  void leave() {
    for (pulse_line& l : lines_)
      if (l.link.open()) {
        l.leave();
        left_.push_back(std::move(l));
      }
    lines_.clear();
  }
  void hear_to_ends() {
    std::erase_if(left_,
                  [&](pulse_line& l) { return l.hear() != pulse_line::news::none || clock::now() - l.heard > wait_; });
  }
  void accept_callers() {
    for (owned_descriptor caller = listening_.accept(); caller.open(); caller = listening_.accept())
      early_.push_back({.link = std::move(caller), .called = clock::now()});
    for (pulse_line& e : early_) {
      if (!e.introduces() || e.said.world != world_) continue;
      for (pulse_line& l : lines_)
        if (!l.calls() && !l.link.open() && !l.left && l.peer.text() == e.said.name()) {
          l.link = std::move(e.link);
          l.left = std::exchange(e.left, false);  // it may have gone before it was looked at
          l.heard = clock::now();
          break;
        }
    }
    const auto now = clock::now();
    std::erase_if(early_,
                  [&](const pulse_line& e) { return !(e.link.open() || e.left) || now - e.called > 8 * wait_; });
  }
  void call_out(clock::time_point now) {
    for (pulse_line& l : lines_) {
      if (!l.calls() || l.link.open() || l.left || is_told(l.peer) || now - l.called < wait_ / 8) continue;
      l.called = now;
      l.link = call_address(l.address, wait_ / 8);
      // Nobody listens where it said that it would: its process is gone. Once may be an accident of the network.
      if (!l.link.open() && clock::now() - now < wait_ / 16 && ++l.turned_away == 3) say(l, found_gone::ended);
      if (!l.link.open()) continue;
      const pulse_hello mine = pulse_hello::of(world_, me_);
      send_some(l.link.number(), reinterpret_cast<const std::byte*>(&mine), sizeof mine);
    }
  }
  void hear_all() {
    for (pulse_line& l : lines_) {
      // Who was called and never answered may be another at its address.
      if (l.hear() == pulse_line::news::ended && (!l.calls() || l.answered)) say(l, found_gone::ended);
      if (!l.left && clock::now() - l.heard > wait_) say(l, found_gone::silent);
    }
    hear_to_ends();
  }
  void say(const pulse_line& l, found_gone how) {
    if (is_told(l.peer)) return;
    told_.push_back(l.peer);
    tell_(l.peer, how, l.silent_seconds());
  }
  bool is_told(const member_name& who) const { return has_member(told_, who); }

  void sleep(clock::time_point beaten) {
    std::vector<pollfd> waiting = {{wake_.number(), POLLIN, 0}, {listening_.number(), POLLIN, 0}};
    bool calls = false;
    for (const std::vector<pulse_line>* all : {&lines_, &early_, &left_})
      for (const pulse_line& l : *all) {
        if (l.link.open()) waiting.push_back({l.link.number(), POLLIN, 0});
        else calls = calls || l.calls();
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
  std::vector<pulse_line> lines_, early_, left_;
  member_list told_;
  std::thread thread_;
};

}  // namespace reshard::detail
