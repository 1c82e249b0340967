// SPDX-License-Identifier: Apache-2.0
// The meeting of threads by itself: what they agree on, round after round; how it breaks, with which sentence; and
// which of several exceptions run_devices throws. Every wait has an end.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

#include <reshard/transport/threads/rendezvous.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using namespace std::chrono_literals;
using watch = std::chrono::steady_clock;
using testing::refused;

namespace {

constexpr patience soon = 60ms;
constexpr patience ample = 10s;
constexpr auto at_once = 5s;

/// Calls body(device) on a thread per device.
template <typename Body>
void on_threads(rank_t devices, Body&& body) {
  std::vector<std::thread> running;
  for (rank_t d = 0; d < devices; ++d) running.emplace_back(body, d);
  for (std::thread& t : running) t.join();
}

/// How a call ended: its value, or "failed: " or "missing: " and the sentence.
template <typename Call>
std::string ending(Call&& call) {
  try {
    return std::to_string(call());
  } catch (const peer_failed& e) {
    return std::string("failed: ") + e.what();
  } catch (const peer_missing& e) {
    return std::string("missing: ") + e.what();
  }
}

/// Waits for something that is about to become true, five seconds at most.
template <typename What>
bool comes_true(What&& what) {
  for (const auto end = watch::now() + 5s; watch::now() < end; std::this_thread::sleep_for(1ms))
    if (what()) return true;
  return false;
}

}  // namespace

TEST_CASE("all devices learn the largest of what they bring, and nobody before all have come") {
  for (const rank_t devices : {1, 2, 5}) {
    rendezvous world(devices, ample);
    CHECK(world.devices() == devices);
    CHECK(world.waits() == ample);
    std::atomic<int> come = 0, early = 0, wrong = 0;
    on_threads(devices, [&](rank_t d) {
      if (d == 0) std::this_thread::sleep_for(20ms);
      ++come;
      if (world.all_reduce_max(d, -7 * (d + 1)) != -7) ++wrong;
      if (come != devices) ++early;
    });
    CHECK(early == 0);
    CHECK(wrong == 0);
  }
}

TEST_CASE("an agreement is the largest number, the sum mod 2^64 and the lowest device that refuses, each round anew") {
  rendezvous world(4, ample);
  std::atomic<int> wrong = 0;
  on_threads(4, [&](rank_t d) {
    meeting_of_threads here(world, d);
    const agreement first = here.agree({10 - d, ~std::uint64_t{0} - static_cast<std::uint64_t>(d), {}});
    if (first.largest != 10 || first.sum != static_cast<std::uint64_t>(-4 - 6) || first.refuser != -1) ++wrong;
    const agreement second = here.agree({-5 - d, 1, d == 1 || d == 3 ? "no " + std::to_string(d) : ""});
    if (second.largest != -5 || second.sum != 4 || second.refuser != 1 || second.sentence != "no 1") ++wrong;
    const agreement third = here.agree({});
    if (third.largest != 0 || third.sum != 0 || third.refuser != -1 || !third.sentence.empty()) ++wrong;
    here.agree({});  // nobody leaves before
  });
  CHECK(wrong == 0);
}

TEST_CASE("gathered texts are every device's of this time, in their order") {
  rendezvous world(3, ample);
  std::atomic<int> wrong = 0;
  on_threads(3, [&](rank_t d) {
    meeting_of_threads here(world, d);
    for (int round = 0; round < 300; ++round) {
      const auto text = [round](rank_t of) { return std::to_string(of) + ":" + std::to_string(round); };
      if (here.gather(text(d)) != std::vector<std::string>{text(0), text(1), text(2)}) ++wrong;
    }
    here.agree({});
  });
  CHECK(wrong == 0);
}

TEST_CASE("a stage is in place once every device has said so, and who has not is named") {
  rendezvous world(3, ample);
  int woken = 0;
  world.on_break([&] { ++woken; });
  CHECK(world.in_place(0));
  CHECK_FALSE(world.in_place(1));
  world.confirm(0, 2);
  world.confirm(2, 1);
  CHECK(woken == 2);
  CHECK_FALSE(world.in_place(1));
  CHECK(world.behind(1) == std::vector<rank_t>{1});
  CHECK(world.behind(2) == std::vector<rank_t>{1, 2});
  world.confirm(1, 1);
  CHECK(world.in_place(1));
  CHECK_FALSE(world.in_place(2));
  CHECK(world.behind(1).empty());
  CHECK(world.confirmed(0) == 2);
  CHECK(world.confirmed(1) == 1);
  CHECK(meeting_of_threads(world, 2).confirmed() == 1);
}

TEST_CASE("who gives up tells the others why, and stays") {
  rendezvous world(2, ample);
  meeting_of_threads here(world, 0), there(world, 1);
  here.give_up("enough");
  CHECK_THROWS_WITH_AS(there.require_whole(), "enough", peer_failed);
  CHECK_THROWS_WITH_AS(there.agree({}), "enough", peer_failed);
}

TEST_CASE("round after round, each forgets the one before") {
  constexpr rank_t devices = 4;
  rendezvous world(devices, ample);
  std::atomic<int> wrong = 0;
  const auto brings = [](int round, rank_t d) { return 1000 - 10 * round + (round * 7 + d * 5) % 11; };  // it falls
  on_threads(devices, [&](rank_t d) {
    for (int round = 0; round < 300; ++round) {
      std::int64_t expected = brings(round, 0);
      for (rank_t other = 1; other < devices; ++other)
        expected = std::max<std::int64_t>(expected, brings(round, other));
      if (world.all_reduce_max(d, brings(round, d)) != expected) ++wrong;
    }
  });
  CHECK(wrong == 0);
  CHECK_FALSE(world.broken());
}

TEST_CASE("who waits in vain says for whom and where, and the others hear it") {
  constexpr patience enough_to_start = 500ms;
  rendezvous world(4, enough_to_start);
  int breaks = 0;
  world.on_break([&] { ++breaks; });
  on_threads(4, [&](rank_t d) { world.all_reduce_max(d, 0); });  // that one came before is forgotten
  std::string of_0, of_2;
  const auto begin = watch::now();
  on_threads(2, [&](rank_t d) { (d == 0 ? of_0 : of_2) = ending([&] { return world.all_reduce_max(2 * d, 0, 3); }); });
  CHECK(watch::now() - begin >= enough_to_start);
  CHECK(watch::now() - begin < enough_to_start + at_once);
  const std::string sentence = " waited 500 ms in vain for these devices: 1, 3 at the end of stage 3";
  if (of_0.starts_with("missing: ")) {
    CHECK(of_0 == "missing: reshard: device 0" + sentence);
    CHECK((of_2 == "failed: reshard: device 0" + sentence || of_2 == "missing: reshard: device 2" + sentence));
  } else {
    CHECK(of_0 == "failed: reshard: device 2" + sentence);
    CHECK(of_2 == "missing: reshard: device 2" + sentence);
  }
  CHECK(world.broken());
  CHECK(breaks >= 1);
  CHECK(ending([&] {
          return world.all_reduce_max(1, 0);
        }).starts_with("failed: reshard: device "));  // who comes late hears it too
}

TEST_CASE("a stage is named from the first on, and where there is none none is") {
  for (const auto& [stage, words] : {std::pair<index_t, std::string>{0, " at the end of stage 0"}, {-1, ""}}) {
    rendezvous world(2, 20ms);
    CHECK(ending([&, at = stage] { return world.all_reduce_max(1, 0, at); }) ==
          "missing: reshard: device 1 waited 20 ms in vain for these devices: 0" + words);
  }
}

TEST_CASE("who leaves ends the others' wait at once, with its sentence or one of the meeting's") {
  for (const char* sentence : {"", "reshard: the disk is full"}) {
    rendezvous world(3, ample);
    std::atomic<int> woken = 0;
    world.on_break([&] { ++woken; });
    std::string of[2];
    const auto begin = watch::now();
    on_threads(3, [&](rank_t d) {
      if (d < 2) of[d] = ending([&] { return world.all_reduce_max(d, 5); });
      else std::this_thread::sleep_for(20ms), world.leave(d, sentence);
    });
    CHECK(watch::now() - begin < at_once);
    const std::string expected = *sentence != 0 ? sentence : "reshard: device 2 has left; a world serves one run";
    CHECK(of[0] == "failed: " + expected);
    CHECK(of[1] == "failed: " + expected);
    CHECK(woken == 1);
    CHECK(world.broken());
    CHECK(ending([&] { return world.require_unbroken(), 0; }) == "failed: " + expected);
  }
}

TEST_CASE("of several sentences the first is kept, and a device leaves once") {
  rendezvous world(3, ample);
  int woken = 0;
  world.on_break([&] { ++woken; });
  CHECK(ending([&] { return world.require_unbroken(), 0; }) == "0");
  CHECK_FALSE(world.broken());
  world.leave(1, "reshard: the first");
  world.leave(1, "reshard: the same again");
  world.leave(0, "reshard: another");
  CHECK(woken == 2);
  CHECK(ending([&] { return world.all_reduce_max(2, 0); }) == "failed: reshard: the first");
}

TEST_CASE("after a break nothing is agreed on, though all have come") {
  rendezvous alone(1, ample);
  CHECK(ending([&] { return alone.all_reduce_max(0, 3); }) == "3");
  alone.leave(0, "reshard: it has ended");
  CHECK(ending([&] { return alone.all_reduce_max(0, 4); }) == "failed: reshard: it has ended");
}

TEST_CASE("every device that is waited for is named") {
  for (rank_t waiting = 0; waiting < 3; ++waiting) {
    rendezvous world(3, soon);
    std::string absent;
    for (rank_t d = 0; d < 3; ++d)
      if (d != waiting) absent += (absent.empty() ? "" : ", ") + std::to_string(d);
    CHECK(ending([&] { return world.all_reduce_max(waiting, 0); }) ==
          "missing: reshard: device " + std::to_string(waiting) + " waited 60 ms in vain for these devices: " + absent);
  }
}

TEST_CASE("what was agreed on before a device left is agreed on") {
  for (int i = 0; i < 50; ++i) {
    rendezvous world(2, ample);
    std::string of_0;
    on_threads(2, [&](rank_t d) {
      if (d == 0) of_0 = ending([&] { return world.all_reduce_max(0, 3); });
      else world.all_reduce_max(1, 4), world.leave(1);
    });
    CHECK(of_0 == "4");
  }
}

TEST_CASE("after a failure a device goes when all have left, and not before") {
  rendezvous world(3, ample);
  std::atomic<int> left = 0;
  int seen[3] = {};
  on_threads(3, [&](rank_t d) {
    std::this_thread::sleep_for(d * 25ms);
    ++left;
    world.leave_together(d, "reshard: device " + std::to_string(d) + " fails");
    seen[d] = left;
  });
  for (const int n : seen) CHECK(n == 3);
  CHECK(ending([&] { return world.all_reduce_max(0, 0); }) == "failed: reshard: device 0 fails");

  rendezvous lonely(2, soon);  // and it does not wait for ever
  const auto begin = watch::now();
  lonely.leave_together(0, "reshard: alone");
  CHECK(watch::now() - begin >= soon);
  CHECK(watch::now() - begin < soon + at_once);
}

TEST_CASE("of a wait that is of no stage none is said, whatever is waited for") {
  const std::string words = "missing: reshard: device 1 waited 20 ms in vain for these devices: 0, 2";
  const auto ends = [&](auto&& call) {
    rendezvous world(3, 20ms);
    meeting_of_threads here(world, 1);
    return ending([&] { return call(world, here), 0; });
  };
  CHECK(ends([](rendezvous& world, meeting_of_threads&) { world.agree(1, {}); }) == words);
  CHECK(ends([](rendezvous& world, meeting_of_threads&) { world.agree(1, {}, 2); }) ==
        words + " at the end of stage 2");
  CHECK(ends([](rendezvous& world, meeting_of_threads&) { world.gather(1, "x"); }) == words);
  CHECK(ends([](rendezvous&, meeting_of_threads& here) { here.agree({}); }) == words);
  CHECK(ends([](rendezvous&, meeting_of_threads& here) { here.gather("x"); }) == words);
}

TEST_CASE("rounds are counted as they end, agreements and gatherings alike") {
  rendezvous world(1, ample);
  CHECK(world.round() == 0);
  world.all_reduce_max(0, 3);
  CHECK(world.round() == 1);
  world.confirm(0, 4);  // whoever has said nothing of waking
  CHECK(world.round() == 1);
  CHECK(world.gather(0, "alone") == std::vector<std::string>{"alone"});
  CHECK(world.round() == 2);
  CHECK(world.in_place(4));
  CHECK_FALSE(world.in_place(5));
}

TEST_CASE("an end of a meeting says and does what the meeting does for its device") {
  rendezvous world(3, ample);
  {
    meeting_of_threads one(world, 1), two(world, 2);
    CHECK((one.device() == 1 && two.device() == 2));
    CHECK(one.devices() == 3);
    CHECK(one.waits() == ample);
    CHECK(one.absent().empty());
    one.confirm(3);
    two.confirm(5);
    CHECK((one.confirmed() == 3 && two.confirmed() == 5));
    CHECK(world.confirmed(0) == 0);
    CHECK(one.behind(4) == std::vector<rank_t>{0, 1});
    CHECK_FALSE(two.in_place(2));
    world.confirm(0, 2);
    CHECK(two.in_place(2));
    CHECK_FALSE(two.in_place(3));
    one.poll();
    one.require_whole();
    CHECK_FALSE(world.broken());
  }
  CHECK(world.broken());  // the ends have gone, the last one first
  CHECK(ending([&] { return world.require_unbroken(), 0; }) ==
        "failed: reshard: device 2 has left; a world serves one run");
}

TEST_CASE("an end that fails waits for those that have not, and the first sentence is all of theirs") {
  rendezvous world(2, ample);
  std::atomic<int> left = 0;
  int seen = 0;
  on_threads(2, [&](rank_t d) {
    meeting_of_threads here(world, d);
    if (d == 0) {
      here.fail("reshard: 0 fails");
      seen = left;
    } else {
      CHECK(comes_true([&] { return world.broken(); }));
      CHECK(ending([&] { return here.require_whole(), 0; }) == "failed: reshard: 0 fails");
      ++left;
    }
  });
  CHECK(seen == 1);
}

TEST_CASE("a world has 1 to 4096 devices") {
  CHECK(refused([] { rendezvous(0, soon); }) == "reshard: a world of 0 devices in one process; 1 to 4096 are legal");
  CHECK(refused([] { rendezvous(4097, soon); }) ==
        "reshard: a world of 4097 devices in one process; 1 to 4096 are legal");
  CHECK(refused([] { rendezvous(4096, soon); }) == "accepted");
}

namespace {

/// A world that writes down what it is told.
struct noting_world {
  rank_t count;
  std::mutex mutex = {};
  std::vector<std::string> told = {};  // per device

  struct endpoint {
    noting_world* world;
    rank_t device;
    void fail(const std::string& sentence) {
      const std::lock_guard lock(world->mutex);
      world->told[static_cast<std::size_t>(device)] += sentence;
    }
  };
  rank_t devices() const { return count; }
  endpoint at(rank_t d) { return {this, d}; }
  void leave(rank_t, const std::string&) {}
  bool told_something(rank_t d) {
    const std::lock_guard lock(mutex);
    return !told[static_cast<std::size_t>(d)].empty();
  }

  /// What run_devices throws.
  template <typename Body>
  std::string thrown(Body&& body) {
    told.assign(static_cast<std::size_t>(count), "");
    try {
      run_devices(*this, body);
    } catch (const peer_failed& e) {
      return std::string("peer_failed: ") + e.what();
    } catch (const std::exception& e) {
      return e.what();
    } catch (int n) {
      return "int " + std::to_string(n);
    }
    return "nothing";
  }
};

}  // namespace

TEST_CASE("run_devices calls every device once, each on a thread of its own, and waits for all") {
  noting_world world{5};
  std::mutex mutex;
  std::vector<rank_t> devices;
  std::vector<std::thread::id> ids;
  CHECK(world.thrown([&](noting_world::endpoint& here) {
    if (here.device == 1) std::this_thread::sleep_for(30ms);
    const std::lock_guard lock(mutex);
    devices.push_back(here.device);
    ids.push_back(std::this_thread::get_id());
  }) == "nothing");
  std::sort(devices.begin(), devices.end());
  CHECK(devices == std::vector<rank_t>{0, 1, 2, 3, 4});
  std::sort(ids.begin(), ids.end());
  CHECK(std::unique(ids.begin(), ids.end()) == ids.end());
  CHECK(world.told == std::vector<std::string>(5));
}

TEST_CASE("run_devices throws what the first device that failed by itself threw") {
  noting_world world{3};
  CHECK(world.thrown([&](noting_world::endpoint& here) {
    if (here.device == 2) throw std::runtime_error("of itself");
    CHECK(comes_true([&] { return world.told_something(2); }));
    if (here.device == 0) throw std::runtime_error("later");
    throw peer_failed("for another");
  }) == "of itself");
  CHECK(world.told == std::vector<std::string>{"later", "for another", "of itself"});

  CHECK(world.thrown([&](noting_world::endpoint& here) {  // who fails for another does not count, though it be first
    if (here.device == 0) throw peer_failed("for another");
    CHECK(comes_true([&] { return world.told_something(0); }));
    if (here.device == 1) throw std::runtime_error("of itself");
  }) == "of itself");

  CHECK(world.thrown([&](noting_world::endpoint& here) {
    if (here.device == 1) throw peer_missing("waited in vain");
    CHECK(comes_true([&] { return world.told_something(1); }));
    throw peer_failed("for another");
  }) == "waited in vain");

  CHECK(world.thrown([&](noting_world::endpoint& here) {  // unless there is no other
    if (here.device == 1) throw peer_failed("for another");
    CHECK(comes_true([&] { return world.told_something(1); }));
    if (here.device == 2) throw peer_failed("and later");
  }) == "peer_failed: for another");
}

TEST_CASE("run_devices hands on what is no std::exception, and the world hears of it") {
  noting_world world{2};
  CHECK(world.thrown([](noting_world::endpoint& here) {
    if (here.device == 1) throw 17;
  }) == "int 17");
  CHECK(world.told == std::vector<std::string>{"", "reshard: an exception of no standard kind"});
}

TEST_CASE(
    "where a thread cannot be had, the devices without one are said to have left, and the others are waited for") {
  struct short_world : noting_world {
    mutable int asked = 0;
    rank_t devices() const {
      if (asked++ == 2) throw std::runtime_error("no more threads");
      return count;
    }
    void leave(rank_t device, const std::string& sentence) { left += std::to_string(device) + ": " + sentence + "; "; }
    std::string left;
  };
  short_world world;
  world.count = 4;
  std::atomic<int> ran = 0;
  std::string thrown;
  try {
    run_devices(world, [&](auto&) {
      std::this_thread::sleep_for(20ms);
      ++ran;
    });
  } catch (const std::runtime_error& e) {
    thrown = e.what();
  }
  CHECK(thrown == "no more threads");
  CHECK(ran == 2);
  CHECK(world.left == "2: no more threads; 3: no more threads; ");
}
