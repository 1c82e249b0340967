// SPDX-License-Identifier: Apache-2.0
// TCP on this machine: who is called answers, wherever of a host's addresses it listens; who does not answer is waited
// for as long as was said; and what the kernel says of a connection.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <fcntl.h>

#include <reshard/transport/socket.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

namespace {

bool is_open(int number) { return ::fcntl(number, F_GETFD) != -1; }

bool has_no_delay(int socket) {
  int on = 0;
  socklen_t size = sizeof on;
  return ::getsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, &size) == 0 && on != 0;
}

std::string at_port(const std::string& host, int port) { return host + ":" + std::to_string(port); }

/// Who is called there, once somebody is; five seconds are waited.
owned_descriptor accepted(const listening_socket& by) {
  const auto until = clock_type::now() + 5s;
  owned_descriptor caller;
  while (!caller.open() && clock_type::now() < until) caller = by.accept(), std::this_thread::yield();
  return caller;
}

/// Both ends of a connection.
struct connection {
  listening_socket door{"127.0.0.1:0"};
  owned_descriptor out = call_address(at_port("127.0.0.1", door.port()), 5s), in = accepted(door);
};

/// Whether the address comes to be deserted: a busy kernel may answer late, which is no answer yet.
bool deserted_soon(const std::string& address) {
  const auto until = clock_type::now() + 10s;
  while (!is_deserted(address))
    if (clock_type::now() > until) return false;
  return true;
}

/// Whether a name stands for an IPv6 address too.
bool has_ipv6(const std::string& address) {
  const detail::resolved_address all(address);
  for (const addrinfo* a = all.first(); a != nullptr; a = a->ai_next)
    if (a->ai_family == AF_INET6) return true;
  return false;
}

/// An address that takes no more callers, so that the next one hears nothing: its queue is short, and full.
struct deaf_address {
  owned_descriptor door{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::string address;
  std::vector<owned_descriptor> callers;

  deaf_address() {
    sockaddr_in here = {};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof here;
    REQUIRE(::bind(door.number(), reinterpret_cast<const sockaddr*>(&here), size) == 0);
    REQUIRE(::listen(door.number(), 0) == 0);
    REQUIRE(::getsockname(door.number(), reinterpret_cast<sockaddr*>(&here), &size) == 0);
    address = at_port("127.0.0.1", ntohs(here.sin_port));
    while (callers.size() < 16) {
      owned_descriptor one = call_address(address, callers.empty() ? 10s : 1s);
      if (!one.open()) return;
      callers.push_back(std::move(one));
    }
    FAIL("a queue of length 0 took 16 callers");
  }
};

}  // namespace

TEST_CASE("a descriptor is closed once, by whoever has it last") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  owned_descriptor first(ends[0]), second(ends[1]);
  CHECK(first.open());
  CHECK(first.number() == ends[0]);
  owned_descriptor taken(std::move(first));
  CHECK(taken.number() == ends[0]);
  CHECK(is_open(ends[0]));
  taken = std::move(second);
  CHECK(taken.number() == ends[1]);
  taken.close();
  CHECK_FALSE(taken.open());
  CHECK(taken.number() == -1);
  CHECK_FALSE(is_open(ends[1]));
  second.close();  // what `taken` had
  CHECK_FALSE(is_open(ends[0]));
}

TEST_CASE("an address is host:port") {
  for (const std::string bad : {"", "host", ":1", "host:", "127.0.0.1"}) {
    CHECK_REFUSED(listening_socket(bad), "the address '" + bad + "': it is written host:port");
    CHECK_REFUSED(call_address(bad, 1s), "the address '" + bad + "': it is written host:port");
    CHECK_REFUSED(is_deserted(bad), "the address '" + bad + "': it is written host:port");
  }
  for (const std::string one : {"127.0.0.1:80", "[127.0.0.1]:80", "[::1]:80"}) {
    const detail::resolved_address at(one);
    CHECK(at.count() == 1);  // of streams alone
    CHECK(at.first()->ai_family == (one == "[::1]:80" ? AF_INET6 : AF_INET));
  }
  for (const std::string bad : {"[]:80", "[::1:80", "[127.0.0.1:80", "127.0.0.1]:80", "127.0.0.1:80:80"})
    CHECK_REFUSED(detail::resolved_address(bad), "the address '" + bad + "' is not known: ");
  CHECK_REFUSED(call_address("127.0.0.1:no-such-service", 1s),
                "the address '127.0.0.1:no-such-service' is not known: ");
}

TEST_CASE("who calls is connected, without delays and without a wait") {
  connection c;
  REQUIRE(c.out.open());
  REQUIRE(c.in.open());
  for (const owned_descriptor* const end : {&c.out, &c.in}) {
    CHECK(has_no_delay(end->number()));
    CHECK((::fcntl(end->number(), F_GETFL) & O_NONBLOCK) != 0);
    CHECK((::fcntl(end->number(), F_GETFD) & FD_CLOEXEC) != 0);
  }
  CHECK_FALSE(c.door.accept().open());  // nobody else
  CHECK_FALSE(is_deserted(at_port("127.0.0.1", c.door.port())));
}

TEST_CASE("a port is taken once, and says so; who left it can be told from who lives") {
  std::string address;
  {
    const listening_socket door("127.0.0.1:0");
    address = at_port("127.0.0.1", door.port());
    std::string said;
    try {
      const listening_socket second(address);
    } catch (const std::system_error& e) {
      CHECK(e.code().value() == EADDRINUSE);
      said = e.what();
    }
    CHECK(said.starts_with("reshard: cannot listen at " + address + ": "));
  }
  CHECK(deserted_soon(address));
  CHECK_FALSE(call_address(address, 5s).open());
  CHECK(listening_socket(address).port() > 0);  // and is free again
}

TEST_CASE("of all addresses that a name stands for one is enough to be called, and to be no deserted one") {
  int names = 0;
  const std::string unknown = testing::refused([&] { names = detail::resolved_address("localhost:1").count(); });
  if (unknown.starts_with("reshard: the address 'localhost:1' is not known: ")) {
    MESSAGE("no name to ask for: this machine, without /etc/hosts, does not know localhost");
    return;
  }
  MESSAGE("localhost has " << names << " addresses here");
  CHECK(names >= 1);
  for (const std::string only : {"127.0.0.1", "[::1]"}) {
    std::string address;
    try {
      const listening_socket door(only + ":0");
      address = at_port("localhost", door.port());
      if (only == "[::1]" && !has_ipv6(address)) continue;
      const owned_descriptor out = call_address(address, 5s);
      CHECK(out.open());
      CHECK(accepted(door).open());
      CHECK_FALSE(is_deserted(address));
    } catch (const std::system_error&) {
      REQUIRE(only == "[::1]");  // a machine without IPv6
      continue;
    }
    CHECK(deserted_soon(address));
  }
}

TEST_CASE("who does not answer is waited for as long as was said, is not deserted, and a wait can be ended") {
  const deaf_address deaf;
  const auto before = clock_type::now();
  CHECK_FALSE(call_address(deaf.address, 200ms).open());
  const auto took = clock_type::now() - before;
  CHECK(took >= 190ms);
  CHECK(took < 20s);
  CHECK_FALSE(is_deserted(deaf.address));
  int wakes[2];
  REQUIRE(::pipe(wakes) == 0);
  const owned_descriptor reads(wakes[0]), writes(wakes[1]);
  CHECK(::write(writes.number(), "x", 1) == 1);
  CHECK_FALSE(call_address(deaf.address, std::chrono::hours(24), reads.number()).open());
}

TEST_CASE("a call goes on while something else is done, and is over once it was answered, or is nobody's") {
  detail::begun_call nobody;
  CHECK_FALSE(nobody.under_way());
  CHECK_FALSE(nobody.answered().open());
  const listening_socket door("127.0.0.1:0");
  detail::begun_call call(at_port("127.0.0.1", door.port()), 5s);
  CHECK(call.under_way());
  CHECK(call.left() > 0s);
  CHECK(call.left() <= 5s);
  owned_descriptor made;
  const auto until = clock_type::now() + 5s;
  while (!made.open() && clock_type::now() < until) made = call.answered();
  CHECK(made.open());
  CHECK_FALSE(call.under_way());
  const deaf_address deaf;
  detail::begun_call unheard(deaf.address, 10s);
  CHECK_FALSE(unheard.answered().open());
  CHECK(unheard.under_way());  // still
}

TEST_CASE("what is sent arrives; a full line takes nothing and has not ended; one whose other end is gone has") {
  connection c;
  REQUIRE(c.in.open());
  std::array<std::byte, 5> word{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, std::byte{5}}, came{};
  const socket_progress none = receive_some(c.in.number(), came.data(), came.size());
  CHECK(none.bytes == 0);
  CHECK_FALSE(none.ended);
  CHECK(send_some(c.out.number(), word.data(), word.size()).bytes == 5);
  std::size_t got = 0;
  const auto until = clock_type::now() + 5s;
  while (got < 5 && clock_type::now() < until) got += receive_some(c.in.number(), came.data() + got, 5 - got).bytes;
  CHECK(came == word);
  while (!all_arrived(c.out.number()) && clock_type::now() < until) std::this_thread::yield();
  CHECK(all_arrived(c.out.number()));

  const std::vector<std::byte> much(std::size_t{1} << 20);
  std::size_t sent = 0;
  socket_progress last{1, false};
  while (last.bytes > 0 && sent < (std::size_t{1} << 30))
    last = send_some(c.out.number(), much.data(), much.size()), sent += last.bytes;
  CHECK_FALSE(last.ended);
  CHECK_FALSE(all_arrived(c.out.number()));
  CHECK_FALSE(all_arrived(-1));

  c.in.close();
  socket_progress after{};
  while (!after.ended && clock_type::now() < until + 5s) after = send_some(c.out.number(), much.data(), 1);
  CHECK(after.ended);
  CHECK(after.bytes == 0);
  connection left;
  left.out.close();
  socket_progress end{};
  while (!end.ended && clock_type::now() < until + 5s) end = receive_some(left.in.number(), came.data(), 1);
  CHECK(end.ended);
}
