// SPDX-License-Identifier: Apache-2.0
// The wire of processes over TCP: one connection per pair that exchanges anything, and a header per message, so that
// one of another stage or length is noticed. Whoever waits on it hears the meeting too.
// Builds on: transport/wire.hpp, transport/socket_meeting.hpp, transport/process_door.hpp, transport/socket.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>

#include <reshard/transport/process_door.hpp>
#include <reshard/transport/socket.hpp>
#include <reshard/transport/socket_meeting.hpp>
#include <reshard/transport/wire.hpp>

namespace reshard {

/// One process's end of a wire over TCP; the meeting outlives it.
class socket_wire {
  using clock = std::chrono::steady_clock;

 public:
  /// Made by all devices of the meeting, in one order of wires.
  explicit socket_wire(socket_meeting& meeting)
      : meeting_(&meeting), number_(meeting.next_wire()), lines_(static_cast<std::size_t>(meeting.devices())) {}
  socket_wire(const socket_wire&) = delete;
  socket_wire& operator=(const socket_wire&) = delete;

  /// Begins a connection with each of these devices, of which the lower calls and the other answers. Called by both
  /// ends of each pair, whichever first. Throws peer_failed, as poll does, once the meeting is over.
  void connect(const std::vector<rank_t>& peers) {
    for (const rank_t peer : peers)
      if (!line_to(peer).link.open() && std::find(unconnected_.begin(), unconnected_.end(), peer) == unconnected_.end())
        unconnected_.push_back(peer);
    go_on_connecting();
  }
  std::vector<rank_t> unconnected() const { return unconnected_; }

  void send(message& m) {
    m.done = false;
    line& l = line_to(m.peer);
    l.out.messages.push_back(&m);
    if (l.link.open()) push(l);
  }
  void receive(message& m) {
    m.done = false;
    line_to(m.peer).in.messages.push_back(&m);
  }

  void poll(std::chrono::microseconds at_most) {
    go_on_connecting();
    bool any = false;
    for (line& l : lines_)
      if (l.link.open()) any = push(l) || any, any = pull(l) || any;
    if (!any && at_most.count() > 0) {
      waiting_.clear();
      meeting_->add_to(waiting_);
      for (const line& l : lines_) {
        const int events = (l.out.idle() ? 0 : POLLOUT) | (l.in.idle() ? 0 : POLLIN);
        if (l.link.open() && !l.ended && events != 0)
          waiting_.push_back({l.link.number(), static_cast<short>(events), 0});
      }
      constexpr std::chrono::microseconds looks_again{1000};  // who calls or answers, another may let in
      if (!unconnected_.empty()) at_most = std::min(at_most, looks_again);
      const std::int64_t nanoseconds = std::chrono::nanoseconds(at_most).count();
      const timespec limit{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
      ::ppoll(waiting_.data(), waiting_.size(), &limit, nullptr);
      meeting_->poll();
    } else if (const auto now = clock::now(); now - heard_ > std::chrono::milliseconds(1)) {
      heard_ = now;
      meeting_->poll();
    }
    give_up_ended();
  }

  /// Connections with something unfinished are of no more use, and none is made any more.
  void stop() {
    for (line& l : lines_) {
      if (!l.out.idle() || !l.in.idle()) l.link.close();
      l.out.clear(), l.in.clear(), l.calling = {}, l.called.close();
    }
    unconnected_.clear();
  }

 private:
  struct header {
    std::int64_t stage = 0;
    std::int64_t bytes = 0;
  };
  /// Messages one after the other, of which there are few at a time: what is under way of the first.
  struct queue {
    std::vector<message*> messages;
    header head;
    std::size_t bytes = 0;  // of header and content

    bool idle() const { return messages.empty(); }
    message& front() { return *messages.front(); }
    void pop() {
      front().done = true;
      messages.erase(messages.begin());
      bytes = 0;
    }
    void clear() { messages.clear(), bytes = 0; }
  };
  struct line {
    owned_descriptor link, called;  // and one that nobody has answered yet
    detail::begun_call calling;
    clock::time_point dialled = {};
    queue out, in;
    bool ended = false, doubted = false;
    clock::time_point since = {};  // it ended
  };

  line& line_to(rank_t peer) { return lines_[static_cast<std::size_t>(peer)]; }
  void end(line& l) {
    if (!std::exchange(l.ended, true)) l.since = clock::now();
  }

  void go_on_connecting() {
    if (unconnected_.empty()) return;
    meeting_->require_whole();
    std::erase_if(unconnected_,
                  [this](rank_t peer) { return peer < meeting_->device() ? answers(peer) : calls(peer); });
  }
  /// Takes the call of a lower device, and answers it by a byte; whether there is a connection.
  bool answers(rank_t peer) {
    line& l = line_to(peer);
    l.link = meeting_->fetch(peer, call_for::messages, number_);
    if (!l.link.open()) return false;
    constexpr std::byte here{1};
    send_some(l.link.number(), &here, 1);
    return true;
  }
  /// Calls a higher device, again where nobody listens yet, or it was kept waiting too long; whether it has answered.
  bool calls(rank_t peer) {
    line& l = line_to(peer);
    const auto now = clock::now();
    if (!l.called.open()) {
      if (!l.calling.under_way() && now - l.dialled > std::chrono::milliseconds(1))
        l.dialled = now, l.calling = detail::begun_call(meeting_->address(peer), meeting_->of_one() / 8);
      l.called = detail::say_hello(l.calling.answered(), meeting_->hello(call_for::messages, number_));
      if (!l.called.open()) return false;
    }
    std::byte answer;
    const socket_progress heard = receive_some(l.called.number(), &answer, 1);
    if (heard.bytes > 0) std::swap(l.link, l.called);
    if (heard.ended) l.called.close();
    return l.link.open();
  }

  /// Sends what the kernel takes; whether that was something.
  bool push(line& l) {
    bool any = false;
    while (!l.out.idle() && !l.ended) {
      queue& q = l.out;
      message& m = q.front();
      q.head = {m.stage, m.bytes};
      const bool in_head = q.bytes < sizeof(header);
      const std::size_t at = in_head ? q.bytes : q.bytes - sizeof(header);
      const std::size_t left = (in_head ? sizeof(header) : static_cast<std::size_t>(m.bytes)) - at;
      const socket_progress p =
          send_some(l.link.number(), (in_head ? reinterpret_cast<const std::byte*>(&q.head) : m.data) + at, left);
      if (p.ended) end(l);
      if (p.bytes == 0) break;
      any = true;
      q.bytes += p.bytes;
      if (q.bytes == sizeof(header) + static_cast<std::size_t>(m.bytes)) q.pop();
    }
    return any;
  }
  /// Receives what the kernel has, of what is wanted.
  bool pull(line& l) {
    bool any = false;
    while (!l.in.idle() && !l.ended) {
      queue& q = l.in;
      message& m = q.front();
      const bool in_head = q.bytes < sizeof(header);
      const std::size_t at = in_head ? q.bytes : q.bytes - sizeof(header);
      const std::size_t left = (in_head ? sizeof(header) : static_cast<std::size_t>(m.bytes)) - at;
      const socket_progress p =
          receive_some(l.link.number(), (in_head ? reinterpret_cast<std::byte*>(&q.head) : m.data) + at, left);
      if (p.ended) end(l);
      if (p.bytes == 0) break;
      any = true;
      q.bytes += p.bytes;
      if (in_head && q.bytes == sizeof(header) && (q.head.stage != m.stage || q.head.bytes != m.bytes))
        refuse("device ", meeting_->device(), " expects ", m.bytes, " bytes of stage ", m.stage, " from device ",
               m.peer, ", which sends ", q.head.bytes, " of stage ", q.head.stage);
      if (q.bytes == sizeof(header) + static_cast<std::size_t>(m.bytes)) q.pop();
    }
    return any;
  }
  /// A connection that ended in the midst of something is a device's death, or that of one that it waited for: the hub
  /// knows which, and is asked. Where it does not answer for long, this device gives up by itself.
  void give_up_ended() {
    for (std::size_t d = 0; d < lines_.size(); ++d) {
      line& l = lines_[d];
      if (!l.ended || (l.out.idle() && l.in.idle())) continue;
      if (!std::exchange(l.doubted, true)) meeting_->doubt(static_cast<rank_t>(d));
      if (clock::now() - l.since < meeting_->of_one() / 2) continue;
      const std::string sentence = detail::text_of("reshard: device ", d, " is gone: its connection ended");
      meeting_->give_up(sentence);
      throw peer_failed(sentence);
    }
  }

  socket_meeting* meeting_;
  index_t number_;           // of the wires over the meeting
  std::vector<line> lines_;  // by device
  std::vector<rank_t> unconnected_;
  std::vector<pollfd> waiting_;
  clock::time_point heard_ = {};
};
static_assert(Wire<socket_wire>);

}  // namespace reshard
