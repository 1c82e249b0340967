// SPDX-License-Identifier: Apache-2.0
// The devices of one process, a thread each, that exchange packed messages as processes would. For testing layouts,
// schedules and what stands on the exchange; transport/thread_group.hpp is faster.
// Builds on: transport/exchange.hpp, transport/threads/mailbox.hpp, transport/threads/rendezvous.hpp.
#pragma once

#include <deque>

#include <reshard/transport/exchange.hpp>
#include <reshard/transport/threads/mailbox.hpp>
#include <reshard/transport/threads/rendezvous.hpp>

namespace reshard {

/// The devices of one process, a thread each, that exchange packed messages.
class mailbox_group {
 public:
  explicit mailbox_group(rank_t devices, patience wait = default_patience, exchange_as how = exchange_as::asynchronous,
                         bytes_t round_bytes = usual_round_bytes)
      : meeting_(devices, wait), boxes_(static_cast<std::size_t>(devices)), how_(how), round_bytes_(round_bytes) {
    meeting_.on_break([this] {
      for (mailbox& box : boxes_) box.wake();
    });
  }

 private:
  struct parts {
    meeting_of_threads meeting;
    mailbox_wire wire;
  };

 public:
  class endpoint : private parts, public exchange<meeting_of_threads, mailbox_wire> {
   public:
    endpoint(mailbox_group& world, rank_t device)
        : parts{{world.meeting_, device}, {world.boxes_, device}},
          exchange(parts::meeting, parts::wire, world.how_, world.round_bytes_) {}
  };

  rank_t devices() const { return meeting_.devices(); }
  /// The end of one device, for the thread that is this device. Its destruction is that the device leaves.
  endpoint at(rank_t device) { return endpoint(*this, device); }

  /// A device that never came to be.
  void leave(rank_t device, const std::string& sentence) { meeting_.leave(device, sentence); }

  /// Calls body(endpoint) for every device, each on a thread of its own.
  template <typename Body>
  void run(Body&& body) {
    run_devices(*this, static_cast<Body&&>(body));
  }

 private:
  rendezvous meeting_;
  std::deque<mailbox> boxes_;
  exchange_as how_;
  bytes_t round_bytes_;
};
static_assert(Transport<mailbox_group::endpoint>);

}  // namespace reshard
