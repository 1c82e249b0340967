// SPDX-License-Identifier: Apache-2.0
// One connection of pulses, both ends of which the test has: hellos byte by byte, beats, and the last word.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <reshard/elastic/run/pulse_line.hpp>

using namespace reshard;
using detail::pulse_clock;
using detail::pulse_hello;
using detail::pulse_line;
using news = detail::pulse_line::news;

namespace {

/// A line and its other end.
struct two_ends {
  two_ends() {
    int ends[2] = {-1, -1};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    line.link = owned_descriptor(ends[0]);
    other = owned_descriptor(ends[1]);
    line.heard = long_ago;
  }
  void say(const std::string& words) {
    const socket_progress p = send_some(other.number(), reinterpret_cast<const std::byte*>(words.data()), words.size());
    REQUIRE(p.bytes == words.size());
  }
  /// What came at the other end, with "|" where it has ended.
  std::string heard() {
    std::string all(4096, ' ');
    const socket_progress p = receive_some(other.number(), reinterpret_cast<std::byte*>(all.data()), all.size());
    all.resize(p.bytes);
    std::byte one;
    if (p.ended || receive_some(other.number(), &one, 1).ended) all += "|";
    return all;
  }
  bool was_heard() const { return line.heard != long_ago; }

  static inline const pulse_clock::time_point long_ago = pulse_clock::now() - std::chrono::seconds(100);
  pulse_line line;
  owned_descriptor other;
};

std::string bytes_of(const pulse_hello& h) { return {reinterpret_cast<const char*>(&h), sizeof h}; }

}  // namespace

TEST_CASE("a hello is its form, the world and a name of up to 63 characters") {
  const std::string longest(63, 'x');
  for (const std::string& who : {std::string("a"), std::string("node3.0#2"), longest}) {
    const pulse_hello h = pulse_hello::of(0x0807060504030201u, who);
    std::string expected = "RSPULSE1\x01\x02\x03\x04\x05\x06\x07\x08" + who;
    expected.resize(80, '\0');
    CHECK(bytes_of(h) == expected);
    CHECK(h.name() == who);
  }
  pulse_hello full;
  for (char& c : full.from) c = 'y';
  CHECK(full.name() == std::string(64, 'y'));
  CHECK(pulse_hello().name().empty());
}

TEST_CASE("beats and the last word are a character each, and nothing is said on a line that is closed") {
  two_ends t;
  CHECK(t.heard().empty());
  t.line.beat(), t.line.beat();
  CHECK(t.heard() == "..");
  t.line.leave();
  CHECK(t.heard() == "b|");
  CHECK(t.was_heard());  // from now on its end is waited for
  CHECK(t.line.link.open());
  t.line.link.close();
  t.line.beat();
  CHECK(t.line.hear() == news::none);
}

TEST_CASE("a line calls where it has an address, and counts how long it heard nothing") {
  two_ends t;
  CHECK_FALSE(t.line.calls());
  t.line.address = "h:1";
  CHECK(t.line.calls());
  CHECK(t.line.silent_seconds() >= 100);
  CHECK(t.line.silent_seconds() < 10'000);
  t.line.heard = pulse_clock::now() + std::chrono::seconds(50);
  CHECK(t.line.silent_seconds() < 0);
}

TEST_CASE("what is heard: beats, the last word wherever it stands among them, and an end") {
  two_ends t;
  CHECK(t.line.hear() == news::none);
  CHECK((!t.was_heard() && !t.line.answered && t.line.link.open()));
  t.say(".");
  CHECK(t.line.hear() == news::none);
  CHECK((t.was_heard() && t.line.answered && t.line.link.open() && !t.line.left));

  for (const std::size_t beats : {0u, 1u, 63u, 64u, 65u, 127u, 128u, 200u}) {
    CAPTURE(beats);
    two_ends leaves, ends, stays;
    leaves.say(std::string(beats, '.') + "b");
    CHECK(leaves.line.hear() == news::left);
    CHECK((leaves.line.left && !leaves.line.link.open() && leaves.line.answered));
    CHECK(leaves.line.hear() == news::none);  // it is told once
    ends.say(std::string(beats, '.'));
    ends.other.close();
    CHECK(ends.line.hear() == (beats == 0 ? news::ended : beats % 64 == 0 ? news::ended : news::none));
    if (ends.line.link.open()) CHECK(ends.line.hear() == news::ended);
    CHECK((!ends.line.left && !ends.line.link.open() && ends.line.answered == (beats > 0)));
    stays.say(std::string(beats, '.'));
    CHECK(stays.line.hear() == news::none);
    std::byte one;
    CHECK(receive_some(stays.line.link.number(), &one, 1).bytes == 0);  // all of it was read
    CHECK(stays.line.link.open());
  }
  two_ends early;  // its last word, and then its end
  early.say("..b.."), early.other.close();
  CHECK(early.line.hear() == news::left);
}

TEST_CASE("who calls has said who it is once its hello has come whole") {
  const std::string hello = bytes_of(pulse_hello::of(7, "b"));
  {
    two_ends t;
    for (std::size_t i = 0; i < hello.size(); ++i) {
      CHECK_FALSE(t.line.introduces());
      CHECK(t.line.said_bytes == i);
      t.say(hello.substr(i, 1));
    }
    CHECK(t.line.introduces());
    CHECK(t.line.introduces());
    CHECK((t.line.said.world == 7 && t.line.said.name() == "b" && t.line.said_bytes == 80));
    CHECK(!t.line.answered);
    t.say("..");
    CHECK(t.line.introduces());
    CHECK(t.line.answered);
    t.say("b");
    CHECK(t.line.introduces());
    CHECK((t.line.left && !t.line.link.open()));
    CHECK(t.line.introduces());
  }
  {
    two_ends at_once;
    at_once.say(hello + "...");
    CHECK(at_once.line.introduces());
    CHECK(at_once.line.answered);
    std::byte one;
    CHECK(receive_some(at_once.line.link.number(), &one, 1).bytes == 0);
  }
  for (std::size_t byte = 0; byte < 8; ++byte) {  // no hello
    two_ends t;
    std::string other = hello;
    other[byte] = static_cast<char>(other[byte] ^ 1);
    t.say(other.substr(0, 79));
    CHECK_FALSE(t.line.introduces());
    CHECK(t.line.link.open());
    t.say(other.substr(79));
    CHECK_FALSE(t.line.introduces());
    CHECK_FALSE(t.line.link.open());
  }
  for (const std::size_t bytes : {0u, 79u, 80u}) {
    two_ends t;
    t.say(hello.substr(0, bytes)), t.other.close();
    CHECK((t.line.introduces() == false || bytes == 80));
    CHECK_FALSE(t.line.introduces());
    CHECK_FALSE(t.line.link.open());
  }
}
