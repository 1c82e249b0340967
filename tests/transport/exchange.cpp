// SPDX-License-Identifier: Apache-2.0
// The exchange over a wire that the test holds in its hands: messages arrive when it says, in any order, and the memory
// of a message is looked at while it is on its way. What is packed when, what is confirmed when, and that the wire is
// polled between copies.
#include <doctest/doctest.h>

#include <cstring>
#include <list>
#include <map>
#include <string>
#include <vector>

#include <sys/mman.h>

#include <reshard/memory/rank_storage.hpp>
#include <reshard/switch/prepared_switch.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/testing/known_values.hpp>
#include <reshard/transport/exchange.hpp>
#include <reshard/transport/threads/rendezvous.hpp>

#include "../support/dice.hpp"
#include "../support/switches.hpp"
#include "../support/tiny.hpp"

using namespace reshard;

namespace {

constexpr patience soon = std::chrono::seconds(20);

/// What all wires of a test share: messages on their way, each with a copy of what it was when it was sent.
struct air {
  struct flying {
    rank_t from;
    message* sent;
    std::vector<std::byte> as_sent;
  };
  std::mutex mutex;
  std::map<rank_t, std::vector<flying>> to;
  std::atomic<index_t> polls = 0, changed_in_flight = 0, late = 0;
};

/// A wire that holds every message back for some polls of its receiver.
class slow_wire {
 public:
  slow_wire(air& all, rank_t device, index_t holds)
      : all_(&all), device_(device), holds_(holds), random_(static_cast<std::uint64_t>(device) + 1) {}
  ~slow_wire() { stop(); }
  void connect(const std::vector<rank_t>&) {}
  std::vector<rank_t> unconnected() const { return {}; }
  void send(message& m) {
    m.done = false;
    const std::lock_guard lock(all_->mutex);
    all_->to[m.peer].push_back({device_, &m, {m.data, m.data + m.bytes}});
    sent_.push_back(&m);
  }
  void receive(message& m) {
    m.done = false;
    wanted_.push_back(&m);
  }
  void poll(std::chrono::microseconds at_most) {
    ++all_->polls;
    if (at_most.count() > 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    const std::lock_guard lock(all_->mutex);
    for (message* m : std::vector<message*>(sent_)) {
      bool flies = false;
      for (const auto& [peer, letters] : all_->to)
        for (const air::flying& f : letters) flies = flies || f.sent == m;
      if (!flies) m->done = true, std::erase(sent_, m);
    }
    if (random_.below(holds_ + 1) != 0) return;
    auto& letters = all_->to[device_];
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      message& want = *wanted_[i];
      const auto at =
          std::find_if(letters.begin(), letters.end(), [&](const air::flying& f) { return f.from == want.peer; });
      if (at == letters.end()) continue;
      CHECK(at->as_sent.size() == static_cast<std::size_t>(want.bytes));
      if (std::memcmp(at->as_sent.data(), at->sent->data, at->as_sent.size()) != 0) ++all_->changed_in_flight;
      std::memcpy(want.data, at->sent->data, at->as_sent.size());
      want.done = true;
      letters.erase(at);
      wanted_.erase(wanted_.begin() + static_cast<std::ptrdiff_t>(i));
      return;  // one at a time
    }
  }
  void stop() {
    const std::lock_guard lock(all_->mutex);
    for (auto& [peer, letters] : all_->to)
      std::erase_if(letters, [this](const air::flying& f) { return f.from == device_; });
    all_->late += static_cast<index_t>(sent_.size());
    sent_.clear(), wanted_.clear();
  }

 private:
  air* all_;
  rank_t device_;
  index_t holds_;
  testing::dice random_;
  std::vector<message*> wanted_, sent_;
};

/// A meeting that looks at a device's targets when it confirms.
struct watching_meeting : meeting_of_threads {
  using meeting_of_threads::meeting_of_threads;
  std::function<void(index_t)> on_confirm = [](index_t) {};
  void confirm(index_t stages) {
    on_confirm(stages);
    meeting_of_threads::confirm(stages);
  }
};

computed_switch change_of(const char* from, const char* to) { return testing::tiny_switch(4, from, to); }

template <typename Body>
void on_threads(rank_t devices, Body&& body) {
  std::vector<std::thread> running;
  for (rank_t d = 0; d < devices; ++d) running.emplace_back(body, d);
  for (std::thread& t : running) t.join();
}

}  // namespace

TEST_CASE("whatever the wire holds back: all is in place when it is confirmed, and no arena is written in flight") {
  for (const auto& kind :
       {std::pair(exchange_as::asynchronous, usual_round_bytes), std::pair(exchange_as::asynchronous, bytes_t{4608}),
        std::pair(exchange_as::buffered, usual_round_bytes), std::pair(exchange_as::buffered, least_round_bytes),
        std::pair(exchange_as::naive, usual_round_bytes)})
    for (const index_t holds : {0, 3, 12}) {
      const exchange_as how = kind.first;
      const bytes_t round_bytes = kind.second;
      CAPTURE(static_cast<int>(how));
      CAPTURE(round_bytes);
      CAPTURE(holds);
      const computed_switch change = change_of("tp=2,pp=2,zero=1", "dp=4,zero=1");
      rendezvous all(4, soon);
      air between;
      std::atomic<index_t> wrong = 0, early = 0, confirmations = 0;
      on_threads(4, [&](rank_t d) {
        watching_meeting meeting(all, d);
        slow_wire wire(between, d, holds);
        exchange here(meeting, wire, how, round_bytes);
        rank_storage before(change.from(), change.from_rank(d), "before"),
            after(change.to(), change.to_rank(d), "after");
        fill(before.tensors(), change.from());
        staged_plan plan;
        switch_options options{.route = {.stages = 9}};
        prepared_switch twice(change, before.tensors(), after.tensors(), here, options);
        const index_t stages = twice.report().stages;
        plan = stage_plan(make_plan(change, d), change, stages);
        for (int run = 0; run < 2; ++run) {
          meeting.on_confirm = [&](index_t count) {
            ++confirmations;
            const index_t k = count - run * stages - 1;  // stages of earlier runs count too
            if (k < 0 || k >= stages) ++early;
            binding part("part");
            for (const staged_piece& p : pieces_of_slot(plan.receives, k))
              for (const int state : all_states)
                if (p.states.contains(state))
                  after.tensors().meet({state, p.tensor, p.where}, [&](const bound_box& b) { part.add(b); });
            part.seal();
            early += compare(part, change.to(), known_values{static_cast<std::uint64_t>(run + 1)}).wrong;
          };
          fill(before.tensors(), change.from(), known_values{static_cast<std::uint64_t>(run + 1)});
          twice.run();
          wrong += compare(after.tensors(), change.to(), known_values{static_cast<std::uint64_t>(run + 1)}).wrong;
          if (stages < 2) ++wrong;
        }
        here.all_reduce_max(0);
      });
      CHECK(wrong == 0);
      CHECK(early == 0);
      CHECK(confirmations > 8);
      CHECK(between.changed_in_flight == 0);
      CHECK(between.late == 0);  // nobody left with a message on its way
    }
}

TEST_CASE("to keep alive is to look at the wire") {
  rendezvous all(1, soon);
  air between;
  meeting_of_threads meeting(all, 0);
  slow_wire wire(between, 0, 0);
  exchange here(meeting, wire, exchange_as::buffered);
  here.keep_alive();
  CHECK(between.polls == 1);
}

TEST_CASE("between two copies the wire is polled") {
  const computed_switch change = change_of("dp=2", "dp=2");  // all is retained
  rendezvous all(2, soon);
  air between;
  std::atomic<index_t> fewest = 1 << 20;
  on_threads(2, [&](rank_t d) {
    meeting_of_threads meeting(all, d);
    slow_wire wire(between, d, 0);
    exchange here(meeting, wire, exchange_as::buffered);
    rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
    page_stages pages(after.tensors(), binding_side::target);
    here.offer(before.tensors());
    const staged_plan plan = stage_plan(make_plan(change, d), change, 1);
    exchange_moves moves = here.prepare(plan, after.tensors(), pages);
    here.all_reduce_max(0);
    const index_t polls = between.polls;
    here.move(moves, 0);
    if (between.polls - polls < static_cast<index_t>(moves.retain.size())) fewest = 0;
    here.all_reduce_max(0);
  });
  CHECK(fewest > 0);
}

TEST_CASE("ends that exchange in two ways, or in rounds of two lengths, are refused before anything is touched") {
  struct way {
    exchange_as how;
    bytes_t round_bytes;
  };
  const way usual{exchange_as::asynchronous, 8192};
  for (const way& other : {way{exchange_as::buffered, 8192}, way{exchange_as::asynchronous, 8704},
                           way{exchange_as::asynchronous, usual_round_bytes}, usual}) {
    const bool alike = other.how == usual.how && other.round_bytes == usual.round_bytes;
    const computed_switch change = change_of("pp=2", "tp=2");
    rendezvous all(2, soon);
    air between;
    std::atomic<int> refused = 0;
    std::atomic<index_t> wrong = 0;
    on_threads(2, [&](rank_t d) {
      meeting_of_threads meeting(all, d);
      slow_wire wire(between, d, 0);
      const way& mine = d == 0 ? usual : other;
      exchange here(meeting, wire, mine.how, mine.round_bytes);
      rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
      fill(before.tensors(), change.from());
      try {
        switch_state(change, before.tensors(), after.tensors(), here);
        wrong += compare(after.tensors(), change.to()).wrong;
      } catch (const refusal& e) {
        if (std::string(e.what()).find("device 0 and device 1 differ in what they will exchange") != std::string::npos)
          ++refused;
        wrong += compare(before.tensors(), change.from()).wrong + after.resident_bytes();
      }
      here.all_reduce_max(0);  // the world goes on
    });
    CHECK(refused == (alike ? 0 : 2));
    CHECK(wrong == 0);
  }
}

namespace {
/// A wire that is connected once it was polled so often.
struct late_wire {
  slow_wire inner;
  int polls = 0;
  std::vector<rank_t> awaited = {};
  void connect(const std::vector<rank_t>& peers) { awaited = peers; }
  std::vector<rank_t> unconnected() const { return polls > 0 ? awaited : std::vector<rank_t>{}; }
  void send(message& m) {
    CHECK(unconnected().empty());
    inner.send(m);
  }
  void receive(message& m) { inner.receive(m); }
  void poll(std::chrono::microseconds at_most) {
    if (polls > 0 && polls < 1000) --polls;
    inner.poll(at_most);
  }
  void stop() { inner.stop(); }
};
}  // namespace

TEST_CASE("connections that are begun are waited for before anything moves, and no longer than the patience") {
  const computed_switch change = change_of("pp=2", "tp=2");
  for (const bool ever : {true, false}) {
    rendezvous all(2, ever ? soon : std::chrono::milliseconds(200));
    air between;
    std::vector<std::string> said(2);
    std::atomic<index_t> wrong = 0;
    on_threads(2, [&](rank_t d) {
      meeting_of_threads meeting(all, d);
      late_wire wire{slow_wire(between, d, 0), ever ? 5 : 1000};
      exchange here(meeting, wire, exchange_as::asynchronous);
      here.begin_connections({1 - d});
      wrong += here.unconnected() == std::vector<rank_t>{1 - d} ? 0 : 1;
      CHECK_REFUSED(here.begin_connections({-1}), "reshard: there is no device -1 among 2 to connect with");
      CHECK_REFUSED(here.begin_connections({2}), "reshard: there is no device 2 among 2 to connect with");
      CHECK_REFUSED(here.begin_connections({d}),
                    "reshard: device " + std::to_string(d) + " needs no connection with itself");
      if (!ever) {
        try {
          here.connect_with({1 - d});
        } catch (const std::exception& e) {
          said[static_cast<std::size_t>(d)] = e.what();
        }
        return;
      }
      rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
      fill(before.tensors(), change.from());
      switch_state(change, before.tensors(), after.tensors(), here);
      wrong += compare(after.tensors(), change.to()).wrong;
    });
    CHECK(wrong == 0);
    CHECK(between.changed_in_flight == 0);
    const std::string vain = "reshard: device 0 waited 200 ms in vain for connections with these devices: 1",
                      vain_too = "reshard: device 1 waited 200 ms in vain for connections with these devices: 0";
    if (ever) CHECK(said == std::vector<std::string>(2));
    else CHECK((said[0] == vain || said[1] == vain_too));
  }
}

namespace {
/// A wire that moves only while somebody waits for it.
struct lazy_wire {
  slow_wire inner;
  void connect(const std::vector<rank_t>&) {}
  std::vector<rank_t> unconnected() const { return {}; }
  void send(message& m) { inner.send(m); }
  void receive(message& m) { inner.receive(m); }
  void poll(std::chrono::microseconds at_most) {
    if (at_most.count() > 0) inner.poll(at_most);
  }
  void stop() { inner.stop(); }
};
}  // namespace

TEST_CASE("when a slot ends the last round of its stage is on its way, and those before it are in place") {
  const computed_switch change = change_of("pp=2", "tp=2");
  rendezvous all(2, soon);
  air between;
  std::atomic<index_t> wrong = 0, rounds = 0, on_their_way = 0, of_last = 0;
  on_threads(2, [&](rank_t d) {
    meeting_of_threads meeting(all, d);
    lazy_wire wire{slow_wire(between, d, 0)};
    exchange here(meeting, wire, exchange_as::asynchronous, least_round_bytes);
    rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
    fill(before.tensors(), change.from());
    page_stages pages(after.tensors(), binding_side::target);
    here.offer(before.tensors());
    const staged_plan plan = stage_plan(make_plan(change, d), change, 3);
    exchange_moves moves = here.prepare(plan, after.tensors(), pages);
    here.all_reduce_max(0);
    for (index_t slot = 0; slot < 3 + 1; ++slot) {
      here.move(moves, slot);
      if (slot == 3) break;
      const std::size_t last = moves.first_round(slot + 1) - 1;
      rounds += moves.first_round(slot + 1) - moves.first_round(slot) > 1 ? 1 : 0;
      for (std::size_t r = moves.first_round(slot); r <= last; ++r)
        for (std::size_t i = moves.rounds[r].in_begin; i < moves.rounds[r].in_end; ++i) {
          if (r < last && !moves.in[i].done) ++wrong;
          if (r == last) ++of_last, on_their_way += moves.in[i].done ? 0 : 1;
        }
    }
    here.await(2);
    wrong += compare(after.tensors(), change.to()).wrong;
    here.all_reduce_max(0);
  });
  CHECK(wrong == 0);
  CHECK(rounds == 2 * 3);
  CHECK(on_their_way == of_last);
  CHECK(of_last >= 3);
}

namespace {
/// A wire that tells of what is sent before it sends it.
struct telling_wire {
  slow_wire inner;
  std::function<void(const message&)> on_send = {};
  void connect(const std::vector<rank_t>&) {}
  std::vector<rank_t> unconnected() const { return {}; }
  void send(message& m) {
    on_send(m);
    inner.send(m);
  }
  void receive(message& m) { inner.receive(m); }
  void poll(std::chrono::microseconds at_most) { inner.poll(at_most); }
  void stop() { inner.stop(); }
};
}  // namespace

TEST_CASE("what a stage retains is copied between its rounds, some of it after each") {
  const computed_switch change = change_of("tp=2", "dp=2");
  for (const exchange_as how : {exchange_as::asynchronous, exchange_as::buffered}) {
    rendezvous all(2, soon);
    air between;
    std::atomic<index_t> wrong = 0;
    on_threads(2, [&](rank_t d) {
      meeting_of_threads meeting(all, d);
      telling_wire wire{slow_wire(between, d, 0)};
      exchange here(meeting, wire, how, least_round_bytes);
      rank_storage before(change.from(), d, "before"), after(change.to(), d, "after", pages_are::committed);
      fill(before.tensors(), change.from());
      page_stages pages(after.tensors(), binding_side::target);
      here.offer(before.tensors());
      const staged_plan plan = stage_plan(make_plan(change, d), change, 1);
      binding stays("stays");
      for (const staged_piece& p : plan.retains)
        for (const int state : p.states)
          after.tensors().meet({state, p.tensor, p.where}, [&](const bound_box& b) { stays.add(b); });
      stays.seal();
      std::vector<double> there;  // of it, by the round that is sent next
      wire.on_send = [&](const message&) {
        const comparison found = compare(stays, change.to());
        there.push_back(1 - static_cast<double>(found.wrong) / static_cast<double>(found.elements));
      };
      exchange_moves moves = here.prepare(plan, after.tensors(), pages);
      here.all_reduce_max(0);
      for (index_t slot = 0; slot < 1 + here.facts().lag; ++slot) here.move(moves, slot);
      here.await(0);
      wrong += compare(after.tensors(), change.to()).wrong;
      const std::size_t rounds = there.size();  // one message each
      wrong += rounds > 20 && there[0] < 0.05 && there[rounds - 1] < 1 ? 0 : 1;
      for (const std::size_t quarter : {1u, 2u, 3u}) {
        const double part = there[quarter * rounds / 4];
        wrong += part > there[(quarter - 1) * rounds / 4] && part < there[rounds - 1] ? 0 : 1;
      }
      here.all_reduce_max(0);
    });
    CHECK(wrong == 0);
  }
}

namespace {

/// A matrix of 4-byte elements, dealt to devices by its rows or by its columns.
struct matrix {
  index_t rows, columns;
  shard_list by(int axis, rank_t ranks) const {
    std::vector<shard> list;
    for (rank_t r = 0; r < ranks; ++r) {
      const interval part = even_part({0, axis == 0 ? rows : columns}, r, ranks);
      if (axis == 0) list.push_back({r, "matrix", fp32, {rows, columns}, {part.begin, 0}, {part.size(), columns}});
      else list.push_back({r, "matrix", fp32, {rows, columns}, {0, part.begin}, {rows, part.size()}});
    }
    return {std::move(list), ranks};
  }
};
/// Bands of three rows, dealt in turn, each an array of its own.
shard_list bands(const matrix& m, rank_t ranks) {
  std::vector<shard> list;
  for (index_t first = 0; first < m.rows; first += 3)
    list.push_back(
        {first / 3 % ranks, "matrix", fp32, {m.rows, m.columns}, {first, 0}, {least(3, m.rows - first), m.columns}});
  return {std::move(list), ranks};
}
using listed_switch = layout_switch<listed_holding, listed_holding>;
const state_list one_state = parse_state_list("param:fp32:3");

listed_switch dealt(const shard_list& from, const shard_list& to) { return {from, to, {.list = one_state}}; }
template <typename H>
rank_storage stored(const H& h, rank_t rank) {
  return rank < h.ranks() ? rank_storage(h, rank, "a rank", pages_are::reserved, {}, one_state) : rank_storage();
}

/// How many messages lie in a device's tensors, by their addresses alone, and how many there are.
struct messages_in_place {
  index_t sent = 0, received = 0, out = 0, in = 0;
};
bool lies_in(const binding& tensors, const message& m) {
  return std::any_of(tensors.boxes().begin(), tensors.boxes().end(), [&](const bound_box& b) {
    return !std::less<>()(m.data, b.data) && !std::less<>()(b.data + b.bytes(), m.data + m.bytes);
  });
}
messages_in_place in_place(const listed_switch& change, exchange_as how, bytes_t round_bytes, index_t stages,
                           bool checks = false) {
  messages_in_place found;
  rendezvous all(change.devices(), soon);
  air between;
  for (rank_t d = 0; d < change.devices(); ++d) {
    meeting_of_threads meeting(all, d);
    slow_wire wire(between, d, 0);
    exchange here(meeting, wire, how, round_bytes);
    here.check_messages(checks);
    rank_storage before = stored(change.from(), d), after = stored(change.to(), d);
    page_stages pages(after.tensors(), binding_side::target);
    here.offer(before.tensors());
    const staged_plan plan = stage_plan(make_plan(change, d), change, stages);
    const exchange_moves moves = here.prepare(plan, after.tensors(), pages);
    found.out += static_cast<index_t>(moves.out.size()), found.in += static_cast<index_t>(moves.in.size());
    for (const message& m : moves.out) found.sent += lies_in(before.tensors(), m) ? 1 : 0;
    for (const message& m : moves.in) found.received += lies_in(after.tensors(), m) ? 1 : 0;
  }
  return found;
}

/// A wire that looks at memory. What is received into must be there when that is posted; a sender hears that a message
/// is done some polls after it was taken, and may read it until then.
class watchful_wire {
 public:
  watchful_wire(air& all, rank_t device) : inner_(all, device, 2) {}
  index_t absent = 0;  // pages

  void connect(const std::vector<rank_t>&) {}
  std::vector<rank_t> unconnected() const { return {}; }
  void send(message& m) {
    held& h = held_.emplace_back(held{&m, m});
    inner_.send(h.lent);
    m.done = false;
  }
  void receive(message& m) {
    const auto at = reinterpret_cast<std::uintptr_t>(m.data), first = at / 4096 * 4096;
    std::vector<unsigned char> there((at + static_cast<std::size_t>(m.bytes) - first + 4095) / 4096);
    CHECK(::mincore(reinterpret_cast<void*>(first), there.size() * 4096, there.data()) == 0);
    for (const unsigned char page : there) absent += (page & 1) != 0 ? 0 : 1;
    inner_.receive(m);
  }
  void poll(std::chrono::microseconds at_most) {
    inner_.poll(at_most);
    std::erase_if(held_, [](held& h) { return h.lent.done && (h.of->done = ++h.polls > 40); });
  }
  void stop() { inner_.stop(), held_.clear(); }
  /// Whether a message that is not done lies in part in this memory.
  bool reads(const std::byte* at, bytes_t bytes) const {
    return std::any_of(held_.begin(), held_.end(), [&](const held& h) {
      return std::less<>()(h.lent.data, at + bytes) && std::less<>()(at, h.lent.data + h.lent.bytes);
    });
  }

 private:
  struct held {
    message* of;
    message lent;
    int polls = 0;
  };
  slow_wire inner_;
  std::list<held> held_;
};

}  // namespace

TEST_CASE("a message that is one run of its target is received there, and one that is a run of its source sent there") {
  const matrix even{512, 256}, uneven{300, 251};
  constexpr bytes_t rounds = 8192;
  using as = exchange_as;
  const auto check = [](const messages_in_place& found, index_t sent, index_t received) {
    CHECK(found.out == found.in);
    CHECK(found.out > 0);
    CHECK(found.sent == sent * found.out);
    CHECK(found.received == received * found.in);
  };
  const listed_switch to_columns = dealt(even.by(0, 4), even.by(1, 4)), to_rows = dealt(even.by(1, 4), even.by(0, 4)),
                      to_fewer = dealt(even.by(0, 2), even.by(0, 4));
  for (const as how : {as::asynchronous, as::buffered, as::naive}) {
    CAPTURE(static_cast<int>(how));
    check(in_place(to_columns, how, rounds, 1), 0, 1);
    check(in_place(to_rows, how, rounds, 1), 1, 0);
    check(in_place(to_fewer, how, rounds, 1), 1, 1);
    check(in_place(to_fewer, how, rounds, 1, true), 0, 0);  // a trailer, and checked before the target is written
    check(in_place(dealt(uneven.by(0, 2), uneven.by(0, 4)), how, rounds, 1), 0, 0);  // a gap after every row
    // the pages that stages of one round write are taken a lag later than they are posted
    check(in_place(to_fewer, how, usual_round_bytes, 1), 1, how == as::asynchronous ? 0 : 1);
    check(in_place(to_fewer, how, rounds, 256), 1, how == as::asynchronous ? 0 : 1);
  }
  // rows of 48 bytes: parts of 32 of them are multiples of 512, and the 42 that a part may have are not
  const matrix narrow{2048, 12};
  check(in_place(dealt(narrow.by(0, 2), narrow.by(0, 4)), as::asynchronous, 16384, 1), 1, 1);
  const messages_in_place all = in_place(to_columns, as::asynchronous, rounds, 1);
  CHECK(all.in == 4 * 3 * (128 * 256 / rounds));
}

TEST_CASE("what comes in place: pages are there when it is posted, sources until they are sent, nothing is wrong") {
  const matrix m{515, 256};  // parts begin and end within pages
  struct deal {
    shard_list from, to;
  };
  index_t released = 0;
  for (const deal& of : {deal{m.by(0, 4), m.by(1, 4)}, deal{m.by(1, 4), m.by(0, 4)}, deal{m.by(0, 2), m.by(0, 3)},
                         deal{m.by(0, 4), m.by(0, 3)}, deal{bands(m, 4), m.by(0, 4)}, deal{m.by(0, 2), bands(m, 4)}})
    for (const exchange_as how : {exchange_as::asynchronous, exchange_as::buffered, exchange_as::naive})
      for (const bytes_t budget : {no_budget, 256_KiB}) {
        CAPTURE(static_cast<int>(how));
        CAPTURE(budget);
        const listed_switch change = dealt(of.from, of.to);
        rendezvous all(change.devices(), soon);
        air between;
        std::atomic<index_t> wrong = 0, absent = 0, read_when_released = 0, peaks_differ = 0;
        std::atomic<index_t> given_back = 0;
        on_threads(change.devices(), [&](rank_t d) {
          meeting_of_threads meeting(all, d);
          watchful_wire wire(between, d);
          exchange here(meeting, wire, how, 4608);
          rank_storage before = stored(change.from(), d), after = stored(change.to(), d);
          binding sources("sources", {}, one_state);
          for (const bound_box& b : before.tensors().boxes()) sources.add(b);
          for (memory_block block : before.tensors().blocks()) {
            const auto give_back = block.give_back;
            block.give_back = [&, give_back](std::byte* at, bytes_t bytes) {
              ++given_back;
              if (wire.reads(at, bytes)) ++read_when_released;
              give_back(at, bytes);
            };
            sources.own(block);
          }
          sources.seal();
          fill(before.tensors(), change.from());
          testing::watched<decltype(here)> seen{{here}, before, after};
          seen.budget = budget;
          const switch_report report = switch_state(change, sources, after.tensors(), seen, {.budget = budget});
          peaks_differ += report.memory.peak == seen.seen && seen.every_slot ? 0 : 1;
          wrong += compare(after.tensors(), change.to()).wrong;
          absent += wire.absent;
          here.all_reduce_max(0);
        });
        CHECK(wrong == 0);
        CHECK(absent == 0);
        CHECK(read_when_released == 0);
        CHECK(peaks_differ == 0);
        released += given_back;
      }
  CHECK(released > 100);
}

namespace {
/// A meeting that waits for messages for less time than two looks at the wire take.
struct hasty_meeting : meeting_of_threads {
  using meeting_of_threads::meeting_of_threads;
  patience waits() const { return patience{4}; }
};
/// A wire that never brings anything, and takes as long for a look as it may.
struct mute_wire {
  void connect(const std::vector<rank_t>&) {}
  std::vector<rank_t> unconnected() const { return {}; }
  void send(message& m) { m.done = false; }
  void receive(message& m) { m.done = false; }
  void poll(std::chrono::microseconds at_most) { std::this_thread::sleep_for(at_most); }
  void stop() {}
};
}  // namespace

TEST_CASE("waiting ends however short the patience is") {
  const computed_switch change = change_of("pp=2", "tp=2");
  rendezvous all(2, soon);
  std::atomic<int> in_vain = 0, ended = 0;
  on_threads(2, [&](rank_t d) {
    hasty_meeting meeting(all, d);
    mute_wire wire;
    exchange here(meeting, wire, exchange_as::asynchronous);
    rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
    try {
      switch_state(change, before.tensors(), after.tensors(), here);
    } catch (const std::exception& e) {
      in_vain += std::string(e.what()).find(" waited 4 ms in vain for device ") != std::string::npos ? 1 : 0;
      ++ended;
    }
  });
  CHECK(ended == 2);
  CHECK(in_vain >= 1);
}
