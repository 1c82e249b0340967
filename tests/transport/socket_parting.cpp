// SPDX-License-Identifier: Apache-2.0
// How one process parts from others, word by word: a test speaks for all others, those that are lower and those that
// are higher, that say nothing, or go.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <reshard/transport/sockets/parting.hpp>

#include "../support/lateness.hpp"

using namespace reshard;
using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

namespace {

constexpr std::uint32_t said = 1, agreed = 2;
using numbers = std::vector<std::int64_t>;

std::string bytes_of(const numbers& all) {
  return {reinterpret_cast<const char*>(all.data()), all.size() * sizeof all[0]};
}
numbers numbers_of(const std::string& bytes) {
  numbers all(bytes.size() / sizeof(std::int64_t));
  std::memcpy(all.data(), bytes.data(), all.size() * sizeof all[0]);
  return all;
}

/// The next frame that comes within ten seconds.
std::optional<socket_frame> next_of(framed_link& link) {
  for (const auto end = clock_type::now() + 10s; clock_type::now() < end && link.open();
       std::this_thread::sleep_for(1ms))
    if (std::optional<socket_frame> frame = link.next()) return frame;
  return link.next();
}

/// Doors of so many devices, of which one parts for real.
struct parting_world {
  explicit parting_world(rank_t devices, rank_t me, patience wait = 20s) : device(me), waits(wait) {
    for (rank_t d = 0; d < devices; ++d) {
      doors.push_back(std::make_unique<process_door>(listening_socket("127.0.0.1:0")));
      addresses.push_back("127.0.0.1:" + std::to_string(doors.back()->port()));
    }
  }
  /// Begins to part.
  void begin(index_t known, bool has_all) {
    begun = clock_type::now();
    outcome = std::async(std::launch::async, [=, this] {
      socket_parting p(device, addresses, door(device), 7, waits, stop);
      return p.agree(known, has_all, [this](rank_t d) { return std::find(gone.begin(), gone.end(), d) != gone.end(); });
    });
  }
  process_door& door(rank_t d) { return *doors[static_cast<std::size_t>(d)]; }
  /// A device's connection to the one that parts.
  framed_link calls(rank_t d, std::uint64_t world = 7) {
    return framed_link(call_door(
        addresses[static_cast<std::size_t>(device)],
        {.what = call_for::parting, .world = world, .from = d, .devices = static_cast<rank_t>(addresses.size())}, 10s));
  }
  /// The one that parts, as it calls a lower device.
  framed_link called(rank_t d) {
    owned_descriptor made;
    for (const auto end = clock_type::now() + 10s; !made.open() && clock_type::now() < end;
         std::this_thread::sleep_for(1ms))
      made = door(d).fetch(call_for::parting, 7, device, static_cast<rank_t>(addresses.size()));
    return framed_link(std::move(made));
  }

  rank_t device;
  patience waits;
  transport_stop stop;
  std::vector<std::unique_ptr<process_door>> doors;
  std::vector<std::string> addresses;
  std::vector<rank_t> gone;
  clock_type::time_point begun;
  std::future<parting> outcome;
};

void check(const parting& p, index_t in_place, bool all_have_all, const std::vector<rank_t>& survivors) {
  CHECK(p.in_place == in_place);
  CHECK(p.all_have_all == all_have_all);
  CHECK(p.survivors == survivors);
}

}  // namespace

TEST_CASE("the lowest hears what all know and tells them: the highest stage, whether each has all, and who they are") {
  for (const bool all : {true, false}) {
    parting_world w(4, 0);
    w.addresses[2].clear();  // is none any more
    w.begin(3, true);
    framed_link first = w.calls(1), third = w.calls(3);
    first.post(said, bytes_of({5, 1}));
    first.post(said, "no word");
    third.post(said, bytes_of({9, 9, 9}));
    third.post(said, bytes_of({4, 0}));
    third.post(said, bytes_of({4, all ? 1 : 0}));  // of several words the last counts
    check(w.outcome.get(), 5, all, {0, 1, 3});
    for (framed_link* const other : {&first, &third}) {
      const std::optional<socket_frame> heard = next_of(*other);
      REQUIRE(heard);
      CHECK(heard->kind == agreed);
      CHECK(numbers_of(heard->body) == numbers{5, all ? 1 : 0, 0, 1, 3});
      CHECK_FALSE(next_of(*other));
    }
    CHECK(clock_type::now() - w.begun < 5s);
  }
}

TEST_CASE(
    "who is known to be gone is not waited for, nor who is called and listens no more, nor who said it and went") {
  parting_world w(5, 0);
  w.gone = {1};
  w.doors[2].reset();
  w.begin(2, true);
  {
    framed_link fourth = w.calls(4);
    fourth.post(said, bytes_of({7, 1}));
    std::this_thread::sleep_for(60ms);  // it is heard, goes, and its process with it
  }
  w.doors[4].reset();
  framed_link third = w.calls(3);
  third.post(said, bytes_of({1, 1}));
  check(w.outcome.get(), 2, true, {0, 3});
  CHECK(clock_type::now() - w.begun < 8s);
  const std::optional<socket_frame> heard = next_of(third);
  REQUIRE(heard);
  CHECK(numbers_of(heard->body) == numbers{2, 1, 0, 3});
}

TEST_CASE("who lives and says nothing is waited for half the patience; who says so in time survives") {
  const auto [seen, late] = testing::undisturbed(50ms, [] {
    parting_world w(3, 0, 1200ms);
    w.begin(2, false);
    framed_link second = w.calls(2);
    second.post(said, bytes_of({3, 1}));
    const parting p = w.outcome.get();
    return std::pair(clock_type::now() - w.begun, p);
  });
  const auto& [took, agreed_on] = seen;
  check(agreed_on, 3, false, {0, 2});
  CHECK(took >= 600ms);
  CHECK(took < 900ms + 2 * late);
}

TEST_CASE("another asks the lowest that lives, says what it knows, and takes its answer") {
  parting_world w(4, 3);
  w.gone = {0};
  w.addresses[1].clear();
  w.begin(6, true);
  framed_link second = w.called(2);
  const std::optional<socket_frame> word = next_of(second);
  REQUIRE(word);
  CHECK(word->kind == said);
  CHECK(numbers_of(word->body) == numbers{6, 1});
  second.post(agreed, bytes_of({8, 0, 2, 3}));
  check(w.outcome.get(), 8, false, {2, 3});
}

TEST_CASE(
    "where the lower one is gone, or goes before it answers, the next is asked, and then this one hears the others") {
  parting_world w(4, 2);
  w.doors[0].reset();
  w.begin(1, false);
  {
    framed_link first = w.called(1);
    CHECK(next_of(first));
  }
  framed_link third = w.calls(3);
  third.post(said, bytes_of({2, 1}));
  w.doors[1].reset();
  check(w.outcome.get(), 2, false, {2, 3});
  CHECK(clock_type::now() - w.begun < 8s);

  parting_world none(2, 1);  // an answer of one number says nothing
  none.begin(1, true);
  framed_link zero = none.called(0);
  CHECK(next_of(zero));
  none.doors[0].reset();
  zero.post(agreed, bytes_of({4}));
  check(none.outcome.get(), 1, true, {1});
}

TEST_CASE("a lower one that does not answer is waited for as long as the patience") {
  const auto [seen, late] = testing::undisturbed(50ms, [] {
    parting_world w(2, 1, 800ms);
    w.begin(1, true);
    framed_link zero = w.called(0);
    const parting p = w.outcome.get();
    return std::pair(clock_type::now() - w.begun, p);
  });
  const auto& [took, agreed_on] = seen;
  check(agreed_on, 1, true, {1});
  CHECK(took >= 1200ms);  // and then for half of it
  CHECK(took < 1500ms + 2 * late);
}

TEST_CASE("who is stopped knows no survivors, and what it knew itself, whether it hears others or asks one") {
  for (const rank_t me : {0, 1}) {
    parting_world w(2, me);
    w.begin(3, true);
    std::this_thread::sleep_for(30ms);
    w.stop.request("reshard: stopped");
    check(w.outcome.get(), 3, true, {});
    CHECK(clock_type::now() - w.begun < 5s);
  }
  parting_world before(2, 0);
  before.stop.request("reshard: stopped");
  before.begin(3, true);
  check(before.outcome.get(), 3, true, {});
}
