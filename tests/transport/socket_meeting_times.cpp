// SPDX-License-Identifier: Apache-2.0
// One end of a meeting over TCP and its times: beats, silence, being away itself, doubts, and how long the end of a hub
// takes. A test speaks for all others.
#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <reshard/transport/process_door.hpp>
#include <reshard/transport/socket_meeting.hpp>

#include "../support/lateness.hpp"
#include "../support/speaker.hpp"

using namespace reshard;
using namespace std::chrono_literals;
using testing::speaker, testing::spoken_to_hub, testing::undisturbed;
using testing::why_over, testing::polled_over, testing::poll_for;
using kind = hub_word::kind;
using clock_type = std::chrono::steady_clock;

namespace {

constexpr patience ample = 30s;

}  // namespace

TEST_CASE("an eighth of the patience after the last beat the next is sent, to all, and the door is looked at") {
  struct seen {
    std::vector<clock_type::time_point> at;  // when device 2 had one more
    int first = 0, second = 0;               // beats of devices 1 and 2
    bool turned_away = false;
  };
  const auto [last, late] = undisturbed(15ms, [] {
    seen now;
    spoken_to_hub world(3, 2400ms);
    world.door.close(99);
    for (const auto end = clock_type::now() + 10s; now.at.size() < 3 && clock_type::now() < end;) {
      poll_for(*world.hub, 1ms);
      for (speaker& other : world.others)
        if (!other.hears_nothing()) other.beats = 1'000'000;
      if (world.device(2).beats > static_cast<int>(now.at.size())) now.at.push_back(clock_type::now());
    }
    world.device(1).hears_nothing();  // what came after it was looked at
    now.first = world.device(1).beats, now.second = world.device(2).beats;
    framed_link belated(
        call_door(world.addresses[0], {.what = call_for::meeting, .world = 99, .from = 1, .devices = 3}, 5s));
    poll_for(*world.hub, 340ms);
    while (belated.next()) {
    }
    now.turned_away = !belated.open();
    return now;
  });
  CHECK(last.first == 3);
  CHECK(last.second == 3);
  CHECK(last.turned_away);
  REQUIRE(last.at.size() == 3);
  for (const std::size_t k : {std::size_t{1}, std::size_t{2}}) {
    const clock_type::duration between = last.at[k] - last.at[k - 1];
    CHECK(between >= 285ms - 2 * late);
    CHECK(between < 335ms + 2 * late);
  }
}

TEST_CASE("who is silent for the patience is given up, and hears so; who beats is not") {
  spoken_to_hub world(3, 1000ms);
  const auto begin = clock_type::now();
  while (why_over(*world.hub).empty() && clock_type::now() < begin + 20s) {
    world.device(2).beat();
    world.hub->poll();
    std::this_thread::sleep_for(1ms);
  }
  CHECK(clock_type::now() - begin >= 900ms);
  const std::string sentence = "reshard: device 1 was given up: it has said nothing for 1000 ms";
  CHECK(why_over(*world.hub) == sentence);
  CHECK(world.device(1).hears() == hub_word{kind::outcast, {}, sentence});
  CHECK(world.device(1).hears() == hub_word{kind::given_up, {-1}, sentence});
  CHECK(world.device(2).hears() == hub_word{kind::given_up, {-1}, sentence});
}

TEST_CASE("who was away itself for more than half the patience gives nobody up for what it did not hear") {
  const auto given_up_after = [](clock_type::duration away) {
    return undisturbed(20ms, [=] {
      spoken_to_hub world(2, 700ms);
      const auto begin = clock_type::now();
      std::this_thread::sleep_for(away);
      polled_over(*world.hub);  // ten seconds where it gives nobody up
      return clock_type::now() - begin;
    });
  };
  CHECK(given_up_after(410ms).result >= 1090ms);
  const auto [took, late] = given_up_after(290ms);
  CHECK(took < (late.count() > 0 ? 1500ms + 2 * late : 850ms));  // who overslept was away
}

TEST_CASE(
    "a connection that one doubts ends the world a moment later: a sixteenth of the patience, and 250 ms at most") {
  for (const patience wait : {patience(30s), patience(1600ms)}) {
    CAPTURE(wait.count());
    const clock_type::duration moment = wait > 4s ? 250ms : 100ms;
    const auto [seen, late] = undisturbed(20ms, [&] {
      spoken_to_hub world(4, wait);
      world.device(3).say(kind::doubt, {1});
      const auto begin = clock_type::now();
      const std::string why = polled_over(*world.hub);
      return std::pair(clock_type::now() - begin, why);
    });
    const auto& [took, sentence] = seen;
    CHECK(sentence == "reshard: the connection between devices 3 and 1 ended, and both are there");
    CHECK(took >= moment);
    CHECK(took < moment + 100ms + 2 * late);
  }
  spoken_to_hub world(3, ample);
  world.hub->doubt(2);
  CHECK(polled_over(*world.hub) == "reshard: the connection between devices 0 and 2 ended, and both are there");
  for (const rank_t d : {1, 2})
    CHECK(world.device(d).hears() ==
          hub_word{kind::given_up, {-1}, "reshard: the connection between devices 0 and 2 ended, and both are there"});
  world.hub->doubt(1);  // of a world that is over nothing is doubted
  poll_for(*world.hub, 300ms);
  CHECK(world.device(1).hears_nothing());
}

TEST_CASE("a hub that ends stays until what it said has arrived, or its patience or a second is over") {
  const std::size_t much = std::size_t{1} << 24;
  bool arrived = false;
  for (int tried = 0; tried < 8 && !arrived; ++tried) {  // a slow reader's second may be over before all is read
    spoken_to_hub world(2, ample);
    world.hub->give_up(std::string(much, 'x'));
    const auto begin = clock_type::now();
    auto ended = std::async(std::launch::async, [&] { world.hub.reset(); });
    CHECK(ended.wait_for(100ms) == std::future_status::timeout);
    world.device(1).meanwhile = [] {};
    const std::optional<hub_word> heard = world.device(1).hears();
    ended.get();
    arrived = heard && heard->text.size() == much;
    CHECK((arrived || clock_type::now() - begin >= 990ms));
  }
  CHECK(arrived);
  const auto [took, late] = undisturbed(50ms, [&] {
    spoken_to_hub deaf(2, ample);
    deaf.hub->give_up(std::string(much, 'x'));
    const auto begin = clock_type::now();
    deaf.hub.reset();
    return clock_type::now() - begin;
  });
  CHECK(took >= 990ms);
  CHECK(took < 3s + 2 * late);
  const auto [ended, late_then] = undisturbed(50ms, [&] {
    spoken_to_hub stopped(2, ample);
    stopped.hub->give_up(std::string(much, 'x'));
    stopped.hub->stop("reshard: stopped");
    const auto begin = clock_type::now();
    stopped.hub.reset();  // who was stopped owes nobody an answer
    return clock_type::now() - begin;
  });
  CHECK(ended < 900ms + 2 * late_then);
}
