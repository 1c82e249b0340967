// SPDX-License-Identifier: Apache-2.0
// One end of a meeting over TCP, word by word: a test speaks for all others, so that what is said, to whom and when is
// seen as it is.
#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <reshard/transport/process_door.hpp>
#include <reshard/transport/socket_meeting.hpp>

#include "../support/refused.hpp"
#include "../support/speaker.hpp"

using namespace reshard;
using namespace std::chrono_literals;
using testing::speaker, testing::spoken_to_hub, testing::spoken_for_hub;
using testing::why_over, testing::polled_over, testing::poll_for;
using kind = hub_word::kind;
using clock_type = std::chrono::steady_clock;

namespace {

constexpr patience ample = 30s;

/// What is thrown once the world is over; empty before.
template <typename What>
std::string why(What&& what) {
  try {
    what();
  } catch (const peer_failed& e) {
    return e.what();
  }
  return {};
}

}  // namespace

TEST_CASE("an end says who it is of how many, who is gone, who is hub, and for how long it waits") {
  process_door door(listening_socket("127.0.0.1:0"));
  const std::vector<std::string> addresses{"", "127.0.0.1:" + std::to_string(door.port()), "", ""};
  socket_meeting alone(1, addresses, door, 9, 1500ms);
  CHECK(alone.device() == 1);
  CHECK(alone.devices() == 4);
  CHECK(alone.hub() == 1);
  CHECK(alone.absent() == std::vector<rank_t>{0, 2, 3});
  CHECK(alone.address(1) == addresses[1]);
  CHECK(alone.waits() == 4000ms);
  CHECK(alone.of_one() == 1500ms);
  CHECK(alone.door_number() == door.number());
  CHECK(alone.next_wire() == 0);
  CHECK(alone.next_wire() == 1);
  const socket_hello said = alone.hello(call_for::messages, 5), least = alone.hello(call_for::parting);
  CHECK(said.what == call_for::messages);
  CHECK(said.world == 9);
  CHECK(said.from == 1);
  CHECK(said.devices == 4);
  CHECK(said.turn == 5);
  CHECK(least.what == call_for::parting);
  CHECK(least.turn == 0);
  CHECK(alone.agree({4, 2, "reshard: no"}) == agreement{4, 2, 1, "reshard: no"});
  CHECK(alone.gather("mine") == std::vector<std::string>{"", "mine", "", ""});
  CHECK_FALSE(alone.in_place(1));
  CHECK(alone.behind(1) == std::vector<rank_t>{1});
  alone.confirm(3);
  CHECK(alone.confirmed() == 3);
  CHECK(alone.in_place(3));
  CHECK_FALSE(alone.in_place(4));
}

TEST_CASE("a hub answers to all what all propose, gather and have in place, and names who is behind") {
  spoken_to_hub world(3, ample);
  auto agreed = std::async(std::launch::async, [&] { return world.hub->agree({5, 7, {}}); });
  world.device(2).say(kind::proposal, {9, 1}, "reshard: no");
  world.device(1).say(kind::proposal, {-2, 4});
  CHECK(agreed.get() == agreement{9, 12, 2, "reshard: no"});
  for (const rank_t d : {1, 2}) CHECK(world.device(d).hears() == hub_word{kind::agreement, {9, 12, 2}, "reshard: no"});

  auto gathered = std::async(std::launch::async, [&] { return world.hub->gather("of 0"); });
  world.device(1).say(kind::text, {}, "of 1");
  world.device(2).say(kind::text);
  CHECK(gathered.get() == std::vector<std::string>{"of 0", "of 1", ""});
  const std::string packed =
      std::string("\4\0\0\0\0\0\0\0of 0", 12) + std::string("\4\0\0\0\0\0\0\0of 1", 12) + std::string(8, '\0');
  for (const rank_t d : {1, 2}) CHECK(world.device(d).hears() == hub_word{kind::texts, {}, packed});

  CHECK(world.hub->behind(2) == std::vector<rank_t>{0, 1, 2});
  world.device(1).say(kind::confirmation, {2});
  world.device(2).say(kind::confirmation, {1});
  world.hub->confirm(2);
  for (const rank_t d : {1, 2}) CHECK(world.device(d).hears() == hub_word{kind::placed, {1}, {}});
  CHECK(world.hub->in_place(1));
  CHECK_FALSE(world.hub->in_place(2));
  CHECK(world.hub->behind(2) == std::vector<rank_t>{2});
  CHECK(world.hub->behind(1).empty());
  world.device(2).say(kind::confirmation, {2});
  for (const rank_t d : {1, 2}) CHECK(world.device(d).hears() == hub_word{kind::placed, {2}, {}});
  CHECK(why_over(*world.hub).empty());
}

TEST_CASE("a hub that gives up, leaves, or is stopped says so to all, once") {
  {
    spoken_to_hub world(3, ample);
    world.hub->give_up("reshard: no more");
    CHECK(why_over(*world.hub) == "reshard: no more");
    world.hub->fail("reshard: another");  // nobody hears of it
    CHECK(why([&] { world.hub->agree({}); }) == "reshard: no more");
    CHECK(why([&] { world.hub->confirm(1); }) == "reshard: no more");
    world.hub.reset();
    for (const rank_t d : {1, 2}) {
      world.device(d).meanwhile = [] {};
      CHECK(world.device(d).hears() == hub_word{kind::given_up, {-1}, "reshard: no more"});
      CHECK_FALSE(world.device(d).hears());
      CHECK_FALSE(world.device(d).link.open());
    }
  }
  {
    spoken_to_hub world(2, ample);
    world.hub->stop("reshard: stopped");
    CHECK(why([&] { world.hub->gather({}); }) == "reshard: stopped");
    CHECK(world.device(1).hears() == hub_word{kind::given_up, {0}, "reshard: stopped"});
  }
  {
    spoken_to_hub world(2, ample);
    world.hub->fail("reshard: failed");
    CHECK(world.device(1).hears() == hub_word{kind::given_up, {-1}, "reshard: failed"});
  }
  spoken_to_hub world(2, ample);
  world.device(1).meanwhile = [] {};
  world.hub.reset();
  CHECK(world.device(1).hears() == hub_word{kind::given_up, {0}, "reshard: device 0 has left; a world serves one run"});
}

TEST_CASE("who leaves, gives up or goes ends the hub's world, and the others hear the sentence") {
  {
    spoken_to_hub world(3, ample);
    world.device(2).say(kind::bye);
    CHECK(polled_over(*world.hub) == "reshard: device 2 has left; a world serves one run");
    for (const rank_t d : {1, 2})
      CHECK(world.device(d).hears() ==
            hub_word{kind::given_up, {2}, "reshard: device 2 has left; a world serves one run"});
  }
  {
    spoken_to_hub world(3, ample);
    world.device(1).say(kind::given_up, {-1}, "reshard: why");
    CHECK(polled_over(*world.hub) == "reshard: why");
    CHECK(world.device(2).hears() == hub_word{kind::given_up, {-1}, "reshard: why"});
  }
  {
    spoken_to_hub world(3, ample);
    world.device(1).link = framed_link();
    CHECK(polled_over(*world.hub) == "reshard: device 1 is gone: its connection ended");
    CHECK(world.device(2).hears() == hub_word{kind::given_up, {-1}, "reshard: device 1 is gone: its connection ended"});
  }
  spoken_to_hub world(3, ample);  // one that gave the hub up by itself says so to it
  world.device(1).say(kind::outcast, {}, "reshard: device 0 was given up");
  CHECK(polled_over(*world.hub) == "reshard: device 0 was given up");
  CHECK(world.device(2).hears() == hub_word{kind::given_up, {-1}, "reshard: device 0 was given up"});
  const parting mine = world.hub->part(true);
  CHECK(mine.survivors.empty());
  CHECK(mine.all_have_all);
}

TEST_CASE("a frame that is shorter than its numbers is of another build, of each kind; one of no kind says nothing") {
  const struct {
    kind what;
    std::size_t numbers;
  } all[] = {{kind::proposal, 2}, {kind::agreement, 3}, {kind::confirmation, 1},
             {kind::placed, 1},   {kind::given_up, 1},  {kind::doubt, 1}};
  for (const auto& one : all) {
    const kind what = one.what;
    const std::size_t numbers = one.numbers;
    CAPTURE(static_cast<int>(what));
    spoken_to_hub world(2, ample);
    world.device(1).link.post(11, {});
    world.device(1).link.post(1000, "something");
    world.hub->poll();
    CHECK(why_over(*world.hub).empty());
    world.device(1).link.post(static_cast<std::uint32_t>(what), std::string(8 * numbers - 1, '\0'));
    CHECK(polled_over(*world.hub) == "reshard: device 1 speaks of another build: " + std::to_string(8 * numbers - 1) +
                                         " bytes where " + std::to_string(8 * numbers) + " are the least");
  }
}

TEST_CASE("what only a hub says is nothing where a device says it to the hub") {
  spoken_to_hub world(2, ample);
  world.device(1).say(kind::placed, {9});
  world.device(1).say(kind::agreement, {5, 0, -1});
  world.device(1).say(kind::texts, {}, "none");
  poll_for(*world.hub, 20ms);
  CHECK_FALSE(world.hub->in_place(1));
  auto agreed = std::async(std::launch::async, [&] { return world.hub->agree({1, 0, {}}); });
  CHECK(agreed.wait_for(30ms) == std::future_status::timeout);
  world.device(1).say(kind::proposal, {2});
  CHECK(agreed.get() == agreement{2, 0, -1, {}});
}

TEST_CASE("where one does not come, those who came hear who is missing") {
  process_door door(listening_socket("127.0.0.1:0"));
  const std::vector<std::string> addresses{"127.0.0.1:" + std::to_string(door.port()), "x:1", "x:2", "", "x:4"};
  auto making = std::async(std::launch::async, [&] { socket_meeting(0, addresses, door, 7, 250ms); });
  speaker second{framed_link(
      call_door(addresses[0], {.what = call_for::meeting, .world = 7, .from = 2, .devices = 5}, speaker::ample))};
  const std::string sentence = "reshard: device 0 waited 250 ms in vain for these devices to come: 1, 4";
  CHECK_THROWS_WITH_AS(making.get(), sentence.c_str(), peer_missing);
  CHECK(second.hears() == hub_word{kind::given_up, {-1}, sentence});
}

TEST_CASE("a doubt is over where one of the two is heard to be gone: that is why the world ends") {
  spoken_to_hub world(3, ample);
  world.device(1).say(kind::doubt, {2});
  world.hub->poll();
  world.device(2).link = framed_link();
  CHECK(polled_over(*world.hub) == "reshard: device 2 is gone: its connection ended");
}

TEST_CASE("another device says to the hub what it proposes, has to say and has in place, and hears what all have") {
  spoken_for_hub world(ample);
  CHECK(world.device->hub() == 0);
  CHECK(world.device->device() == 1);
  CHECK(world.device->behind(1) == std::vector<rank_t>{0});
  auto agreed = std::async(std::launch::async, [&] { return world.device->agree({3, 4, "reshard: no"}); });
  world.hub.meanwhile = [] {};
  CHECK(world.hub.hears() == hub_word{kind::proposal, {3, 4}, "reshard: no"});
  world.hub.say(kind::agreement, {8, 6, 1}, "reshard: no");
  CHECK(agreed.get() == agreement{8, 6, 1, "reshard: no"});
  auto gathered = std::async(std::launch::async, [&] { return world.device->gather("mine"); });
  CHECK(world.hub.hears() == hub_word{kind::text, {}, "mine"});
  world.hub.say(kind::texts, {}, std::string("\1\0\0\0\0\0\0\0a\2\0\0\0\0\0\0\0bc", 19));
  CHECK(gathered.get() == std::vector<std::string>{"a", "bc"});
  world.device->confirm(2);
  CHECK(world.device->confirmed() == 2);
  CHECK(world.hub.hears() == hub_word{kind::confirmation, {2}, {}});
  world.device->poll();
  CHECK_FALSE(world.device->in_place(1));
  world.hub.say(kind::placed, {2});
  for (const auto end = clock_type::now() + 10s; !world.device->in_place(2) && clock_type::now() < end;)
    world.device->poll();
  CHECK(world.device->in_place(2));
  CHECK_FALSE(world.device->in_place(3));
  world.device->doubt(0);
  CHECK(world.hub.hears() == hub_word{kind::doubt, {0}, {}});
  world.device->give_up("reshard: no more");
  CHECK(world.hub.hears() == hub_word{kind::given_up, {-1}, "reshard: no more"});
  world.device.reset();
  CHECK(world.hub.hears() == hub_word{kind::bye, {}, {}});
  CHECK_FALSE(world.hub.hears());
  CHECK_FALSE(world.hub.link.open());
}

TEST_CASE("another device hears from the hub that the world is over, that it was given up, or that the hub is gone") {
  {
    spoken_for_hub world(ample);
    world.hub.say(kind::given_up, {0}, "reshard: over");
    CHECK(polled_over(*world.device) == "reshard: over");
    world.device->doubt(0);
    CHECK(world.hub.hears_nothing());
  }
  {
    spoken_for_hub world(ample);
    world.hub.say(kind::outcast, {}, "reshard: device 1 was given up");
    CHECK(polled_over(*world.device) == "reshard: device 1 was given up");
    const parting none = world.device->part(true);  // those who gave it up tell it nothing
    CHECK(none.survivors.empty());
    CHECK(none.all_have_all);
  }
  {
    spoken_for_hub world(ample);
    world.hub.link = framed_link();
    CHECK(polled_over(*world.device) == "reshard: device 0 is gone: its connection ended");
  }
  {
    spoken_for_hub world(ample);
    world.device->stop("reshard: stopped");
    world.device->poll();
    CHECK(why_over(*world.device) == "reshard: stopped");
    CHECK(world.hub.hears() == hub_word{kind::given_up, {1}, "reshard: stopped"});
    world.device->poll();
    CHECK(world.hub.hears_nothing());
  }
  spoken_for_hub world(1000ms);
  const auto begin = clock_type::now();
  CHECK(polled_over(*world.device) == "reshard: device 0 was given up: it has said nothing for 1000 ms");
  CHECK(clock_type::now() - begin >= 900ms);
  CHECK(world.hub.hears() ==
        hub_word{kind::outcast, {}, "reshard: device 0 was given up: it has said nothing for 1000 ms"});
}

TEST_CASE("what to wait for: the stop until the world is over, and each connection, for room too where words wait") {
  spoken_to_hub world(3, ample);
  std::vector<pollfd> all;
  world.hub->add_to(all);
  REQUIRE(all.size() == 3);
  CHECK(all[0].events == POLLIN);
  CHECK(all[1].events == POLLIN);
  CHECK(all[2].events == POLLIN);
  CHECK(all[1].fd != all[2].fd);
  CHECK(::poll(all.data(), 3, 0) == 0);
  world.device(2).beat();
  for (const auto end = clock_type::now() + 10s; ::poll(all.data(), 3, 0) == 0 && clock_type::now() < end;) {
  }
  CHECK(all[1].revents == 0);
  CHECK(all[2].revents == POLLIN);
  world.hub->give_up(std::string(std::size_t{1} << 24, 'x'));  // more than a kernel takes
  all.clear();
  world.hub->add_to(all);
  REQUIRE(all.size() == 2);
  CHECK(all[0].events == (POLLIN | POLLOUT));
  world.device(1).link = framed_link();
  polled_over(*world.hub);
  poll_for(*world.hub, 20ms);
  all.clear();
  world.hub->add_to(all);
  CHECK(all.size() == 1);
  world.others.clear();
}

TEST_CASE("who parts tells by what it heard, the last words before that too, who are left by whom it hears") {
  spoken_for_hub world(ample);
  world.hub.say(kind::placed, {5});
  world.hub.say(kind::given_up, {-1}, "reshard: over");
  std::this_thread::sleep_for(10ms);
  auto parts = std::async(std::launch::async, [&] { return world.device->part(true); });
  framed_link asks;
  for (const auto end = clock_type::now() + 10s; asks.number() < 0 && clock_type::now() < end;)
    asks = framed_link(world.at.fetch(call_for::parting, 7, 1, 2));
  std::optional<socket_frame> word;
  for (const auto end = clock_type::now() + 10s; !word && asks.open() && clock_type::now() < end;) word = asks.next();
  REQUIRE(word);
  const std::int64_t expected[] = {5, 1}, answer[] = {6, 1, 0, 1};
  CHECK(word->body == std::string(reinterpret_cast<const char*>(expected), sizeof expected));
  asks.post(2, {reinterpret_cast<const char*>(answer), sizeof answer});
  const parting left = parts.get();
  CHECK(left.in_place == 6);
  CHECK(left.all_have_all);
  CHECK(left.survivors == std::vector<rank_t>{0, 1});
  CHECK(why_over(*world.device) == "reshard: device 1 has left a switch that broke off");
  world.hub.meanwhile = [] {};
  world.device.reset();
  CHECK(world.hub.hears() == hub_word{kind::bye, {}, {}});  // and nothing before it
}

TEST_CASE("a hub that parts tells all that it has left, and is alone with those who call; who left is not waited for") {
  for (const bool bye : {false, true}) {
    spoken_to_hub world(4, ample);
    if (bye) world.device(2).say(kind::bye), polled_over(*world.hub);
    else world.device(2).link = framed_link();
    world.device(3).meanwhile = [] {};
    framed_link calls;
    auto parts = std::async(std::launch::async, [&] { return world.hub->part(false); });
    const std::optional<hub_word> heard = world.device(3).hears();
    CHECK(heard->what == kind::given_up);
    CHECK(heard->text == (bye ? "reshard: device 2 has left; a world serves one run"
                              : "reshard: device 0 has left a switch that broke off"));
    const std::int64_t mine[] = {2, 1};
    for (const rank_t d : {1, 3}) {
      framed_link& link = d == 1 ? calls : world.device(3).link;
      link = framed_link(
          call_door(world.addresses[0], {.what = call_for::parting, .world = 7, .from = d, .devices = 4}, 10s));
      link.post(1, {reinterpret_cast<const char*>(mine), sizeof mine});
    }
    const auto begin = clock_type::now();
    const parting left = parts.get();
    CHECK(clock_type::now() - begin < 8s);  // half the patience are 15
    CHECK(left.in_place == 2);
    CHECK_FALSE(left.all_have_all);
    CHECK(left.survivors == std::vector<rank_t>{0, 1, 3});
  }
  spoken_to_hub stopped(2, ample);
  stopped.hub->stop("reshard: stopped");
  CHECK(stopped.hub->part(true).survivors.empty());
  CHECK(stopped.device(1).hears() == hub_word{kind::given_up, {0}, "reshard: stopped"});
}

TEST_CASE("what is no device, or one without an address, is refused; who does not come is named") {
  const std::vector<std::string> two{"127.0.0.1:0", "127.0.0.1:0"}, three{"127.0.0.1:0", "x:1", "x:2"}, gone{"", "x:1"};
  const auto made = [](rank_t device, const std::vector<std::string>& addresses, patience wait) {
    socket_meeting(device, addresses, listening_socket("127.0.0.1:0"), wait);
  };
  for (const rank_t device : {-1, 2})
    CHECK(testing::refused([&] { made(device, two, 1ms); }) ==
          "reshard: there is no device " + std::to_string(device) + " among 2 addresses");
  CHECK(testing::refused([&] { made(0, gone, 1ms); }) ==
        "reshard: device 0 is one of those without an address, which are gone");
  CHECK_THROWS_WITH_AS(made(0, three, 30ms), "reshard: device 0 waited 30 ms in vain for these devices to come: 1, 2",
                       peer_missing);
  process_door door(listening_socket("127.0.0.1:0"));
  const std::vector<std::string> deserted{"127.0.0.1:1", "127.0.0.1:2"};
  CHECK_THROWS_WITH_AS(made(1, deserted, 30ms),
                       "reshard: device 1 waited 30 ms in vain for device 0, the hub, at 127.0.0.1:1", peer_missing);
  CHECK_THROWS_AS(socket_meeting(0, three, door, 5, 30ms), peer_missing);
  CHECK(testing::refused([&] { socket_meeting(0, three, door, 5, 30ms); }) ==
        "reshard: world 5 is over at this door; a number serves one world");
}
