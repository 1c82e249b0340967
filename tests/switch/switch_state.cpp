// SPDX-License-Identifier: Apache-2.0
// The switch by itself: what a refusal leaves behind, whoever refuses and whenever; what the reports say against sums
// of the plans; arrays that share pages; and what a transport is asked for, in which order.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <reshard/memory/rank_storage.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/switch/attempt_switch.hpp>
#include <reshard/testing/known_values.hpp>
#include <reshard/transport/forwarding.hpp>
#include <reshard/transport/mailbox_group.hpp>
#include <reshard/transport/thread_group.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/switches.hpp"
#include "../support/tiny.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::filled_by, testing::refused, testing::switch_in_memory;

namespace {

constexpr patience soon = std::chrono::seconds(20);

model tiny() { return testing::tiny(4); }

/// An endpoint whose device cannot prepare.
enum class fault { none, exception, other };
template <typename Endpoint>
struct unprepared : forwarding<Endpoint> {
  using typename forwarding<Endpoint>::moves;
  using forwarding<Endpoint>::inner;
  fault how;
  moves prepare(const staged_plan& plan, const binding& into, page_stages& pages) {
    auto made = inner.prepare(plan, into, pages);
    if (how == fault::exception) throw std::runtime_error("no memory for messages");
    if (how == fault::other) throw 17;
    return made;
  }
};

/// A copy of a binding with a change made to every box; dropped where the change says false.
template <typename Change>
binding changed(const binding& of, Change&& change) {
  binding result(of.who());
  for (bound_box b : of.boxes())
    if (change(b)) result.add(b);
  result.seal();
  return result;
}

/// What a call ends with: "done", or the sentence of what it throws.
template <typename Call>
std::string ending(Call&& call) {
  try {
    call();
  } catch (const std::exception& e) {
    return e.what();
  } catch (int n) {
    return "int " + std::to_string(n);
  }
  return "done";
}

static_assert(Transport<thread_group::endpoint> && Transport<mailbox_group::endpoint> &&
              Transport<unprepared<thread_group::endpoint>>);
static_assert(!Transport<thread_group> && !Transport<rendezvous>);

}  // namespace

TEST_CASE_TEMPLATE("after any refusal the same devices switch in the same world", World, thread_group, mailbox_group) {
  switch_in_memory s(tiny(), "tp=2,pp=2,zero=1", "dp=4,zero=1");
  std::vector<rank_storage> again;
  for (rank_t r = 0; r < 4; ++r) again.emplace_back(s.change.from(), r, "rank " + std::to_string(r));
  binding lacking = changed(s.after[1].tensors(), [](const bound_box& b) { return b.state != 2; });
  std::byte* const source = s.before[3].tensors().boxes()[0].data;
  bool moved = false;
  binding inside = changed(s.after[3].tensors(), [&](bound_box& b) {
    if (b.state == 0 && b.where.volume() == 64 && !std::exchange(moved, true)) b.data = source;  // one of them
    return true;
  });
  binding none("nothing");

  constexpr std::size_t attempts = 9;
  std::string ends[attempts][4], at_last[2][4];
  bytes_t came[4];
  index_t spoilt[4], wrong[4];
  World world(4, soon);
  world.run([&](auto& here) {
    const rank_t device = here.device();
    const auto d = static_cast<std::size_t>(device);
    using endpoint = std::remove_reference_t<decltype(here)>;
    const auto attempt = [&](std::size_t i, const switch_options& options, binding& from, binding& to,
                             fault how = fault::none) {
      unprepared<endpoint> transport{{here}, how};
      ends[i][d] = ending([&] { switch_state(s.change, from, to, transport, options); });
    };
    binding &from = s.before[d].tensors(), &to = s.after[d].tensors();
    attempt(0, {.budget = device == 2 ? 0 : 1_MiB}, from, to);
    attempt(1, {}, from, device == 1 ? lacking : to);
    attempt(2, {}, from, device == 3 ? inside : to);
    attempt(3, {}, device == 0 ? none : from, to);
    attempt(4, {.budget = device == 3 ? 2_MiB : 1_MiB}, from, to);
    attempt(5, {.budget = 4_KiB}, from, to);
    attempt(6, {.budget = 1}, from, to);
    attempt(7, {}, from, to, device == 2 ? fault::exception : fault::none);
    attempt(8, {.budget = 1_MiB}, from, to, device == 0 ? fault::other : fault::none);
    came[d] = s.after[d].resident_bytes();
    spoilt[d] = s.found_before(d).wrong;
    at_last[0][d] =
        ending([&] { s.reports[d] = switch_state(s.change, from, s.after[d].tensors(), here, {.budget = 500_KiB}); });
    wrong[d] = s.found_after(d).wrong;
    const layout_switch back(s.change.to(), s.change.from());
    at_last[1][d] = ending([&] { switch_state(back, s.after[d].tensors(), again[d].tensors(), here); });
  });
  for (std::size_t i = 0; i < attempts; ++i)
    for (std::size_t d = 0; d < 4; ++d) {
      CAPTURE(i);
      CAPTURE(d);
      const std::size_t who[attempts] = {2, 1, 3, 0, 4, 4, 4, 2, 0};  // 4: all
      const char* words[attempts] = {"reshard: a budget of 0 bytes; it must be at least 1",
                                     "reshard: device 1, rank 1 of TO: ",
                                     "; a switch wants memory of its own for what it makes",
                                     "reshard: device 0, nothing: ",
                                     "device 0 was given a budget of 1048576 bytes and device 3 a budget of 2097152",
                                     "reshard: a budget of 4096 bytes cannot work: in ",
                                     "reshard: a budget of 1 bytes cannot work: in one stage a device needs ",
                                     "no memory for messages",
                                     "int 17"};
      CAPTURE(ends[i][d]);
      if (who[i] == 4 || who[i] == d) CHECK(ends[i][d].find(words[i]) != std::string::npos);
      else {
        const std::string why = ends[i][who[i]];
        CHECK(ends[i][d] == "reshard: device " + std::to_string(d) + ": device " + std::to_string(who[i]) +
                                " refused the switch: " +
                                (why == "int 17"                ? "an exception of no standard kind"
                                 : why.starts_with("reshard: ") ? why.substr(9)
                                                                : why) +
                                "; nothing was touched");
      }
    }
  for (std::size_t d = 0; d < 4; ++d) {
    CHECK(came[d] == 0);
    CHECK(spoilt[d] == 0);
    CHECK(at_last[0][d] == "done");
    CHECK(wrong[d] == 0);
    CHECK(at_last[1][d] == "done");
    CHECK(s.reports[d].stages > 1);
    CHECK(s.before[d].resident_bytes() == 0);
    CHECK(testing::compare(s.by, again[d].tensors(), s.change.from()).wrong == 0);
  }
}

TEST_CASE_TEMPLATE("there, back, and there again into memory that was given back, padding created anew", World,
                   thread_group, mailbox_group) {
  const layout_switch there(space(tiny(), parse_degrees("tp=2,pp=2")), space(tiny(), parse_degrees("dp=4,pad=384")));
  const layout_switch back(there.to(), there.from());
  std::size_t created = 0;
  for (rank_t d = 0; d < 4; ++d) created += make_plan(there, d).creates.size();
  CHECK(created > 0);
  index_t wrong[4] = {};
  World world(4, soon);
  world.run([&](auto& here) {
    const rank_t d = here.device();
    rank_storage old_side(there.from(), d, "old"), new_side(there.to(), d, "new");
    fill(old_side.tensors(), there.from());
    for (const switch_options& options : {switch_options{}, switch_options{.budget = 4_MiB}})
      for (int round = 0; round < 2; ++round) {
        switch_state(there, old_side.tensors(), new_side.tensors(), here, options);
        switch_state(back, new_side.tensors(), old_side.tensors(), here, options);
      }
    wrong[d] = compare(old_side.tensors(), there.from()).wrong;
  });
  for (const index_t w : wrong) CHECK(w == 0);
}

TEST_CASE_TEMPLATE("what on_stage throws ends the switch; of the last stage, it comes when all have finished", World,
                   thread_group, mailbox_group) {
  for (const bool last : {false, true}) {
    CAPTURE(last);
    switch_in_memory s(tiny(), "tp=2,pp=2,zero=1", "dp=4,zero=1");
    std::string ends[4];
    index_t wrong[4], stages[4];
    World world(4, soon);
    const auto body = [&](auto& here) {
      const auto d = static_cast<std::size_t>(here.device());
      switch_options options{.after_use = sources::keep, .route = {.stages = 6}};
      options.on_stage = [&, d](const stage_report& r) {
        stages[d] = r.stages;
        if (d == 2 && r.stage == (last ? r.stages - 1 : 0)) throw std::runtime_error("the disk is full");
      };
      ends[d] = ending([&] { switch_state(s.change, s.before[d].tensors(), s.after[d].tensors(), here, options); });
      wrong[d] = s.found_after(d).wrong;
    };
    world.run(body);
    for (std::size_t d = 0; d < 4; ++d) {
      CHECK(stages[d] > 1);
      CHECK((wrong[d] == 0) == last);
      if (d == 2) CHECK(ends[d] == "the disk is full");
      else if (last) CHECK(ends[d] == "done");
      else CHECK(ends[d].find("the disk is full") != std::string::npos);
    }
  }
}

TEST_CASE("reports say what the plans add up to") {
  oracle::generator cases(testing::seed() + 21);
  index_t staged = 0;
  for (int i = 0; i < testing::tries(40) || (staged == 0 && i < 400); ++i) {
    const oracle::switch_case c = cases.next_switch();
    INFO(c.describe());
    switch_in_memory s(c);
    bytes_t largest = 0;  // that any rank holds
    for (rank_t r = 0; r < s.change.from().ranks(); ++r) largest = std::max(largest, held_bytes(s.change.from(), r));
    for (rank_t r = 0; r < s.change.to().ranks(); ++r) largest = std::max(largest, held_bytes(s.change.to(), r));
    bytes_t budget = i % 2 == 0 ? no_budget : greatest(500_KiB, largest / 4);
    const auto run = [&] {
      thread_group world(s.change.devices(), soon);
      s.run(world, {.budget = budget});
    };
    const std::string sentence = refused(run), words = "the least budget that does is ";
    if (sentence != "accepted") {
      INFO(sentence);
      REQUIRE(sentence.find(words) != std::string::npos);
      budget = std::stoll(sentence.substr(sentence.find(words) + words.size()));
      run();
    }
    bytes_t sent = 0, received = 0, retained = 0;
    for (rank_t d = 0; d < s.change.devices(); ++d) {
      const switch_report& r = s.reports[static_cast<std::size_t>(d)];
      const plan p = make_plan(s.change, d);
      const auto sum = [](const std::vector<transfer>& list) {
        bytes_t bytes = 0;
        for (const transfer& t : list) {
          bytes_t volume = 1;
          for (const interval& side : t.where.dim) volume *= side.end - side.begin;
          for (int state = 0; state < 4; ++state)
            if (t.states.contains(state)) bytes += volume * (state == 0 ? 2 : 4);
        }
        return bytes;
      };
      CHECK(r.sent == sum(p.sends));
      CHECK(r.received == sum(p.receives));
      CHECK(r.retained == sum(p.retains));
      CHECK((r.stages & (r.stages - 1)) == 0);
      if (budget == no_budget) CHECK(r.stages == 1);
      CHECK(r.lag == 0);
      staged += r.stages > 1 ? 1 : 0;
      sent += r.sent;
      received += r.received;
      retained += r.retained;
    }
    const switch_volume volume = volume_of(s.change);
    CHECK(sent == volume.moved);
    CHECK(received == volume.moved);
    CHECK(retained == volume.retained);
  }
  CHECK(staged > 0);
}

namespace {

/// A rank's arrays one after the other in one range of pages, so that neighbours share a page.
struct packed {
  page_range range;
  binding bound;

  static bytes_t bytes_of(const computed_holding& h, rank_t rank, state_set wanted) {
    bytes_t bytes = 0;
    each_array(h, rank, wanted, [&](const rank_array& a) { bytes += a.bytes() + 8; });
    return std::max<bytes_t>(bytes, 1);
  }
  packed(const computed_holding& h, rank_t rank, const std::string& who, state_set wanted = all_states)
      : range(bytes_of(h, rank, wanted)) {
    bytes_t at = 0;
    bound = bind_rank(
        h, rank, who,
        [&](const rank_array& a) {
          const memory here{range.data() + at, a.bytes()};
          at += a.bytes() + 8;
          return here;
        },
        wanted);
    bound.own(range);
    bound.seal();
  }
  /// Pages that hold a byte of these states.
  bytes_t bytes_of_pages(state_set states) const {
    std::set<std::int64_t> pages;
    std::int64_t last = -1;  // neighbours share a page
    const auto holds = [&](std::int64_t page) {
      if (page != last) pages.insert(last = page);
    };
    for (const bound_box& b : bound.boxes())
      if (states.contains(b.state))
        oracle::each_element({b.data,
                              {},
                              {b.where.dim[0].size(), b.where.dim[1].size(), b.where.dim[2].size()},
                              {b.stride[0], b.stride[1], b.stride[2]},
                              b.element_bytes,
                              {},
                              {}},
                             [&](const std::byte* at, std::uint64_t, long, long, long) {
                               holds((at - range.data()) / page_bytes);
                               holds((at + b.element_bytes - 1 - range.data()) / page_bytes);
                             });
    return static_cast<bytes_t>(pages.size()) * page_bytes;
  }
};

}  // namespace

TEST_CASE("arrays that share pages: what does not move stays whole, and only pages of nothing else go") {
  const model m = tiny();
  for (const char* from_text : {"tp=2,pp=2", "dp=4,zero=1"})
    for (const state_set moving : {parameter_states, only(2), only(1) | only(3), all_states})
      for (const bytes_t budget : {no_budget, 1_MiB}) {
        CAPTURE(from_text);
        CAPTURE(moving.bits());
        const space a(m, parse_degrees(from_text)), b(m, parse_degrees("tp=4,zero=1"));
        const computed_holding from(a), to(b);
        const layout_switch change(from, to, {.states = moving});
        const filled_by by = testing::next_in_turn();
        std::vector<packed> before, after;
        before.reserve(4), after.reserve(4);  // a binding knows where its range is
        for (rank_t r = 0; r < 4; ++r) {
          testing::fill(by, before.emplace_back(from, r, "before").bound, from);
          after.emplace_back(to, r, "after", moving);
        }
        std::vector<switch_report> reports(4);
        thread_group world(4, soon);
        world.run([&](auto& here) {
          const auto d = static_cast<std::size_t>(here.device());
          reports[d] = switch_state(change, before[d].bound, after[d].bound, here, {.budget = budget});
        });
        const state_set staying = all_states - moving;
        for (std::size_t d = 0; d < 4; ++d) {
          CHECK(before[d].range.resident_bytes() == before[d].bytes_of_pages(staying));
          CHECK(after[d].range.resident_bytes() == after[d].bytes_of_pages(moving));
          CHECK(reports[d].memory.before == before[d].bytes_of_pages(moving));
          CHECK(reports[d].memory.after == after[d].range.resident_bytes());
          CHECK(reports[d].memory.excess() <= budget);
          binding others("others");
          for (const bound_box& box : before[d].bound.boxes())
            if (staying.contains(box.state)) others.add(box);
          others.seal();
          CHECK(testing::compare(by, others, from).wrong == 0);
          CHECK(testing::compare(by, after[d].bound, to).wrong == 0);
          CHECK(testing::compare(by, after[d].bound, to).elements > 0);
        }
      }
}

namespace {

/// The one device of a world: copies an element at a time, and writes down what it is asked for.
struct lone_device {
  bytes_t staging = 0;     // in every stage but the first
  index_t leaves_out = 0;  // slots, of its footprint
  rank_storage* before = nullptr;
  rank_storage* after = nullptr;
  index_t fails_in = -1;
  bool oddly = false;

  const binding* from = nullptr;
  const binding* into = nullptr;
  staged_plan plan;
  mutable std::vector<std::string> asked = {};
  bytes_t most = 0;

  rank_t device() const { return 0; }
  rank_t devices() const { return 1; }
  transport_facts facts() const { return {}; }
  void keep_alive() {}
  bool reaches(memory_place) const { return true; }
  void locate(binding&) {}
  void settle() {}
  void fill_with_zeros(const bound_box& b) { reshard::fill_with_zeros(b); }
  void check_messages(bool) {}
  void await(index_t) {}
  void contact(const std::vector<rank_t>& sent_to, const std::vector<rank_t>& received_from) {
    asked.push_back("contact " + std::to_string(sent_to.size()) + " " + std::to_string(received_from.size()));
  }
  std::vector<std::string> gather(const std::string& text) { return {text}; }
  agreement agree(const proposal& mine) {
    asked.push_back("largest");
    agreement all;
    all.add(0, mine, true);
    return all;
  }
  std::string disagreement(int&) {
    asked.push_back("disagreement");
    return {};
  }
  void connect(int&) { asked.push_back("connect"); }
  void offer(const binding& tensors) {
    asked.push_back("offer");
    from = &tensors;
  }
  std::int64_t all_reduce_max(std::int64_t n) {
    asked.push_back("largest");
    return n;
  }
  reshard::footprint footprint(const staged_plan& p) const {
    asked.push_back("footprint of " + std::to_string(p.stages));
    reshard::footprint all = even_footprint(p.times(), staging);
    all.staging[0] = 0;
    all.staging.resize(all.staging.size() - static_cast<std::size_t>(leaves_out));
    return all;
  }
  int prepare(const staged_plan& p, const binding& tensors, page_stages&) {
    asked.push_back("prepare");
    plan = p;
    into = &tensors;
    return 17;
  }
  void move(int& prepared, index_t k) {
    CHECK(prepared == 17);
    asked.push_back("move " + std::to_string(k));
    if (k == fails_in && oddly) throw 17;
    if (k == fails_in) throw std::runtime_error("a cable is torn");
    for (const staged_piece& p : plan.retains)
      for (const int state : all_states)
        if (p.stage == k && p.states.contains(state))
          from->meet({state, p.tensor, p.where}, [&](const bound_box& have) {
            into->meet(have, [&](const bound_box& want) {
              const bound_box one = have.narrowed(want.where);
              for (index_t i = 0; i < want.where.dim[0].size(); ++i)
                for (index_t j = 0; j < want.where.dim[1].size(); ++j)
                  for (index_t c = 0; c < want.where.dim[2].size(); ++c)
                    std::memcpy(
                        want.data + (i * want.stride[0] + j * want.stride[1] + c * want.stride[2]) * want.element_bytes,
                        one.data + (i * one.stride[0] + j * one.stride[1] + c * one.stride[2]) * one.element_bytes,
                        static_cast<std::size_t>(one.element_bytes));
            });
          });
    most = std::max(most, before->resident_bytes() + after->resident_bytes() + (k == 0 ? 0 : staging));
  }
  void fail(const std::string& sentence) { asked.push_back("fail: " + sentence); }

  index_t times(const std::string& what) const {
    return std::count_if(asked.begin(), asked.end(), [&](const std::string& a) { return a.starts_with(what); });
  }
  std::ptrdiff_t first(const std::string& what) const {
    return std::find(asked.begin(), asked.end(), what) - asked.begin();
  }
};

}  // namespace

TEST_CASE("a transport is asked in order: offer, agree, prepare, every stage once, agree") {
  for (const bytes_t budget : {no_budget, 900_KiB}) {
    switch_in_memory s(tiny(), "zero=1", "dp=1");
    lone_device here{
        .staging = budget == no_budget ? 0 : 100'000, .before = &s.before[0], .after = &s.after[0], .plan = {}};
    const bytes_t held = s.before[0].resident_bytes();
    const switch_report report =
        switch_state(s.change, s.before[0].tensors(), s.after[0].tensors(), here, {.budget = budget});
    CHECK(s.before[0].resident_bytes() == 0);
    CHECK(report.memory.before == held);
    CHECK(report.memory.after == s.after[0].resident_bytes());
    CHECK(report.memory.peak == std::max({report.memory.before, report.memory.after, here.most}));
    CHECK(report.memory.excess() <= budget);
    CHECK(s.found_after(0).wrong == 0);
    CHECK(s.found_after(0).elements > 0);
    CHECK((report.stages > 2) == (budget != no_budget));

    CHECK(here.times("offer") == 1);
    CHECK(here.times("prepare") == 1);
    CHECK(here.times("fail") == 0);
    CHECK(here.times("contact 0 0") == 1);
    index_t cuts = 0;
    for (index_t cut = 1; cut <= report.stages; cut *= 2, ++cuts)  // of a budget's 1, 2, 4 .. stages each
      CHECK(here.times("footprint of " + std::to_string(cut)) > 0);
    CHECK(here.times("footprint of ") == cuts);
    CHECK(here.times("move ") == report.stages);
    const auto prepared = here.asked.begin() + here.first("prepare");
    CHECK(std::find(here.asked.begin() + here.first("offer"), prepared, "largest") != prepared);
    for (index_t k = 0; k < report.stages; ++k) {
      CHECK(here.first("move " + std::to_string(k)) == here.first("move 0") + k);
    }
    CHECK(here.first("footprint of " + std::to_string(report.stages)) < here.first("prepare"));
    CHECK(*(prepared + 1) == "largest");
    CHECK(*(prepared + 2) == "disagreement");
    CHECK(*(prepared + 3) == "connect");
    CHECK(*(prepared + 4) == "largest");  // every device has begun, of each run
    CHECK(here.first("move 0") == here.first("prepare") + 5);
    CHECK(here.asked.back() == "largest");  // nobody's lists go before all are done
    CHECK(here.asked[here.asked.size() - 2].starts_with("move "));
  }
}

TEST_CASE("a footprint that does not tell of every slot is refused, and nothing is touched") {
  switch_in_memory s(tiny(), "zero=1", "dp=1");
  lone_device here{.leaves_out = 1, .before = &s.before[0], .after = &s.after[0], .plan = {}};
  CHECK(ending([&] { switch_state(s.change, s.before[0].tensors(), s.after[0].tensors(), here); }) ==
        "reshard: device 0: the transport's footprint is of 0 slots, 1 of which send; the plan has 1, 1 of which send, "
        "and what is sent in a slot is written in that or a later one");
  CHECK(here.times("fail") == 0);
  CHECK(here.times("prepare") == 0);
  CHECK(s.untouched());
}

TEST_CASE("bindings need not be sealed, nor their boxes be in order") {
  switch_in_memory s(tiny(), "tp=2", "dp=2");
  std::vector<binding> from, to;
  const auto backwards = [](const binding& of) {
    binding result(of.who());
    for (auto b = of.boxes().rbegin(); b != of.boxes().rend(); ++b) result.add(*b);
    return result;
  };
  for (std::size_t d = 0; d < 2; ++d) {
    from.push_back(backwards(s.before[d].tensors()));
    to.push_back(backwards(s.after[d].tensors()));
  }
  thread_group world(2, soon);
  world.run([&](auto& here) {
    const auto d = static_cast<std::size_t>(here.device());
    switch_state(s.change, from[d], to[d], here);
  });
  for (std::size_t d = 0; d < 2; ++d) {
    CHECK(s.found_after(d).elements > 0);
    CHECK(s.found_after(d).wrong == 0);
  }
}

TEST_CASE("what is not bound is sought in order: what is sent before what stays, and what comes before it too") {
  for (const bool of_sources : {true, false}) {
    switch_in_memory s(tiny(), of_sources ? "tp=2" : "pp=2", of_sources ? "pp=2" : "tp=2");
    const plan p = make_plan(s.change, 0);
    const auto expected = [&](const std::vector<transfer>& list) {
      REQUIRE_FALSE(list.empty());
      int state = 0;
      while (!list[0].states.contains(state)) ++state;
      const auto& dim = list[0].where.dim;
      const std::string elements = std::to_string(dim[2].size() * dim[3].size() * dim[4].size());
      return "reshard: device 0, nothing: " + elements + " of " + elements + " elements that the plan needs of " +
             std::string(adam[state].name) + " of " + s.of.tensor({list[0].family, dim[0].begin, dim[1].begin}) +
             " are not bound, on the side of " + (of_sources ? "FROM" : "TO");
    };
    std::string of_0;
    thread_group world(2, soon);
    world.run([&](auto& here) {
      const auto d = static_cast<std::size_t>(here.device());
      binding nothing("nothing");
      binding &from = s.before[d].tensors(), &to = s.after[d].tensors();
      const std::string end =
          ending([&] { switch_state(s.change, d == 0 && of_sources ? nothing : from, d == 0 ? nothing : to, here); });
      if (d == 0) of_0 = end;
    });
    CHECK(s.untouched());
    CHECK(of_0 == expected(of_sources ? p.sends : p.receives));
    CHECK(of_0 != expected(p.retains));
  }
}

TEST_CASE("memory that the transport takes is paid from the budget") {
  switch_in_memory s(tiny(), "zero=1", "dp=1");
  lone_device here{.staging = 100_MiB, .before = &s.before[0], .after = &s.after[0], .plan = {}};
  const auto under = [&](bytes_t budget) {
    here.asked.clear();
    return refused(
        [&] { switch_state(s.change, s.before[0].tensors(), s.after[0].tensors(), here, {.budget = budget}); });
  };
  const std::string sentence = under(900_KiB);
  CHECK(sentence.starts_with("reshard: a budget of 921600 bytes cannot work: in "));
  CHECK(here.times("prepare") + here.times("move") + here.times("fail") == 0);
  CHECK(s.untouched());
  const std::string words = "the least budget that does is ";
  const std::size_t at = sentence.find(words);
  REQUIRE(at != std::string::npos);
  const bytes_t enough = std::stoll(sentence.substr(at + words.size()));
  CHECK(enough < 100_MiB);  // one stage, the first, takes none
  s.after[0] = rank_storage(s.change.to(), 0, "rank 0 of TO");
  CHECK(under(enough) == "accepted");
  CHECK(s.found_after(0).wrong == 0);
}

TEST_CASE_TEMPLATE("who waits in vain at the end of a stage says for whom, and of which", World, thread_group,
                   mailbox_group) {
  switch_in_memory s(tiny(), "dp=2", "dp=2");  // all is retained: nobody waits for a message
  struct stuck : forwarding<typename World::endpoint> {
    using typename forwarding<typename World::endpoint>::moves;
    using forwarding<typename World::endpoint>::device, forwarding<typename World::endpoint>::inner;
    const std::atomic<bool>& given_up;
    void move(moves& prepared, index_t k) {
      for (int i = 0; k == 1 && device() == 0 && !given_up && i < 12000; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      inner.move(prepared, k);
    }
  };
  World world(2, std::chrono::milliseconds(2500));  // ample for what comes before
  std::atomic<bool> given_up = false;
  std::string sentence;
  const auto run = [&] {
    world.run([&](auto& here) {
      const auto d = static_cast<std::size_t>(here.device());
      stuck one{{here}, given_up};
      try {
        switch_state(s.change, s.before[d].tensors(), s.after[d].tensors(), one, {.budget = 128_KiB});
      } catch (const peer_missing& e) {
        sentence = e.what();
        given_up = true;
      }
    });
  };
  CHECK_THROWS_AS(run(), peer_failed);                                         // what device 0 hears
  const std::string stage = std::is_same_v<World, mailbox_group> ? "0" : "1";  // slot 1 is where stage 0 is in place
  CHECK(sentence == "reshard: device 1 waited 2500 ms in vain for these devices: 0 at the end of stage " + stage);
}

TEST_CASE("a transport hears of what ends a switch under way, and of no refusal") {
  switch_in_memory s(tiny(), "zero=1", "dp=1");
  lone_device here{.before = &s.before[0], .after = &s.after[0], .fails_in = 2, .plan = {}};
  const auto run = [&](const switch_options& options) {
    return ending([&] { switch_state(s.change, s.before[0].tensors(), s.after[0].tensors(), here, options); });
  };
  CHECK(run({.budget = 0}).starts_with("reshard: a budget of 0 bytes"));
  CHECK(run({.budget = 1}).find("of 1, 2, 4 .. 4096 stages none keeps it") != std::string::npos);
  CHECK(here.times("fail") == 0);
  CHECK(run({.budget = 900_KiB}) == "a cable is torn");
  CHECK(here.asked.back() == "fail: a cable is torn");
  CHECK(here.times("fail") == 1);
  CHECK(here.times("move ") == 3);

  switch_in_memory again(tiny(), "zero=1", "dp=1");
  lone_device odd{.before = &again.before[0], .after = &again.after[0], .fails_in = 0, .oddly = true, .plan = {}};
  CHECK(ending([&] { switch_state(again.change, again.before[0].tensors(), again.after[0].tensors(), odd); }) ==
        "int 17");
  CHECK(odd.asked.back() == "fail: reshard: an exception of no standard kind");
}

TEST_CASE("what an owner throws when memory is given back reaches everybody, of whatever kind it is") {
  for (const bool standard : {true, false}) {
    switch_in_memory s(tiny(), "dp=2", "tp=2");
    std::vector<std::byte> bytes(static_cast<std::size_t>(held_bytes(s.change.from(), 1)) + 64 * page_bytes);
    std::byte* next = bytes.data();
    binding mine = bind_rank(s.change.from(), 1, "rank 1", [&](const rank_array& a) {
      const memory here{next, a.bytes()};
      next += a.bytes();
      return here;
    });
    testing::fill(s.by, mine, s.change.from());
    mine.own({bytes.data(), static_cast<bytes_t>(bytes.size())}, pages_are::committed, [&](std::byte*, bytes_t) {
      if (standard) throw std::runtime_error("the owner wants it back");
      throw 17;
    });
    std::string of[2];
    thread_group world(2, soon);
    const std::string thrown = ending([&] {
      world.run([&](auto& here) {
        const auto d = static_cast<std::size_t>(here.device());
        try {
          switch_state(s.change, d == 1 ? mine : s.before[d].tensors(), s.after[d].tensors(), here);
        } catch (const std::exception& e) {
          of[d] = e.what();
          throw;
        }
      });
    });
    CHECK(thrown == (standard ? "the owner wants it back" : "int 17"));
    CHECK(of[0] == (standard ? "the owner wants it back" : "reshard: an exception of no standard kind"));
  }
}

TEST_CASE("sources that lie in one another are nobody's matter, targets that do are refused") {
  const space a(tiny(), parse_degrees(""));
  const layout_switch change(a, a, {.states = parameter_states});
  std::map<bytes_t, std::vector<std::byte>> of_size;  // one array for all that are as long
  binding in_one = bind_rank(
      change.from(), 0, "in one",
      [&](const rank_array& x) {
        std::vector<std::byte>& array = of_size[x.bytes()];
        array.resize(static_cast<std::size_t>(x.bytes()));
        return memory(array);
      },
      parameter_states);
  rank_storage apart(change.to(), 0, "apart", pages_are::reserved, parameter_states);
  REQUIRE(of_size.size() < in_one.boxes().size());
  thread_group world(1, soon);
  world.run([&](auto& here) {
    CHECK(switch_state(change, in_one, apart.tensors(), here).retained == held_bytes(a, 0, parameter_states));
    CHECK_REFUSED(switch_state(change, apart.tensors(), in_one, here), "device 0, in one: param of ");
  });
}

TEST_CASE("two spaces are switched between directly, rank r on device r") {
  const space a(tiny(), parse_degrees("tp=2")), b(tiny(), parse_degrees("dp=2,zero=1"));
  const layout_switch change(a, b);
  std::vector<rank_storage> before, after;
  for (rank_t r = 0; r < 2; ++r) {
    testing::fill(filled_by::judge, before.emplace_back(change.from(), r, "before").tensors(), change.from());
    after.emplace_back(change.to(), r, "after");
  }
  thread_group world(2, soon);
  world.run([&](auto& here) {
    const auto d = static_cast<std::size_t>(here.device());
    switch_state(change, before[d].tensors(), after[d].tensors(), here, {.budget = 1_MiB});
  });
  for (const rank_storage& s : after) CHECK(testing::judged(s.tensors(), change.to()).wrong == 0);
}

namespace {

/// An endpoint that breaks off at a call that is counted, and is told then how the others part.
template <typename Endpoint>
struct breaking : forwarding<Endpoint> {
  using typename forwarding<Endpoint>::moves;
  using forwarding<Endpoint>::inner;
  index_t breaks_at = -1;  // of the calls once all slots are moved
  parting left = {};       // in_place: of slots
  rank_t hub = 0;
  index_t slots = -1, moved = 0, calls = 0, of_slots = -1, with_moved = -1;
  index_t awaited = -1;    // the slot, last
  index_t breaks_in = -1;  // in this slot

  void count() {
    if (slots >= 0 && moved == slots && calls++ == breaks_at) throw peer_failed("reshard: device 7 is gone");
  }
  moves prepare(const staged_plan& plan, const binding& into, page_stages& pages) {
    slots = plan.times().slots();
    return inner.prepare(plan, into, pages);
  }
  void move(moves& prepared, index_t slot) {
    if (slot == breaks_in) throw peer_failed("reshard: device 7 is gone");
    inner.move(prepared, slot);
    moved = slot + 1;
    count();
  }
  void settle() { count(), inner.settle(); }
  void await(index_t k) {
    count();
    inner.await(k);
    awaited = k;
  }
  std::int64_t all_reduce_max(std::int64_t n) {
    count();
    return inner.all_reduce_max(n);
  }
  parting part(index_t in_slots, bool has_moved) {
    of_slots = in_slots, with_moved = has_moved ? 1 : 0;
    return left;
  }
  rank_t decides() const { return hub; }
};

/// Two matrices of a page a row on one device: of the first, FROM has 11 rows and binds 12, and TO wants 8 of them.
struct rows_of_pages {
  static constexpr index_t bound = 12, had = 11, wanted = 8;
  state_list one = state_list::parse("param:bf16:3");
  layout_switch<listed_holding, listed_holding> change;
  page_range memory_of_from{bound * page_bytes}, memory_of_to{wanted * page_bytes};
  binding from{"from", {}, one}, to{"to", {}, one};
  std::vector<int> given_back = std::vector<int>(bound, 0);  // how often each page was
  std::function<void(index_t page)> goes = {};

  static shard_list rows(index_t count) {
    return shard_list({{0, "w", bf16, {16, 2048}, {0, 0}, {count, 2048}, "param"}}, 1);
  }
  rows_of_pages() : change(rows(had), rows(wanted), {.list = one}) {
    from.add({0, {}, {{{0, 1}, {0, bound}, {0, 2048}}}}, {memory_of_from.data(), bound * page_bytes});
    to.add({0, {}, {{{0, 1}, {0, wanted}, {0, 2048}}}}, {memory_of_to.data(), wanted * page_bytes});
    std::memset(memory_of_from.data(), 1, static_cast<std::size_t>(bound * page_bytes));
    from.own({memory_of_from.data(), bound * page_bytes}, pages_are::committed, [this](std::byte* at, bytes_t bytes) {
      for (index_t page = (at - memory_of_from.data()) / page_bytes; bytes > 0; ++page, bytes -= page_bytes)
        if (++given_back[static_cast<std::size_t>(page)]; goes) goes(page);
    });
    to.own(memory_of_to);
    from.seal(), to.seal();
  }
};

}  // namespace

TEST_CASE_TEMPLATE("wherever a switch breaks off once all is in place, each page of the sources goes once", World,
                   thread_group, mailbox_group) {
  int broken = 0, staged = 0, unread_first = 0;
  for (const sources after_use : {sources::release, sources::keep})
    for (const bytes_t pages : {0, 1, 2, 3, 4, 8, 12})
      for (index_t at = 0, finished = 0; finished == 0; ++at) {
        CAPTURE(pages);
        CAPTURE(at);
        if (after_use == sources::keep && pages > 0 && pages < 8) break;  // both sides are there at last
        rows_of_pages s;
        World world(1, soon);
        const bytes_t budget = pages == 0 ? no_budget : pages * page_bytes;
        switch_ending end;
        world.run([&](auto& here) {
          breaking<std::remove_reference_t<decltype(here)>> through{{here}, at, {1000, true, {0}}};
          end = attempt_switch(s.change, s.from, s.to, through,
                               {.budget = budget, .after_use = after_use, .route = {.stages = 4}});
          finished = through.calls <= at ? 1 : 0;
        });
        const ended::finished* done = std::get_if<ended::finished>(&end);
        CAPTURE(sentence_of(end));
        REQUIRE(done != nullptr);
        CHECK(done->sentence == (finished == 1 ? "" : "reshard: device 7 is gone"));
        for (const int times : s.given_back) CHECK(times == (after_use == sources::keep ? 0 : 1));
        broken += 1 - static_cast<int>(finished), staged += done->report.stages > 1 ? 1 : 0;
        unread_first += done->report.unread_kept == 0 ? 1 : 0;
      }
  CHECK(broken > 20);
  CHECK(staged > 20);
  CHECK(unread_first > 10);
}

TEST_CASE_TEMPLATE("a page of the sources goes once all that was in it is known to be in place everywhere", World,
                   thread_group, mailbox_group) {
  for (const bytes_t pages : {0, 1, 2, 3, 4, 8, 12}) {
    CAPTURE(pages);
    rows_of_pages s;
    World world(1, soon);
    std::vector<index_t> awaited(rows_of_pages::bound, -2);
    switch_report report;
    world.run([&](auto& here) {
      breaking<std::remove_reference_t<decltype(here)>> through{{here}};
      s.goes = [&](index_t page) { awaited[static_cast<std::size_t>(page)] = through.awaited; };
      report = switch_state(s.change, s.from, s.to, through,
                            {.budget = pages == 0 ? no_budget : pages * page_bytes, .route = {.stages = 4}});
    });
    const slot_times times{report.stages, report.phases, report.lag};
    const staged_plan p = stage_plan(make_plan(s.change, 0), s.change, times);
    std::vector<index_t> last(rows_of_pages::bound, *report.unread_kept - 1);  // its stage, or what stands for that
    for (const staged_piece& piece : p.retains)
      for (index_t row = piece.where.dim[1].begin; row < piece.where.dim[1].end; ++row)
        last[static_cast<std::size_t>(row)] = piece.stage;
    last.back() = -1;  // nobody was told of it
    for (std::size_t row = 0; row < last.size(); ++row)
      CHECK(awaited[row] == (pages == 0 ? report.stages - 1 : last[row]));
    for (index_t byte = 0; byte < rows_of_pages::wanted * page_bytes; ++byte)
      if (s.memory_of_to.data()[byte] != std::byte{1}) FAIL_CHECK("byte ", byte);
  }
}

namespace {

/// How a switch ends on one device, from what the contract says of endings alone.
std::string ending_of(const parting& left, rank_t hub, index_t stages, sources after_use) {
  const bool hub_lives = std::count(left.survivors.begin(), left.survivors.end(), hub) > 0;
  if (left.in_place >= stages && !left.survivors.empty()) return "finished";
  if (left.all_have_all && !hub_lives) return "unknown";
  return after_use == sources::keep ? "failed" : "torn";
}
/// What an ending tells, as a text.
std::string told_by(const switch_ending& end) {
  const auto list = [](const std::vector<index_t>& numbers) {
    std::string text;
    for (const index_t n : numbers) text += " " + std::to_string(n);
    return text;
  };
  const auto unread = [&](const std::optional<std::vector<index_t>>& of) { return of ? "; u" + list(*of) : ""; };
  if (std::get_if<ended::finished>(&end)) return "finished";
  if (const auto* e = std::get_if<ended::refused>(&end)) return e->everywhere ? "refused everywhere" : "refused";
  if (const auto* e = std::get_if<ended::failed>(&end)) return "failed;" + list(e->survivors);
  const auto of = [&](const char* how, const auto& e) {
    return std::string(how) + detail::text_of(" ", e.in_place, " of ", e.stages, ";") + list(e.survivors) +
           unread(e.unread_kept);
  };
  if (const auto* e = std::get_if<ended::torn>(&end)) return of("torn", *e);
  return of("unknown", *std::get_if<ended::unknown>(&end));
}

}  // namespace

namespace {
template <typename World>
switch_report unbroken(const switch_options& options) {
  rows_of_pages s;
  World world(1, soon);
  switch_report report;
  world.run([&](auto& here) { report = switch_state(s.change, s.from, s.to, here, options); });
  return report;
}
template <typename World>
void check_endings(const switch_options& options, const switch_report& report, const parting& left, rank_t hub,
                   std::set<std::string>& met) {
  for (index_t breaks_in = 0; breaks_in < report.stages; ++breaks_in) {
    rows_of_pages s;
    World world(1, soon);
    switch_ending end;
    world.run([&](auto& here) {
      breaking<std::remove_reference_t<decltype(here)>> through{{here}, -1, left, hub};
      through.breaks_in = breaks_in;
      end = attempt_switch(s.change, s.from, s.to, through, options);
      CHECK(through.of_slots == report.stages);
      CHECK(through.with_moved == 1);
    });
    std::string expected = ending_of(left, hub, report.stages, options.after_use), living;
    met.insert(expected);
    for (const rank_t d : left.survivors) living += " " + std::to_string(d);
    if (expected == "failed") expected += ";" + living;
    if (expected == "torn" || expected == "unknown") {
      expected += detail::text_of(" ", left.in_place, " of ", report.stages, ";", living);
      if (options.budget != no_budget) expected += detail::text_of("; u ", *report.unread_kept);
    }
    CHECK(told_by(end) == expected);
    CHECK(sentence_of(end) == "reshard: device 7 is gone");
  }
}
}  // namespace

TEST_CASE("how a switch ends, for all that devices may tell one another when it broke off") {
  std::set<std::string> met;
  for (const sources after_use : {sources::release, sources::keep})
    for (const bytes_t budget : {no_budget, after_use == sources::keep ? 8 * page_bytes : 1 * page_bytes}) {
      const switch_options options{.budget = budget, .after_use = after_use, .route = {.stages = 3}};
      const switch_report report = unbroken<thread_group>(options);
      for (const std::vector<rank_t>& survivors : {std::vector<rank_t>{}, {0}, {0, 2}, {1}})
        for (const bool all_have_all : {false, true})
          for (const rank_t hub : {0, 1})
            for (index_t in_place = 0; in_place <= report.stages + 1; ++in_place)
              check_endings<thread_group>(options, report, {in_place, all_have_all, survivors}, hub, met);
      // its slots are not only those that send
      check_endings<mailbox_group>(options, unbroken<mailbox_group>(options), {0, false, {0}}, 0, met);
    }
  CHECK(met.size() == 4);
}
