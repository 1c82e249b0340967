// SPDX-License-Identifier: Apache-2.0
// A wire between the threads of one process: a sender leaves word of its message in the receiver's mailbox, the
// receiver copies from the sender's memory when it polls, and leaves word that it is taken.
// Builds on: transport/wire.hpp, base/refusal.hpp and the threads of C++.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <vector>

#include <reshard/base/refusal.hpp>
#include <reshard/transport/wire.hpp>

namespace reshard {

/// What others leave for one device: letters that it has not taken, and which of its own were taken.
class mailbox {
 public:
  /// Wakes the device, where it waits.
  void wake() {
    const std::lock_guard lock(mutex_);
    ++events_;
    changed_.notify_all();
  }

 private:
  friend class mailbox_wire;
  struct letter {
    rank_t from;
    message* sent;
    bool being_read = false;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t events_ = 0;
  std::vector<letter> letters_;  // of each sender in its order
  std::vector<message*> taken_;
};

/// One device's end of a wire of mailboxes.
class mailbox_wire {
 public:
  /// Box d is device d's; they outlive this.
  mailbox_wire(std::deque<mailbox>& boxes, rank_t device) : boxes_(&boxes), device_(device) {
    const std::size_t usual = 2 * boxes.size();  // two messages to a peer at a time
    const std::lock_guard lock(own().mutex_);    // others may have sent something already
    for (std::vector<message*>* list : {&wanted_, &sent_, &taken_, &own().taken_}) list->reserve(usual);
    own().letters_.reserve(usual);
  }
  mailbox_wire(const mailbox_wire&) = delete;
  mailbox_wire& operator=(const mailbox_wire&) = delete;
  ~mailbox_wire() { stop(); }

  void connect(const std::vector<rank_t>&) {}  // every box is there
  std::vector<rank_t> unconnected() const { return {}; }

  void send(message& m) {
    m.done = false;
    sent_.push_back(&m);
    mailbox& to = box(m.peer);
    const std::lock_guard lock(to.mutex_);
    to.letters_.push_back({device_, &m});
    ++to.events_;
    to.changed_.notify_all();
  }
  void receive(message& m) {
    m.done = false;
    wanted_.push_back(&m);
  }

  void poll(std::chrono::microseconds at_most) {
    const bool read = read_letters();
    std::unique_lock lock(own().mutex_);
    if (!read && at_most.count() > 0 && own().taken_.empty()) {
      own().changed_.wait_for(lock, at_most, [&] { return own().events_ != seen_; });
      lock.unlock();
      read_letters();
      lock.lock();
    }
    seen_ = own().events_;
    taken_.swap(own().taken_);
    lock.unlock();
    for (message* m : taken_) {
      const auto at = std::find(sent_.begin(), sent_.end(), m);
      if (at == sent_.end()) continue;  // taken back meanwhile
      m->done = true;
      sent_.erase(at);
    }
    taken_.clear();
  }

  /// Takes back what nobody has read, the last first, so that nobody takes one for another; waits for who is reading.
  void stop() {
    wanted_.clear();
    for (auto at = sent_.rbegin(); at != sent_.rend(); ++at) {
      const message* const m = *at;
      mailbox& to = box(m->peer);
      std::unique_lock lock(to.mutex_);
      const auto mine = [m](const mailbox::letter& l) { return l.sent == m; };
      to.changed_.wait(lock, [&] {
        return std::none_of(to.letters_.begin(), to.letters_.end(),
                            [&](const mailbox::letter& l) { return mine(l) && l.being_read; });
      });
      std::erase_if(to.letters_, mine);
    }
    sent_.clear();
    const std::lock_guard lock(own().mutex_);
    own().taken_.clear();
  }

 private:
  mailbox& box(rank_t device) { return (*boxes_)[static_cast<std::size_t>(device)]; }
  mailbox& own() { return box(device_); }

  /// Takes every letter that is wanted, each sender's in order; whether there was one.
  bool read_letters() {
    bool any = false;
    for (std::size_t i = 0; i < wanted_.size();) {
      message& want = *wanted_[i];
      const bool first_of_peer = std::none_of(wanted_.begin(), wanted_.begin() + static_cast<std::ptrdiff_t>(i),
                                              [&](const message* m) { return m->peer == want.peer; });
      if (first_of_peer && read_letter(want))
        wanted_.erase(wanted_.begin() + static_cast<std::ptrdiff_t>(i)), any = true;
      else ++i;
    }
    return any;
  }
  bool read_letter(message& want) {
    const message* sent = nullptr;
    {
      const std::lock_guard lock(own().mutex_);
      const auto at = letter_of(want.peer);
      if (at == own().letters_.end()) return false;
      if (at->sent->bytes != want.bytes)
        refuse("device ", device_, " expects ", want.bytes, " bytes from device ", want.peer, " in stage ", want.stage,
               ", which sends ", at->sent->bytes);
      at->being_read = true;
      sent = at->sent;
    }
    std::memcpy(want.data, sent->data, static_cast<std::size_t>(want.bytes));
    want.done = true;
    message* whose = nullptr;
    {
      const std::lock_guard lock(own().mutex_);
      const auto at = letter_of(want.peer);
      whose = at->sent;
      own().letters_.erase(at);
      own().changed_.notify_all();  // who stops may wait for this
    }
    mailbox& sender = box(want.peer);
    const std::lock_guard lock(sender.mutex_);
    sender.taken_.push_back(whose);
    ++sender.events_;
    sender.changed_.notify_all();
    return true;
  }
  std::vector<mailbox::letter>::iterator letter_of(rank_t peer) {
    return std::find_if(own().letters_.begin(), own().letters_.end(),
                        [peer](const mailbox::letter& l) { return l.from == peer; });
  }

  std::deque<mailbox>* boxes_;
  rank_t device_;
  std::vector<message*> wanted_;  // in the order of their posts
  std::vector<message*> sent_;    // and not taken
  std::vector<message*> taken_;
  std::uint64_t seen_ = 0;
};
static_assert(Wire<mailbox_wire>);

}  // namespace reshard
