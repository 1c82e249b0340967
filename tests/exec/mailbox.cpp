// SPDX-License-Identifier: Apache-2.0
// One mailbox between two real threads: messages in both directions, and what becomes of a letter whose reader or
// writer does not come. Every wait has an end.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

#include <reshard/exec/mailbox.hpp>

using namespace reshard;
using side = mailbox::side;
using namespace std::chrono_literals;
using watch = std::chrono::steady_clock;

namespace {

constexpr patience soon = 60ms;  // for what does not come
constexpr patience ample = 10s;  // for what comes; a test that waits it out fails
constexpr auto at_once = 5s;     // what needs no waiting is done by then, however busy the machine is

std::vector<std::byte> message(std::size_t bytes, int first) {
  std::vector<std::byte> result(bytes);
  for (std::size_t i = 0; i < bytes; ++i) result[i] = static_cast<std::byte>(first + static_cast<int>(i));
  return result;
}
memory room(std::vector<std::byte>& of) { return {of.empty() ? nullptr : of.data(), static_cast<bytes_t>(of.size())}; }

/// What one call of exchange does.
struct outcome {
  bool came = false;
  bytes_t offered = -1;
  watch::duration took{};
};
outcome exchange(mailbox& box, side mine, std::vector<std::byte>& out, std::vector<std::byte>& in, rendezvous& world) {
  outcome result;
  const auto begin = watch::now();
  result.came = box.exchange(mine, room(out), room(in), world, result.offered);
  result.took = watch::now() - begin;
  return result;
}

/// Runs one on this thread and the other on another.
template <typename One, typename Other>
void both(One&& one, Other&& other) {
  std::thread second(other);
  one();
  second.join();
}

const std::vector<std::byte> blank(5, std::byte{0xee});

}  // namespace

TEST_CASE("two messages of different lengths cross") {
  mailbox box;
  rendezvous world(2, ample);
  std::vector<std::byte> low = message(3, 10), high = message(5000, 70), in_low(5000), in_high(3);
  outcome a, b;
  both([&] { a = exchange(box, side::lower, low, in_low, world); },
       [&] { b = exchange(box, side::higher, high, in_high, world); });
  CHECK(a.came);
  CHECK(b.came);
  CHECK(a.offered == 5000);
  CHECK(b.offered == 3);
  CHECK(in_low == high);
  CHECK(in_high == low);
}

TEST_CASE("a message goes one way, whichever that is, and its sender waits until it is taken") {
  for (const side sender : {side::lower, side::higher}) {
    mailbox box;
    rendezvous world(2, ample);
    std::vector<std::byte> out = message(7, 1), in(7), nothing;
    std::atomic<bool> taking = false;
    bool taken_first = false;
    outcome a, b;
    both(
        [&] {
          a = exchange(box, sender, out, nothing, world);
          taken_first = taking;
        },
        [&] {
          std::this_thread::sleep_for(20ms);
          taking = true;
          b = exchange(box, sender == side::lower ? side::higher : side::lower, nothing, in, world);
        });
    CHECK(a.came);
    CHECK(b.came);
    CHECK(taken_first);
    CHECK(b.offered == 7);
    CHECK(in == out);
  }
}

TEST_CASE("who neither sends nor receives waits for nobody") {
  mailbox box;
  rendezvous world(2, ample);
  std::vector<std::byte> nothing;
  const outcome alone = exchange(box, side::lower, nothing, nothing, world);
  CHECK(alone.came);
  CHECK(alone.took < at_once);
}

TEST_CASE("who sends nothing leaves no letter behind") {
  mailbox box;
  rendezvous world(2, ample);
  std::vector<std::byte> nothing, out = message(5, 1), in = blank;
  CHECK(exchange(box, side::lower, nothing, nothing, world).came);
  outcome a, b;
  both(
      [&] {
        std::this_thread::sleep_for(50ms);
        a = exchange(box, side::lower, out, nothing, world);
      },
      [&] { b = exchange(box, side::higher, nothing, in, world); });
  CHECK(a.came);
  CHECK(b.came);
  CHECK(b.offered == 5);
  CHECK(in == out);
}

TEST_CASE("a message of another length is taken, told and not copied") {
  for (const std::size_t length : {4u, 6u}) {
    mailbox box;
    rendezvous world(2, ample);
    std::vector<std::byte> out = message(length, 1), in = blank, nothing;
    outcome a, b;
    both([&] { a = exchange(box, side::lower, out, nothing, world); },
         [&] { b = exchange(box, side::higher, nothing, in, world); });
    CHECK(a.came);
    CHECK(b.came);
    CHECK(b.offered == static_cast<bytes_t>(length));
    CHECK(in == blank);
  }
}

TEST_CASE("messages keep their order, and every one is taken once") {
  mailbox box;
  rendezvous world(2, ample);
  const auto play = [&](side mine, int out_first, int in_first, int& wrong) {
    for (int i = 0; i < 500; ++i) {
      std::vector<std::byte> out = message(static_cast<std::size_t>(1 + i % 9), out_first + i),
                             in(static_cast<std::size_t>(1 + i % 9)), nothing;
      const bool sends = mine == side::lower || i % 3 != 0,
                 receives = mine == side::higher || i % 3 != 0;  // every third one way
      const outcome o = exchange(box, mine, sends ? out : nothing, receives ? in : nothing, world);
      wrong += o.came && (!receives || in == message(in.size(), in_first + i)) ? 0 : 1;
      if (!o.came) return;
    }
  };
  int wrong_low = 0, wrong_high = 0;
  both([&] { play(side::lower, 3, 90, wrong_low); }, [&] { play(side::higher, 90, 3, wrong_high); });
  CHECK(wrong_low == 0);
  CHECK(wrong_high == 0);
}

TEST_CASE("who waits in vain is told so when its patience ends, and nobody hears itself") {
  for (const side mine : {side::lower, side::higher})
    for (const auto& [sends, receives] : {std::pair(true, false), std::pair(false, true), std::pair(true, true)}) {
      mailbox box;
      rendezvous world(2, soon);
      std::vector<std::byte> out = message(5, 1), in = blank, nothing;
      const outcome alone = exchange(box, mine, sends ? out : nothing, receives ? in : nothing, world);
      CHECK_FALSE(alone.came);
      CHECK(alone.took >= soon);
      CHECK(alone.took < soon + at_once);
      CHECK(in == blank);
      CHECK_FALSE(world.broken());  // that is for the caller to do
    }
}

TEST_CASE("a letter whose sender gave up is taken back: nobody reads its memory later, and the box goes on") {
  for (const bool also_receives : {false, true}) {
    mailbox box;
    rendezvous hasty(2, soon), whole(2, ample);
    std::vector<std::byte> gone = message(5, 1), in = blank, nothing;
    CHECK_FALSE(exchange(box, side::lower, gone, also_receives ? in : nothing, hasty).came);
    std::fill(gone.begin(), gone.end(), std::byte{0xdd});  // and, in earnest, freed
    std::vector<std::byte>().swap(gone);
    const outcome late = exchange(box, side::higher, nothing, in, hasty);
    CHECK_FALSE(late.came);
    CHECK(late.offered == 5);  // what it asked for, as nothing came
    CHECK(in == blank);

    std::vector<std::byte> again = message(5, 40);
    outcome a, b;
    both([&] { a = exchange(box, side::lower, again, nothing, whole); },
         [&] { b = exchange(box, side::higher, nothing, in, whole); });
    CHECK(a.came);
    CHECK(b.came);
    CHECK(in == again);
  }
}

TEST_CASE("a world that breaks ends the wait, and takes the letter back") {
  for (const bool also_receives : {false, true}) {
    mailbox box;
    rendezvous world(3, ample), hasty(2, soon);
    world.on_break([&] { box.wake(); });
    std::vector<std::byte> out = message(5, 1), in = blank, nothing;
    outcome a;
    both([&] { a = exchange(box, side::lower, out, also_receives ? in : nothing, world); },
         [&] {
           std::this_thread::sleep_for(30ms);
           world.leave(2, "the third has had enough");
         });
    CHECK_FALSE(a.came);
    CHECK(a.took < at_once);
    CHECK_FALSE(exchange(box, side::higher, nothing, in, hasty).came);
    CHECK(in == blank);
  }
}

TEST_CASE("in a broken world nothing is handed over, and nobody waits") {
  mailbox box;
  rendezvous broken(2, ample), hasty(2, soon);
  broken.leave(1, "gone");
  std::vector<std::byte> out = message(5, 1), in = blank, nothing;
  const outcome first = exchange(box, side::lower, out, in, broken);
  CHECK_FALSE(first.came);
  CHECK(first.took < at_once);
  CHECK_FALSE(exchange(box, side::higher, nothing, in, hasty).came);  // no letter lies there
  CHECK_FALSE(exchange(box, side::lower, nothing, nothing, broken).came);
  CHECK(in == blank);

  outcome sender, reader;  // and a letter that lies there is left to whoever may take it
  rendezvous whole(2, ample);
  both([&] { sender = exchange(box, side::lower, out, nothing, whole); },
       [&] {
         std::this_thread::sleep_for(20ms);
         CHECK_FALSE(exchange(box, side::higher, nothing, in, broken).came);
         CHECK(in == blank);
         reader = exchange(box, side::higher, nothing, in, whole);
       });
  CHECK(sender.came);
  CHECK(reader.came);
  CHECK(in == out);
}

TEST_CASE("a message that came is there although the other direction fails") {
  mailbox box;
  rendezvous whole(2, ample), hasty(2, 2s);
  std::vector<std::byte> out = message(5, 1), unread = message(5, 60), in(5), nothing;
  outcome a, b;
  both([&] { a = exchange(box, side::lower, out, nothing, whole); },
       [&] { b = exchange(box, side::higher, unread, in, hasty); });
  CHECK(a.came);  // its letter was taken
  CHECK(in == out);
  CHECK_FALSE(b.came);  // nobody takes its own
}
