// SPDX-License-Identifier: Apache-2.0
// Pulses between threads of one process: who hears whom, the end of a connection, silence, and leaving in good order.
#include <doctest/doctest.h>

#include <chrono>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <reshard/elastic/run/pulses.hpp>

#include "../support/lateness.hpp"

using namespace reshard;
using detail::found_gone;
using detail::pulse_peer;
using detail::pulses;

namespace {

constexpr patience wait{400};

/// Members that hear one another, and what each was told.
struct heard_world {
  struct told {
    member_name by, who;
    found_gone how;
    double after;
  };
  std::mutex mutex;
  std::vector<told> all;
  std::vector<std::unique_ptr<pulses>> ends;
  std::vector<pulse_peer> peers;

  void add(const std::string& who, const std::string& node = "here") {
    ends.push_back(std::make_unique<pulses>(who, listening_socket("127.0.0.1:0"), wait,
                                            [this, who](const member_name& gone, found_gone how, double after) {
                                              const std::lock_guard lock(mutex);
                                              all.push_back({who, gone, how, after});
                                            }));
    peers.push_back({who, "127.0.0.1:" + std::to_string(ends.back()->port()), node});
  }
  std::vector<told> so_far() {
    const std::lock_guard lock(mutex);
    return all;
  }
  bool within(patience limit, auto&& what) {
    for (const auto end = std::chrono::steady_clock::now() + limit; std::chrono::steady_clock::now() < end;) {
      if (what(so_far())) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
};

/// A caller that says a hello as `from`, and nothing after it.
owned_descriptor silent_caller(const pulse_peer& to, std::uint64_t world, const std::string& from) {
  const detail::pulse_hello hello = detail::pulse_hello::of(world, from);
  owned_descriptor made = call_address(to.address, patience(1000));
  send_some(made.number(), reinterpret_cast<const std::byte*>(&hello), sizeof hello);
  return made;
}
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace

TEST_CASE("neighbours are on other nodes where there are any") {
  std::vector<pulse_peer> all = {{"a", "", "n1"}, {"b", "", "n1"}, {"c", "", "n2"}, {"d", "", "n2"}, {"e", "", "n1"}};
  const std::vector<pulse_peer> turns = detail::by_turns_of_nodes(all);
  std::string order;
  for (const pulse_peer& p : turns) order += p.name.text();
  CHECK(order == "acbde");
  for (std::size_t i = 0; i + 2 < turns.size(); ++i) CHECK(turns[i].node != turns[i + 1].node);
}

TEST_CASE("while all live nobody is told gone, in worlds of 1 to 5, one after the other") {
  const auto told = testing::undisturbed(wait / 4, [] {
    heard_world w;
    for (const char* who : {"a", "b", "c", "d", "e"}) w.add(who);
    for (std::uint64_t n = 1; n <= 5; ++n) {
      const std::vector<pulse_peer> some(w.peers.begin(), w.peers.begin() + static_cast<std::ptrdiff_t>(n));
      for (std::size_t i = 0; i < n; ++i) w.ends[i]->hear(100 + n, some);
      std::this_thread::sleep_for(wait / 2);
    }
    std::this_thread::sleep_for(wait + wait / 2);
    return w.so_far();
  });
  CHECK(told.empty());
}

TEST_CASE("who is silent is told after the patience, by its neighbours; who leaves in good order is not") {
  const auto told = testing::undisturbed(wait / 4, [] {
    heard_world w;
    for (const char* who : {"a", "b", "c"}) w.add(who);
    std::vector<pulse_peer> with_mute = w.peers;
    const listening_socket mute("127.0.0.1:0");  // the kernel connects, and nobody speaks
    with_mute.push_back({"mute", "127.0.0.1:" + std::to_string(mute.port()), "here"});
    for (const auto& end : w.ends) end->hear(7, with_mute);
    w.within(10 * wait, [](const auto& so_far) { return so_far.size() >= 3; });
    w.ends.pop_back();
    std::this_thread::sleep_for(wait + wait / 2);
    return w.so_far();
  });
  for (const auto& t : told) {
    CHECK(t.who == member_name("mute"));
    CHECK(t.how == found_gone::silent);
    CHECK(t.after >= 0.4);
  }
  CHECK(told.size() == 3);
}

TEST_CASE("the end of a connection is told at once") {
  heard_world w;
  w.add("a");
  const listening_socket there("127.0.0.1:0");
  const std::vector<pulse_peer> both = {w.peers[0], {"b", "127.0.0.1:" + std::to_string(there.port()), "here"}};
  w.ends[0]->hear(9, both);
  owned_descriptor caller = silent_caller(w.peers[0], 9, "b");
  std::this_thread::sleep_for(wait / 4);
  CHECK(w.so_far().empty());
  const auto begun = std::chrono::steady_clock::now();
  caller.close();
  CHECK(w.within(wait, [](const auto& told) { return told.size() == 1 && told[0].how == found_gone::ended; }));
  MESSAGE("told after ", std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(), " s");
  owned_descriptor stranger = silent_caller(w.peers[0], 8, "b");  // of another world: it waits, and changes nothing
  std::this_thread::sleep_for(wait / 4);
  CHECK(w.so_far().size() == 1);
}

TEST_CASE("who calls of a world that is not known yet waits, hears that this member lives, and costs nothing") {
  heard_world w;
  w.add("a");
  owned_descriptor early = silent_caller(w.peers[0], 5, "b");
  send_some(early.number(), reinterpret_cast<const std::byte*>("..."), 3);
  const double before = cpu_seconds();
  std::this_thread::sleep_for(wait);
  CHECK(cpu_seconds() - before < 0.1);
  std::byte beats[64];
  CHECK(receive_some(early.number(), beats, sizeof beats).bytes > 0);
  w.ends[0]->hear(5, {w.peers[0], {"b", "127.0.0.1:1", "here"}});
  std::this_thread::sleep_for(wait / 8);
  early.close();
  CHECK(w.within(wait, [](const auto& told) { return told.size() == 1 && told[0].how == found_gone::ended; }));
}

TEST_CASE("a process at whose address nobody listens any more is gone, before the patience ends") {
  heard_world w;
  w.add("a");
  std::string nobody;
  {
    const listening_socket there("127.0.0.1:0");
    nobody = "127.0.0.1:" + std::to_string(there.port());
  }
  w.ends[0]->hear(6, {w.peers[0], {"b", nobody, "here"}});
  CHECK(w.within(10 * wait, [](const auto& told) { return !told.empty(); }));
  CHECK(w.so_far()[0].how == found_gone::ended);
}
