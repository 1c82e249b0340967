// SPDX-License-Identifier: Apache-2.0
// Whatever waits over sockets is ended by another thread: the making of a world, agreements, gatherings, a switch, the
// wait for others at its end, parting. Who waits says the sentence at once, and the others hear it.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <reshard/memory/rank_storage.hpp>
#include <reshard/switch/attempt_switch.hpp>
#include <reshard/testing/known_values.hpp>
#include <reshard/transport/forwarding.hpp>
#include <reshard/transport/sockets.hpp>
#include <reshard/transport/transport_stop.hpp>

#include "../support/tiny.hpp"

using namespace reshard;

namespace {

constexpr patience ample = std::chrono::seconds(60);
const std::string enough = "reshard: nobody wants this world any more";

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Devices of one process, each on a thread, with a door of its own.
struct devices {
  explicit devices(rank_t count) {
    for (rank_t d = 0; d < count; ++d) {
      doors.push_back(std::make_unique<process_door>(listening_socket("127.0.0.1:0")));
      addresses.push_back("127.0.0.1:" + std::to_string(doors.back()->port()));
      said.emplace_back(), ended.push_back(0), stops.emplace_back();
    }
  }
  /// Runs body(d, its door, its stop) for each, and asks device `who` to stop once `waits` of them do, and a moment is
  /// over.
  template <typename Body>
  void run(const std::vector<rank_t>& those, rank_t who, Body&& body) {
    std::vector<std::thread> all;
    for (const rank_t d : those)
      all.emplace_back([&, d] {
        const auto at = static_cast<std::size_t>(d);
        try {
          body(d, *doors[at], stops[at]);
        } catch (const peer_failed& e) {
          said[at] = e.what();
        } catch (const std::exception& e) {
          said[at] = "other: " + std::string(e.what());
        }
        ended[at] = now();
      });
    while (waiting < static_cast<int>(those.size())) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    asked = now();
    stops[static_cast<std::size_t>(who)].request(enough);
    for (std::thread& t : all) t.join();
  }
  void check_all_said(const std::vector<rank_t>& those) const {
    for (const rank_t d : those) {
      CAPTURE(d);
      CHECK(said[static_cast<std::size_t>(d)] == enough);
      // a millisecond where the machine is idle; the least wait that nothing else ends is a call's, of 0.94 s by then
      CHECK(ended[static_cast<std::size_t>(d)] - asked < 0.7);
      CHECK(ended[static_cast<std::size_t>(d)] >= asked);
    }
  }

  std::vector<std::unique_ptr<process_door>> doors;
  std::vector<std::string> addresses, said;
  std::vector<double> ended;
  std::vector<transport_stop> stops;
  std::atomic<int> waiting = 0;
  double asked = 0;
};

/// An address where connections are begun and never answered, as of a machine that is off.
struct silent_address {
  silent_address() {
    REQUIRE(::bind(listening.number(), reinterpret_cast<sockaddr*>(&at), size) == 0);
    REQUIRE(::listen(listening.number(), 0) == 0);
    REQUIRE(::getsockname(listening.number(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    for (int i = 0; i < 3; ++i) {
      callers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
      static_cast<void>(::connect(callers.back().number(), reinterpret_cast<sockaddr*>(&at), size));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  std::string text() const { return "127.0.0.1:" + std::to_string(ntohs(at.sin_port)); }
  const owned_descriptor listening{::socket(AF_INET, SOCK_STREAM, 0)};
  sockaddr_in at = [] {
    sockaddr_in any = {};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return any;
  }();
  socklen_t size = sizeof at;
  std::vector<owned_descriptor> callers;
};

}  // namespace

TEST_CASE("a stop is one for all its copies: the first sentence stays, and its number is readable from then on") {
  const transport_stop stop, copy = stop, other;
  CHECK_FALSE(copy.requested());
  CHECK(copy.sentence().empty());
  CHECK_FALSE(copy.sleeps(patience(1)));
  stop.require_none();
  copy.request(enough);
  stop.request("another");
  CHECK(stop.requested());
  CHECK(stop.sentence() == enough);
  CHECK(stop.sleeps(ample));
  CHECK_FALSE(other.requested());
  CHECK_THROWS_WITH_AS(stop.require_none(), enough.c_str(), peer_failed);

  std::stop_source source;
  const transport_stop by_token(source.get_token(), enough), by_default = source.get_token();
  CHECK_FALSE(by_token.requested());
  source.request_stop();
  CHECK(by_token.sentence() == enough);
  CHECK(by_default.sentence() == "reshard: stopped by this process");
  CHECK(transport_stop(source.get_token(), "late").sentence() == "late");
}

TEST_CASE("a making ends: of the hub that waits for others, of one that waits for the hub, which hears it") {
  for (const rank_t who : {0, 1}) {  // 2 never comes
    devices all(3);
    all.run({0, 1}, who, [&](rank_t d, process_door& door, const transport_stop& stop) {
      ++all.waiting;
      socket_endpoint here(d, all.addresses, door, 7, ample, stop);
    });
    CAPTURE(who);
    all.check_all_said({0, 1});
  }
}

TEST_CASE("a making ends that calls a hub which is not there, or does not answer, or has not begun") {
  const silent_address silent;
  std::string nobody;
  {
    const listening_socket gone("127.0.0.1:0");
    nobody = "127.0.0.1:" + std::to_string(gone.port());
  }
  const process_door idle(listening_socket("127.0.0.1:0"));
  for (const std::string& hub : {silent.text(), nobody, "127.0.0.1:" + std::to_string(idle.port())}) {
    devices all(2);
    all.addresses[0] = hub;
    all.run({1}, 1, [&](rank_t d, process_door& door, const transport_stop& stop) {
      ++all.waiting;
      socket_endpoint here(d, all.addresses, door, 7, ample, stop);
    });
    CAPTURE(hub);
    all.check_all_said({1});
  }
}

TEST_CASE("an agreement, a gathering and a wait for a stage end, and so they do for all; a later call ends at once") {
  for (const int what : {0, 1, 2})
    for (const rank_t who : {0, 2}) {
      devices all(3);
      std::atomic<int> at_once = 0;
      all.run({0, 1, 2}, who, [&](rank_t d, process_door& door, const transport_stop& stop) {
        socket_endpoint here(d, all.addresses, door, 7, ample, stop);
        const auto call = [&] {
          if (what == 0) here.agree({});
          else if (what == 1) here.gather("x");
          else here.await(0);
        };
        ++all.waiting;
        try {
          if (d == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it comes when all is over
          call();
        } catch (const peer_failed& e) {
          const double begin = now();
          try {
            call();
          } catch (const peer_failed& again) {
            at_once += now() - begin < 1 && std::string(e.what()) == again.what() ? 1 : 0;
          }
          throw;
        }
      });
      CAPTURE(what);
      CAPTURE(who);
      all.check_all_said({0, 1, 2});
      CHECK(at_once == 3);
    }
}

TEST_CASE("who waits to be connected, or asks whether it is, ends, and so do all") {
  for (const bool asks : {false, true})
    for (const rank_t who : {0, 1, 2}) {
      devices all(3);
      all.run({0, 1, 2}, who, [&](rank_t d, process_door& door, const transport_stop& stop) {
        socket_meeting meeting(d, all.addresses, door, 7, ample, stop);
        socket_endpoint here(meeting);
        ++all.waiting;
        if (d == 1)
          while (true) here.keep_alive(), meeting.require_whole();  // with which nobody is connected
        if (!asks) here.connect_with({1});
        for (here.begin_connections({1}); !here.unconnected().empty();) here.keep_alive();
      });
      CAPTURE(asks);
      CAPTURE(who);
      all.check_all_said({0, 1, 2});
    }
}

TEST_CASE("an end that is asked by its own call, and one by a token") {
  devices all(2);
  std::stop_source source;
  std::vector<std::unique_ptr<socket_endpoint>> ends(2);
  std::string said[2];
  std::vector<std::thread> threads;
  std::atomic<int> made = 0;
  for (const std::size_t d : {0u, 1u})
    threads.emplace_back([&, d] {
      const auto n = static_cast<rank_t>(d);
      if (d == 0) ends[d] = std::make_unique<socket_endpoint>(n, all.addresses, *all.doors[d], 9, ample);
      else ends[d] = std::make_unique<socket_endpoint>(n, all.addresses, *all.doors[d], 9, ample, source.get_token());
      ++made;
      try {
        while (true) ends[d]->agree({}), std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } catch (const peer_failed& e) {
        said[d] = e.what();
      }
    });
  while (made < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ends[0]->stop(enough);
  for (std::thread& t : threads) t.join();
  CHECK(said[0] == enough);
  CHECK(said[1] == enough);
  source.request_stop();
  CHECK_THROWS_WITH_AS(ends[1]->agree({}), enough.c_str(), peer_failed);
}

namespace {
/// An end that goes no further than a slot of its switch.
struct stuck : forwarding<socket_endpoint> {
  bool me;
  std::atomic<int>& waiting;
  std::atomic<bool>& over;
  void move(moves& m, index_t slot) {
    if (slot == 1) ++waiting;
    while (me && slot == 1 && !over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    inner.move(m, slot);
  }
};
}  // namespace

TEST_CASE("a switch ends in its midst: all say how, who is stopped knows no survivors, and the sources are whole") {
  const computed_switch change = testing::tiny_switch(8, "tp=2,pp=2", "dp=4");
  for (const rank_t who : {0, 3}) {
    devices all(4);
    double waited[4] = {};
    std::atomic<bool> over = false;
    std::atomic<int> whole = 0, parted = 0, left_by[4] = {};
    all.run({0, 1, 2, 3}, who, [&](rank_t d, process_door& door, const transport_stop& stop) {
      socket_endpoint here(d, all.addresses, door, 7, ample, stop);
      rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
      fill(before.tensors(), change.from());
      stuck through{{here}, d == 1, all.waiting, over};
      const switch_ending end = attempt_switch(change, before.tensors(), after.tensors(), through,
                                               {.after_use = sources::keep, .route = {.stages = 5}});
      if (d == who) over = true;
      whole += compare(before.tensors(), change.from()).wrong == 0 ? 1 : 0;
      const auto* const failed = std::get_if<ended::failed>(&end);
      left_by[d] = failed == nullptr ? -1 : static_cast<int>(failed->survivors.size());
      const double ended = now();
      ++parted;  // who is stopped stays, and is not waited for
      while (d == who && parted < 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      waited[d] = ended - all.asked;
      throw peer_failed(sentence_of(end));
    });
    CAPTURE(who);
    all.check_all_said({0, 1, 2, 3});
    for (const double seconds : waited) CHECK(seconds < 0.7);
    CHECK(whole == 4);
    for (rank_t d = 0; d < 4; ++d) CHECK(left_by[d] == (d == who ? 0 : 3));
  }
}

TEST_CASE("parting ends: of who asks a lower device, and of who hears the others") {
  for (const rank_t who : {0, 1}) {
    devices all(3);
    std::atomic<int> survivors = -1;
    std::atomic<bool> over = false;
    all.run({0, 1, 2}, who, [&](rank_t d, process_door& door, const transport_stop& stop) {
      socket_meeting here(d, all.addresses, door, 7, ample, d == who ? stop : transport_stop());
      ++all.waiting;
      if (d == who) survivors = static_cast<int>(here.part(true).survivors.size()), over = true;
      while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the others do not part
      if (d == who) throw peer_failed(stop.sentence());
    });
    CAPTURE(who);
    all.check_all_said({who});
    CHECK(survivors == 0);
  }
}
