// SPDX-License-Identifier: Apache-2.0
// One connection of pulses: a hello that says of which world and who calls, then beats, and a last word of who leaves
// in good order.
// Builds on: elastic/member_name.hpp, transport/socket.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>

#include <sys/socket.h>

#include <reshard/elastic/member_name.hpp>
#include <reshard/transport/socket.hpp>

namespace reshard::detail {

using pulse_clock = std::chrono::steady_clock;

/// The first bytes of a connection.
struct pulse_hello {
  static constexpr std::uint64_t form = 0x3145534C55505352u;  // "RSPULSE1"

  std::uint64_t magic = form;
  std::uint64_t world = 0;
  char from[member_name::most_characters + 1] = {};

  static pulse_hello of(std::uint64_t world, const member_name& who) {
    pulse_hello h;
    h.world = world;
    std::memcpy(h.from, who.text().data(), who.text().size());
    return h;
  }
  std::string name() const { return {from, ::strnlen(from, sizeof from)}; }
};

/// A line to a neighbour, who is called at `address`, or calls where that is empty.
struct pulse_line {
  enum class news { none, left, ended };

  member_name peer = {};
  std::string address = {};
  owned_descriptor link = owned_descriptor();
  bool left = false;           // in good order
  bool answered = false;       // something was ever heard
  int turned_away = 0;         // calls that nobody took
  pulse_hello said = {};       // of who called and is not known yet
  std::size_t said_bytes = 0;  // of it, that have come
  pulse_clock::time_point heard = pulse_clock::now(), called = {};

  bool calls() const { return !address.empty(); }
  double silent_seconds() const { return std::chrono::duration<double>(pulse_clock::now() - heard).count(); }

  void beat() const { say('.'); }
  /// The last word. A connection that is closed on unread bytes takes back what it said, so it is to be heard to its
  /// end.
  void leave() {
    say('b');
    ::shutdown(link.number(), SHUT_WR);
    heard = pulse_clock::now();
  }
  /// Hears what there is; what ended is closed.
  news hear() {
    std::array<char, 64> bytes;
    while (link.open()) {
      const socket_progress p = receive_some(link.number(), reinterpret_cast<std::byte*>(bytes.data()), bytes.size());
      if (p.bytes > 0) heard = pulse_clock::now(), answered = true;
      left = left || std::memchr(bytes.data(), 'b', p.bytes) != nullptr;
      if (left || p.ended) {
        link.close();
        return left ? news::left : news::ended;
      }
      if (p.bytes < bytes.size()) break;
    }
    return news::none;
  }
  /// Whether who called has said who it is, and is there, or has left in good order. What is no hello is closed; what
  /// comes behind it is heard, as it would wake who waits for ever.
  bool introduces() {
    if (said_bytes < sizeof said) {
      const socket_progress p =
          receive_some(link.number(), reinterpret_cast<std::byte*>(&said) + said_bytes, sizeof said - said_bytes);
      said_bytes += p.bytes;
      if (p.ended || (said_bytes == sizeof said && said.magic != pulse_hello::form)) link.close();
    }
    if (said_bytes == sizeof said) hear();
    return (link.open() || left) && said_bytes == sizeof said;
  }

 private:
  void say(char word) const {
    if (link.open()) send_some(link.number(), reinterpret_cast<const std::byte*>(&word), 1);
  }
};

}  // namespace reshard::detail
