// SPDX-License-Identifier: Apache-2.0
// Small state between real processes over TCP: random worlds, some devices gone before they begin, every byte compared;
// who dies or stops in the midst is named by all who live, in time.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <reshard/transport/sockets.hpp>

#include "../support/processes.hpp"
#include "../support/small_processes.hpp"
#include "../support/tiny.hpp"

using namespace reshard;
using testing::left_behind, testing::processes;

namespace {

constexpr patience ample = std::chrono::seconds(60);

/// Seconds on the clock that all processes share.
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <typename Body>
std::vector<left_behind> on_sockets(const testing::small_world& world, Body&& body) {
  const auto devices = static_cast<long>(world.devices.size());
  processes all(devices);
  for (std::size_t d = 0; d < world.devices.size(); ++d)
    if (world.devices[d].absent) all.addresses[d].clear();
  for (long d = 0; d < devices; ++d)
    if (!world.devices[static_cast<std::size_t>(d)].absent)
      all.start(d, [&](listening_socket listening, left_behind& left) {
        socket_endpoint here(d, all.addresses, std::move(listening), ample);
        body(here, left);
      });
  REQUIRE(all.ended_within(60));
  std::vector<left_behind> left;
  for (long d = 0; d < devices; ++d) left.push_back(all.of(d));
  return left;
}

}  // namespace

TEST_CASE("random worlds of small state between 2 to 8 processes, some of them without a device") {
  testing::random_small_worlds(
      51, 60, true, [](const testing::small_world& world, const auto& body) { return on_sockets(world, body); });
}

TEST_CASE("the most that small state may be, from any device to 7 others") {
  for (const std::size_t from : {0u, 5u}) {
    const testing::small_world world = testing::most_small_world(8, from);
    testing::small_features met;
    const testing::small_outcome shall = testing::outcome_of(world, met);
    for (const left_behind& left :
         on_sockets(world, [&](auto&here, left_behind&mine) { testing::exchange_small(world, shall, here, mine); })) {
      CHECK(std::string(left.sentence).empty());
      CHECK(left.wrong == 0);
      CHECK(left.elements == 1);
      CHECK(left.reached == 1);
    }
  }
}

TEST_CASE("small state in one process, a switch in the others: a sentence on all, and the world goes on") {
  const computed_switch change = testing::tiny_switch(8, "tp=2,pp=2,zero=1", "dp=4,zero=1");
  testing::small_world world;
  world.devices.resize(4);
  for (const rank_t odd : {0, 3})
    testing::check_small_beside_switch(
        on_sockets(world,
                   [&](auto& here, left_behind& left) { testing::small_beside_switch(change, odd, here, left); }),
        static_cast<std::size_t>(odd));
}

namespace {

/// An end whose process gets a signal before it says something for the n-th time, counted over agree and gather.
struct mortal : forwarding<socket_endpoint> {
  int number, before;
  left_behind& left;
  int said = 0;

  void perhaps() {
    if (said++ != before) return;
    left.seconds = now();
    left.reached = 1;
    ::raise(number);
  }
  agreement agree(const proposal& mine) {
    perhaps();
    return inner.agree(mine);
  }
  std::vector<std::string> gather(const std::string& text) {
    perhaps();
    return inner.gather(text);
  }
};

}  // namespace

TEST_CASE("who dies or stops in the midst of it is named by all who live, in time") {
  const testing::small_world world = testing::most_small_world(4, 1);
  constexpr int times = 5;  // two agreements, two texts, one agreement
  for (const int number : {SIGKILL, SIGSTOP})
    for (const long victim : {0L, 1L, 3L})
      for (int before = 0; before < times; ++before) {
        if (number == SIGSTOP && (before % 2 == 1 || (before == 0 && victim != 0))) continue;
        CAPTURE(number);
        CAPTURE(victim);
        CAPTURE(before);
        processes all(4);
        all.start_all([&](long d, listening_socket listening, left_behind& left) {
          const auto at = static_cast<std::size_t>(d);
          socket_endpoint here(d, all.addresses, std::move(listening), std::chrono::seconds(2));
          mortal end{{here}, number, d == victim ? before : -1, left};
          try {
            static_cast<void>(exchange_small_state(world.has(at), world.wants(at), end));
            left.say("finished");
          } catch (const peer_failed& e) {
            left.say(e.what());
          }
          if (d != victim) left.seconds = now();
        });
        REQUIRE(all.ended_within(20, number == SIGSTOP ? victim : -1));
        CHECK(all.of(victim).reached == 1);
        const auto named = [&](long d) {
          const std::string sentence = all.of(d).sentence;
          CAPTURE(d);
          CAPTURE(sentence);
          CHECK(sentence.find("device " + std::to_string(victim) +
                              (number == SIGKILL ? " is gone" : " was given up")) != sentence.npos);
        };
        for (long d = 0; d < 4; ++d) {
          if (d == victim) continue;
          named(d);
          CHECK(all.of(d).seconds - all.of(victim).seconds - all.late() < (number == SIGKILL ? 2 : 4));
        }
        if (number ==
            SIGSTOP) {  // it wakes, and finds out; but the hub that all have told already that they have everything
          all.send_signal(victim, SIGCONT);
          REQUIRE(all.ended_within(20));
          const bool told = victim == 0 && before == times - 1 && std::string(all.of(0).sentence) == "finished";
          if (!told) named(victim);
        }
      }
}
