// SPDX-License-Identifier: Apache-2.0
// Groups are made once for the same members in the same order, one at a time and in the background; what failed or was
// dropped is made anew, what is in use stays, and nothing is left of a thousand changes.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <reshard/transport/group_cache.hpp>
#include <reshard/transport/process_door.hpp>
#include <reshard/transport/sockets.hpp>
#include <reshard/transport/thread_group.hpp>

#include "../support/sanitized.hpp"

using namespace reshard;

namespace {

using members = std::vector<std::string>;

/// Its number says which making it is of.
struct numbered {
  int number = 0;
  members of = {};
};
using cache = group_cache<numbered>;

/// Counts what it makes, and how many at once.
struct making {
  std::atomic<int> made = 0, now = 0, most = 0;
  std::atomic<bool> held = false;  // a making waits while it is, or until its token, but not for ever

  cache::maker maker() {
    return [this](const members& m, const std::stop_token& stop) {
      const int there = ++now;
      for (int seen = most.load(); there > seen && !most.compare_exchange_weak(seen, there);) {
      }
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      while (held && !stop.stop_requested() && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      --now;
      if (stop.stop_requested()) throw std::runtime_error("the making was ended");
      if (m.front() == "bad") throw std::runtime_error("bad is not to be had, " + std::to_string(++made));
      return std::make_shared<numbered>(numbered{++made, m});
    };
  }
};

std::string thrown(auto&& call) {
  try {
    call();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "nothing";
}

std::size_t entries(const char* folder) {
  std::size_t count = 0;
  for (const auto& one : std::filesystem::directory_iterator(folder)) count += one.path().empty() ? 0 : 1;
  return count;
}

}  // namespace

TEST_CASE("a group is made once for the same members in the same order") {
  making of;
  cache groups(of.maker());
  CHECK(groups.find({"a", "b"}) == nullptr);
  CHECK(of.made == 0);
  const cache::pointer one = groups.get({"a", "b"}), other = groups.get({"b", "a"});
  CHECK(one->of == members{"a", "b"});
  CHECK(other->of == members{"b", "a"});
  CHECK(groups.get({"a", "b"}) == one);
  CHECK(groups.find({"a", "b"}) == one);
  CHECK(groups.find({"a"}) == nullptr);
  CHECK(of.made == 2);
  CHECK(groups.size() == 2);
}

TEST_CASE("one is made at a time, in the background, and who asks for one that is being made waits for it") {
  making of;
  of.held = true;
  cache groups(of.maker());
  groups.begin({"a"}), groups.begin({"b"}), groups.begin({"a"});
  CHECK(groups.find({"a"}) == nullptr);
  std::vector<cache::pointer> got(6);
  std::vector<std::thread> asking;
  for (std::size_t i = 0; i < got.size(); ++i)
    asking.emplace_back([&, i] { got[i] = groups.get({i % 2 == 0 ? "a" : "b"}); });
  CHECK(groups.size() == 0);
  of.held = false;
  for (std::thread& t : asking) t.join();
  CHECK(of.made == 2);
  CHECK(of.most == 1);
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i] == got[i % 2]);
    CHECK(got[i]->of == members{i % 2 == 0 ? "a" : "b"});
  }
}

TEST_CASE("what its making threw, all who wait hear, and the next who asks has it made anew") {
  making of;
  of.held = true;
  cache groups(of.maker());
  std::vector<std::string> said(3);
  std::vector<std::thread> asking;
  for (std::string& text : said)
    asking.emplace_back([&] { text = thrown([&] { static_cast<void>(groups.get({"bad"})); }); });
  while (of.now == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  of.held = false;
  for (std::thread& t : asking) t.join();
  CHECK(of.made >= 1);  // who came late has it made once more
  for (const std::string& text : said) CHECK(text.starts_with("bad is not to be had, "));
  const int before = of.made;
  CHECK(thrown([&] { static_cast<void>(groups.get({"bad"})); }) ==
        "bad is not to be had, " + std::to_string(before + 1));
  CHECK(groups.find({"bad"}) == nullptr);
  CHECK(groups.size() == 0);
  group_cache<numbered> none([](const members&, const std::stop_token&) { return cache::pointer(); });
  CHECK_THROWS_WITH_AS(static_cast<void>(none.get({"a"})), "reshard: what makes groups made none", peer_failed);
  group_cache<numbered> refused([](const members&, const std::stop_token&) -> cache::pointer { refuse("no ", 3); });
  CHECK_THROWS_WITH_AS(static_cast<void>(refused.get({"a"})), "reshard: no 3", refusal);
  group_cache<numbered> silent([](const members&, const std::stop_token&) -> cache::pointer { throw 3; });
  CHECK_THROWS_WITH_AS(static_cast<void>(silent.get({"a"})), "reshard: an exception of no standard kind", peer_failed);
}

TEST_CASE("what is dropped is made anew, stays with who has it, and its making ends") {
  making of;
  cache groups(of.maker());
  const cache::pointer before = groups.get({"a"});
  groups.drop({"a"}), groups.drop({"never asked for"});
  CHECK(groups.find({"a"}) == nullptr);
  CHECK(before->number == 1);
  CHECK(groups.get({"a"})->number == 2);

  of.held = true;
  std::string said, of_waiting;
  groups.begin({"b"}), groups.begin({"c"});
  std::thread asking([&] { said = thrown([&] { static_cast<void>(groups.get({"b"})); }); });
  std::thread waiting([&] { of_waiting = thrown([&] { static_cast<void>(groups.get({"c"})); }); });
  while (of.now == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  groups.drop({"c"}), groups.drop({"b"});  // c's was not begun
  asking.join(), waiting.join();
  CHECK(said == "the making was ended");
  CHECK(of_waiting == "reshard: a group was dropped before it was made");
  CHECK(of.made == 2);
  of.held = false;
  CHECK(groups.get({"b"})->number == 3);
}

TEST_CASE("as many are kept as were said: who was not asked for longest goes, and what they take is counted") {
  making of;
  group_cache<numbered> groups(of.maker(), 2, [](const numbered& one) { return bytes_t{1000} * one.number; });
  CHECK(groups.bytes() == 0);
  std::weak_ptr<numbered> a = groups.get({"a"});
  const std::weak_ptr<numbered> b = groups.get({"b"});
  CHECK(groups.bytes() == 3000);
  static_cast<void>(groups.get({"a"}));  // so that b is the one
  static_cast<void>(groups.get({"c"}));
  CHECK(groups.size() == 2);
  CHECK(groups.find({"b"}) == nullptr);
  CHECK(groups.find({"a"})->number == 1);
  CHECK(groups.bytes() == 1000 + 3000);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!b.expired() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  CHECK(b.expired());
  CHECK_FALSE(a.expired());
}

TEST_CASE("one is kept at least, four where nothing is said") {
  making of;
  for (const std::size_t kept : {0u, 1u}) {
    cache groups(of.maker(), kept);
    const cache::pointer a = groups.get({"a"});
    CHECK(groups.find({"a"}) == a);
    static_cast<void>(groups.get({"b"}));
    CHECK(groups.size() == 1);
    CHECK(groups.find({"a"}) == nullptr);
  }
  cache usual(of.maker());
  for (const char* const one : {"a", "b", "c", "d"}) static_cast<void>(usual.get({one}));
  CHECK(usual.size() == 4);
  static_cast<void>(usual.get({"e"}));
  CHECK(usual.size() == 4);
  CHECK(usual.find({"a"}) == nullptr);
}

TEST_CASE("what was begun is made though nobody waits for it") {
  making of;
  cache groups(of.maker());
  groups.begin({"a"});
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (groups.size() == 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  REQUIRE(groups.size() == 1);
  CHECK(groups.find({"a"})->number == 1);
}

TEST_CASE("members may be numbers, and of those that nobody asked for there is nothing") {
  group_cache<numbered, int> groups([](int n, const std::stop_token&) {
    return std::make_shared<numbered>(numbered{n, {}});
  });
  CHECK(groups.find(3) == nullptr);
  CHECK(groups.get(3)->number == 3);
  CHECK(groups.find(4) == nullptr);
  groups.drop(3);
  CHECK(groups.find(3) == nullptr);
}

TEST_CASE("who waits is ended by a token, and so is the making at the end of all") {
  making of;
  of.held = true;
  std::stop_source stop;
  {
    cache groups(of.maker());
    std::thread asking([&] {
      CHECK(thrown([&] { static_cast<void>(groups.get({"a"}, stop.get_token())); }) ==
            "reshard: a group is not waited for any more");
    });
    while (of.now == 0) std::this_thread::yield();
    stop.request_stop();
    asking.join();
    groups.begin({"b"});
    CHECK(of.now == 1);
  }
  CHECK(of.now == 0);
  CHECK(of.made == 0);
}

TEST_CASE("where they are made where asked, begin begins nothing, and one is made at a time by who waits for one") {
  making of;
  std::atomic<int> elsewhere = 0;
  const auto here = std::this_thread::get_id();
  cache groups(
      [&, make = of.maker()](const members& m, const std::stop_token& stop) {
        elsewhere += std::this_thread::get_id() == here ? 0 : 1;
        return make(m, stop);
      },
      4, {}, groups_are_made::where_asked);
  CHECK(groups.where() == groups_are_made::where_asked);
  CHECK(cache(of.maker()).where() == groups_are_made::in_background);
  const std::size_t threads = entries("/proc/self/task");
  groups.begin({"a"}), groups.begin({"bad"});
  CHECK(groups.get({"a"})->number == 1);
  CHECK(groups.get({"a"})->number == 1);
  CHECK(groups.find({"a"})->number == 1);
  CHECK(thrown([&] { static_cast<void>(groups.get({"bad"})); }) == "bad is not to be had, 2");
  CHECK(thrown([&] { static_cast<void>(groups.get({"bad"})); }) == "bad is not to be had, 3");
  CHECK(elsewhere == 0);
  CHECK(entries("/proc/self/task") <= threads);  // one of a case before may end meanwhile

  of.held = true;
  std::vector<cache::pointer> got(6);
  std::vector<std::thread> asking;
  for (std::size_t i = 0; i < got.size(); ++i)
    asking.emplace_back([&, i] { got[i] = groups.get({i % 2 == 0 ? "c" : "d"}); });
  while (of.now == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  of.held = false;
  for (std::thread& t : asking) t.join();
  CHECK(of.made == 5);
  CHECK(of.most == 1);
  CHECK(elsewhere == 2);
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i] == got[i % 2]);
    CHECK(got[i]->of == members{i % 2 == 0 ? "c" : "d"});
  }
}

TEST_CASE("what is made where asked ends by the token of who makes it, or of who waits for that, or dropped") {
  making of;
  of.held = true;
  cache groups(of.maker(), 4, {}, groups_are_made::where_asked);
  std::stop_source makes, waits;
  std::string of_maker, of_waiting, of_patient;
  std::thread making_it([&] { of_maker = thrown([&] { static_cast<void>(groups.get({"a"}, makes.get_token())); }); });
  while (of.now == 0) std::this_thread::yield();
  std::thread waiting([&] { of_waiting = thrown([&] { static_cast<void>(groups.get({"b"}, waits.get_token())); }); });
  std::thread patient([&] { of_patient = thrown([&] { static_cast<void>(groups.get({"a"})); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  waits.request_stop();
  waiting.join();
  CHECK(of_waiting == "reshard: a group is not waited for any more");
  CHECK(of.now == 1);
  makes.request_stop();
  making_it.join(), patient.join();
  CHECK(of_maker == "the making was ended");
  CHECK(of_patient == "the making was ended");
  std::string of_dropped;
  std::thread dropped([&] { of_dropped = thrown([&] { static_cast<void>(groups.get({"a"})); }); });
  while (of.now == 0) std::this_thread::yield();
  groups.drop({"a"});
  dropped.join();
  CHECK(of_dropped == "the making was ended");
  CHECK(of.made == 0);
  of.held = false;
  CHECK(groups.get({"a"})->number == 1);
  CHECK(groups.get({"b"})->number == 2);
}

TEST_CASE("groups of threads are kept as others are") {
  group_cache<thread_group, std::vector<rank_t>> groups([](const std::vector<rank_t>& m, const std::stop_token&) {
    return std::make_shared<thread_group>(std::ssize(m));
  });
  for (const std::vector<rank_t>& m : {std::vector<rank_t>{0, 1, 2}, std::vector<rank_t>{4, 3}}) {
    groups.begin(m);
    std::atomic<rank_t> met = 0;
    const std::shared_ptr<thread_group> group = groups.get(m);
    group->run([&](auto& here) {
      const rank_t mine = m[static_cast<std::size_t>(here.device())];
      for (int again = 0; again < 2; ++again)
        met += here.agree({.addend = static_cast<std::uint64_t>(mine)}).sum == (m.size() == 3 ? 3u : 7u) ? 1 : 0;
    });
    CHECK(met == 2 * std::ssize(m));
    CHECK(groups.get(m) == group);
  }
  CHECK(groups.size() == 2);
}

TEST_CASE("a hit makes no system call") {
  if (testing::sanitized) return;  // a sanitizer makes them
  making of;
  cache groups(of.maker());
  const members all = {"a", "b", "c"};
  static_cast<void>(groups.get(all));
  bool without = false;
  for (int tried = 0; tried < 50 && !without;
       ++tried) {  // the thread that made it may hold the lock, for ever in a child
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);  // any but read, write and exit ends it by SIGKILL
      int wrong = 0;
      for (int i = 0; i < 1000; ++i) wrong += groups.get(all)->number == 1 && groups.find(all) != nullptr ? 0 : 1;
      ::syscall(SYS_exit, wrong == 0 ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    without = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!without) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  CHECK(without);
}

TEST_CASE("a thousand changes of a world over sockets leave no descriptor and no thread") {
  constexpr int changes = testing::sanitized ? 100 : 1000;
  process_door door_a(listening_socket("127.0.0.1:0")), door_b(listening_socket("127.0.0.1:0"));
  const members addresses = {"127.0.0.1:" + std::to_string(door_a.port()),
                             "127.0.0.1:" + std::to_string(door_b.port())};
  const auto maker = [&](rank_t device, process_door& door) {
    return [&addresses, &door, device](const members& m, const std::stop_token& stop) {
      return std::make_shared<socket_endpoint>(device, addresses, door, std::stoull(m.front()) + 1,
                                               std::chrono::seconds(30), stop);
    };
  };
  const std::size_t descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  int met = 0;
  {
    group_cache<socket_endpoint> a(maker(0, door_a)), b(maker(1, door_b));
    for (int i = 0; i < changes; ++i) {
      const members one = {std::to_string(i)};
      a.begin(one), b.begin(one);
      std::string said, mine;
      std::thread other([&] { said = thrown([&] { static_cast<void>(b.get(one)->agree({.addend = 1})); }); });
      mine = thrown([&] { met += a.get(one)->agree({.addend = 1}).sum == 2 ? 1 : 0; });
      other.join();
      CHECK(said + mine == "nothingnothing");
      a.drop(one), b.drop(one);
    }
    CHECK(entries("/proc/self/task") == threads + 2);
  }
  CHECK(met == changes);
  CHECK(entries("/proc/self/fd") == descriptors);
  CHECK(entries("/proc/self/task") == threads);
}
