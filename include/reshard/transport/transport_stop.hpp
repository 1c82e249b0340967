// SPDX-License-Identifier: Apache-2.0
// How another thread ends whatever waits: it asks with a sentence, and who waits in a poll wakes and says it.
// Builds on: transport/socket.hpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include <sys/eventfd.h>

#include <reshard/transport/socket.hpp>

namespace reshard {

/// A wish to end what waits, which all copies share: made before what it shall end, so that its making can be ended
/// too. All threads may use it.
class transport_stop {
 public:
  transport_stop() : shared_(std::make_shared<state>()) {}
  /// Asks by itself, with the sentence, once the token's source does.
  transport_stop(std::stop_token token, std::string sentence = "reshard: stopped by this process") : transport_stop() {
    static_cast<void>(shared_->asks.emplace(std::move(token), asking{shared_.get(), std::move(sentence)}));
  }

  /// Asks, if nobody has before; who waits ends within about a millisecond, and throws peer_failed with the sentence.
  void request(const std::string& sentence) const { shared_->request(sentence); }
  bool requested() const { return shared_->requested.load(std::memory_order_acquire); }
  /// Why; empty before.
  std::string sentence() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->sentence;
  }
  /// What polls as readable from then on.
  int number() const { return shared_->event.number(); }
  /// Sleeps so long, or until it is requested; whether it is.
  bool sleeps(patience limit) const {
    pollfd asked{number(), POLLIN, 0};
    ::poll(&asked, 1, static_cast<int>(limit.count()));
    return requested();
  }
  void require_none() const {
    if (requested()) throw peer_failed(sentence());
  }

 private:
  struct state;
  struct asking {
    state* of;
    std::string sentence;
    void operator()() const { of->request(sentence); }
  };
  struct state {
    state() {
      if (!event.open()) detail::throw_socket_error("cannot wait for a stop");
    }
    void request(const std::string& why) {
      const std::lock_guard lock(mutex);
      if (requested.load(std::memory_order_relaxed)) return;
      sentence = why;
      requested.store(true, std::memory_order_release);
      const std::uint64_t one = 1;
      static_cast<void>(!::write(event.number(), &one, sizeof one));
    }
    std::mutex mutex;
    std::string sentence;
    std::atomic<bool> requested = false;
    owned_descriptor event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    std::optional<std::stop_callback<asking>> asks;  // goes first
  };
  std::shared_ptr<state> shared_;
};

}  // namespace reshard
