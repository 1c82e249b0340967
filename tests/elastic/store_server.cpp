// SPDX-License-Identifier: Apache-2.0
// A store that is served, a round at a time, with a clock that goes as the test says: callers are sockets of the test,
// which speak its words byte by byte. Who is answered and when, how long it would wait then, and what is kept.
#include <doctest/doctest.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <list>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <reshard/elastic/served/callers.hpp>
#include <reshard/elastic/served/journal.hpp>

#include "../support/own_folder.hpp"

namespace reshard {
/// The time, as the test says.
struct stepped_clock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<stepped_clock>;
  static constexpr bool is_steady = true;
  static time_point now() { return time_point(at); }
  static inline duration at = std::chrono::hours(1);
};
}  // namespace reshard

/// How the server waits.
int polled(pollfd* watched, nfds_t count, int limit);

#define steady_clock stepped_clock
#define poll polled
#include <reshard/elastic/store_server.hpp>
#undef steady_clock
#undef poll

using namespace reshard;
using ms = patience;

namespace {

int syncs = 0;                    // of files, that were asked for
std::function<void()> at_a_sync;  // what happens meanwhile
bool disk_fails = false;

/// One round: a wait in which time passes and so many descriptors are heard of; then the next wait, that is its end.
struct one_round {
  ms passes{};
  int ready = 0;
  bool over = false;
  std::vector<pollfd> watched;  // in the next wait
  int limit = -1;
};
one_round* playing = nullptr;

}  // namespace

int polled(pollfd* watched, nfds_t count, int limit) {
  one_round& r = *playing;
  if (r.over) {
    r.watched.assign(watched, watched + count);
    r.limit = limit;
    watched[0].revents = POLLIN;
    return 1;
  }
  r.over = true;
  stepped_clock::at += r.passes;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  int heard = ::poll(watched, count, 0);
  while (heard < r.ready && std::chrono::steady_clock::now() < end) heard = ::poll(watched, count, 1);
  CHECK(heard >= r.ready);
  return heard;
}

/// Takes the place of the C library's.
extern "C" int fdatasync(int file) {
  ++syncs;
  if (at_a_sync) at_a_sync();
  if (disk_fails) errno = EIO;
  return disk_fails ? -1 : static_cast<int>(::syscall(SYS_fdatasync, file));
}

namespace {

ms now() { return std::chrono::ceil<ms>(stepped_clock::at); }

std::string number(std::uint64_t n, int bytes = 8) {
  std::string all;
  for (int i = 0; i < bytes; ++i, n /= 256) all += static_cast<char>(n % 256);
  return all;
}
std::string text(const std::string& of) { return number(of.size()) + of; }
std::string frame(const std::string& body) { return number(body.size(), 4) + body; }
const std::string hello = "rshstor1";

std::string question(int what, const std::string& key, const std::string& value, std::uint64_t revision,
                     std::uint64_t lease, std::uint64_t time) {
  return frame(number(static_cast<std::uint64_t>(what)) + text(key) + text(value) + number(revision) + number(lease) +
               number(time));
}
std::string read_of(const std::string& key) { return question(1, key, "", 0, 0, 0); }
std::string swap_of(const std::string& key, const std::string& value, std::uint64_t expected = 0,
                    std::uint64_t lease = 0) {
  return question(3, key, value, expected, lease, 0);
}
std::string lease_of(std::uint64_t time) { return question(5, "", "", 0, 0, time); }
std::string renewal_of(std::uint64_t lease) { return question(6, "", "", 0, lease, 0); }
std::string changes_of(const std::string& prefix, std::uint64_t after, std::uint64_t time) {
  return question(8, prefix, "", after, 0, time);
}
std::string answer_of(std::uint64_t said, const std::vector<store_change>& changes = {}, bool anew = false) {
  std::string body = number(said) + number(anew ? 1 : 0) + text("") + number(changes.size());
  for (const store_change& c : changes)
    body += text(c.now.key) + text(c.now.value) + number(c.now.revision) + number(c.removed ? 1 : 0);
  return frame(body);
}

/// Somebody who calls.
struct caller {
  explicit caller(int port) : link(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<std::uint16_t>(port));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(link.number(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  }
  void says(const std::string& all) {
    REQUIRE(::send(link.number(), all.data(), all.size(), MSG_NOSIGNAL) == std::ssize(all));
  }
  /// So many bytes, or what comes before the end or in 20 seconds.
  std::string hears(std::size_t bytes) {
    std::string all;
    pollfd ready{link.number(), POLLIN, 0};
    while (all.size() < bytes && ::poll(&ready, 1, 20'000) > 0) {
      std::string some(bytes - all.size(), '\0');
      const auto came = ::recv(link.number(), some.data(), some.size(), 0);
      if (came <= 0) break;
      all.append(some, 0, static_cast<std::size_t>(came));
    }
    return all;
  }
  bool hears_all(const std::string& expected) { return hears(expected.size()) == expected; }
  bool hears_nothing() {
    char one = 0;
    return ::recv(link.number(), &one, 1, MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
  owned_descriptor link;
};

/// A server, and who calls it.
struct played_server {
  explicit played_server(store_memory memory = {}) { start(memory); }
  void start(store_memory memory = {}) {
    server.reset();
    server.emplace(listening_socket("127.0.0.1:0"), path, memory);
  }
  /// A round in which so much time passes and so many descriptors are heard of; how long it would wait then.
  int round(ms passes = ms(0), int ready = 0) {
    one_round r{.passes = passes, .ready = ready, .watched = {}};
    playing = &r;
    server->serve(-1);
    watched = r.watched;
    return r.limit;
  }
  /// One who is let in and has greeted.
  caller& calls() {
    callers.emplace_back(server->port());
    round(ms(0), 1);
    callers.back().says(hello);
    round(ms(0), 1);
    return callers.back();
  }
  std::size_t let_in() const { return watched.size() - 2; }
  const store_state& state() const { return server->state(); }
  std::string kept() const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  testing::own_folder folder;
  std::string path = folder.path + "/journal";
  std::optional<store_server> server;
  std::list<caller> callers;
  std::vector<pollfd> watched;
};

}  // namespace

TEST_CASE("who calls, greets and asks is answered; a start later the store has what it answered") {
  played_server s;
  CHECK(s.round() == 60'000);
  CHECK(s.let_in() == 0);
  CHECK(s.watched[0].fd == -1);
  CHECK(s.watched[0].events == POLLIN);
  CHECK(s.watched[1].fd >= 0);
  CHECK(s.watched[1].events == POLLIN);
  caller& one = s.calls();
  CHECK(s.let_in() == 1);
  one.says(swap_of("a", "1"));
  CHECK(s.round(ms(0), 1) == 60'000);
  CHECK(one.hears_all(answer_of(1)));
  one.says(read_of("a"));
  s.round(ms(0), 1);
  CHECK(one.hears_all(answer_of(0, {{{"a", "1", 1}, false}})));
  s.start();
  CHECK(s.state().read("a") == stored{"a", "1", 1});
  one.link.close();
}

TEST_CASE("it ends as soon as that descriptor can be read, and does nothing more") {
  played_server s;
  int ends[2] = {};
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const owned_descriptor out(ends[0]), in(ends[1]);
  caller& one = s.calls();
  one.says(read_of("a"));
  REQUIRE(::write(in.number(), "x", 1) == 1);
  one_round r{.ready = 2, .watched = {}};
  playing = &r;
  s.server->serve(out.number());
  CHECK(r.watched.empty());  // it did not come to a next wait
  CHECK(one.hears_nothing());
  s.round(ms(0), 1);
  CHECK(one.hears_all(answer_of(0)));
}

TEST_CASE("all that have asked are answered in one round, with one sync, before which nobody hears anything") {
  played_server s;
  for (int i = 0; i < 3; ++i) s.calls();
  syncs = 0;
  bool early = false;
  for (caller& c : s.callers) c.says(swap_of("k" + std::to_string(c.link.number()), "v"));
  at_a_sync = [&] {
    for (caller& c : s.callers) early = early || !c.hears_nothing();
  };
  s.round(ms(0), 3);
  at_a_sync = {};
  CHECK(syncs == 1);
  CHECK_FALSE(early);
  std::uint64_t n = 0;
  for (caller& c : s.callers) CHECK(c.hears_all(answer_of(++n)));
  for (caller& c : s.callers) c.says(read_of("none"));
  s.round(ms(0), 3);
  for (caller& c : s.callers) CHECK(c.hears_all(answer_of(0)));
  CHECK(syncs == 1);  // nothing was to be kept
}

TEST_CASE("what cannot be kept is not answered") {
  played_server s;
  caller& one = s.calls();
  one.says(swap_of("a", "1"));
  disk_fails = true;
  CHECK_THROWS_AS(s.round(ms(0), 1), std::system_error);
  disk_fails = false;
  CHECK(one.hears_nothing());
}

TEST_CASE("two questions at once are answered one a round, the second without a wait") {
  played_server s;
  caller& one = s.calls();
  one.says(swap_of("a", "1") + swap_of("a", "2", 1) + read_of("a").substr(0, 9));
  CHECK(s.round(ms(0), 1) == 0);
  CHECK(one.hears_all(answer_of(1)));
  CHECK(one.hears_nothing());
  CHECK(s.round() == 60'000);
  CHECK(one.hears_all(answer_of(2)));
  one.says(read_of("a").substr(9));
  s.round(ms(0), 1);
  CHECK(one.hears_all(answer_of(0, {{{"a", "2", 2}, false}})));
}

TEST_CASE("changes are waited for until the first, or as long as was asked; what is told anew is told at once") {
  played_server s({1, 1 << 20});
  caller &waits = s.calls(), &other = s.calls(), &third = s.calls();
  waits.says(changes_of("a", 0, 5000));
  CHECK(s.round(ms(0), 1) == 5000);
  CHECK(waits.hears_nothing());
  other.says(swap_of("b", "1"));
  CHECK(s.round(ms(100), 1) == 4900);
  CHECK(waits.hears_nothing());  // of another prefix
  other.says(swap_of("ab", "2"));
  third.says(changes_of("x", 2, 300));
  CHECK(s.round(ms(100), 2) == 300);
  CHECK(waits.hears_all(answer_of(2, {{{"ab", "2", 2}, false}}, true)));  // it remembers one change
  CHECK(s.round(ms(299)) == 1);
  CHECK(third.hears_nothing());
  CHECK(s.round(ms(1)) == 60'000);
  CHECK(third.hears_all(answer_of(2)));
  waits.says(changes_of("a", 1, 5000));
  s.round(ms(0), 1);
  CHECK(waits.hears_all(answer_of(2, {{{"ab", "2", 2}, false}})));
  waits.says(changes_of("x", 0, 5000));
  s.round(ms(0), 1);
  CHECK(waits.hears_all(answer_of(2, {}, true)));
  waits.says(changes_of("a", 2, 70'000));
  third.says(changes_of("a", 2, 40'000));
  CHECK(s.round(ms(0), 2) == 40'000);
  other.says(swap_of("a", "3"));
  s.round(ms(0), 1);
  const std::string news = answer_of(3, {{{"a", "3", 3}, false}});
  CHECK(waits.hears_all(news));
  CHECK(third.hears_all(news));
  CHECK(s.round(ms(0)) == 60'000);  // each was told once
  CHECK(waits.hears_nothing());
}

TEST_CASE("a lease that is over takes its keys, which is kept and told; meanwhile it looks four times a second") {
  played_server s;
  caller &one = s.calls(), &waits = s.calls();
  one.says(lease_of(600));
  CHECK(s.round(ms(0), 1) == 250);
  CHECK(one.hears_all(answer_of(1)));
  one.says(swap_of("a", "1", 0, 1));
  waits.says(changes_of("a", 1, 10'000));
  CHECK(s.round(ms(0), 2) == 250);
  CHECK(one.hears_all(answer_of(1)));
  CHECK(s.state().leases().at(1).ends == now() + ms(600));
  CHECK(s.round(ms(250)) == 250);
  CHECK(s.round(ms(250)) == 100);
  const std::string before = s.kept();
  CHECK(s.round(ms(99)) == 1);
  CHECK(s.kept() == before);
  CHECK(waits.hears_nothing());
  CHECK(s.round(ms(1)) == 60'000);
  CHECK(s.state().leases().empty());
  CHECK(s.kept() > before);
  CHECK(waits.hears_all(answer_of(2, {{{"a", "", 2}, true}})));
}

TEST_CASE("keys that go with a lease are told to who waits, and are gone after a start too") {
  played_server s;
  caller &one = s.calls(), &waits = s.calls();
  one.says(lease_of(100) + lease_of(100));
  s.round(ms(0), 1), s.round();
  one.says(swap_of("a", "1", 0, 1) + swap_of("b", "2", 0, 2));
  s.round(ms(0), 1), s.round();
  CHECK(one.hears_all(answer_of(1) + answer_of(2) + answer_of(1) + answer_of(2)));
  waits.says(changes_of("", 2, 10'000));
  CHECK(s.round(ms(0), 1) == 100);
  syncs = 0;
  CHECK(s.round(ms(100)) == 60'000);
  CHECK(syncs == 1);
  CHECK(waits.hears_all(answer_of(4, {{{"a", "", 3}, true}, {{"b", "", 4}, true}})));
  s.start();
  CHECK(s.state().leases().empty());
  CHECK(s.state().revision() == 4);
}

TEST_CASE("a renewal that is heard in the round in which the lease would be over came in time") {
  played_server s;
  caller& one = s.calls();
  one.says(lease_of(100));
  CHECK(s.round(ms(0), 1) == 100);
  one.says(renewal_of(1));
  CHECK(s.round(ms(120), 1) == 100);
  CHECK(one.hears_all(answer_of(1) + answer_of(1)));
  CHECK(s.state().leases().at(1).ends == now() + ms(100));
}

TEST_CASE("leases last longer by the time that the server was away, beyond a quarter of a second") {
  for (const int away : {0, 1}) {
    played_server s;
    caller& one = s.calls();
    one.says(lease_of(10'000));
    CHECK(s.round(ms(0), 1) == 250);
    const ms ends = now() + ms(10'000);
    s.round(ms(500 + away));
    CHECK(s.state().leases().at(1).ends == ends + (away == 0 ? ms(0) : ms(501)));
    CHECK(s.round(ms(500)) == 250);  // the next absence counts from there
    CHECK(s.state().leases().at(1).ends == ends + (away == 0 ? ms(0) : ms(501)));
  }
}

TEST_CASE("after a start each lease goes on with its whole time") {
  played_server s;
  caller& one = s.calls();
  one.says(lease_of(700));
  s.round(ms(0), 1);
  stepped_clock::at += std::chrono::hours(2) + std::chrono::nanoseconds(1);
  s.start();
  const ms ends = now() + ms(700);
  CHECK(s.state().leases().at(1).ends == ends);
  stepped_clock::at += std::chrono::milliseconds(600);  // before it waits for the first time it was not away
  CHECK(s.round() == 100);
  CHECK(s.state().leases().at(1).ends == ends);
  s.round(ms(100));
  CHECK(s.state().leases().empty());
}

TEST_CASE("it does not wait where a lease was over while it wrote") {
  played_server s;
  caller& one = s.calls();
  one.says(lease_of(100));
  s.round(ms(0), 1);
  one.says(swap_of("a", "1"));
  at_a_sync = [] { stepped_clock::at += ms(130); };
  CHECK(s.round(ms(0), 1) == 0);
  at_a_sync = {};
  CHECK(s.state().leases().size() == 1);
  s.round();
  CHECK(s.state().leases().empty());
}

TEST_CASE("of many who call 64 are let in a round, and who goes is forgotten") {
  played_server s;
  for (int i = 0; i < 66; ++i) s.callers.emplace_back(s.server->port());
  s.round(ms(0), 1);
  CHECK(s.let_in() == 64);
  CHECK(s.watched[1].fd >= 0);
  s.round(ms(0), 1);
  CHECK(s.let_in() == 66);
  s.callers.front().link.close();
  s.round(ms(0), 1);
  CHECK(s.let_in() == 65);
  caller& last = s.callers.back();
  last.says(hello + read_of("a"));
  s.round(ms(0), 1);
  CHECK(last.hears_all(answer_of(0)));
}

TEST_CASE("where no descriptor is left those who are there are answered, and others let in once one is") {
  played_server s;
  caller& one = s.calls();
  s.callers.emplace_back(s.server->port());
  caller& late = s.callers.back();
  rlimit before = {};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int next = owned_descriptor(::dup(one.link.number())).number();  // the next one's number
  const rlimit few{static_cast<rlim_t>(next), before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  const int limit = s.round(ms(0), 1);
  const bool listened = s.watched[1].fd >= 0;
  const std::size_t in = s.let_in();
  one.says(swap_of("a", "1"));
  const int again = s.round(ms(0), 1);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(limit == 100);
  CHECK_FALSE(listened);
  CHECK(in == 1);
  CHECK(again == 100);
  CHECK(one.hears_all(answer_of(1)));
  CHECK(s.round() == 60'000);  // it looks by itself
  CHECK(s.let_in() == 2);
  CHECK(s.watched[1].fd >= 0);
  late.says(hello + read_of("none"));
  s.round(ms(0), 1);
  CHECK(late.hears_all(answer_of(0)));
}

TEST_CASE("what is refused ends its connection with a sentence, and nobody else's") {
  played_server s;
  caller &one = s.calls(), &other = s.calls();
  one.says(lease_of(0));
  other.says(swap_of("a", "1"));
  s.round(ms(0), 2);
  const std::string why = "reshard: a lease of 0 ms; it is of 1 to 604800000 ms";
  CHECK(one.hears(10'000) == frame(number(0) + number(0) + text(why) + number(0)));
  CHECK(s.let_in() == 1);
  CHECK(other.hears_all(answer_of(1)));
}

TEST_CASE("a journal that has grown is written anew in the same round") {
  played_server s;
  caller& one = s.calls();
  const std::string value(600'000, 'v');
  for (std::uint64_t n = 0; n < 8; ++n) {
    one.says(swap_of("a", value, n));
    for (int i = 0; i < 1000 && s.state().revision() == n; ++i) s.round(ms(0), 1);
    REQUIRE(one.hears_all(answer_of(n + 1)));
    CHECK(s.state().revision() == n + 1);
    CHECK((s.kept().size() < 600'500) == (n == 0 || n == 1 || n == 5));
  }
  s.start();
  CHECK(s.state().read("a")->revision == 8);
}
