// SPDX-License-Identifier: Apache-2.0
// Pulses between threads of one process: who hears whom, the end of a connection, silence, and leaving in good order.
#include <doctest/doctest.h>

#include <atomic>
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

constexpr patience wait{320};

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
/// Who is called and calls, as the test says: member of a world in which one alone is real.
struct spoken_for {
  explicit spoken_for(const std::string& who, const std::string& node = "here")
      : name(who), peer{who, "127.0.0.1:" + std::to_string(at.port()), node} {}
  /// Whoever calls within so long; what it says first is read.
  owned_descriptor called(patience limit = patience(5000)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    owned_descriptor made = at.accept();
    for (; !made.open() && std::chrono::steady_clock::now() < end; made = at.accept())
      std::this_thread::sleep_for(patience(1));
    said = {};
    auto* const to = reinterpret_cast<std::byte*>(&said);
    for (std::size_t came = 0; made.open() && came < sizeof said && std::chrono::steady_clock::now() < end;)
      came += receive_some(made.number(), to + came, sizeof said - came).bytes;
    return made;
  }
  listening_socket at{"127.0.0.1:0"};
  std::string name;
  pulse_peer peer;
  detail::pulse_hello said = {};
};
void say(const owned_descriptor& to, const std::string& words) {
  send_some(to.number(), reinterpret_cast<const std::byte*>(words.data()), words.size());
}
/// What comes within so long, with "|" where it ends.
std::string heard(const owned_descriptor& from, patience limit) {
  std::string all;
  for (const auto end = std::chrono::steady_clock::now() + limit; std::chrono::steady_clock::now() < end;) {
    char some[64];
    const socket_progress p = receive_some(from.number(), reinterpret_cast<std::byte*>(some), sizeof some);
    all.append(some, p.bytes);
    if (p.ended) return all + "|";
    std::this_thread::sleep_for(patience(1));
  }
  return all;
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
  const auto met = testing::undisturbed(wait / 4, [] {
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
  const auto& told = met.result;
  CHECK(told.empty());
}

TEST_CASE("who is silent is told after the patience, by its neighbours; who leaves in good order is not") {
  const auto met = testing::undisturbed(wait / 4, [] {
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
  const auto& told = met.result;
  for (const auto& t : told) {
    CHECK(t.who == member_name("mute"));
    CHECK(t.how == found_gone::silent);
    CHECK(t.after >= 0.32);
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
  CHECK(w.so_far()[0].after >= 0.079);  // three calls, an eighth of the patience apart
}

TEST_CASE("each calls the next two and is called by the two before it, and says of which world and who it is") {
  heard_world w;
  w.add("c", "n");
  spoken_for a("a", "n"), b("b", "n"), d("d", "n"), e("e", "n");
  w.ends[0]->hear(77, {a.peer, b.peer, w.peers[0], d.peer, e.peer});
  for (spoken_for* const next : {&d, &e}) {
    const owned_descriptor link = next->called();
    REQUIRE(link.open());
    CHECK(next->said.magic == detail::pulse_hello::form);
    CHECK(next->said.world == 77);
    CHECK(next->said.name() == "c");
    CHECK(heard(link, wait / 2).find_first_not_of('.') == std::string::npos);
  }
  CHECK_FALSE(a.called(patience(1)).open());
  CHECK_FALSE(b.called(patience(1)).open());
  const owned_descriptor of_a = silent_caller(w.peers[0], 77, "a"), of_b = silent_caller(w.peers[0], 77, "b");
  for (const owned_descriptor* const link : {&of_a, &of_b})
    CHECK(heard(*link, wait / 2).find('.') != std::string::npos);
}

TEST_CASE("a beat goes each quarter of the patience, to who called and to who was called") {
  const auto [counted, late] = testing::undisturbed(wait / 20, [] {
    heard_world w;
    w.add("a");
    spoken_for b("b");
    w.ends[0]->hear(9, {w.peers[0], b.peer});
    const owned_descriptor called = b.called(), calls = silent_caller(w.peers[0], 9, "b");
    say(called, "."), say(calls, ".");
    heard(called, wait / 2), heard(calls, patience(1));
    const std::string of_called = heard(called, wait);
    return std::pair(of_called, heard(calls, patience(1)));
  });
  for (const std::string& beats : {counted.first, counted.second}) {
    CHECK(std::ssize(beats) >= wait / (wait / 4 + patience(1) + 2 * late));  // 3
    CHECK(std::ssize(beats) <= (wait + 2 * late) / (wait / 4) + 1);          // 5
    CHECK(beats.find_first_not_of('.') == std::string::npos);
  }
}

TEST_CASE("who leaves says so on every connection; who abandons its world ends as one that died") {
  for (const bool abandons : {false, true}) {
    heard_world w;
    w.add("a");
    spoken_for b("b");
    w.ends[0]->hear(9, {w.peers[0], b.peer});
    const owned_descriptor called = b.called(), calls = silent_caller(w.peers[0], 9, "b");
    heard(called, wait / 2), heard(calls, patience(1));
    if (abandons) w.ends[0]->abandon();
    const auto begun = std::chrono::steady_clock::now();
    w.ends.clear();
    CHECK(std::chrono::steady_clock::now() - begun < 4 * wait);  // nobody hears it out: a quarter of the patience
    for (const owned_descriptor* const link : {&called, &calls}) {
      const std::string last = heard(*link, wait);
      CHECK(last.ends_with("|"));
      CHECK((last.find('b') != std::string::npos) == !abandons);
    }
  }
}

TEST_CASE("who says that it leaves is not told gone, however long it is silent then, nor when its connection ends") {
  heard_world w;
  w.add("a");
  spoken_for b("b"), c("c");
  w.ends[0]->hear(9, {w.peers[0], b.peer, c.peer});
  owned_descriptor to_b = b.called(), to_c = c.called();
  const owned_descriptor of_b = silent_caller(w.peers[0], 9, "b"), of_c = silent_caller(w.peers[0], 9, "c");
  say(to_b, ".b"), say(of_b, "b"), say(to_c, "b"), say(of_c, "b");
  to_b.close();
  const owned_descriptor early = silent_caller(w.peers[0], 10, "b");  // of the next world, which it leaves at once
  say(early, "b");
  for (int i = 0; i < 15; ++i) std::this_thread::sleep_for(wait / 8);
  CHECK(w.so_far().empty());
  CHECK_FALSE(b.called(patience(1)).open());  // nor is it called again
  w.ends[0]->hear(10, {w.peers[0], b.peer});
  const owned_descriptor again = b.called();
  for (int i = 0; i < 15; ++i) say(again, "."), std::this_thread::sleep_for(wait / 8);
  CHECK(w.so_far().empty());
}

TEST_CASE("who is gone is told once for each world, and called no more; in another one it is told again") {
  heard_world w;
  w.add("a");
  spoken_for b("b");
  for (const std::uint64_t number : {5u, 6u}) {
    w.ends[0]->hear(number, {w.peers[0], b.peer});
    owned_descriptor to_b = b.called(), of_b = silent_caller(w.peers[0], number, "b");
    CHECK(b.said.world == number);
    say(to_b, ".");
    heard(to_b, wait / 2);
    to_b.close();
    const std::size_t expected = number - 4;
    CHECK(w.within(10 * wait, [=](const auto& told) { return told.size() == expected; }));
    of_b.close();
    std::this_thread::sleep_for(wait / 2);
    CHECK(w.so_far().size() == expected);
    CHECK_FALSE(b.called(patience(1)).open());
  }
  for (const auto& t : w.so_far()) CHECK(t.how == found_gone::ended);
}

TEST_CASE(
    "who hangs up before it ever answered may be another at that address: it is called again, till it is silent") {
  const auto [seen, late] = testing::undisturbed(wait / 20, [] {
    heard_world w;
    w.add("a");
    spoken_for b("b");
    const auto begun = std::chrono::steady_clock::now();
    w.ends[0]->hear(9, {w.peers[0], b.peer});
    const owned_descriptor of_b = silent_caller(w.peers[0], 9, "b");
    int times = 0;
    while (std::chrono::steady_clock::now() < begun + wait / 2) times += b.called(patience(20)).open() ? 1 : 0;
    w.within(10 * wait, [](const auto& so_far) { return so_far.size() == 1; });
    return std::pair(times, w.so_far());
  });
  const auto& [calls, told] = seen;
  CHECK(told.size() == 1);
  for (const auto& t : told) CHECK((t.how == found_gone::silent && t.after >= 0.32));
  CHECK(calls >= (late.count() > 0 ? 1 : 2));
  CHECK(calls <= 5 + late / (wait / 8));  // an eighth of the patience lies between two
}

TEST_CASE("who is no neighbour, is here already or says no hello changes nothing, and goes after eight patiences") {
  constexpr patience short_one{60};
  std::vector<std::string> told;
  std::mutex mutex;
  pulses a("a", listening_socket("127.0.0.1:0"), short_one, [&](const member_name& who, found_gone, double) {
    const std::lock_guard lock(mutex);
    told.push_back(std::string(who.text()));
  });
  const pulse_peer me{"a", "127.0.0.1:" + std::to_string(a.port()), "here"};
  a.hear(9, {me});
  const owned_descriptor stranger = silent_caller(me, 9, "x"), other_world = silent_caller(me, 8, "a");
  const owned_descriptor mute = call_address(me.address, patience(1000)),
                         rude = call_address(me.address, patience(1000));
  say(rude, std::string(sizeof(detail::pulse_hello), 'x'));
  const auto begun = std::chrono::steady_clock::now();
  CHECK(heard(rude, 4 * short_one).ends_with("|"));
  CHECK(heard(stranger, short_one).find_first_not_of('.') == std::string::npos);
  for (const owned_descriptor* const link : {&stranger, &other_world, &mute}) {
    const std::string all = heard(*link, 40 * short_one);
    CHECK(all.ends_with("|"));
    CHECK(all.find('.') != std::string::npos);
  }
  CHECK(std::chrono::steady_clock::now() - begun >= 8 * short_one - patience(20));
  const std::lock_guard lock(mutex);
  CHECK(told.empty());
}

TEST_CASE("who was away itself gives nobody up who speaks again once it is back") {
  std::atomic<bool> away = false, back = false;
  std::mutex mutex;
  std::vector<std::string> told;
  pulses a("a", listening_socket("127.0.0.1:0"), wait, [&](const member_name& who, found_gone how, double) {
    {
      const std::lock_guard lock(mutex);
      told.push_back(std::string(who.text()) + (how == found_gone::ended ? " ended" : " silent"));
    }
    away = true;
    std::this_thread::sleep_for(wait + wait / 2);  // on the thread that hears
    back = true;
  });
  const pulse_peer me{"a", "127.0.0.1:" + std::to_string(a.port()), "here"};
  spoken_for b("b"), c("c");
  a.hear(9, {me, b.peer, c.peer});
  owned_descriptor to_b = b.called();
  const owned_descriptor to_c = c.called(), of_b = silent_caller(me, 9, "b"), of_c = silent_caller(me, 9, "c");
  say(to_b, "."), say(to_c, "."), heard(to_c, wait / 2);
  to_b.close();
  const auto end = std::chrono::steady_clock::now() + 20 * wait;
  while (!back && std::chrono::steady_clock::now() < end) {
    if (!away) say(to_c, "."), say(of_c, ".");
    std::this_thread::sleep_for(wait / 16);
  }
  for (const auto until = std::chrono::steady_clock::now() + wait; std::chrono::steady_clock::now() < until;) {
    std::this_thread::sleep_for(wait / 16);
    say(to_c, "."), say(of_c, ".");
  }
  const std::lock_guard lock(mutex);
  CHECK(told == std::vector<std::string>{"b ended"});
}

TEST_CASE("who calls of another world is none of this one's, whatever its name") {
  heard_world w;
  w.add("a");
  spoken_for b("b");
  w.ends[0]->hear(9, {w.peers[0], b.peer});
  const owned_descriptor to_b = b.called();
  owned_descriptor other = silent_caller(w.peers[0], 8, "b");
  say(to_b, "."), say(other, ".");
  heard(other, wait / 4);
  other.close();
  const owned_descriptor of_b = silent_caller(w.peers[0], 9, "b");
  for (int i = 0; i < 12; ++i) say(to_b, "."), say(of_b, "."), std::this_thread::sleep_for(wait / 8);
  CHECK(w.so_far().empty());
}
