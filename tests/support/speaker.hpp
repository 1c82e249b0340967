// SPDX-License-Identifier: Apache-2.0
// An end of a meeting over TCP that a test speaks for: it says and hears the words that the test wants, when it wants.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>

#include <reshard/transport/process_door.hpp>
#include <reshard/transport/socket_meeting.hpp>
#include <reshard/transport/sockets/frames.hpp>

namespace testing {

struct speaker {
  using word = reshard::hub_word;
  using clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds ample{10};

  reshard::framed_link link = {};
  int beats = 0;  // frames that are no words, heard so far
  /// Done while it waits, as where who shall answer is on the same thread.
  std::function<void()> meanwhile = [] {};

  void say(word::kind what, std::array<std::int64_t, 3> numbers = {}, const std::string& text = {}) {
    const word all{what, numbers, text};
    std::string body;
    all.append_to(body);
    link.post(static_cast<std::uint32_t>(what), body);
  }
  void beat() { link.post(0, {}); }

  /// The next word that comes; nothing where the connection ends, or ten seconds do.
  std::optional<word> hears() {
    for (const auto end = clock::now() + ample; clock::now() < end; meanwhile()) {
      while (const std::optional<reshard::socket_frame> frame = link.next()) {
        if (word::numbers_of(frame->kind) >= 0) return word::of(frame->kind, frame->body);
        beats += frame->kind == 0 && frame->body.empty() ? 1 : 1'000'000;
      }
      if (!link.open()) return std::nullopt;
      pollfd some{link.number(), POLLIN, 0};
      ::poll(&some, 1, 1);
    }
    return std::nullopt;
  }
  /// Whether nothing but beats has come by now.
  bool hears_nothing() {
    while (const std::optional<reshard::socket_frame> frame = link.next()) {
      if (frame->kind != 0) return false;
      ++beats;
    }
    return link.open();
  }
};

/// A hub, device 0 of a world in which a test speaks for all others, which have addresses where they can be called.
struct spoken_to_hub {
  reshard::process_door door{reshard::listening_socket("127.0.0.1:0")};
  std::vector<reshard::listening_socket> listening;  // device d's at d - 1
  std::vector<std::string> addresses{"127.0.0.1:" + std::to_string(door.port())};
  std::vector<speaker> others;  // device d at d - 1
  std::optional<reshard::socket_meeting> hub;

  spoken_to_hub(reshard::rank_t devices, reshard::patience wait, std::uint64_t world = 7) {
    for (reshard::rank_t d = 1; d < devices; ++d) {
      listening.emplace_back("127.0.0.1:0");
      addresses.push_back("127.0.0.1:" + std::to_string(listening.back().port()));
    }
    auto making = std::async(std::launch::async, [&] { hub.emplace(0, addresses, door, world, wait); });
    for (reshard::rank_t d = 1; d < devices; ++d) {
      const reshard::socket_hello hello{
          .what = reshard::call_for::meeting, .world = world, .from = d, .devices = devices};
      others.push_back({reshard::framed_link(reshard::call_door(addresses[0], hello, speaker::ample))});
      others.back().say(speaker::word::kind::proposal);
    }
    making.get();
    for (speaker& other : others) {
      REQUIRE(other.hears() == speaker::word{speaker::word::kind::agreement, {0, 0, -1}, {}});
      other.meanwhile = [this] { hub->poll(); };
    }
  }
  speaker& device(reshard::rank_t d) { return others[static_cast<std::size_t>(d - 1)]; }
};

/// A hub that a test speaks for, and device 1 of 2, which is called to it.
struct spoken_for_hub {
  reshard::process_door at{reshard::listening_socket("127.0.0.1:0")}, door{reshard::listening_socket("127.0.0.1:0")};
  std::vector<std::string> addresses{"127.0.0.1:" + std::to_string(at.port()),
                                     "127.0.0.1:" + std::to_string(door.port())};
  speaker hub;
  std::optional<reshard::socket_meeting> device;

  explicit spoken_for_hub(reshard::patience wait, std::uint64_t world = 7) {
    auto making = std::async(std::launch::async, [&] { device.emplace(1, addresses, door, world, wait); });
    hub.meanwhile = [] {};
    for (const auto end = speaker::clock::now() + speaker::ample; hub.link.number() < 0 && speaker::clock::now() < end;)
      hub.link = reshard::framed_link(at.fetch(reshard::call_for::meeting, world, 1, 2));
    const bool proposed = hub.hears() == speaker::word{speaker::word::kind::proposal, {0, 0}, {}};
    hub.say(speaker::word::kind::agreement, {0, 0, -1});
    making.get();
    REQUIRE(proposed);
    hub.meanwhile = [this] { device->poll(); };
  }
};

/// Why the world of a meeting is over; empty before.
inline std::string why_over(const reshard::socket_meeting& m) {
  try {
    m.require_whole();
  } catch (const reshard::peer_failed& e) {
    return e.what();
  }
  return {};
}
/// Polls until the world is over, ten seconds at most.
inline std::string polled_over(reshard::socket_meeting& m) {
  for (const auto end = speaker::clock::now() + speaker::ample; why_over(m).empty() && speaker::clock::now() < end;
       m.poll())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return why_over(m);
}
inline void poll_for(reshard::socket_meeting& m, speaker::clock::duration time) {
  for (const auto end = speaker::clock::now() + time; speaker::clock::now() < end; m.poll())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace testing
