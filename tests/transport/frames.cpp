// SPDX-License-Identifier: Apache-2.0
// Frames over one connection, both ends of which the test has: their bytes, however little of them goes at a time, and
// what is left to hear of an end that is gone.
#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/transport/sockets/frames.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;

namespace {

/// Both ends of a connection that is made at once.
std::pair<owned_descriptor, owned_descriptor> connected() {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  return {owned_descriptor(ends[0]), owned_descriptor(ends[1])};
}
void say(const owned_descriptor& to, std::string_view bytes) {
  REQUIRE(send_some(to.number(), reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()).bytes == bytes.size());
}
std::string heard(const owned_descriptor& at) {
  std::string all(1000, ' ');
  all.resize(receive_some(at.number(), reinterpret_cast<std::byte*>(all.data()), all.size()).bytes);
  return all;
}

}  // namespace

TEST_CASE("a frame is its kind and its length, four bytes each, and its bytes") {
  auto [here, there] = connected();
  framed_link link(std::move(here));
  CHECK(link.open());
  CHECK(link.number() >= 0);
  link.post(7, "ab");
  link.post(0x01020304, {});
  CHECK_FALSE(link.unsent());
  CHECK_FALSE(link.all_arrived());  // of such a connection once it is read
  CHECK(heard(there) == std::string("\7\0\0\0\2\0\0\0ab\4\3\2\1\0\0\0\0", 18));
  CHECK(link.all_arrived());
  const std::string bytes("\5\0\0\0\3\0\0\0xyz\6\0\0\0\0\0\0\0", 19);
  for (std::size_t i = 0; i < 10; ++i) {
    CHECK_FALSE(link.next());
    CHECK(link.received() == i);
    say(there, bytes.substr(i, 1));
  }
  CHECK_FALSE(link.next());
  say(there, bytes.substr(10));
  const std::optional<socket_frame> first = link.next(), second = link.next();
  REQUIRE(first);
  CHECK(first->kind == 5);
  CHECK(first->body == "xyz");
  REQUIRE(second);
  CHECK(second->kind == 6);
  CHECK(second->body.empty());
  CHECK_FALSE(link.next());
  CHECK(link.received() == 19);
  CHECK(link.open());
}

TEST_CASE("what an end said before it went is heard, and to it nothing is said any more") {
  auto [here, there] = connected();
  framed_link link(std::move(here));
  CHECK(link.all_arrived());
  say(there, std::string_view("\5\0\0\0\1\0\0\0x", 9));
  there.close();
  link.post(1, "nobody reads it");
  CHECK_FALSE(link.unsent());
  CHECK(link.open());
  link.post(1, "nor that");
  CHECK_FALSE(link.unsent());
  const std::optional<socket_frame> frame = link.next();
  REQUIRE(frame);
  CHECK(frame->body == "x");
  CHECK_FALSE(link.next());
  CHECK_FALSE(link.open());
  link.post(1, "nor that");
  CHECK_FALSE(link.unsent());
  CHECK_FALSE(framed_link().open());
  CHECK(framed_link().number() == -1);
}

TEST_CASE("what the kernel does not take waits, has not arrived, and goes with later flushes") {
  auto [here, there] = connected();
  framed_link from(std::move(here)), to(std::move(there));
  const std::string much(5'000'000, 'm');
  from.post(1, much);
  CHECK(from.unsent());
  CHECK_FALSE(from.all_arrived());
  from.post(2, "after it");
  std::vector<socket_frame> came;
  for (int i = 0; i < 100'000 && came.size() < 2; ++i) {
    if (std::optional<socket_frame> frame = to.next()) came.push_back(std::move(*frame));
    from.flush();
  }
  REQUIRE(came.size() == 2);
  CHECK(came[0].body == much);
  CHECK(came[1].kind == 2);
  CHECK(came[1].body == "after it");
  CHECK_FALSE(from.unsent());
  CHECK(to.received() == 8 + 5'000'000 + 8 + 8);
}

TEST_CASE(
    "frames go over a link whole and in order, however little of them goes at a time; what has come of one counts") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  framed_link from{owned_descriptor(ends[0])}, to{owned_descriptor(ends[1])};
  testing::dice random(91);
  std::vector<std::string> bodies;
  for (int i = 0; i < 200; ++i) {
    std::string body(static_cast<std::size_t>(i % 20 == 7 ? random.within(1'000'000, 2'000'000) : random.below(3000)),
                     0);
    for (char& c : body) c = static_cast<char>(random.below(256));
    from.post(static_cast<std::uint32_t>(i), body);
    bodies.push_back(std::move(body));
  }
  CHECK(from.unsent());
  std::size_t frames = 0, wrong = 0, in_part = 0;
  std::uint64_t before = 0;
  for (int still = 0; frames < bodies.size() && wrong == 0 && still < 1000;) {
    from.flush();
    const std::optional<socket_frame> frame = to.next();
    in_part += !frame && to.received() > before ? 1 : 0;
    still = to.received() > before || frame ? 0 : still + 1;
    before = to.received();
    if (!frame) continue;
    wrong += frame->kind == frames && frame->body == bodies[frames] ? 0 : 1;
    ++frames;
  }
  CHECK(wrong == 0);
  CHECK(frames == bodies.size());
  CHECK(in_part > 10);
  CHECK_FALSE(from.unsent());
}

TEST_CASE("a frame of 4 GiB is none") {
  framed_link link;
  CHECK(testing::refused([&] { link.post(1, std::string_view("", std::size_t{1} << 32)); }) ==
        "reshard: a frame of 4294967296 bytes; at most 4294967295 are sent in one");
}

TEST_CASE("a frame has 4294967295 bytes at most, of which nothing is read where the other end is gone") {
  auto [here, there] = connected();
  framed_link link(std::move(here));
  there.close();
  link.post(1, "x");  // so that it hears of that
  CHECK(testing::refused([&] { link.post(1, std::string_view("", 4294967295u)); }) == "accepted");
  CHECK_FALSE(link.unsent());
  CHECK(testing::refused([&] {
          link.post(1, std::string_view("", std::size_t{1} << 32));
        }).starts_with("reshard: a frame of 4294967296 bytes; "));
}

TEST_CASE("what goes in two parts is what was posted, and no byte more") {
  auto [here, there] = connected();
  const auto room_of = [at = here.number()](int bytes) {
    REQUIRE(::setsockopt(at, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) == 0);
  };
  room_of(4608);
  framed_link link(std::move(here));
  const std::string body(60'000, 'b');
  link.post(3, body);
  REQUIRE(link.unsent());
  const auto hear = [&at = there] {
    std::string all;
    for (std::string some = heard(at); !some.empty(); some = heard(at)) all += some;
    return all;
  };
  std::string all = hear();
  CHECK_FALSE(link.all_arrived());  // what the kernel had is, and there is more
  REQUIRE(all.size() < 30'000);     // less than half of it, so that it stays where it was
  room_of(200'000);
  link.flush();
  CHECK_FALSE(link.unsent());
  all += hear();
  CHECK(all == std::string("\3\0\0\0\x60\xEA\0\0", 8) + body);
}

TEST_CASE("to an end that says no more nothing is said") {
  auto [here, there] = connected();
  framed_link link(std::move(here));
  REQUIRE(::shutdown(there.number(), SHUT_WR) == 0);
  CHECK_FALSE(link.next());
  CHECK_FALSE(link.open());
  link.post(1, "x");
  CHECK(heard(there).empty());
}
