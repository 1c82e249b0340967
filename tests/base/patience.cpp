// SPDX-License-Identifier: Apache-2.0
// How long is waited in vain, by a clock beside it: no shorter than the patience, from the last progress on, and not
// while who waits was away; and what a device throws that cannot go on.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <thread>
#include <type_traits>

#include <reshard/base/patience.hpp>
#include <reshard/base/refusal.hpp>

using namespace reshard;

namespace {
using vain_clock = std::chrono::steady_clock;

void wait_a_moment() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
/// Looks again and again until the wait is over; when that was.
vain_clock::time_point over_at(vain_wait& wait) {
  const auto at_most = vain_clock::now() + std::chrono::seconds(30);
  while (!wait.over()) {
    REQUIRE(vain_clock::now() < at_most);
    wait_a_moment();
  }
  return vain_clock::now();
}

static_assert(default_patience == std::chrono::seconds(600));
static_assert(std::is_same_v<patience, std::chrono::milliseconds>);
// who waits for one that failed catches neither a refusal nor that one is missing
static_assert(std::is_base_of_v<std::runtime_error, peer_failed> &&
              std::is_base_of_v<std::runtime_error, peer_missing>);
static_assert(!std::is_base_of_v<peer_failed, peer_missing> && !std::is_base_of_v<peer_missing, peer_failed>);
static_assert(!std::is_base_of_v<refusal, peer_failed> && !std::is_base_of_v<refusal, peer_missing>);
static_assert(!std::is_convertible_v<patience, vain_wait>);
}  // namespace

TEST_CASE("who looks again and again waits as long as the patience, and from the last progress on") {
  const patience limit{40};
  const auto made = vain_clock::now();
  vain_wait wait(limit);
  CHECK(over_at(wait) - made >= limit);
  const auto progressed = vain_clock::now();
  wait.progressed();
  CHECK(over_at(wait) - progressed >= limit);
  vain_wait halfway(limit);
  const auto until = vain_clock::now() + limit / 2;
  while (vain_clock::now() < until) static_cast<void>(halfway.over()), wait_a_moment();
  const auto half = vain_clock::now();
  halfway.progressed();
  CHECK(over_at(halfway) - half >= limit);
}

TEST_CASE("one look after the patience is enough where it comes within a quarter of a second") {
  bool seen = false;
  for (int tries = 0; tries < 50 && !seen; ++tries) {  // a busy machine may look later than it wants to
    const auto made = vain_clock::now();
    vain_wait wait(patience{20});
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
    const bool over = wait.over();
    if (vain_clock::now() - made > std::chrono::milliseconds(200)) continue;
    CHECK(over);
    seen = true;
  }
  CHECK(seen);
}

TEST_CASE("who was away for longer than that has not waited: not before the first look, and not between two") {
  const auto away = [] { std::this_thread::sleep_for(std::chrono::milliseconds(270)); };
  const patience limit{100};
  vain_wait wait(limit);
  away();
  CHECK_FALSE(wait.over());
  away();
  const auto back = vain_clock::now();
  CHECK_FALSE(wait.over());
  CHECK(over_at(wait) - back >= limit);  // it counts from that look on
  vain_wait long_wait(patience{400});    // what was waited before is forgotten too
  const auto until = vain_clock::now() + std::chrono::milliseconds(200);
  while (vain_clock::now() < until) static_cast<void>(long_wait.over()), wait_a_moment();
  away();
  CHECK_FALSE(long_wait.over());
}

TEST_CASE("a wait without patience is over at the first look, however late that comes") {
  vain_wait none(patience{0});
  CHECK(none.over());
  none.progressed();
  CHECK(none.over());
  std::this_thread::sleep_for(std::chrono::milliseconds(270));
  CHECK(none.over());
}

TEST_CASE("what a device throws that cannot go on says the sentence that it was given") {
  const std::string sentence = "reshard: device 3 waited 40 ms in vain for device 1";
  CHECK_THROWS_WITH_AS(throw peer_missing(sentence), sentence.c_str(), peer_missing);
  CHECK_THROWS_WITH_AS(throw peer_failed(sentence), sentence.c_str(), peer_failed);
  CHECK_THROWS_AS(throw peer_missing("x"), std::runtime_error);
}
