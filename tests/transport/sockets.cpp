// SPDX-License-Identifier: Apache-2.0
// Switches between real processes over TCP: the random switches of the threads tests, every element compared and the
// kernel's pages counted in every slot; what differs named on all; who dies, stops or never comes named by those who
// live, in time.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <reshard/switch/attempt_switch.hpp>
#include <reshard/transport/forwarding.hpp>
#include <reshard/transport/sockets.hpp>

#include "../support/given_otherwise.hpp"
#include "../support/left_behind.hpp"
#include "../support/processes.hpp"
#include "../support/refused.hpp"
#include "../support/tiny.hpp"

using namespace reshard;
using testing::left_behind, testing::processes;

namespace {

constexpr patience ample = std::chrono::seconds(60);

computed_switch change_of(const std::string& from, const std::string& to) { return testing::tiny_switch(8, from, to); }

/// Seconds on the clock that all processes share.
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Connections to a port of this machine that nobody has ended, as the kernel lists them: the end of one that died may
/// be late on a busy machine.
int whole_connections(const std::string& address) {
  const unsigned long port = std::stoul(address.substr(address.rfind(':') + 1));
  constexpr unsigned long established = 1;
  std::ifstream list("/proc/net/tcp");
  int found = 0;
  std::string line;
  for (std::getline(list, line); std::getline(list, line);) {
    std::istringstream words(line);
    std::string place, local, remote, state;
    words >> place >> local >> remote >> state;
    if (std::stoul(local.substr(local.find(':') + 1), nullptr, 16) == port &&
        std::stoul(state, nullptr, 16) == established)
      ++found;
  }
  return found;
}

}  // namespace

TEST_CASE("random switches between 2 to 8 processes, in one stage and in many, in every way") {
  testing::random_switches(40, [](const computed_switch& change, const switch_options& options, exchange_as how) {
    processes all(change.devices());
    all.start_all([&](long d, listening_socket listening, left_behind& left) {
      socket_endpoint here(d, all.addresses, std::move(listening), ample, how);
      testing::switch_watched(change, here, options, left);
    });
    REQUIRE(all.ended_within(60));
    std::vector<left_behind> left;
    for (long d = 0; d < change.devices(); ++d) left.push_back(all.of(d));
    return left;
  });
}

TEST_CASE("several switches and other agreements over one world") {
  const computed_switch change = change_of("tp=2,pp=2,zero=1", "dp=4,zero=1");
  const layout_switch back(change.to(), change.from());
  processes all(4);
  all.start_all([&](long d, listening_socket listening, left_behind& left) {
    socket_endpoint here(d, all.addresses, std::move(listening), ample);
    for (int round = 0; round < 5; ++round) {
      rank_storage before(change.from(), d, "before"), after(change.to(), d, "after"), again(change.from(), d, "again");
      fill(before.tensors(), change.from());
      switch_state(change, before.tensors(), after.tensors(), here, {.budget = 2_MiB});
      switch_state(back, after.tensors(), again.tensors(), here);
      left.wrong += static_cast<long>(compare(again.tensors(), change.from()).wrong);
      if (here.all_reduce_max(d == round % 4 ? 100 + round : -d) != 100 + round) ++left.wrong;
      ++left.reached;
    }
  });
  REQUIRE(all.ended_within(60));
  for (long d = 0; d < 4; ++d) {
    CHECK(std::string(all.of(d).sentence).empty());
    CHECK(all.of(d).wrong == 0);
    CHECK(all.of(d).reached == 5);
  }
}

TEST_CASE("wires are made over a meeting that goes on: begun and asked without waiting, one after the other") {
  const computed_switch change = change_of("tp=2,pp=2,zero=1", "dp=4,zero=1");
  processes all(4);
  all.start_all([&](long d, listening_socket listening, left_behind& left) {
    socket_meeting meeting(d, all.addresses, std::move(listening), ample);
    std::vector<rank_t> others;
    for (rank_t peer = 0; peer < 4; ++peer)
      if (peer != d) others.push_back(peer);
    for (int world = 0; world < 2; ++world) {
      socket_endpoint here(meeting);
      if (!here.unconnected().empty()) ++left.wrong;
      if (d != 0) {  // who begins first waits for nobody, and the meeting serves it meanwhile
        here.begin_connections(others);
        const std::vector<rank_t> yet = here.unconnected();
        if (std::find(yet.begin(), yet.end(), 0) == yet.end()) ++left.wrong;  // the lower calls
      }
      if (here.all_reduce_max(d) != 3) ++left.wrong;
      if (meeting.gather(std::string(1, static_cast<char>('a' + d))) != std::vector<std::string>{"a", "b", "c", "d"})
        ++left.wrong;
      if (d == 0) here.begin_connections(others);
      while (!here.unconnected().empty()) here.keep_alive();
      rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
      fill(before.tensors(), change.from());
      switch_state(change, before.tensors(), after.tensors(), here, {.budget = 2_MiB});
      left.wrong += static_cast<long>(compare(after.tensors(), change.to()).wrong);
      ++left.reached;
    }
  });
  REQUIRE(all.ended_within(60));
  for (long d = 0; d < 4; ++d) {
    CAPTURE(d);
    CHECK(std::string(all.of(d).sentence).empty());
    CHECK(all.of(d).wrong == 0);
    CHECK(all.of(d).reached == 2);
  }
}

TEST_CASE("who dies before it is connected is heard of at once, and who is late is called again") {
  enum class way { dies, late, ended_before };
  const computed_switch change = change_of("pp=2", "tp=2");
  for (const way w : {way::dies, way::late, way::ended_before})
    for (const long odd : {0L, 1L}) {
      CAPTURE(static_cast<int>(w));
      CAPTURE(odd);
      processes all(2);
      all.start_all([&](long d, listening_socket listening, left_behind& left) {
        process_door door(std::move(listening), std::chrono::milliseconds(w == way::late && d == 1 ? 50 : 60'000));
        socket_meeting meeting(d, all.addresses, door, 7, ample);
        std::optional<socket_endpoint> here(std::in_place, meeting);
        if (w == way::ended_before) {  // one has begun the first end's connections, and both make another end
          if (d == odd) here->begin_connections({1 - d}), here->keep_alive();
          meeting.agree({});
          here.emplace(meeting);
        }
        const double begin = now();
        if (d == odd && w == way::dies) ::raise(SIGKILL);
        if (d == odd && w == way::late) {  // longer than its door keeps who calls
          for (; now() - begin < 0.3; std::this_thread::sleep_for(std::chrono::milliseconds(1))) door.poll();
        }
        try {
          if (w == way::dies) {
            for (here->begin_connections({1 - d}); !here->unconnected().empty();) here->keep_alive();
          } else {
            here->connect_with({1 - d});
          }
          left.reached = here->unconnected().empty() ? 1 : 2;
          rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
          fill(before.tensors(), change.from());
          switch_state(change, before.tensors(), after.tensors(), *here);
          left.wrong = static_cast<long>(compare(after.tensors(), change.to()).wrong);
        } catch (const std::exception& e) {
          left.say(e.what());
        }
        left.seconds = now() - begin;
      });
      REQUIRE(all.ended_within(60));
      const std::string of_odd = all.of(odd).sentence, of_other = all.of(1 - odd).sentence;
      CHECK(all.of(1 - odd).seconds - all.late() < 5);
      if (w == way::dies)
        CHECK(of_other == "reshard: device " + std::to_string(odd) + " is gone: its connection ended");
      else
        CHECK((of_odd.empty() && of_other.empty() && all.of(0).reached == 1 && all.of(1).reached == 1 &&
               all.of(0).wrong + all.of(1).wrong == 0));
    }
}

TEST_CASE("a message is taken before there is a connection, and goes once there is") {
  processes all(2);
  all.start_all([&](long d, listening_socket listening, left_behind& left) {
    socket_meeting meeting(d, all.addresses, std::move(listening), ample);
    socket_wire wire(meeting);
    std::vector<std::byte> memory(100'000, static_cast<std::byte>(d + 1));
    message one{1 - d, 4, memory.data(), static_cast<bytes_t>(memory.size())};
    if (d == 1) meeting.agree({});
    wire.connect({1 - d});
    if (d == 0) wire.send(one);
    else wire.receive(one);
    if (d == 0) left.wrong += one.done, wire.poll(std::chrono::milliseconds(1)), meeting.agree({});
    while (!one.done) wire.poll(std::chrono::milliseconds(1)), meeting.require_whole();
    left.wrong += std::count(memory.begin(), memory.end(), std::byte{1}) != 100'000;
    meeting.agree({});
  });
  REQUIRE(all.ended_within(60));
  for (long d = 0; d < 2; ++d) {
    CHECK(std::string(all.of(d).sentence).empty());
    CHECK(all.of(d).wrong == 0);
  }
}

TEST_CASE("what is in place is counted on from one end to the next: a death in the second one's switch tears it") {
  const computed_switch change = change_of("tp=2,pp=2,zero=1", "dp=4,zero=1");
  for (const long victim : {0L, 2L}) {
    CAPTURE(victim);
    processes all(4);
    all.start_all([&](long d, listening_socket listening, left_behind& left) {
      socket_meeting meeting(d, all.addresses, std::move(listening), ample);
      struct striking : forwarding<socket_endpoint> {
        bool strikes;
        void move(moves& m, index_t slot) {
          if (strikes && slot == 1) ::raise(SIGKILL);
          inner.move(m, slot);
        }
      };
      for (const bool second : {false, true}) {
        socket_endpoint here(meeting);
        striking through{{here}, second && d == victim};
        rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
        fill(before.tensors(), change.from());
        try {
          const switch_ending end = attempt_switch(change, before.tensors(), after.tensors(), through,
                                                   {.budget = 300_KiB, .route = {.stages = 8}});
          if (const auto* torn = std::get_if<ended::torn>(&end)) left.stages = static_cast<long>(torn->in_place);
          left.reached += std::holds_alternative<ended::finished>(end) ? 1 : 10;
        } catch (const std::exception& e) {
          left.say(e.what());
        }
      }
    });
    REQUIRE(all.ended_within(60));
    for (long d = 0; d < 4; ++d) {
      if (d == victim) continue;
      CAPTURE(d);
      CHECK(std::string(all.of(d).sentence) == "");
      CHECK(all.of(d).reached == 11);
      CHECK(all.of(d).stages <= 1);
    }
  }
}

TEST_CASE("a stage is in place once every process has said so, and texts are gathered in order") {
  processes all(3);
  all.start_all([&](long d, listening_socket listening, left_behind& left) {
    socket_meeting meeting(d, all.addresses, std::move(listening), ample);
    if (d != 1) meeting.confirm(1);
    left.wrong += meeting.confirmed() == (d != 1 ? 1 : 0) ? 0 : 1;
    meeting.agree({});  // what was said before it has been heard
    left.wrong += meeting.in_place(1) ? 1 : 0;
    if (d == 0) left.wrong += meeting.behind(1) == std::vector<rank_t>{1} ? 0 : 1;
    const std::string text = std::string(static_cast<std::size_t>(d) * 100'000, static_cast<char>('a' + d));
    const std::vector<std::string> texts = meeting.gather(text);
    left.wrong += texts.size() == 3 && texts[0].empty() && texts[1] == std::string(100'000, 'b') &&
                          texts[2] == std::string(200'000, 'c')
                      ? 0
                      : 1;
    if (d == 1) meeting.confirm(1);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!meeting.in_place(1) && std::chrono::steady_clock::now() < end) meeting.poll();
    left.reached = meeting.in_place(1) ? 1 : 0;
    left.wrong += meeting.in_place(2) ? 1 : 0;
    meeting.agree({});
  });
  REQUIRE(all.ended_within(60));
  for (long d = 0; d < 3; ++d) {
    CHECK(std::string(all.of(d).sentence).empty());
    CHECK(all.of(d).wrong == 0);
    CHECK(all.of(d).reached == 1);
  }
}

TEST_CASE("a hub that has heard of an end agrees to nothing more: all hear the same") {
  processes all(3);
  const auto sleep = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
  const auto proposes = [&](long d) { return all.of(d).reached == 1; };
  const auto is_gone = [&] { return all.of(1).stages == 1; };
  all.start_all([&](long d, listening_socket listening, left_behind& left) {
    socket_meeting meeting(d, all.addresses, std::move(listening), ample);
    // 0 looks at nobody any more; 1 proposes and dies, 2 proposes, and only then does 0 look at either
    if (d == 0) left.stages = 1;
    while (d == 1 && all.of(0).stages != 1) sleep(10);
    while (d == 2 ? !proposes(1) : d == 0 && !(proposes(2) && is_gone())) sleep(10);
    while (d == 0 && whole_connections(all.addresses[0]) > 1) sleep(10);  // that of 2
    if (d == 0) sleep(400);
    left.reached = 1;
    try {
      meeting.agree({});
      left.say("agreed");
    } catch (const peer_failed& e) {
      left.say(e.what());
    }
  });
  while (!proposes(1) && !all.ended_within(0.01)) sleep(10);
  sleep(200);
  CHECK(all.kill_and_wait(1));
  all.of(1).stages = 1;
  REQUIRE(all.ended_within(60));
  for (const long d : {0L, 2L})
    CHECK(std::string(all.of(d).sentence) == "reshard: device 1 is gone: its connection ended");
}

TEST_CASE(
    "one process with another layout, placement, states, list or budget is named on all, and nothing is touched") {
  for (const testing::otherwise what : testing::all_otherwise)
    for (const rank_t odd : {0, 5}) {
      CAPTURE(static_cast<int>(what));
      CAPTURE(odd);
      processes all(8);
      all.start_all([&](long d, listening_socket listening, left_behind& left) {
        const double start = now();
        socket_endpoint here(d, all.addresses, std::move(listening), ample);
        testing::switch_given(what, d == odd, here, start, left);
      });
      REQUIRE(all.ended_within(60));
      std::vector<left_behind> left;
      for (long d = 0; d < 8; ++d) left.push_back(all.of(d));
      testing::check_given(what, odd, left);
    }
}

TEST_CASE("a host that answers nothing, as where a machine is off, is waited for no longer than the patience") {
  // A listener whose queue is full drops who calls, as a machine that is off does.
  const owned_descriptor silent(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  auto* const any = reinterpret_cast<sockaddr*>(&at);
  REQUIRE(::bind(silent.number(), any, size) == 0);
  REQUIRE(::listen(silent.number(), 0) == 0);
  REQUIRE(::getsockname(silent.number(), any, &size) == 0);
  std::vector<owned_descriptor> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    static_cast<void>(::connect(callers.back().number(), any, size));
  }
  const std::string address = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));

  double begin = now();
  CHECK(!call_address(address, std::chrono::milliseconds(200)).open());
  CHECK(now() - begin >= 0.19);
  CHECK(now() - begin < 2);

  begin = now();
  const std::string in_vain = "reshard: device 1 waited 1000 ms in vain for device 0, the hub, at " + address;
  CHECK_THROWS_WITH_AS(
      socket_meeting(1, {address, "127.0.0.1:0"}, listening_socket("127.0.0.1:0"), std::chrono::seconds(1)),
      in_vain.c_str(), peer_missing);
  CHECK(now() - begin < 3);

  listening_socket mine("127.0.0.1:0");
  const std::vector<std::string> addresses = {address, "127.0.0.1:" + std::to_string(mine.port())};
  process_door door(std::move(mine));
  socket_parting among(1, addresses, door, 0, std::chrono::seconds(1));
  begin = now();
  CHECK(among.agree(3, true, [](rank_t) { return false; }).survivors == std::vector<rank_t>{1});
  CHECK(now() - begin < 3);

  // who is stopped keeps what it knew by itself, and learns of no survivors
  const transport_stop stop;
  stop.request("reshard: stopped by a test");
  socket_parting stopped(1, addresses, door, 0, std::chrono::seconds(1), stop);
  const parting alone = stopped.agree(3, true, [](rank_t) { return false; });
  CHECK(alone.in_place == 3);
  CHECK(alone.all_have_all);
  CHECK(alone.survivors.empty());
}

TEST_CASE("what is no address or no device is refused; who does not come is named") {
  const auto said = [](const std::string& address) {
    return testing::refused([&] { static_cast<void>(detail::resolved_address(address)); });
  };
  CHECK(said("127.0.0.1:0") == "accepted");
  for (const std::string address : {"127.0.0.1", ":80", "127.0.0.1:", ""})
    CHECK(said(address) == "reshard: the address '" + address + "': it is written host:port");
  CHECK(said("127.0.0.1:no-such-port") ==
        std::string("reshard: the address '127.0.0.1:no-such-port' is not known: ") + ::gai_strerror(EAI_SERVICE));
  const std::vector<std::string> two = {"127.0.0.1:0", "127.0.0.1:0"}, three = {"127.0.0.1:0", "x:1", "x:2"};
  for (const rank_t device : {-1, 2}) {
    const std::string nobody = "reshard: there is no device " + std::to_string(device) + " among 2 addresses";
    CHECK(testing::refused([&] { socket_endpoint(device, two, std::chrono::milliseconds(1)); }) == nobody);
    CHECK(testing::refused(
              [&] { socket_meeting(device, two, listening_socket(two[0]), std::chrono::milliseconds(1)); }) == nobody);
  }
  CHECK_THROWS_WITH_AS(socket_meeting(0, three, listening_socket(three[0]), std::chrono::milliseconds(30)),
                       "reshard: device 0 waited 30 ms in vain for these devices to come: 1, 2", peer_missing);
}

TEST_CASE("a hub hears who speaks of another build, and who has said nothing for its patience") {
  const std::uint32_t proposal_of_5_bytes[4] = {1, 5}, proposal_of_16_bytes[6] = {1, 16};
  for (const bool silent : {false, true}) {
    processes all(2);
    all.start(1, [&](listening_socket, left_behind& left) {
      const owned_descriptor link = call_address(all.addresses[0], std::chrono::seconds(5));
      const socket_hello hello{.what = call_for::meeting, .from = 1, .devices = 2};
      send_some(link.number(), reinterpret_cast<const std::byte*>(&hello), sizeof hello);
      if (silent) send_some(link.number(), reinterpret_cast<const std::byte*>(proposal_of_16_bytes), 24);
      else send_some(link.number(), reinterpret_cast<const std::byte*>(proposal_of_5_bytes), 13);
      left.reached = 1;
      while (all.of(0).sentence[0] == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    });
    all.start(0, [&](listening_socket listening, left_behind&) {
      while (all.of(1).reached == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      socket_meeting hub(0, all.addresses, std::move(listening), std::chrono::milliseconds(700));
      hub.agree({});
    });
    REQUIRE(all.ended_within(30));
    CHECK(std::string(all.of(0).sentence) ==
          (silent ? "reshard: device 1 was given up: it has said nothing for 700 ms"
                  : "reshard: device 1 speaks of another build: 5 bytes where 16 are the least"));
  }
}

TEST_CASE("who parts is named to those who go on") {
  processes all(2);
  all.start_all([&](long d, listening_socket listening, left_behind& left) {
    socket_meeting here(d, all.addresses, std::move(listening), std::chrono::seconds(2));
    if (d == 0) return static_cast<void>(here.part(false));
    try {
      here.agree({});
    } catch (const peer_failed& e) {
      left.say(e.what());
    }
  });
  REQUIRE(all.ended_within(30));
  CHECK(std::string(all.of(1).sentence) == "reshard: device 0 has left a switch that broke off");
}

TEST_CASE("who is not reached, who does not call, and who sends another message than is expected") {
  enum class way { unreached, not_called, other_message };
  for (const way w : {way::unreached, way::not_called, way::other_message}) {
    processes all(2);
    std::string nobody;  // an address where nobody listens any more
    {
      const listening_socket gone("127.0.0.1:0");
      nobody = "127.0.0.1:" + std::to_string(gone.port());
    }
    all.start_all([&](long d, listening_socket listening, left_behind& left) {
      std::vector<std::string> addresses = all.addresses;
      if (w == way::unreached && d == 0) addresses[1] = nobody;
      socket_meeting meeting(d, addresses, std::move(listening), std::chrono::seconds(1));
      socket_wire wire(meeting);
      exchange here(meeting, wire, exchange_as::asynchronous);
      std::vector<std::byte> memory(100);
      message sent{1, 4, memory.data(), 100}, received{0, 5, memory.data(), 96};
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(w == way::other_message ? 1 : 20);
      try {
        if (w == way::other_message || d == (w == way::unreached ? 0 : 1)) here.connect_with({1 - d});
        if (w == way::other_message && d == 0) wire.send(sent);
        if (w == way::other_message && d == 1) wire.receive(received);
        for (; std::chrono::steady_clock::now() < end; meeting.require_whole()) wire.poll(std::chrono::milliseconds(1));
      } catch (const std::exception& e) {
        left.say(e.what());
      }
    });
    REQUIRE(all.ended_within(30));
    const std::string sentence = all.of(w == way::unreached ? 0 : 1).sentence;
    CHECK(sentence ==
          (w == way::other_message ? "reshard: device 1 expects 96 bytes of stage 5 from device 0, which sends "
                                     "100 of stage 4"
           : w == way::unreached   ? "reshard: device 0 waited 3000 ms in vain for connections with these devices: 1"
                                   : "reshard: device 1 waited 3000 ms in vain for connections with these devices: 0"));
  }
}

TEST_CASE("who is in the midst of a long frame is not silent") {
  processes all(2);
  all.start(1, [&](listening_socket, left_behind&) {
    const owned_descriptor link = call_address(all.addresses[0], std::chrono::seconds(5));
    const socket_hello hello{.what = call_for::meeting, .from = 1, .devices = 2};
    send_some(link.number(), reinterpret_cast<const std::byte*>(&hello), sizeof hello);
    const std::uint32_t proposal_of_16_bytes[6] = {1, 16};
    const auto* const bytes = reinterpret_cast<const std::byte*>(proposal_of_16_bytes);
    for (std::size_t at = 0; at < sizeof proposal_of_16_bytes; ++at) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      send_some(link.number(), bytes + at, 1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the hub has answered
  });
  all.start(0, [&](listening_socket listening, left_behind& left) {
    const double begin = now();
    const socket_meeting hub(0, all.addresses, std::move(listening), std::chrono::milliseconds(1000));
    left.seconds = now() - begin;
  });
  REQUIRE(all.ended_within(30));
  CHECK(std::string(all.of(0).sentence).empty());
  CHECK(all.of(0).seconds > 2);
}

TEST_CASE("two that die at once are gone for those who part, well before half the patience") {
  for (const bool with_hub : {true, false}) {
    processes all(5);
    const std::vector<long> dead = with_hub ? std::vector<long>{0, 3} : std::vector<long>{2, 4};
    const auto dies = [&](long d) { return std::find(dead.begin(), dead.end(), d) != dead.end(); };
    all.start_all([&](long d, listening_socket listening, left_behind& left) {
      socket_meeting here(d, all.addresses, std::move(listening), std::chrono::seconds(20));
      left.reached = 1;
      try {
        while (true) here.poll(), here.require_whole(), std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } catch (const peer_failed&) {
        // one is in no hurry, and is counted nonetheless
        if (d == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
        std::string survivors;
        for (const rank_t s : here.part(false).survivors) survivors += std::to_string(s);
        left.say(survivors);
        left.seconds = now();
      }
    });
    for (long d = 0; d < 5; ++d)
      while (all.of(d).reached == 0 && !all.ended_within(0.001)) std::this_thread::yield();
    for (const long d : dead) all.send_signal(d, SIGKILL);
    const double begin = now();
    REQUIRE(all.ended_within(60));
    for (long d = 0; d < 5; ++d) {
      if (dies(d)) continue;
      CAPTURE(d);
      CHECK(std::string(all.of(d).sentence) == (with_hub ? "124" : "013"));
      CHECK(all.of(d).seconds - begin - all.late() < 5);
    }
  }
}

TEST_CASE("a hub that ends waits for nobody who is stopped, and what it said is heard when that one wakes") {
  processes all(2);
  all.start_all([&](long d, listening_socket listening, left_behind& left) {
    std::optional<socket_meeting> here(std::in_place, d, all.addresses, std::move(listening), std::chrono::seconds(20));
    if (d == 1) {
      left.reached = 1;
      ::raise(SIGSTOP);
      here->agree({});
    }
    while (all.of(1).reached == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const double begin = now();
    here.reset();
    left.seconds = now() - begin;
  });
  REQUIRE(all.ended_within(30, 1));
  CHECK(all.of(0).seconds - all.late() < 0.5);
  all.send_signal(1, SIGCONT);
  REQUIRE(all.ended_within(30));
  CHECK(std::string(all.of(1).sentence) == "reshard: device 0 has left; a world serves one run");
}

TEST_CASE("a hub that gave up one ends without waiting for another that has been silent, too") {
  processes all(3);
  for (const long d : {1L, 2L})
    all.start(d, [&, d](listening_socket, left_behind&) {  // it says what it must, and reads nothing
      const auto wait_for_hub = [&](long at) {
        while (all.of(0).reached < at && all.of(0).sentence[0] == 0)
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
      };
      const owned_descriptor link = call_address(all.addresses[0], std::chrono::seconds(5));
      const socket_hello hello{.what = call_for::meeting, .from = d, .devices = 3};
      const std::uint32_t proposal[6] = {1, 16}, no_text[2] = {3, 0};
      send_some(link.number(), reinterpret_cast<const std::byte*>(&hello), sizeof hello);
      send_some(link.number(), reinterpret_cast<const std::byte*>(proposal), sizeof proposal);
      wait_for_hub(1);
      send_some(link.number(), reinterpret_cast<const std::byte*>(no_text), sizeof no_text);
      wait_for_hub(3);
    });
  all.start(0, [&](listening_socket listening, left_behind& left) {
    std::optional<socket_meeting> hub(std::in_place, 0, all.addresses, std::move(listening), std::chrono::seconds(1));
    left.reached = 1;
    hub->gather(std::string(std::size_t{1} << 26, 't'));  // more than the kernel takes
    try {
      hub->agree({});
    } catch (const peer_failed& e) {
      left.reached = std::string(e.what()).starts_with("reshard: device 1 was given up") ? 2 : 0;
    }
    const double begin = now();
    hub.reset();
    left.seconds = now() - begin;
    ++left.reached;
  });
  REQUIRE(all.ended_within(30));
  CHECK(std::string(all.of(0).sentence) == "");
  CHECK(all.of(0).reached == 3);
  CHECK(all.of(0).seconds - all.late() < 0.5);
}

TEST_CASE("a connection that ends between two who live ends the world, by the hub's word, before half the patience") {
  for (const long lower : {0L, 1L}) {
    processes all(3);
    all.start_all([&](long d, listening_socket listening, left_behind& left) {
      socket_meeting meeting(d, all.addresses, std::move(listening), std::chrono::seconds(20));
      socket_wire wire(meeting);
      std::vector<std::byte> memory(100);
      message comes{d == lower ? 2 : lower, 4, memory.data(), 100};
      if (d == lower || d == 2) wire.connect({comes.peer}), wire.receive(comes);
      while (!wire.unconnected().empty()) wire.poll(std::chrono::milliseconds(1));
      meeting.agree({});
      if (d == 2) wire.stop();  // and says nothing
      const double begin = now();
      try {
        for (; now() - begin < 30; meeting.require_whole()) wire.poll(std::chrono::milliseconds(1));
      } catch (const peer_failed& e) {
        left.say(e.what());
      }
      left.seconds = now() - begin;
    });
    REQUIRE(all.ended_within(60));
    for (long d = 0; d < 3; ++d) {
      CAPTURE(d);
      CHECK(std::string(all.of(d).sentence) ==
            "reshard: the connection between devices " + std::to_string(lower) + " and 2 ended, and both are there");
      CHECK(all.of(d).seconds - all.late() < 5);
    }
  }
}

TEST_CASE("who dies while others are awaited is named at once, not at the end of the patience") {
  processes all(3);
  all.start(1, [&](listening_socket, left_behind&) {
    const owned_descriptor link =
        call_door(all.addresses[0], {.what = call_for::meeting, .from = 1, .devices = 3}, std::chrono::seconds(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  });
  all.start(0, [&](listening_socket listening, left_behind& left) {
    const double begin = now();
    try {
      socket_meeting hub(0, all.addresses, std::move(listening), std::chrono::seconds(20));
    } catch (const peer_failed& e) {
      left.say(e.what());
    }
    left.seconds = now() - begin;
  });
  REQUIRE(all.ended_within(60));
  CHECK(std::string(all.of(0).sentence) == "reshard: device 1 is gone: its connection ended");
  CHECK(all.of(0).seconds - all.late() < 5);
}

TEST_CASE("a process that never starts is named by all others within the patience") {
  for (const long absent : {0L, 2L}) {
    processes all(4);
    for (long d = 0; d < 4; ++d)
      if (d != absent)
        all.start(d, [&](listening_socket listening, left_behind&) {
          socket_endpoint here(d, all.addresses, std::move(listening), std::chrono::seconds(2));
        });
    REQUIRE(all.ended_within(10));
    for (long d = 0; d < 4; ++d) {
      if (d == absent) continue;
      const std::string sentence = all.of(d).sentence;
      CAPTURE(sentence);
      CHECK(sentence.find(absent == 0 ? "device 0" : "in vain for these devices to come: 2") != sentence.npos);
    }
  }
}

TEST_CASE("who dies or stops in the midst of a switch is named by all who live, in time, and their sources are whole") {
  const computed_switch change = change_of("tp=2,pp=2,zero=1", "dp=4,zero=1");
  for (const int number : {SIGKILL, SIGSTOP})
    for (const long victim : {0L, 1L, 3L})
      for (const int third : {0, 1, 2}) {
        if (number == SIGSTOP && third == 1 && victim == 1) continue;
        CAPTURE(number);
        CAPTURE(victim);
        CAPTURE(third);
        processes all(4);
        all.start_all([&](long d, listening_socket listening, left_behind& left) {
          socket_endpoint here(d, all.addresses, std::move(listening), std::chrono::seconds(2));
          rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
          fill(before.tensors(), change.from());
          struct faulty : forwarding<socket_endpoint> {
            int number, third;
            bool me;
            left_behind& left;
            void move(moves& m, index_t slot) {
              if (slot == third * (m.slots - 1) / 2 && left.reached == 0) {
                left.stages = static_cast<long>(m.slots);
                left.reached = 1;
                if (me) left.seconds = now();
                if (me) ::raise(number);
              }
              inner.move(m, slot);
            }
          } through{{here}, number, third, d == victim, left};
          const bool keep = third != 1;
          const bytes_t budget = keep ? no_budget : 300_KiB;
          try {
            switch_state(
                change, before.tensors(), after.tensors(), through,
                {.budget = budget, .after_use = keep ? sources::keep : sources::release, .route = {.stages = 5}});
            left.say("finished");
          } catch (const std::exception& e) {
            left.say(e.what());
          }
          if (d != victim) left.seconds = now();
          left.wrong = keep ? static_cast<long>(compare(before.tensors(), change.from()).wrong) : 0;
        });
        REQUIRE(all.ended_within(20, number == SIGSTOP ? victim : -1));
        for (long d = 0; d < 4; ++d) {
          if (d == victim) continue;
          const std::string sentence = all.of(d).sentence;
          CAPTURE(d);
          CAPTURE(sentence);
          CHECK(all.of(victim).reached == 1);
          CHECK(all.of(victim).stages >= 3);
          CHECK(all.of(d).wrong == 0);
          CHECK(all.of(d).seconds - all.of(victim).seconds - all.late() < (number == SIGKILL ? 2 : 4));
          CHECK(sentence.find("device " + std::to_string(victim) +
                              (number == SIGKILL ? " is gone: its connection ended"
                                                 : " was given up: it has said nothing for 2000 ms")) != sentence.npos);
        }
        if (number == SIGSTOP) {  // it wakes, and finds out
          all.send_signal(victim, SIGCONT);
          REQUIRE(all.ended_within(20));
          const std::string sentence = all.of(victim).sentence;
          CAPTURE(sentence);
          CHECK(sentence.find("device " + std::to_string(victim) + " was given up") != sentence.npos);
        }
      }
}

namespace {

/// Of no element is it zero; and of every element.
struct never_zero {
  struct of_tensor {
    template <typename Element>
    Element value(index_t index) const {
      return static_cast<Element>(index % 251 + 1);
    }
  };
  of_tensor operator()(const tensor_box&) const { return {}; }
};
struct always_zero {
  struct of_tensor {
    template <typename Element>
    Element value(index_t) const {
      return 0;
    }
  };
  of_tensor operator()(const tensor_box&) const { return {}; }
};

/// Those who live make a world of their own; what is lost, and nothing else, is zero afterwards.
void check_without(const std::vector<rank_t>& lost, const std::string& from, const std::string& to, bytes_t budget) {
  const space before_it(testing::tiny(8), parse_degrees(from)), after_it(testing::tiny(8), parse_degrees(to));
  std::vector<rank_t> living;
  for (rank_t d = 0; d < before_it.ranks(); ++d)
    if (std::find(lost.begin(), lost.end(), d) == lost.end()) living.push_back(d);
  const rank_t highest = living.back();
  living.resize(static_cast<std::size_t>(after_it.ranks()));
  const layout_switch change(before_it, after_it,
                             {.to = device_map(living), .lost = lost, .lost_elements = when_lost::leave_out});
  processes all(change.devices());
  for (const rank_t d : lost) all.addresses[static_cast<std::size_t>(d)].clear();
  for (rank_t d = 0; d < change.devices(); ++d)
    if (!change.lost(d))
      all.start(d, [&](listening_socket listening, left_behind& left) {
        socket_endpoint here(d, all.addresses, std::move(listening), ample);
        left.reached = here.facts().absent == lost && here.all_reduce_max(d) == highest;
        for (const rank_t l : lost)
          left.reached =
              left.reached == 1 && testing::refused([&] { here.begin_connections({l}); }) ==
                                       "reshard: device " + std::to_string(l) + " is gone; nobody can connect with it";
        rank_storage before(change.from(), change.from_rank(d), "before"), after("no rank");
        if (change.to_rank(d) >= 0) after = rank_storage(change.to(), change.to_rank(d), "after");
        fill(before.tensors(), change.from(), never_zero{});
        const switch_report report = switch_state(change, before.tensors(), after.tensors(), here, {.budget = budget});
        const comparison whole = compare(after.tensors(), change.to(), never_zero{}),
                         zeros = compare(after.tensors(), change.to(), always_zero{});
        left.elements = static_cast<long>(zeros.elements - zeros.wrong), left.wrong = static_cast<long>(whole.wrong);
        left.kernel_agrees = report.memory.after == after.resident_bytes();
      });
  REQUIRE(all.ended_within(60));
  index_t lost_of_all = 0;
  for (rank_t d = 0; d < change.devices(); ++d) {
    if (change.lost(d)) continue;
    CAPTURE(d);
    CHECK(std::string(all.of(d).sentence).empty());
    CHECK(all.of(d).reached == 1);
    CHECK(all.of(d).kernel_agrees == 1);
    index_t zeros = 0;
    for (const transfer& t : make_plan(change, d).lost)
      for ([[maybe_unused]] const int s : t.states) zeros += t.where.volume();
    CHECK(all.of(d).wrong == zeros);
    CHECK(all.of(d).elements == zeros);
    lost_of_all += zeros;
  }
  CHECK((lost_of_all > 0) == (lost_bytes(change) > 0));
}

}  // namespace

TEST_CASE("devices that are gone before a switch: the living make a world, the lowest of them its hub") {
  check_without({3, 7}, "tp=2,pp=2,dp=2", "tp=2,dp=3", no_budget);     // nothing is lost
  check_without({0, 1}, "tp=2,pp=2,dp=2", "dp=4,zero=1", 2_MiB);       // 2 is the hub
  check_without({0, 6}, "tp=2,pp=2,dp=2,zero=1", "tp=2,dp=3", 2_MiB);  // optimizer states are
  check_without({1, 2, 3}, "tp=2,pp=2", "dp=1,zero=1", no_budget);     // one is left
  check_without({0, 1, 2}, "tp=2,dp=3,zero=1", "tp=2,zero=1", no_budget);
}

TEST_CASE("a world of the living refuses a switch that names the dead, on all of them") {
  const computed_switch change = change_of("dp=4", "tp=2");
  processes all(4);
  all.addresses[2].clear();
  for (const long d : {0L, 1L, 3L})
    all.start(d, [&](listening_socket listening, left_behind& left) {
      socket_endpoint here(d, all.addresses, std::move(listening), ample);
      rank_storage before(change.from(), d, "before"), after("no rank");
      if (change.to_rank(d) >= 0) after = rank_storage(change.to(), change.to_rank(d), "after");
      fill(before.tensors(), change.from());
      left.untouched = 1;
      switch_state(change, before.tensors(), after.tensors(), here);
    });
  REQUIRE(all.ended_within(60));
  for (const long d : {0L, 1L, 3L})
    CHECK(std::string(all.of(d).sentence) ==
          "reshard: the switch names device 2, which the transport has no more; say that it is lost");
  processes one(2);
  one.addresses[0].clear();
  one.start(0, [&](listening_socket listening, left_behind&) {
    socket_endpoint here(0, one.addresses, std::move(listening), ample);
  });
  REQUIRE(one.ended_within(60));
  CHECK(std::string(one.of(0).sentence) == "reshard: device 0 is one of those without an address, which are gone");
}
