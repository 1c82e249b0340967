// SPDX-License-Identifier: Apache-2.0
// The wire between threads by itself: the k-th message meets the k-th, whoever comes first; nothing is read after stop;
// and what a message of another length ends in. Every wait has an end.
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <reshard/transport/threads/mailbox.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using namespace std::chrono_literals;

namespace {

using bytes = std::vector<std::byte>;
bytes pattern(std::size_t count, int seed) {
  bytes result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = static_cast<std::byte>(seed * 31 + static_cast<int>(i) * 7);
  return result;
}
message of(rank_t peer, index_t stage, bytes& at) { return {peer, stage, at.data(), static_cast<bytes_t>(at.size())}; }

/// Polls until what is true, for five seconds at most.
template <typename What>
bool polls_until(mailbox_wire& wire, What&& what) {
  for (const auto end = std::chrono::steady_clock::now() + 5s; !what();) {
    if (std::chrono::steady_clock::now() > end) return false;
    wire.poll(1ms);
  }
  return true;
}

}  // namespace

TEST_CASE("a message is there for the receiver, and then done for the sender, whoever posts first") {
  for (const bool sender_first : {true, false}) {
    std::deque<mailbox> boxes(2);
    mailbox_wire a(boxes, 0), b(boxes, 1);
    bytes sent = pattern(5000, 1), room(5000);
    message out = of(1, 0, sent), in = of(0, 0, room);
    if (sender_first) a.send(out);
    else b.receive(in);
    a.poll(0us), b.poll(0us);
    CHECK_FALSE((sender_first ? out : in).done);
    if (sender_first) b.receive(in);
    else a.send(out);
    CHECK_FALSE(in.done);
    b.poll(0us);
    CHECK(in.done);
    CHECK(room == sent);
    CHECK_FALSE(out.done);  // until the sender looks
    a.poll(0us);
    CHECK(out.done);
  }
}

TEST_CASE("messages of a pair meet in order, those of other pairs whenever they come") {
  std::deque<mailbox> boxes(3);
  mailbox_wire a(boxes, 0), b(boxes, 1), c(boxes, 2);
  bytes first = pattern(100, 1), second = pattern(100, 2), other = pattern(100, 3),
        room[3] = {bytes(100), bytes(100), bytes(100)};
  message out[] = {of(2, 0, first), of(2, 1, second), of(2, 0, other)},
          in[] = {of(0, 0, room[0]), of(0, 1, room[1]), of(1, 0, room[2])};
  for (message& m : in) c.receive(m);
  b.send(out[2]);
  c.poll(0us);
  CHECK(in[2].done);
  CHECK_FALSE(in[0].done);
  a.send(out[0]), a.send(out[1]);
  c.poll(0us);
  CHECK((in[0].done && in[1].done));
  CHECK((room[0] == first && room[1] == second && room[2] == other));
  a.poll(0us), b.poll(0us);
  for (const message& m : out) CHECK(m.done);
}

TEST_CASE("who waits wakes when something comes, or is taken, or when it is woken, and not much later than it said") {
  std::deque<mailbox> boxes(2);
  mailbox_wire a(boxes, 0), b(boxes, 1);
  const auto begin = std::chrono::steady_clock::now();
  a.poll(30ms);
  CHECK(std::chrono::steady_clock::now() - begin >= 30ms);
  bytes sent = pattern(10, 1), room(10);
  message out = of(1, 0, sent), in = of(0, 0, room);
  b.receive(in);
  const auto waited = [](auto&& poll, auto&& cause) {
    const auto from = std::chrono::steady_clock::now();
    std::thread other([&] {
      std::this_thread::sleep_for(50ms);
      cause();
    });
    poll();
    other.join();
    return std::chrono::steady_clock::now() - from < 10s;
  };
  CHECK(waited(
      [&] {
        CHECK(polls_until(b, [&] {
          b.poll(20s);
          return in.done;
        }));
      },
      [&] { a.send(out); }));
  CHECK(waited([&] { a.poll(20s); }, [] {}));
  CHECK(out.done);
  CHECK(waited([&] { a.poll(20s); }, [&] { boxes[0].wake(); }));
}

TEST_CASE("who has read something does not wait for more, and what came before is no reason not to wait") {
  std::deque<mailbox> boxes(2);
  mailbox_wire a(boxes, 0), b(boxes, 1);
  bytes sent = pattern(10, 1), room(10);
  message out = of(1, 0, sent), in = of(0, 0, room);
  a.send(out);
  b.poll(0us);  // it hears of a letter that it does not want yet
  b.receive(in);
  const auto begin = std::chrono::steady_clock::now();
  b.poll(20s);
  CHECK(in.done);
  CHECK(std::chrono::steady_clock::now() - begin < 10s);
  a.poll(20s);  // what was taken is heard of at once
  CHECK(out.done);
  CHECK(std::chrono::steady_clock::now() - begin < 10s);
  for (mailbox_wire* const end : {&a, &b}) {
    end->poll(0us);
    const auto from = std::chrono::steady_clock::now();
    end->poll(30ms);
    CHECK(std::chrono::steady_clock::now() - from >= 30ms);
  }
}

TEST_CASE("what was posted and is not taken is not read after stop; what is being read is waited for") {
  std::deque<mailbox> boxes(2);
  mailbox_wire b(boxes, 1);
  bytes room(1000);
  message in = of(0, 0, room);
  {
    bytes sent = pattern(1000, 1);
    message out = of(1, 0, sent);  // outlives what sends it
    mailbox_wire a(boxes, 0);
    a.send(out);
    a.stop();
    b.receive(in);
    b.poll(1ms);
    CHECK_FALSE(in.done);
    a.send(out);  // its destructor stops it too
  }
  b.poll(1ms);
  CHECK_FALSE(in.done);
  for (int round = 0; round < 200; ++round) {  // the memory of a sender that stops while it is read
    std::deque<mailbox> pair(2);
    mailbox_wire reader(pair, 1);
    bytes into(200'000);
    message wanted = of(0, 0, into);
    reader.receive(wanted);
    std::thread other([&] {
      mailbox_wire writer(pair, 0);
      bytes sent = pattern(200'000, 1);
      message out = of(1, 0, sent);
      writer.send(out);
      if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(round));
      writer.stop();
      std::fill(sent.begin(), sent.end(), std::byte{0xEE});
    });
    for (int i = 0; i < 20; ++i) reader.poll(10us);
    other.join();
    reader.poll(0us);
    if (wanted.done) CHECK(into == pattern(200'000, 1));
  }
}

TEST_CASE("who waits wakes when what it sent is taken meanwhile") {
  std::deque<mailbox> boxes(2);
  mailbox_wire a(boxes, 0), b(boxes, 1);
  bytes sent = pattern(10, 1), room(10);
  message out = of(1, 0, sent), in = of(0, 0, room);
  a.send(out);
  b.receive(in);
  a.poll(0us);
  std::atomic<bool> begins = false;
  std::thread other([&] {
    while (!begins) std::this_thread::yield();
    std::this_thread::sleep_for(50ms);  // so that it waits by then, most likely
    b.poll(0us);
  });
  const auto from = std::chrono::steady_clock::now();
  begins = true;
  a.poll(20s);
  CHECK(std::chrono::steady_clock::now() - from < 10s);
  other.join();
  a.poll(0us);
  CHECK(out.done);
}

TEST_CASE("a letter is read whichever of those that are wanted it is") {
  for (const rank_t from : {1, 2, 3}) {
    std::deque<mailbox> boxes(4);
    mailbox_wire here(boxes, 0), there(boxes, from);
    bytes sent = pattern(10, 1), room[3] = {bytes(10), bytes(10), bytes(10)};
    message out = of(0, 0, sent), in[3] = {of(1, 0, room[0]), of(2, 0, room[1]), of(3, 0, room[2])};
    for (message& m : in) here.receive(m);
    there.send(out);
    here.poll(0us);
    for (rank_t peer = 1; peer < 4; ++peer) CHECK(in[peer - 1].done == (peer == from));
    CHECK(room[from - 1] == sent);
  }
}

TEST_CASE("of several messages what is not taken is taken back, in whichever order the others were taken") {
  std::deque<mailbox> boxes(3);
  mailbox_wire a(boxes, 0), b(boxes, 1), c(boxes, 2);
  bytes one = pattern(10, 1), other = pattern(10, 2), room_b(10), room_c(10);
  message to_b = of(1, 0, one), to_c = of(2, 0, other), at_b = of(0, 0, room_b), at_c = of(0, 0, room_c);
  a.send(to_b), a.send(to_c);
  c.receive(at_c);
  c.poll(0us), a.poll(0us);
  CHECK((to_c.done && !to_b.done));
  a.stop();
  b.receive(at_b);
  b.poll(1ms);
  CHECK_FALSE(at_b.done);
}

TEST_CASE("after stop a message is its owner's, and its word of before is none of one that is sent again") {
  std::deque<mailbox> boxes(2);
  mailbox_wire a(boxes, 0), b(boxes, 1);
  bytes sent = pattern(10, 1), room(10);
  message out = of(1, 0, sent), in = of(0, 0, room), gone = of(1, 0, sent);
  b.receive(in);
  a.send(out);
  b.poll(0us);
  CHECK(in.done);
  a.stop();  // it has not heard that it was taken
  a.send(out), a.send(gone);
  a.poll(0us);
  CHECK_FALSE(out.done);
  a.stop();
  out.peer = gone.peer = 1'000'000;  // nobody looks at them any more
  a.stop();
}

TEST_CASE("who stops waits for a long message that is being read") {
  constexpr std::size_t length = 4'000'000;
  const bytes usual = pattern(length, 1);
  for (int round = 0; round < 20; ++round) {
    std::deque<mailbox> pair(2);
    mailbox_wire reader(pair, 1);
    bytes into(length);
    message wanted = of(0, 0, into);
    reader.receive(wanted);
    std::atomic<bool> reads = false, sent_it = false;
    std::thread other([&] {
      mailbox_wire writer(pair, 0);
      bytes sent = usual;
      message out = of(1, 0, sent);
      writer.send(out);
      sent_it = true;
      while (!reads) std::this_thread::yield();
      const auto begin = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - begin < round * 50us) std::this_thread::yield();
      writer.stop();
      std::memset(sent.data() + length / 2, 0xEE, length / 2);  // the reader comes there last
    });
    while (!sent_it) std::this_thread::yield();
    reads = true;
    reader.poll(0us);
    other.join();
    if (wanted.done) CHECK(into == usual);
  }
}

TEST_CASE("a receiver that stops is sent nothing, and its sender's message waits") {
  std::deque<mailbox> boxes(2);
  mailbox_wire a(boxes, 0), b(boxes, 1);
  bytes sent = pattern(10, 1), room(10, std::byte{7});
  message out = of(1, 0, sent), in = of(0, 0, room);
  b.receive(in);
  b.stop();
  a.send(out);
  b.poll(1ms), a.poll(1ms);
  CHECK_FALSE(in.done);
  CHECK_FALSE(out.done);
  CHECK(room == bytes(10, std::byte{7}));
  a.stop();
}

TEST_CASE("a message of another length is refused, not copied, and says whose it is") {
  for (const std::size_t length : {std::size_t{99}, std::size_t{101}}) {
    std::deque<mailbox> boxes(3);
    mailbox_wire a(boxes, 2), b(boxes, 1);
    bytes sent = pattern(length, 1), room(100, std::byte{7});
    message out = of(1, 4, sent), in = of(2, 4, room);
    a.send(out);
    b.receive(in);
    CHECK_REFUSED(b.poll(0us),
                  "device 1 expects 100 bytes from device 2 in stage 4, which sends " + std::to_string(length));
    CHECK(room == bytes(100, std::byte{7}));
    a.stop(), b.stop();
  }
}

TEST_CASE("random messages between many threads: all arrive, each once, each whole") {
  constexpr rank_t devices = 5;
  constexpr int rounds = 60;
  std::deque<mailbox> boxes(devices);
  std::atomic<int> wrong = 0, late = 0;
  std::vector<std::thread> running;
  const auto length = [](rank_t from, rank_t to, int round) {
    return static_cast<std::size_t>((from * 7 + to * 13 + round * 5) % 900 + 1);
  };
  const auto seed = [](rank_t from, rank_t to, int round) { return static_cast<int>(from * 100 + to * 10) + round; };
  for (rank_t me = 0; me < devices; ++me)
    running.emplace_back([&, me] {
      mailbox_wire wire(boxes, me);
      for (int round = 0; round < rounds; ++round) {
        constexpr auto all = static_cast<std::size_t>(devices);
        std::vector<bytes> sent(all), room(all);
        std::vector<message> out(all), in(all);
        for (rank_t peer = 0; peer < devices; ++peer) {
          if (peer == me) continue;
          const auto p = static_cast<std::size_t>(peer);
          sent[p] = pattern(length(me, peer, round), seed(me, peer, round));
          room[p].resize(length(peer, me, round));
          out[p] = of(peer, round, sent[p]), in[p] = of(peer, round, room[p]);
          wire.receive(in[p]);
          wire.send(out[p]);
        }
        const auto all_done = [&] {
          for (std::size_t p = 0; p < all; ++p)
            if (!out[p].done || !in[p].done) return false;
          return true;
        };
        if (!polls_until(wire, all_done)) ++late;
        for (rank_t peer = 0; peer < devices; ++peer)
          if (const auto p = static_cast<std::size_t>(peer);
              peer != me && room[p] != pattern(length(peer, me, round), seed(peer, me, round)))
            ++wrong;
      }
    });
  for (std::thread& t : running) t.join();
  CHECK(late == 0);
  CHECK(wrong == 0);
}
