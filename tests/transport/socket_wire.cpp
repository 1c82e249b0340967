// SPDX-License-Identifier: Apache-2.0
// One end of a wire over TCP, byte by byte: a test speaks for the other device, so that who calls whom, what goes first
// and when a message is done is seen as it is.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <reshard/transport/sockets/wire.hpp>

#include "../support/lateness.hpp"
#include "../support/refused.hpp"
#include "../support/speaker.hpp"

using namespace reshard;
using namespace std::chrono_literals;
using testing::speaker, testing::spoken_for_hub, testing::spoken_to_hub, testing::undisturbed;
using kind = hub_word::kind;
using clock_type = std::chrono::steady_clock;

namespace {

constexpr patience ample = 30s;

/// What a message begins with.
struct header {
  std::int64_t stage, bytes;
};

/// Polls until something is so, ten seconds at most; whether it is.
template <typename What>
bool polled(socket_wire& wire, What&& what) {
  bool is_so = what();
  for (const auto end = clock_type::now() + 10s; !is_so && clock_type::now() < end; is_so = what()) wire.poll(1ms);
  return is_so;
}

/// So many bytes that come over a connection while a wire is polled; fewer where it ends.
std::vector<std::byte> heard(socket_wire& wire, const owned_descriptor& from, std::size_t bytes) {
  std::vector<std::byte> all(bytes);
  std::size_t came = 0;
  bool ended = false;
  polled(wire, [&] {
    const socket_progress p = receive_some(from.number(), all.data() + came, bytes - came);
    came += p.bytes, ended = ended || (p.ended && came < bytes);
    return came == bytes || ended;
  });
  all.resize(came);
  return all;
}
/// Whether nothing has come, and the connection is there.
bool is_quiet(const owned_descriptor& link) {
  std::byte some;
  const socket_progress p = receive_some(link.number(), &some, 1);
  return p.bytes == 0 && !p.ended;
}
bool has_ended(const owned_descriptor& link) {
  std::byte some;
  for (const auto end = clock_type::now() + 10s; clock_type::now() < end; std::this_thread::sleep_for(1ms))
    if (receive_some(link.number(), &some, 1).ended) return true;
  return false;
}
void say(const owned_descriptor& to, const void* bytes, std::size_t count) {
  REQUIRE(send_some(to.number(), static_cast<const std::byte*>(bytes), count).bytes == count);
}
template <typename Value>
Value as(const std::vector<std::byte>& bytes) {
  Value value{};
  REQUIRE(bytes.size() == sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}
std::vector<std::byte> some_bytes(std::size_t count, int first) {
  std::vector<std::byte> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = static_cast<std::byte>(static_cast<std::size_t>(first) + i * 7);
  return all;
}
message to_peer(rank_t peer, index_t stage, std::vector<std::byte>& of) {
  return {peer, stage, of.data(), static_cast<bytes_t>(of.size())};
}

/// A wire of device 0, the hub, and the connection to device 1 as that has it, once it has answered.
struct calling {
  spoken_to_hub world;
  socket_wire wire;
  owned_descriptor link;

  explicit calling(bool connects = true, patience wait = ample) : world(2, wait), wire(*world.hub) {
    if (!connects) return;
    wire.connect({1});
    link = called();
    REQUIRE(heard(wire, link, sizeof(socket_hello)).size() == sizeof(socket_hello));
    say(link, "x", 1);
    REQUIRE(polled(wire, [&] { return wire.unconnected().empty(); }));
  }
  /// Who calls device 1.
  owned_descriptor called() {
    owned_descriptor made;
    polled(wire, [&] { return (made = world.listening[0].accept()).open(); });
    return made;
  }
};
/// A wire of device 1, and the connection to device 0 as that has it, once it was answered.
struct answering {
  spoken_for_hub world;
  socket_wire wire;
  owned_descriptor link;

  explicit answering(bool connects = true, patience wait = ample) : world(wait), wire(*world.device) {
    if (!connects) return;
    wire.connect({0});
    link = calls();
    REQUIRE(polled(wire, [&] { return wire.unconnected().empty(); }));
    REQUIRE(heard(wire, link, 1) == std::vector<std::byte>{std::byte{1}});
  }
  owned_descriptor calls(index_t turn = 0) const {
    return call_door(world.addresses[1], {.what = call_for::messages, .world = 7, .devices = 2, .turn = turn}, 10s);
  }
};

}  // namespace

TEST_CASE("the lower calls and says who it is, for which wire: there is a connection once it is answered") {
  spoken_to_hub world(2, ample);
  const socket_wire first(*world.hub);
  socket_wire wire(*world.hub);
  CHECK(first.unconnected().empty());
  wire.connect({1});
  wire.connect({1});
  CHECK(wire.unconnected() == std::vector<rank_t>{1});
  owned_descriptor link;
  REQUIRE(polled(wire, [&] { return (link = world.listening[0].accept()).open(); }));
  const auto hello = as<socket_hello>(heard(wire, link, sizeof(socket_hello)));
  CHECK(hello.magic == socket_hello{}.magic);
  CHECK(hello.what == call_for::messages);
  CHECK(hello.world == 7);
  CHECK(hello.from == 0);
  CHECK(hello.devices == 2);
  CHECK(hello.turn == 1);
  for (int i = 0; i < 50; ++i) wire.poll(1ms);
  CHECK(wire.unconnected() == std::vector<rank_t>{1});
  CHECK_FALSE(world.listening[0].accept().open());  // it does not call again while it waits
  say(link, "x", 1);
  CHECK(polled(wire, [&] { return wire.unconnected().empty(); }));
  wire.connect({1});
  CHECK(wire.unconnected().empty());
  CHECK_FALSE(world.listening[0].accept().open());
  CHECK(is_quiet(link));
  link.close();
}

TEST_CASE("who is called and hangs up is called again") {
  calling c(false);
  c.wire.connect({1});
  for (int i = 0; i < 3; ++i) CHECK(c.called().open());
  CHECK(c.wire.unconnected() == std::vector<rank_t>{1});
}

TEST_CASE("the higher answers by a byte whoever calls for this wire, before it is asked to connect or after") {
  {
    answering a(false);
    a.wire.connect({0});
    CHECK(a.wire.unconnected() == std::vector<rank_t>{0});
    const owned_descriptor other = a.calls(1);  // for a wire that is not made yet
    for (int i = 0; i < 50; ++i) a.wire.poll(1ms);
    CHECK(a.wire.unconnected() == std::vector<rank_t>{0});
    const owned_descriptor link = a.calls();
    CHECK(polled(a.wire, [&] { return a.wire.unconnected().empty(); }));
    CHECK(heard(a.wire, link, 1) == std::vector<std::byte>{std::byte{1}});
    CHECK(is_quiet(link));
    CHECK(is_quiet(other));
  }
  answering a(false);
  const owned_descriptor link = a.calls();
  for (int i = 0; i < 20; ++i) a.wire.poll(1ms);
  CHECK(is_quiet(link));
  a.wire.connect({0});
  CHECK(polled(a.wire, [&] { return a.wire.unconnected().empty(); }));
  CHECK(heard(a.wire, link, 1).size() == 1);
}

TEST_CASE("messages go in order, each behind its stage and length, and are done once the kernel has them") {
  calling c(false);
  std::vector<std::byte> first = some_bytes(100, 1), second = some_bytes(3000, 2), much = some_bytes(1 << 25, 3);
  message of[] = {to_peer(1, 4, first), to_peer(1, 5, second), to_peer(1, 6, much)};
  c.wire.send(of[0]);
  CHECK_FALSE(of[0].done);  // there is no connection yet
  c.wire.connect({1});
  c.link = c.called();
  heard(c.wire, c.link, sizeof(socket_hello));
  say(c.link, "x", 1);
  CHECK(polled(c.wire, [&] { return of[0].done; }));
  c.wire.send(of[1]);
  CHECK(of[1].done);  // at once, as there is room
  c.wire.send(of[2]);
  for (int i = 0; i < 20; ++i) c.wire.poll(1ms);
  CHECK_FALSE(of[2].done);
  for (message& m : of) {
    const auto head = as<header>(heard(c.wire, c.link, sizeof(header)));
    CHECK(head.stage == m.stage);
    CHECK(head.bytes == m.bytes);
    const std::vector<std::byte> came = heard(c.wire, c.link, static_cast<std::size_t>(m.bytes));
    CHECK(std::equal(came.begin(), came.end(), m.data, m.data + m.bytes));
  }
  CHECK(of[2].done);
  CHECK(is_quiet(c.link));
  c.wire.send(of[0]);  // a queue that was done with begins anew
  CHECK(heard(c.wire, c.link, 116).size() == 116);

  calling later;
  message one = to_peer(1, 7, much);
  later.wire.send(one);
  std::thread reads([&] {  // who waits for room wakes when there is some
    std::this_thread::sleep_for(20ms);
    std::vector<std::byte> some(1 << 20);
    const auto end = clock_type::now() + 20s;
    for (std::size_t left = sizeof(header) + much.size(); left > 0 && clock_type::now() < end;)
      left -= receive_some(later.link.number(), some.data(), some.size()).bytes;
  });
  const auto begin = clock_type::now();
  while (!one.done && clock_type::now() < begin + 20s) later.wire.poll(8s);
  CHECK(one.done);
  CHECK(clock_type::now() - begin < 6s);
  reads.join();
}

TEST_CASE("what comes behind an answer at once is a message") {
  calling c(false);
  std::vector<std::byte> at(100);
  message m = to_peer(1, 4, at);
  c.wire.receive(m);
  c.wire.connect({1});
  c.link = c.called();
  heard(c.wire, c.link, sizeof(socket_hello));
  const std::vector<std::byte> sent = some_bytes(100, 5);
  const header head{4, 100};
  std::string all = "x";
  all.append(reinterpret_cast<const char*>(&head), sizeof head);
  all.append(reinterpret_cast<const char*>(sent.data()), sent.size());
  say(c.link, all.data(), all.size());
  CHECK(polled(c.wire, [&] { return m.done; }));
  CHECK(at == sent);
}

TEST_CASE("what comes is put where it was asked for, in order, however it comes; what nobody asked for waits") {
  answering a;
  std::vector<std::byte> first = some_bytes(100, 1), second = some_bytes(3000, 2), third = some_bytes(64, 3),
                         at[3] = {std::vector<std::byte>(100), std::vector<std::byte>(3000),
                                  std::vector<std::byte>(64)};
  message of[] = {to_peer(0, 4, at[0]), to_peer(0, 5, at[1]), to_peer(0, 5, at[2])};
  a.wire.receive(of[0]), a.wire.receive(of[1]);
  const header heads[] = {{4, 100}, {5, 3000}, {5, 64}};
  for (std::size_t i = 0; i < sizeof(header); ++i) {
    say(a.link, reinterpret_cast<const char*>(&heads[0]) + i, 1);
    a.wire.poll(1ms);
  }
  for (std::size_t i = 0; i < 100; ++i) {
    CHECK_FALSE(of[0].done);
    say(a.link, first.data() + i, 1);
    if (i % 9 == 0) a.wire.poll(1ms);
  }
  CHECK(polled(a.wire, [&] { return of[0].done; }));
  CHECK(at[0] == first);
  say(a.link, &heads[1], sizeof(header)), say(a.link, second.data(), 3000);
  say(a.link, &heads[2], sizeof(header)), say(a.link, third.data(), 64);
  CHECK(polled(a.wire, [&] { return of[1].done; }));
  CHECK(at[1] == second);
  for (int i = 0; i < 20; ++i) a.wire.poll(1ms);
  CHECK(of[2].done);  // as nobody has said otherwise
  CHECK(at[2] == std::vector<std::byte>(64));
  a.wire.receive(of[2]);
  CHECK_FALSE(of[2].done);
  CHECK(polled(a.wire, [&] { return of[2].done; }));
  CHECK(at[2] == third);
}

TEST_CASE("a message of another stage or length than is expected is refused, before any of it is taken") {
  for (const header& said : {header{5, 100}, header{4, 99}, header{4, 101}}) {
    answering a;
    std::vector<std::byte> at(100);
    message m = to_peer(0, 4, at);
    a.wire.receive(m);
    say(a.link, &said, sizeof said), say(a.link, std::vector<std::byte>(99, std::byte{9}).data(), 99);
    const std::string sentence = testing::refused([&] { polled(a.wire, [&] { return m.done; }); });
    CHECK(sentence == "reshard: device 1 expects 100 bytes of stage 4 from device 0, which sends " +
                          std::to_string(said.bytes) + " of stage " + std::to_string(said.stage));
    CHECK(at == std::vector<std::byte>(100));
  }
}

TEST_CASE(
    "a connection that ends in the midst of something is told to the hub; where it says nothing this one gives up") {
  {
    calling c;
    std::vector<std::byte> at(100);
    message m = to_peer(1, 4, at);
    c.wire.receive(m);
    c.link.close();
    std::string sentence;
    CHECK(polled(c.wire, [&] {
      try {
        c.world.hub->require_whole();
      } catch (const peer_failed& e) {
        sentence = e.what();
      }
      return !sentence.empty();
    }));
    CHECK(sentence == "reshard: the connection between devices 0 and 1 ended, and both are there");
  }
  for (const bool sends : {false, true}) {
    answering a(true, 1500ms);
    std::vector<std::byte> at(1 << 25);
    message m = to_peer(0, 4, at);
    if (sends) a.wire.send(m);
    else a.wire.receive(m);
    a.link.close();
    std::string sentence;
    int doubts = 0, gives_up = 0;
    const auto begin = clock_type::now();
    clock_type::time_point over = begin;
    const auto hear = [&] {
      while (const std::optional<socket_frame> frame = a.world.hub.link.next()) {
        if (hub_word::numbers_of(frame->kind) < 0) continue;
        const hub_word word = hub_word::of(frame->kind, frame->body);
        doubts += word == hub_word{kind::doubt, {0}, {}} ? 1 : 0;
        gives_up += word == hub_word{kind::given_up, {-1}, "reshard: device 0 is gone: its connection ended"} ? 1 : 0;
      }
    };
    try {
      while (clock_type::now() < begin + 10s) a.world.hub.beat(), a.wire.poll(1ms), hear();
    } catch (const peer_failed& e) {
      sentence = e.what(), over = clock_type::now();
    }
    std::this_thread::sleep_for(10ms);
    hear();
    CHECK(sentence == "reshard: device 0 is gone: its connection ended");
    CHECK(over - begin >= 750ms);
    CHECK(doubts == 1);
    CHECK(gives_up == 1);
    CHECK_FALSE(m.done);
  }
  answering idle;  // nothing is under way
  idle.link.close();
  const auto until = clock_type::now() + 100ms;
  while (clock_type::now() < until) idle.wire.poll(1ms);
  CHECK(idle.world.hub.hears_nothing());
}

TEST_CASE("after stop nothing is read or written: connections with something under way end, the others stay") {
  for (const bool sends : {false, true}) {
    calling c;
    std::vector<std::byte> at(1 << 25, std::byte{1});
    message m = to_peer(1, 4, at);
    if (sends) c.wire.send(m);
    else c.wire.receive(m);
    c.wire.stop();
    CHECK_FALSE(m.done);
    std::vector<std::byte> rest(1 << 20);
    bool ended = false;
    for (const auto end = clock_type::now() + 10s; !ended && clock_type::now() < end;)
      ended = receive_some(c.link.number(), rest.data(), rest.size()).ended;
    CHECK(ended);
    c.wire.poll(0ms);
  }
  calling idle;
  idle.wire.stop();
  CHECK(is_quiet(idle.link));
  calling asked(false);
  asked.wire.connect({1});
  const owned_descriptor link = asked.called();
  CHECK(heard(asked.wire, link, sizeof(socket_hello)).size() == sizeof(socket_hello));
  asked.wire.stop();
  CHECK(asked.wire.unconnected().empty());
  CHECK(has_ended(link));
}

TEST_CASE("who has nothing to do waits as long as was said, and no longer than until something comes") {
  const auto took = [](socket_wire& wire, std::chrono::microseconds at_most) {
    const auto begin = clock_type::now();
    wire.poll(at_most);
    return clock_type::now() - begin;
  };
  answering a;
  a.wire.poll(0us), a.world.hub.hears_nothing();
  const auto [none, late] = undisturbed(10ms, [&] { return took(a.wire, 0us); });
  CHECK(none < 50ms + 2 * late);
  const auto [idle, late_then] = undisturbed(10ms, [&] { return took(a.wire, 80ms); });
  CHECK(idle >= 80ms);
  CHECK(idle < 130ms + 2 * late_then);
  CHECK(took(a.wire, 1100ms) >= 1100ms);
  std::vector<std::byte> at(100);
  message m = to_peer(0, 4, at);
  const header head{4, 100};
  say(a.link, &head, sizeof head);
  CHECK(took(a.wire, 40ms) >= 40ms);  // nobody asked for it yet
  a.wire.receive(m);
  a.wire.poll(0us);
  std::thread later([&] {
    std::this_thread::sleep_for(20ms);
    say(a.link, at.data(), 100);
  });
  CHECK(took(a.wire, 10s) < 5s);
  later.join();
  CHECK(polled(a.wire, [&] { return m.done; }));
  std::thread word([&] {
    std::this_thread::sleep_for(20ms);
    a.world.hub.beat();
  });
  CHECK(took(a.wire, 10s) < 5s);
  word.join();
  answering left;  // a connection that has ended wakes nobody again and again
  left.wire.receive(m);
  left.link.close();
  left.wire.poll(5ms), left.wire.poll(5ms);
  CHECK(undisturbed(10ms, [&] { return took(left.wire, 40ms); }).result >= 40ms);
  // who waits for a connection looks each millisecond: another world's thread may let in who calls
  answering unconnected(false);
  unconnected.wire.connect({0});
  CHECK(took(unconnected.wire, 10s) < 5s);
}

TEST_CASE(
    "whoever waits on a wire hears the meeting, however much there is to do, and connects no more once it is over") {
  answering connected;
  connected.world.hub.say(kind::given_up, {-1}, "reshard: over");
  for (int i = 0; i < 20; ++i) connected.wire.poll(1ms);  // it throws nothing: who waits asks the meeting
  answering a(false);
  a.world.hub.say(kind::given_up, {-1}, "reshard: over");
  std::string sentence;
  const auto over = [&] {
    try {
      a.world.device->require_whole();
      return false;
    } catch (const peer_failed&) {
      return true;
    }
  };
  const auto end = clock_type::now() + 10s;
  while (!over() && clock_type::now() < end) a.wire.poll(0us);
  CHECK(over());
  try {
    a.wire.connect({0});
  } catch (const peer_failed& e) {
    sentence = e.what();
  }
  CHECK(sentence == "reshard: over");
}
