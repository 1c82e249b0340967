// SPDX-License-Identifier: Apache-2.0
// Processes that exchange packed messages over TCP: each has an address, the lowest is the hub of what they agree on,
// and every two that exchange anything have a connection of their own. Trusted networks only: nothing is encrypted, and
// nobody is asked who it is.
// Builds on: transport/exchange.hpp, transport/process_door.hpp, transport/socket_meeting.hpp,
// transport/sockets/wire.hpp, transport/transport_stop.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <reshard/transport/exchange.hpp>
#include <reshard/transport/process_door.hpp>
#include <reshard/transport/socket_meeting.hpp>
#include <reshard/transport/sockets/wire.hpp>
#include <reshard/transport/transport_stop.hpp>

namespace reshard {

namespace detail {
struct socket_parts {
  template <typename... Made>
  explicit socket_parts(rank_t device, const std::vector<std::string>& addresses, Made&&... made)
      : own(std::make_unique<socket_meeting>(device, addresses, std::forward<Made>(made)...)), meeting(*own),
        wire(meeting) {}
  explicit socket_parts(socket_meeting& over) : meeting(over), wire(meeting) {}

  std::unique_ptr<socket_meeting> own;  // where it was not given one
  socket_meeting& meeting;
  socket_wire wire;
};
}  // namespace detail

/// One process's end of a world of processes: a transport. One thread uses it.
class socket_endpoint : private detail::socket_parts, public exchange<socket_meeting, socket_wire> {
 public:
  /// Device `device` of as many as there are addresses; all are made within the patience, or peer_missing names who was
  /// not. An empty address is that of a device that is gone: it has no end, and no switch may want it. `listening`
  /// listens where others call this device.
  socket_endpoint(rank_t device, const std::vector<std::string>& addresses, listening_socket listening,
                  patience wait = default_patience, exchange_as how = exchange_as::asynchronous,
                  bytes_t round_bytes = usual_round_bytes)
      : detail::socket_parts(device, addresses, std::move(listening), wait),
        exchange(socket_parts::meeting, socket_parts::wire, how, round_bytes) {}
  /// Makes the end of a world that is called at a process's one door, which outlives it: `world` is a number that all
  /// its devices give alike and no other world has, a digest of its job, epoch, attempt and members. Who called before
  /// is waiting at the door; once the end is gone, or could not be made, who calls is turned away.
  /// What waits, the making too, ends once `stop` is requested; a std::stop_token will do.
  socket_endpoint(rank_t device, const std::vector<std::string>& addresses, process_door& door, std::uint64_t world,
                  patience wait = default_patience, const transport_stop& stop = {},
                  exchange_as how = exchange_as::asynchronous, bytes_t round_bytes = usual_round_bytes)
      : detail::socket_parts(device, addresses, door, world, wait, stop),
        exchange(socket_parts::meeting, socket_parts::wire, how, round_bytes) {}
  /// Makes the end of `device`, which listens at its own address.
  socket_endpoint(rank_t device, const std::vector<std::string>& addresses, patience wait = default_patience,
                  exchange_as how = exchange_as::asynchronous, bytes_t round_bytes = usual_round_bytes)
      : socket_endpoint(device, addresses, listening_socket(address_of(device, addresses)), wait, how, round_bytes) {}
  /// Makes the end over a meeting that is there and outlives it, as an end over NCCL is made: devices that only agree
  /// need no more than the meeting. Made by all its devices, without waiting; one end at a time, in one order. The
  /// first switch connects who is not connected by then.
  explicit socket_endpoint(socket_meeting& over, exchange_as how = exchange_as::asynchronous,
                           bytes_t round_bytes = usual_round_bytes)
      : detail::socket_parts(over), exchange(socket_parts::meeting, socket_parts::wire, how, round_bytes) {}

  /// Ends what waits in a call of this end, or will, within about a millisecond: it throws peer_failed with the
  /// sentence, and so do the others, who hear it. The first sentence stays. Called by any thread, while the
  /// end is there; who parts afterwards learns of no survivors. A meeting that was given ends, and all that is over it.
  void stop(const std::string& sentence) { socket_parts::meeting.stop(sentence); }

 private:
  static const std::string& address_of(rank_t device, const std::vector<std::string>& addresses) {
    if (device < 0 || device >= static_cast<rank_t>(addresses.size()))
      refuse("there is no device ", device, " among ", addresses.size(), " addresses");
    return addresses[static_cast<std::size_t>(device)];
  }
};
static_assert(PartingTransport<socket_endpoint>);

}  // namespace reshard
