// SPDX-License-Identifier: Apache-2.0
// Checks of messages: the sum finds every bit that changes, in any order of evaluation; and over a wire that changes,
// cuts, swaps, repeats or replays a message all of that is found, its source, stage and receiver are named by every
// device, and what it was meant for is as before. Without checks the same wire goes unnoticed.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <reshard/memory/rank_storage.hpp>
#include <reshard/switch/prepared_switch.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/testing/known_values.hpp>
#include <reshard/transport/exchange.hpp>
#include <reshard/transport/mailbox_group.hpp>
#include <reshard/transport/threads/rendezvous.hpp>

#include "../support/dice.hpp"
#include "../support/faulty_wire.hpp"
#include "../support/tiny.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::faulty_wire, testing::wire_fault;

namespace {

using kind = wire_fault::kind;
constexpr rank_t devices = 4;
constexpr known_values as_before{77}, second_run{78};

/// What one device saw of a switch over a faulty wire.
struct seen_by_device {
  std::string sentence = "finished";
  std::vector<faulty_wire::posted> sent, received;
  bytes_t wrong = 0, sources_wrong = 0;
  std::optional<binding> meant;  // what the refused message was meant for, where this device refused one
  bytes_t written = 0;           // elements of that which are not as before
};

/// Who refused what from whom: "device 2 refuses what came from device 1 in stage 3", or a wire's own words.
struct refused_message {
  long device = -1, source = -1, stage = -1;

  refused_message(long by, long from, long in) : device(by), source(from), stage(in) {}
  friend bool operator==(const refused_message&, const refused_message&) = default;

  explicit refused_message(const std::string& sentence) {
    long bytes = 0;
    if (std::sscanf(sentence.c_str(), "reshard: device %ld refuses what came from device %ld in stage %ld", &device,
                    &source, &stage) == 3)
      return;
    if (std::sscanf(sentence.c_str(), "reshard: device %ld expects %ld bytes from device %ld in stage %ld", &device,
                    &bytes, &source, &stage) != 4)
      device = source = stage = -1;
  }
};

/// The switch on every device, a thread each, over a wire with a fault, run so many times.
std::vector<seen_by_device> switch_over(const computed_switch& change, const wire_fault& fault, exchange_as how,
                                        bool checks, int runs) {
  rendezvous all(devices, std::chrono::seconds(20));
  std::deque<mailbox> boxes(devices);
  all.on_break([&] {
    for (mailbox& box : boxes) box.wake();
  });
  std::vector<seen_by_device> seen(devices);
  std::vector<std::thread> running;
  for (rank_t d = 0; d < devices; ++d)
    running.emplace_back([&, d] {
      seen_by_device& mine = seen[static_cast<std::size_t>(d)];
      meeting_of_threads meeting(all, d);
      faulty_wire wire(boxes, d, fault);
      exchange here(meeting, wire, how);
      rank_storage before(change.from(), d, "before"), after(change.to(), d, "after", pages_are::committed);
      index_t stages = 0;
      known_values values;
      try {
        prepared_switch ready(change, before.tensors(), after.tensors(), here, {.budget = 1_MiB, .checks = checks});
        stages = ready.report().stages;
        for (int run = 0; run < runs; ++run) {
          values = run == 0 ? known_values{} : second_run;
          fill(before.tensors(), change.from(), values);
          fill(after.tensors(), change.to(), as_before);
          ready.run();
        }
      } catch (const std::exception& e) {
        mine.sentence = e.what();
      }
      mine.sent = wire.sent, mine.received = wire.received;
      mine.wrong = compare(after.tensors(), change.to(), values).wrong;
      mine.sources_wrong = compare(before.tensors(), change.from(), values).wrong;
      const refused_message told(mine.sentence);
      if (told.device != d || how == exchange_as::naive || stages == 0) return;
      binding meant("meant");
      const staged_plan plan = stage_plan(make_plan(change, d), change, stages);
      for (const staged_piece& p : pieces_of_slot(plan.receives, told.stage))
        for (const int state : p.states)
          if (p.src == told.source)
            after.tensors().meet({state, p.tensor, p.where}, [&](const bound_box& b) { meant.add(b); });
      meant.seal();
      const comparison found = compare(meant, change.to(), as_before);
      mine.written = found.elements > 0 ? found.wrong : -1;
    });
  for (std::thread& t : running) t.join();
  return seen;
}

/// A fault of a kind that a check can find, in a switch whose messages are these; nothing where there is none.
std::optional<wire_fault> some_fault(kind is, const std::vector<seen_by_device>& usual, exchange_as how,
                                     testing::dice& random) {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    wire_fault f{.is = is, .device = random.below(devices)};
    const seen_by_device& of = usual[static_cast<std::size_t>(f.device)];
    const auto& list = is == kind::cut ? of.received : of.sent;
    if (list.empty()) continue;
    f.number = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(list.size())));
    f.at = random.below(list[f.number].bytes);
    if (is == kind::changed) f.at = 8 * f.at + random.below(8);
    if (is == kind::changed || is == kind::cut) return f;
    if (is == kind::replayed) f.other = f.number + list.size();  // the same one, a run later
    if (is == kind::replayed) return f;
    for (std::size_t i = f.number + 1; i < list.size(); ++i) {
      const auto &a = list[f.number], &b = list[i];
      const bool to_it_again = a.peer == b.peer && b.stage <= a.stage + 1;
      f.other = i;
      if (is == kind::twice && a.peer == b.peer) return f;
      // both must be posted before either is waited for; those of one length can be found by nothing but the check
      const bool together = how == exchange_as::asynchronous ? b.stage == a.stage || to_it_again
                                                             : how == exchange_as::buffered && a.stage == b.stage;
      if (is == kind::swapped && together && (a.bytes == b.bytes || attempt > 100)) return f;
    }
  }
  return std::nullopt;
}

/// Who may refuse what, of a fault in the messages of a device: of two that changed places either may come first.
std::vector<refused_message> refusals_of(const wire_fault& f, const seen_by_device& usual) {
  if (f.is == kind::cut) {
    const faulty_wire::posted& came = usual.received[f.number];
    return {{f.device, came.peer, came.stage}};
  }
  const faulty_wire::posted& one = usual.sent[f.number];
  if (f.is == kind::swapped) {
    const faulty_wire::posted& other = usual.sent[f.other];
    return {{one.peer, f.device, one.stage}, {other.peer, f.device, other.stage}};
  }
  if (f.is != kind::twice) return {{one.peer, f.device, one.stage}};
  for (std::size_t i = f.number + 1; i < usual.sent.size(); ++i)  // in the place of the next one to it
    if (usual.sent[i].peer == one.peer) return {{one.peer, f.device, usual.sent[i].stage}};
  return {};
}

}  // namespace

TEST_CASE("the trailer by hand: one bit of anything is noticed, words may be added in any order") {
  static_assert(mix_word(0, 0) == 0xE220A8397B1DCDAFu);  // splitmix64's first number from 0
  static_assert(mix_word(0, 1) == 0x6E789E6AA1B965F4u);  // and its second
  testing::dice random(2);
  for (const bytes_t bytes : {512, 1024, 5120}) {
    std::vector<std::byte> memory(static_cast<std::size_t>(bytes));
    for (std::byte& b : memory) b = static_cast<std::byte>(random.below(256));
    const message m{0, 0, memory.data(), bytes};
    seal_message(m, 42);
    CHECK(check_message(m, 42) == message_is::right);
    CHECK(check_message(m, 43) == message_is::another);
    std::uint64_t backwards = 0;
    for (bytes_t i = bytes / 8 - 3; i >= 0; --i) {
      std::uint64_t word = 0;
      std::memcpy(&word, memory.data() + 8 * i, 8);
      backwards += mix_word(word, static_cast<std::uint64_t>(i));
    }
    CHECK(backwards == sum_of_words(memory.data(), bytes));
    for (bytes_t bit = 0; bit < 8 * bytes; ++bit) {
      std::byte& b = memory[static_cast<std::size_t>(bit / 8)];
      b ^= std::byte{1} << (bit % 8);
      if (check_message(m, 42) == message_is::right) FAIL("bit ", bit);
      b ^= std::byte{1} << (bit % 8);
    }
    CHECK(check_message(m, 42) == message_is::right);
    for (bytes_t i = 0; i + 1 < bytes / 8 - 2; ++i) {  // two words that change places
      std::swap_ranges(memory.begin() + 8 * i, memory.begin() + 8 * i + 8, memory.begin() + 8 * i + 8);
      if (check_message(m, 42) == message_is::right) FAIL("words ", i);
      std::swap_ranges(memory.begin() + 8 * i, memory.begin() + 8 * i + 8, memory.begin() + 8 * i + 8);
    }
  }
}

namespace {
/// How often each fault is tried.
int tries_of(exchange_as how) { return (how == exchange_as::naive ? 10 : 20) / (testing::few() ? 4 : 1); }
}  // namespace

TEST_CASE("whatever a wire does to one message is found before anything of it is unpacked, and named on every device") {
  const computed_switch change = testing::tiny_switch(4, "tp=2,pp=2,zero=1", "dp=4,zero=1");
  testing::dice random(3);
  std::map<std::pair<int, int>, int> tried;
  int found = 0, faults = 0, by_the_check = 0;
  for (const exchange_as how : {exchange_as::asynchronous, exchange_as::buffered, exchange_as::naive}) {
    const std::vector<seen_by_device> usual = switch_over(change, {}, how, true, 1);
    for (const seen_by_device& of : usual) {
      REQUIRE(of.sentence == "finished");
      REQUIRE(of.wrong == 0);
    }
    const int tries = tries_of(how);
    for (const kind is : {kind::changed, kind::cut, kind::swapped, kind::twice, kind::replayed})
      for (int i = 0; i < tries; ++i) {
        const std::optional<wire_fault> fault = some_fault(is, usual, how, random);
        if (!fault) break;  // naively, no two messages are on their way at once
        ++faults, ++tried[{static_cast<int>(how), static_cast<int>(is)}];
        CAPTURE(static_cast<int>(how));
        CAPTURE(static_cast<int>(is));
        CAPTURE(fault->device);
        CAPTURE(fault->number);
        CAPTURE(fault->other);
        CAPTURE(fault->at);
        const auto seen = switch_over(change, *fault, how, true, is == kind::replayed ? 2 : 1);
        const std::vector<refused_message> may_be = refusals_of(*fault, usual[static_cast<std::size_t>(fault->device)]);
        bool all_right = true;
        for (const seen_by_device& d : seen) {
          CAPTURE(d.sentence);
          const refused_message told(d.sentence);
          const bool named = std::find(may_be.begin(), may_be.end(), told) != may_be.end();
          CHECK(named);
          CHECK(d.sources_wrong == 0);
          CHECK(d.written == 0);
          all_right = all_right && named;
          if (d.sentence.find("refuses what came") == d.sentence.npos) continue;
          ++by_the_check;
          const seen_by_device& sender =
              usual[static_cast<std::size_t>(fault->device)];  // of what is cut, the receiver
          if (is == kind::changed && fault->at >= 8 * (sender.sent.at(fault->number).bytes - trailer_bytes))
            continue;  // of what the trailer says
          const bool whole = is != kind::changed && is != kind::cut;
          CHECK(d.sentence.ends_with(whole ? ": it is another message, or the same one twice"
                                           : ": its bytes are not those that were packed"));
        }
        found += all_right ? 1 : 0;
      }
  }
  CHECK(found == faults);
  CHECK(faults >= 10 * tries_of(exchange_as::buffered) + 4 * tries_of(exchange_as::naive));
  CHECK_DRAWN(by_the_check > 3 * faults);  // of 4 devices each
  CHECK(tried.size() >= 14);
  MESSAGE(found, " of ", faults, " faults found");
}

TEST_CASE("without checks the same faults go unnoticed: they are real") {
  const computed_switch change = testing::tiny_switch(4, "tp=2,pp=2,zero=1", "dp=4,zero=1");
  testing::dice random(4);
  const std::vector<seen_by_device> usual = switch_over(change, {}, exchange_as::asynchronous, false, 1);
  int unnoticed = 0;
  for (int i = 0; i < 10 || (unnoticed == 0 && i < 200); ++i) {  // but for bits between pieces
    const auto fault = some_fault(kind::changed, usual, exchange_as::asynchronous, random);
    bytes_t wrong = 0;
    for (const seen_by_device& d : switch_over(change, *fault, exchange_as::asynchronous, false, 1)) {
      CHECK(d.sentence == "finished");
      wrong += d.wrong;
    }
    CHECK(wrong <= 1);
    unnoticed += wrong > 0 ? 1 : 0;
  }
  CHECK(unnoticed > 0);
}

TEST_CASE("one device that checks and others that do not are named, and no message is longer than it must be") {
  const computed_switch change = testing::tiny_switch(4, "tp=2,pp=2,zero=1", "dp=4,zero=1");
  mailbox_group world(devices, std::chrono::seconds(20));
  world.run([&](auto& here) {
    rank_storage before(change.from(), here.device(), "before"), after(change.to(), here.device(), "after");
    fill(before.tensors(), change.from());
    std::string sentence;
    try {
      switch_state(change, before.tensors(), after.tensors(), here, {.checks = here.device() == 2});
    } catch (const std::exception& e) {
      sentence = e.what();
    }
    if (sentence.find("device 2 and device ") == sentence.npos) throw std::runtime_error("not named: " + sentence);
    const switch_report report = switch_state(change, before.tensors(), after.tensors(), here, {.checks = true});
    if (compare(after.tensors(), change.to()).wrong != 0 || report.received == 0) throw std::runtime_error("wrong");
  });
  const staged_piece whole{0, 0, 1, only(1), {0, 0, 0}, {{{0, 1}, {0, 1}, {0, 128}}}};
  CHECK(message_bytes({&whole, &whole + 1}) == 512);
  CHECK(message_bytes({&whole, &whole + 1}, trailer_bytes) == 1024);
  const staged_piece less{0, 0, 1, only(1), {0, 0, 0}, {{{0, 1}, {0, 1}, {0, 124}}}};
  CHECK(message_bytes({&less, &less + 1}, trailer_bytes) == 512);  // 496 and 16
}
