// SPDX-License-Identifier: Apache-2.0
// A wire between threads that is as slow as one likes: a message takes its time, and next to no processor. Every device
// has a port each way, which passes so many bytes a second, one message after the other, and passes each as it comes; a
// message is there a latency after both its ports have passed it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <sys/prctl.h>

#include <reshard/transport/wire.hpp>

namespace testing {

/// What the wires of one world share.
class throttle {
 public:
  using clock = std::chrono::steady_clock;

  throttle(reshard::rank_t devices, std::chrono::nanoseconds latency)
      : latency_(latency), ports_(static_cast<std::size_t>(devices)) {}

  /// Asked for while nothing is on its way; 0 is as fast as memory.
  void set_rate(double bytes_per_second) { rate_ = bytes_per_second; }
  /// Ends every poll that waits; for rendezvous::on_break.
  void wake() { ++events_; }

 private:
  friend class throttled_wire;
  struct passing {
    reshard::rank_t from;
    reshard::message* sent;
    clock::time_point due;
    bool copied = false, taken = false;
  };
  struct port {
    std::mutex mutex;              // of the list
    std::deque<passing> incoming;  // in the order of posts
    clock::time_point free_in = {}, free_out = {};
  };

  /// When a message is there that is posted now.
  clock::time_point due_of(reshard::rank_t from, const reshard::message& m) {
    const std::lock_guard lock(ports_mutex_);
    const std::chrono::duration<double> takes(rate_ > 0 ? static_cast<double>(m.bytes) / rate_ : 0);
    clock::time_point &out = ports_[static_cast<std::size_t>(from)].free_out,
                      &in = ports_[static_cast<std::size_t>(m.peer)].free_in;
    for (clock::time_point* const free : {&out, &in})
      *free = std::max(clock::now(), *free) + std::chrono::duration_cast<clock::duration>(takes);
    return std::max(out, in) + latency_;
  }

  std::chrono::nanoseconds latency_;
  double rate_ = 0;
  std::atomic<std::uint64_t> events_ = 0;
  std::mutex ports_mutex_;
  std::deque<port> ports_;
};

/// One device's end.
class throttled_wire {
 public:
  /// Made by the thread that uses it, which sleeps exactly from then on.
  throttled_wire(throttle& shared, reshard::rank_t device) : shared_(&shared), device_(device) {
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  }
  ~throttled_wire() { stop(); }

  void connect(const std::vector<reshard::rank_t>&) {}
  std::vector<reshard::rank_t> unconnected() const { return {}; }
  void send(reshard::message& m) {
    m.done = false;
    sent_.push_back(&m);
    const throttle::clock::time_point due = shared_->due_of(device_, m);
    throttle::port& to = port(m.peer);
    const std::lock_guard lock(to.mutex);
    to.incoming.push_back({device_, &m, due});
  }
  void receive(reshard::message& m) {
    m.done = false;
    wanted_.push_back(&m);
  }
  void poll(std::chrono::microseconds at_most) {
    const auto until = throttle::clock::now() + at_most;
    while (true) {
      const throttle::clock::time_point next = take();
      const bool any = finish_sent() || took_;
      const auto now = throttle::clock::now();
      const std::uint64_t events = shared_->events_;
      if (any || now >= until || std::exchange(seen_, events) != events) return;
      std::this_thread::sleep_until(std::min({next, until, now + std::chrono::microseconds(20)}));
    }
  }
  void stop() {
    for (reshard::message* m : sent_) {
      throttle::port& to = port(m->peer);
      const std::lock_guard lock(to.mutex);
      std::erase_if(to.incoming, [m](const throttle::passing& p) { return p.sent == m; });
    }
    sent_.clear();
    wanted_.clear();
  }

 private:
  throttle::port& port(reshard::rank_t device) { return shared_->ports_[static_cast<std::size_t>(device)]; }

  /// Takes what is wanted and there; when the next one will be.
  throttle::clock::time_point take() {
    throttle::clock::time_point next = throttle::clock::time_point::max();
    took_ = false;
    const std::lock_guard lock(port(device_).mutex);
    auto& incoming = port(device_).incoming;
    for (std::size_t i = 0; i < incoming.size(); ++i) {
      throttle::passing& p = incoming[i];
      const bool first = std::none_of(incoming.begin(), incoming.begin() + static_cast<std::ptrdiff_t>(i),
                                      [&](const throttle::passing& q) { return q.from == p.from && !q.taken; });
      if (p.taken || !first) continue;
      const auto want =
          std::find_if(wanted_.begin(), wanted_.end(), [&](const reshard::message* m) { return m->peer == p.from; });
      if (want == wanted_.end()) continue;
      if (!std::exchange(p.copied, true))  // long before it is due, so that it takes no time on its way
        std::memcpy((*want)->data, p.sent->data, static_cast<std::size_t>(p.sent->bytes));
      if (throttle::clock::now() < p.due) {
        next = std::min(next, p.due);
        continue;
      }
      (*want)->done = true;
      wanted_.erase(want);
      p.taken = true;
      took_ = true;
    }
    return next;
  }
  /// Marks what has been taken; whether there was any.
  bool finish_sent() {
    bool any = false;
    for (std::size_t i = 0; i < sent_.size();) {
      throttle::port& to = port(sent_[i]->peer);
      const std::lock_guard lock(to.mutex);
      const auto at = std::find_if(to.incoming.begin(), to.incoming.end(),
                                   [&](const throttle::passing& p) { return p.sent == sent_[i]; });
      if (at == to.incoming.end() || !at->taken) {
        ++i;
        continue;
      }
      to.incoming.erase(at);
      sent_[i]->done = true;
      sent_.erase(sent_.begin() + static_cast<std::ptrdiff_t>(i));
      any = true;
    }
    return any;
  }

  throttle* shared_;
  reshard::rank_t device_;
  std::vector<reshard::message*> sent_, wanted_;  // in the order of their posts
  bool took_ = false;
  std::uint64_t seen_ = 0;
};
static_assert(reshard::Wire<throttled_wire>);

}  // namespace testing
