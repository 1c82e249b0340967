// SPDX-License-Identifier: Apache-2.0
// The one door of a process: who is early waits, who is late is turned away, and no two worlds, purposes or callers are
// mixed; worlds over doors that several threads share.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <reshard/transport/process_door.hpp>
#include <reshard/transport/sockets.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using testing::refused;

namespace {

constexpr patience ample = std::chrono::seconds(30);

struct door_at {
  explicit door_at(patience early = ample)
      : door(listening_socket("127.0.0.1:0"), early), address("127.0.0.1:" + std::to_string(door.port())) {}
  process_door door;
  std::string address;

  owned_descriptor call(call_for what, std::uint64_t world, rank_t from, rank_t devices = 0, index_t turn = 0) const {
    owned_descriptor made =
        call_door(address, {.what = what, .world = world, .from = from, .devices = devices, .turn = turn},
                  std::chrono::seconds(5));
    REQUIRE(made.open());
    return made;
  }
};

void say(const owned_descriptor& link, char c) {
  const std::byte b{static_cast<unsigned char>(c)};
  REQUIRE(send_some(link.number(), &b, 1).bytes == 1);
}
/// The next byte, '-' where the connection ended, '?' where neither comes in two seconds.
char hear(const owned_descriptor& link) {
  pollfd some{link.number(), POLLIN, 0};
  if (::poll(&some, 1, 2000) != 1) return '?';
  std::byte b{};
  const socket_progress p = receive_some(link.number(), &b, 1);
  return p.bytes == 1 ? static_cast<char>(b) : '-';
}
std::size_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

}  // namespace

TEST_CASE("who calls is fetched by what it says: purpose, world, who of how many; what is alike, in order") {
  door_at here;
  struct call {
    call_for what;
    std::uint64_t world;
    rank_t from, devices;
    index_t turn = 0;
  };
  const std::vector<call> calls = {
      {call_for::meeting, 7, 1, 3}, {call_for::meeting, 8, 1, 3}, {call_for::messages, 7, 1, 3},
      {call_for::meeting, 7, 2, 3}, {call_for::meeting, 7, 1, 4}, {own_call(0), 7, 1, 0},
      {own_call(1), 7, 1, 0},       {call_for::meeting, 7, 1, 3}, {call_for::messages, 7, 1, 3, 1}};
  std::vector<owned_descriptor> callers;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    callers.push_back(here.call(calls[i].what, calls[i].world, calls[i].from, calls[i].devices, calls[i].turn));
    say(callers.back(), static_cast<char>('a' + i));
  }
  while (here.door.waiting() < calls.size()) std::this_thread::yield();
  CHECK_FALSE(here.door.fetch(call_for::meeting, 9, 1, 3).open());
  CHECK_FALSE(here.door.fetch(call_for::parting, 7, 1, 3).open());
  CHECK_FALSE(here.door.fetch(call_for::meeting, 7, 0, 3).open());
  CHECK_FALSE(here.door.fetch(own_call(1), 7, 1, 3).open());
  for (const std::size_t i : {5u, 1u, 8u, 4u, 0u, 6u, 2u, 3u, 7u})
    CHECK(hear(here.door.fetch(calls[i].what, calls[i].world, calls[i].from, calls[i].devices, calls[i].turn)) ==
          static_cast<char>('a' + i));
  CHECK(here.door.waiting() == 0);
}

TEST_CASE("who is late is turned away at once, and who called a world that ends while it waits") {
  door_at here;
  const owned_descriptor of_7 = here.call(own_call(0), 7, 1), of_8 = here.call(own_call(0), 8, 1);
  while (here.door.waiting() < 2) std::this_thread::yield();
  here.door.close(7);  // which never began here
  CHECK(hear(of_7) == '-');
  const owned_descriptor late = here.call(own_call(0), 7, 2);
  pollfd calls{here.door.number(), POLLIN, 0};
  CHECK(::poll(&calls, 1, 2000) == 1);
  here.door.poll();
  CHECK(hear(late) == '-');
  CHECK_FALSE(here.door.fetch(own_call(0), 7, 2).open());
  say(of_8, 'x');
  CHECK(hear(here.door.fetch(own_call(0), 8, 1)) == 'x');
}

TEST_CASE("a number serves one world") {
  door_at here;
  here.door.open(5);
  CHECK(refused([&] { here.door.open(5); }) ==
        "reshard: world 5 is made at this door already; a number serves one world");
  here.door.open(6);
  here.door.close(5);
  here.door.close(5);
  CHECK(refused([&] { here.door.open(5); }) == "reshard: world 5 is over at this door; a number serves one world");
  here.door.close(6);
  for (std::uint64_t world = 100; world < 100 + 4095; ++world) here.door.close(world);
  CHECK(refused([&] { here.door.open(5); }) == "accepted");  // forgotten by then
  CHECK(refused([&] { here.door.open(6); }) == "reshard: world 6 is over at this door; a number serves one world");
}

TEST_CASE("who is early waits for so long and no longer; who says no hello is turned away") {
  door_at here(std::chrono::milliseconds(300));
  const owned_descriptor early = here.call(own_call(0), 7, 1);
  while (here.door.waiting() < 1) std::this_thread::yield();
  const owned_descriptor silent = call_address(here.address, std::chrono::seconds(5)),
                         other = call_address(here.address, std::chrono::seconds(5));
  const std::string request = "GET / HTTP/1.1\r\nHost: here\r\nAccept: everything there is\r\n\r\n";
  send_some(other.number(), reinterpret_cast<const std::byte*>(request.data()), request.size());
  const auto begin = std::chrono::steady_clock::now();
  const auto passed = [&] { return std::chrono::steady_clock::now() - begin; };
  char said_other = '?';
  while (said_other == '?' && passed() < std::chrono::seconds(20)) {
    here.door.poll();
    pollfd end{other.number(), POLLRDHUP, 0};
    if (::poll(&end, 1, 1) == 1) said_other = '-';
  }
  CHECK(said_other == '-');
  while (here.door.waiting() > 0 && passed() < std::chrono::seconds(20)) std::this_thread::yield();
  CHECK(passed() > std::chrono::milliseconds(200));
  CHECK(hear(early) == '-');
  std::this_thread::sleep_for(std::chrono::milliseconds(320));
  here.door.poll();
  CHECK(hear(silent) == '-');
}

TEST_CASE("a hello may come in pieces") {
  door_at here;
  const owned_descriptor slow = call_address(here.address, std::chrono::seconds(5));
  const socket_hello hello{.what = call_for::meeting, .world = 7, .from = 1, .devices = 3};
  const auto* const bytes = reinterpret_cast<const std::byte*>(&hello);
  for (std::size_t at = 0; at < sizeof hello; at += 8) {
    CHECK(here.door.waiting() == 0);
    REQUIRE(send_some(slow.number(), bytes + at, std::min<std::size_t>(8, sizeof hello - at)).bytes > 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto begin = std::chrono::steady_clock::now();
  while (here.door.waiting() < 1 && std::chrono::steady_clock::now() - begin < std::chrono::seconds(20))
    std::this_thread::yield();
  CHECK(here.door.fetch(call_for::meeting, 7, 1, 3).open());
}

TEST_CASE("a caller that went and came again is there once, in its second life") {
  door_at here;
  owned_descriptor first = here.call(own_call(0), 7, 1);
  say(first, 'a');
  while (here.door.waiting() < 1) std::this_thread::yield();
  first.close();
  const owned_descriptor second = here.call(own_call(0), 7, 1);
  say(second, 'b');
  owned_descriptor fetched;
  while (!fetched.open()) {
    pollfd calls{here.door.number(), POLLIN, 0};
    REQUIRE(::poll(&calls, 1, 2000) == 1);
    here.door.poll();
    if (here.door.waiting() == 1) fetched = here.door.fetch(own_call(0), 7, 1);
  }
  CHECK(hear(fetched) == 'b');
}

TEST_CASE("threads that poll one door each get their own callers") {
  door_at here;
  constexpr int threads = 4, each = 50;
  std::atomic<int> right = 0;
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      for (int i = 0; i < each; ++i) {
        owned_descriptor link;
        while (!link.open()) link = here.door.fetch(own_call(3), static_cast<std::uint64_t>(t), i);
        right += hear(link) == static_cast<char>('a' + t) ? 1 : 0;
      }
    });
  std::vector<owned_descriptor> callers;
  for (int i = 0; i < each; ++i)
    for (int t = 0; t < threads; ++t) {
      callers.push_back(here.call(own_call(3), static_cast<std::uint64_t>(t), i));
      say(callers.back(), static_cast<char>('a' + t));
    }
  for (std::thread& t : all) t.join();
  CHECK(right == threads * each);
}

TEST_CASE("worlds over doors that all of a process share: made in any order, two at once, each by itself") {
  constexpr rank_t devices = 3;
  constexpr std::uint64_t worlds = 24;
  std::vector<std::unique_ptr<door_at>> doors;
  std::vector<std::string> addresses;
  for (rank_t d = 0; d < devices; ++d)
    doors.push_back(std::make_unique<door_at>()), addresses.push_back(doors.back()->address);
  const std::size_t before = descriptors();
  std::atomic<int> right = 0;
  std::vector<std::thread> all;
  for (rank_t d = 0; d < devices; ++d)
    for (const std::uint64_t half : {0u, 1u})
      all.emplace_back([&, d, half] {
        testing::dice random(static_cast<std::uint64_t>(100 + d));
        for (std::uint64_t w = half; w < worlds; w += 2) {
          std::this_thread::sleep_for(std::chrono::microseconds(random.below(3000)));
          socket_endpoint here(d, addresses, doors[static_cast<std::size_t>(d)]->door, 1000 + w, ample);
          // the others' numbers are of this world alone
          const std::vector<std::string> said = here.gather(std::to_string(w) + "." + std::to_string(d));
          bool alike = said.size() == devices;
          for (rank_t o = 0; o < devices; ++o)
            alike = alike && said[static_cast<std::size_t>(o)] == std::to_string(w) + "." + std::to_string(o);
          right += alike && here.all_reduce_max(static_cast<std::int64_t>(w)) == static_cast<std::int64_t>(w) ? 1 : 0;
        }
      });
  for (std::thread& t : all) t.join();
  CHECK(right == devices * static_cast<int>(worlds));
  for (const auto& d : doors) CHECK(d->door.waiting() == 0);
  CHECK(descriptors() == before);
}

TEST_CASE("a device that comes to a world which is over hears so at once, and no other world notices") {
  std::vector<std::unique_ptr<door_at>> doors;
  std::vector<std::string> addresses;
  for (int d = 0; d < 2; ++d) doors.push_back(std::make_unique<door_at>()), addresses.push_back(doors.back()->address);
  CHECK_THROWS_AS(socket_endpoint(0, addresses, doors[0]->door, 41, std::chrono::milliseconds(50)), peer_missing);
  const auto begin = std::chrono::steady_clock::now();
  std::string sentence;
  std::atomic<bool> told = false;
  std::thread late([&] {
    try {
      socket_endpoint here(1, addresses, doors[1]->door, 41, ample);
    } catch (const peer_failed& e) {
      sentence = e.what();
    }
    told = true;
  });
  std::thread of_42([&] {
    socket_endpoint here(1, addresses, doors[1]->door, 42, ample);
    here.all_reduce_max(1);
  });
  socket_endpoint here(0, addresses, doors[0]->door, 42, ample);
  for (; !told; doors[0]->door.poll()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  late.join();
  CHECK(here.all_reduce_max(2) == 2);
  of_42.join();
  CHECK(sentence == "reshard: device 0 is gone: its connection ended");
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
  CHECK(refused([&] { socket_endpoint(0, addresses, doors[0]->door, 41, ample); }) ==
        "reshard: world 41 is over at this door; a number serves one world");
}
