// SPDX-License-Identifier: Apache-2.0
// How a switch is made ready, by hand over threads: what its report says, in how many stages which budget is kept, how
// long what nobody reads stays, and what is refused, on which device with which sentence.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

#include <reshard/memory/rank_storage.hpp>
#include <reshard/space/listed_holding.hpp>
#include <reshard/switch/detail/make_ready.hpp>
#include <reshard/transport/forwarding.hpp>
#include <reshard/transport/mailbox_group.hpp>
#include <reshard/transport/thread_group.hpp>

#include "../support/page_rows.hpp"

using namespace reshard;
using testing::rows;

namespace {

constexpr patience soon = std::chrono::seconds(20);
constexpr bytes_t page = testing::bytes_of_row;

auto switch_of(const std::vector<shard>& from, const std::vector<shard>& to, placement placed) {
  return layout_switch(shard_list(from, placed.from.ranks()), shard_list(to, placed.to.ranks()), std::move(placed));
}
device_map on(const std::vector<rank_t>& devices) { return device_map(devices); }
/// Two devices that swap a tensor of 16 pages each.
auto swapping(const std::vector<rank_t>& empty = {}) {
  return switch_of({rows(0, "a", 0, 16, 16), rows(1, "b", 0, 16, 16), rows(0, "b", 0, 16, 16)},
                   {rows(0, "b", 0, 16, 16), rows(1, "a", 0, 16, 16)},
                   {.from = on({0, 1}), .to = on({0, 1}), .empty = empty});
}
auto plain_swapping() {
  return switch_of({rows(0, "a", 0, 16, 16), rows(1, "b", 0, 16, 16)},
                   {rows(0, "b", 0, 16, 16), rows(1, "a", 0, 16, 16)}, {.from = on({0, 1}), .to = on({0, 1})});
}
/// Of both tensors device 0 has the first six rows and 1 the others; 1 and 2 need all.
auto gathering() {
  return switch_of({rows(0, "w", 0, 6, 12), rows(1, "w", 6, 12, 12), rows(0, "x", 0, 6, 12), rows(1, "x", 6, 12, 12)},
                   {rows(0, "w", 0, 12, 12), rows(1, "w", 0, 12, 12), rows(0, "x", 0, 12, 12), rows(1, "x", 0, 12, 12)},
                   {.from = on({0, 1}), .to = on({2, 1})});
}

/// An end that says of itself what is asked for, and writes down whom it is to meet.
struct odd_end : forwarding<thread_group::endpoint> {
  bytes_t fixed = 0;
  std::vector<rank_t> absent = {};
  bool reached = true, short_of_slots = false;
  std::string disagrees = {};
  bool connected = false, checked = false;
  int located = 0;
  std::vector<const binding*> offered = {};
  std::vector<rank_t> sends_to = {}, receives_from = {};

  explicit odd_end(thread_group::endpoint& of) : forwarding<thread_group::endpoint>{of} {}
  transport_facts facts() const {
    transport_facts all = forwarding<thread_group::endpoint>::facts();
    all.fixed_bytes = fixed, all.absent = absent;
    return all;
  }
  bool reaches(memory_place) const { return reached; }
  reshard::footprint footprint(const staged_plan& plan) const {
    reshard::footprint all = forwarding<thread_group::endpoint>::footprint(plan);
    if (short_of_slots) all.staging.pop_back();
    return all;
  }
  std::string disagreement(moves& prepared) {
    const std::string other = inner.disagreement(prepared);
    return disagrees.empty() ? other : disagrees;
  }
  void connect(moves& prepared) {
    connected = true;
    inner.connect(prepared);
  }
  void locate(binding& tensors) {
    ++located;
    inner.locate(tensors);
  }
  void offer(const binding& tensors) {
    offered.push_back(&tensors);
    inner.offer(tensors);
  }
  void check_messages(bool on) {
    checked = on;
    inner.check_messages(on);
  }
  void contact(const std::vector<rank_t>& to, const std::vector<rank_t>& from) {
    sends_to = to, receives_from = from;
    inner.contact(to, from);
  }
};

/// One device's memory and end of a switch.
template <typename Change>
struct one_end {
  const Change& change;
  odd_end here;
  rank_storage before, after;

  static rank_storage storage_of(const auto& side, rank_t rank) {
    return rank < 0 ? rank_storage() : rank_storage(side, rank, "rank " + std::to_string(rank));
  }
  one_end(const Change& of, thread_group::endpoint& end)
      : change(of), here(end), before(storage_of(of.from(), of.from_rank(end.device()))),
        after(storage_of(of.to(), of.to_rank(end.device()))) {
    for (const memory_block& block : before.tensors().blocks())
      for (bytes_t at = 0; at < block.granules * block.granule; at += page) block.begin[at] = std::byte{1};
  }
  auto ready(binding& from, binding& to, const switch_options& options) {
    detail::all_or_none<odd_end> devices = detail::one_of_switch(here);
    return detail::ready_maker(change, from, to, devices, options).make();
  }
  auto ready(const switch_options& options) { return ready(before.tensors(), after.tensors(), options); }
};

/// Makes every device of a switch, or of a larger world, do this; what each ends with.
template <typename Change, typename Body>
std::vector<std::string> on_all(const Change& change, Body&& body, rank_t devices = 0) {
  const rank_t all = devices == 0 ? change.devices() : devices;
  std::vector<std::string> ends(static_cast<std::size_t>(all), "ready");
  thread_group world(all, soon);
  world.run([&](auto& here) {
    try {
      if (here.device() >= change.devices()) {  // has no part in it
        rank_storage none, nothing;
        odd_end end(here);
        auto together = detail::one_of_switch(end);
        const switch_options options;
        detail::ready_maker(change, none.tensors(), nothing.tensors(), together, options).make();
        return;
      }
      one_end<Change> mine(change, here);
      body(mine);
    } catch (const std::exception& why) {
      ends[static_cast<std::size_t>(here.device())] = why.what();
    }
  });
  return ends;
}

/// One device, or all (-1), refuse with this sentence, and the others say so.
void check_refused(const std::vector<std::string>& ends, rank_t by, const std::string& sentence) {
  for (rank_t d = 0; d < std::ssize(ends); ++d) {
    const std::string other = "reshard: device " + std::to_string(d) + ": device " + std::to_string(by) +
                              " refused the switch: " + sentence + "; nothing was touched";
    CHECK(ends[static_cast<std::size_t>(d)] == (by < 0 || by == d ? "reshard: " + sentence : other));
  }
}
using all_ready = std::vector<std::string>;

}  // namespace

TEST_CASE("the report says what each device sends, receives, keeps and needs of memory, and whom it meets") {
  using ranks = std::vector<rank_t>;
  const struct {
    bytes_t sent, received, retained, before, after, peak;
    ranks to, from;
  } wanted[] = {
      {24, 0, 0, 12, 0, 12, {1, 2}, {}}, {12, 12, 12, 12, 24, 36, {2}, {0}}, {0, 24, 0, 0, 24, 24, {}, {0, 1}}};
  const auto change = gathering();
  CHECK(on_all(change, [&](auto& mine) {
          const auto made = mine.ready({.route = {.stages = 3}});
          const auto& w = wanted[mine.here.device()];
          const switch_report& r = made->report;
          CHECK(r.stages == 3);
          CHECK(r.phases == 1);
          CHECK(r.lag == 0);
          CHECK(r.sent == w.sent * page);
          CHECK(r.received == w.received * page);
          CHECK(r.retained == w.retained * page);
          CHECK(r.passed_on == 0);
          CHECK(r.memory.before == w.before * page);
          CHECK(r.memory.after == w.after * page);
          CHECK(r.memory.peak == w.peak * page);
          CHECK_FALSE(r.unread_kept.has_value());
          CHECK(made->unread_kept_by(3) == std::vector<index_t>{3, 3, 3});
          CHECK(made->staged->stages == 3);
          CHECK(made->taken.size() == 3);
          CHECK_FALSE(made->relayed());
          CHECK(mine.here.connected);
          CHECK(mine.here.located == 2);
          CHECK_FALSE(mine.here.checked);
          CHECK(mine.here.sends_to == w.to);
          CHECK(mine.here.receives_from == w.from);
          CHECK(mine.after.resident_bytes() == 0);
          CHECK(mine.before.resident_bytes() == w.before * page);
        }) == all_ready(3, "ready"));
}

TEST_CASE("what is relayed: its phases, and what a device receives to pass it on") {
  const auto change = switch_of({rows(0, "w", 0, 12, 12), rows(0, "y", 0, 8, 8), rows(1, "x", 0, 1, 1)},
                                {rows(0, "w", 0, 12, 12), rows(0, "y", 0, 8, 8), rows(1, "x", 0, 1, 1)},
                                {.from = on({0, 1}), .to = on({2, 3}), .on = nodes_of(2)});
  const bytes_t passed[] = {page / 2, 10 * page, page / 2, 10 * page};
  CHECK(on_all(change, [&](auto& mine) {
          const auto made = mine.ready({.checks = true, .route = {.how = relay::always, .stages = 2}});
          CHECK(mine.here.checked);
          CHECK(made->report.phases == 3);
          CHECK(made->relayed());
          CHECK(made->report.passed_on == passed[mine.here.device()]);
          CHECK(made->times().slots() == 4);
        }) == all_ready(4, "ready"));
}

TEST_CASE("a budget is kept in the least of 1, 2, 4 .. stages, without what the transport holds whatever the stages") {
  const auto change = plain_swapping();
  for (const bytes_t fixed : {bytes_t{0}, 3 * page})
    for (const auto& [budget, stages] : {std::pair{16, 1}, {15, 2}, {8, 2}, {7, 4}, {4, 4}, {1, 16}})
      CHECK(on_all(change, [&, pages = budget, in = stages](auto& mine) {
              mine.here.fixed = fixed;
              const auto made = mine.ready({.budget = pages * page + fixed});
              CHECK(made->report.stages == in);
              CHECK(made->report.memory.peak == (16 + 16 / in) * page);
            }) == all_ready(2, "ready"));
}

TEST_CASE("a budget that no number of stages keeps is refused by all with the least that does") {
  const auto change = plain_swapping();
  const auto sentence = [](bytes_t budget, bytes_t one, const char* why, bytes_t least) {
    return "a budget of " + std::to_string(budget) + " bytes cannot work: in one stage a device needs " +
           std::to_string(one) + " bytes beyond max(before, after)" + why +
           ", and of 1, 2, 4 .. 4096 stages none keeps it; the least budget that does is " + std::to_string(least) +
           " bytes";
  };
  check_refused(on_all(change, [](auto& mine) { (void)mine.ready({.budget = page - 1}); }), -1,
                sentence(page - 1, 16 * page, "", page));
  check_refused(on_all(change,
                       [](auto& mine) {
                         mine.here.fixed = 3 * page;
                         (void)mine.ready({.budget = 3 * page + 1});
                       }),
                -1, sentence(3 * page + 1, 19 * page, "", 4 * page));
  check_refused(on_all(change, [](auto& mine) { (void)mine.ready({.budget = page, .after_use = sources::keep}); }), -1,
                sentence(page, 16 * page, ", the sources being kept", 16 * page));
  check_refused(on_all(change,
                       [](auto& mine) {  // memory that is not the binding's to give back
                         binding lent(mine.before.tensors().who());
                         for (const bound_box& b : mine.before.tensors().boxes()) lent.add(b);
                         (void)mine.ready(lent, mine.after.tensors(), {.budget = page});
                       }),
                -1, sentence(page, 16 * page, ", memory of the sources that nobody may give back included", 16 * page));
}

TEST_CASE("what nobody reads stays as long as the budget allows, each device knows how long on all") {
  // Device 0 has 4 pages for device 1, and 16 that nobody needs; it gets 32.
  const auto change =
      switch_of({rows(0, "a", 0, 4, 4), rows(0, "u", 0, 16, 16), rows(1, "c", 0, 32, 32)},
                {rows(0, "c", 0, 32, 32), rows(1, "a", 0, 4, 4)}, {.from = on({0, 1}), .to = on({0, 1})});
  const auto check = [&](const switch_options& options, index_t stages, index_t least,
                         const std::vector<index_t>& by_device, bytes_t fixed = 0) {
    CHECK(on_all(change, [&](auto& mine) {
            mine.here.fixed = fixed;
            const auto made = mine.ready(options);
            CHECK(made->report.stages == stages);
            CHECK(made->report.unread_kept == least);
            CHECK(made->unread_kept_by(2) == by_device);
            CHECK(made->unread_kept == by_device[static_cast<std::size_t>(mine.here.device())]);
          }) == all_ready(2, "ready"));
  };
  check({.route = {.stages = 3}}, 3, 3, {3, 3});
  check({.after_use = sources::keep, .route = {.stages = 3}}, 3, 3, {3, 3});
  check({.budget = 4 * page}, 1, 0, {0, 1});
  check({.budget = 3 * page}, 2, 0, {0, 2});
  check({.budget = page}, 4, 1, {1, 4});
  check({.budget = 3 * page}, 4, 1, {1, 4}, 2 * page);
  check({.budget = 20 * page}, 1, 1, {1, 1});
}

TEST_CASE("devices that are not there, that are not the switch's, or that are called empty and bind something") {
  const auto change = plain_swapping();
  CHECK(on_all(
            change, [](auto& mine) { (void)mine.ready({}); }, 3) == all_ready(3, "ready"));  // one looks on
  const auto more = gathering();
  for (const rank_t gone : {0, 2})  // of FROM alone, and of TO alone
    check_refused(
        on_all(more,
               [&](auto& mine) {
                 if (mine.here.device() == 1) mine.here.absent = {gone};
                 (void)mine.ready({});
               }),
        1,
        "the switch names device " + std::to_string(gone) + ", which the transport has no more; say that it is lost");
  const auto apart = switch_of({rows(0, "a", 0, 1, 1)}, {rows(0, "a", 0, 1, 1)}, {.from = on({0}), .to = on({2})});
  CHECK(on_all(apart, [](auto& mine) {
          mine.here.absent = {1};  // who has no part in it
          (void)mine.ready({});
        }) == all_ready(3, "ready"));
  thread_group two(2, soon);
  std::vector<std::string> ends(2);
  two.run([&](auto& here) {
    one_end<decltype(gathering())> mine(more, here);
    try {
      (void)mine.ready({});
    } catch (const std::exception& why) {
      ends[static_cast<std::size_t>(here.device())] = why.what();
    }
  });
  check_refused(ends, -1, "the switch names 3 devices, and the transport has 2");
  const auto empty = swapping({1});
  check_refused(on_all(empty,
                       [](auto& mine) {
                         const bool stale = mine.here.device() == 1;
                         rank_storage held(mine.change.from(), stale ? 1 : 0, "held");
                         (void)mine.ready(held.tensors(), mine.after.tensors(), {});
                       }),
                1, "device 1 is called empty, and binds 1 boxes of FROM; one that holds nothing of it binds none");
}

TEST_CASE("what a device is given that cannot be is refused by it, and named to the others") {
  const auto change = plain_swapping();
  const auto by_one = [&](const auto& change_it) {
    return on_all(change, [&](auto& mine) {
      switch_options options{.route = {.stages = 2}};
      if (mine.here.device() == 1) change_it(mine, options);
      (void)mine.ready(options);
    });
  };
  for (const index_t stages : {0, 4097})
    check_refused(by_one([&](auto&, switch_options& o) { o.route.stages = stages; }), 1,
                  "a switch in " + std::to_string(stages) + " stages; it is made in 1 to 4096");
  check_refused(by_one([](auto&, switch_options& o) { o.budget = 0; }), 1,
                "a budget of 0 bytes; it must be at least 1");
  check_refused(by_one([](auto& mine, switch_options&) { mine.here.absent = {0}; }), 1,
                "the switch names device 0, which the transport has no more; say that it is lost");
  check_refused(by_one([](auto& mine, switch_options&) { mine.here.reached = false; }), 1,
                "device 1, rank 1: lies in host memory, which this transport does not reach");
  check_refused(by_one([](auto& mine, switch_options&) { mine.here.short_of_slots = true; }), 1,
                "device 1: the transport's footprint is of 1 slots, 2 of which send; the plan has 2, 2 of which send, "
                "and what is sent in a slot is written in that or a later one");
  const std::vector<std::string> alike = by_one([](auto&, switch_options& o) { o.route.stages = 3; });
  CHECK(alike[0].find("device 0 was given direct routes in 2 stages and device 1") != std::string::npos);
  CHECK(on_all(change, [](auto& mine) {
          mine.here.disagrees = "messages differ";
          (void)mine.ready({});
        }) == all_ready(2, "reshard: messages differ"));
  for (const index_t stages : {1, 4096})
    CHECK(on_all(change, [&](auto& mine) { (void)mine.ready({.route = {.stages = stages}}); }) ==
          all_ready(2, "ready"));
}

TEST_CASE("what is not bound is named, with its side: sent, received, or kept") {
  const auto change = gathering();
  const auto without = [&](rank_t who, bool of_from) {
    return on_all(change, [&](auto& mine) {
      binding none("nothing");
      const bool here = mine.here.device() == who;
      (void)mine.ready(here && of_from ? none : mine.before.tensors(), here && !of_from ? none : mine.after.tensors(),
                       {});
    });
  };
  const auto missing = [](rank_t device, index_t of, const char* side) {
    const std::string all = std::to_string(of * page / 2);
    return "device " + std::to_string(device) + ", nothing: " + all + " of " + all +
           " elements that the plan needs of param of w are not bound, on the side of " + side;
  };
  check_refused(without(0, true), 0, missing(0, 6, "FROM"));
  check_refused(without(1, true), 1, missing(1, 6, "FROM"));
  check_refused(without(1, false), 1, missing(1, 6, "TO"));
  check_refused(without(2, false), 2, missing(2, 6, "TO"));
  // rows that only stay, in the sources and in the targets
  const auto kept = switch_of({rows(0, "w", 0, 6, 6)}, {rows(0, "w", 0, 6, 6)}, {.from = on({0}), .to = on({0})});
  for (const bool of_from : {true, false})
    check_refused(on_all(kept,
                         [&](auto& mine) {
                           binding none("nothing");
                           (void)mine.ready(of_from ? none : mine.before.tensors(),
                                            of_from ? mine.after.tensors() : none, {});
                         }),
                  0, missing(0, 6, of_from ? "FROM" : "TO"));
  // targets in the memory of sources
  CHECK(on_all(kept,
               [](auto& mine) {
                 binding over("over");
                 for (bound_box b : mine.after.tensors().boxes()) {
                   b.data = mine.before.tensors().boxes()[0].data;
                   over.add(b);
                 }
                 (void)mine.ready(mine.before.tensors(), over, {});
               })[0]
            .find("; a switch wants memory of its own for what it makes") != std::string::npos);
}

namespace {

/// Through devices that need nothing of it: 0 and 1 of one node have a tensor each, 2 and 3 of another need them.
auto relaying() {
  return switch_of({rows(0, "w", 0, 12, 12), rows(1, "x", 0, 1, 1)}, {rows(0, "w", 0, 12, 12), rows(1, "x", 0, 1, 1)},
                   {.from = on({0, 1}), .to = on({2, 3}), .on = nodes_of(2)});
}
/// The boxes of another binding, in another order than theirs, and not sealed.
binding turned_round(const binding& of, const std::string& who, const state_list& list = adam) {
  binding other(who, {}, list);
  for (std::size_t i = of.boxes().size(); i-- > 0;) other.add(of.boxes()[i]);
  return other;
}

}  // namespace

TEST_CASE("what is relayed lies in the host's memory, and is kept as it travels; what is routed directly need not") {
  const auto change = relaying();
  const std::vector<rank_t> holders = {0, 2};  // of FROM, and of TO
  for (const relay how : {relay::never, relay::always}) {
    for (const rank_t d : holders) {
      const std::vector<std::string> ends = on_all(change, [&](auto& mine) {
        binding& held = (d == 0 ? mine.before : mine.after).tensors();
        if (mine.here.device() == d) held.lies_in({memory_place::kind::device, 5});
        (void)mine.ready({.route = {.how = how}});
      });
      if (how == relay::never) CHECK(ends == all_ready(4, "ready"));
      else
        check_refused(ends, d,
                      "device " + std::to_string(d) +
                          ", rank 0: lies in device memory of device 5, and what is relayed is passed on through "
                          "memory of the host; route it directly");
    }
    const std::vector<std::string> converted = on_all(change, [&](auto& mine) {
      if (mine.here.device() != 2) return (void)mine.ready({.route = {.how = how}});
      std::vector<float> wide(12 * page / 2);
      memory at(wide);
      at.holds = dtype::fp32;
      binding kept("kept");
      kept.add(mine.after.tensors().boxes()[0], at);
      (void)mine.ready(mine.before.tensors(), kept, {.route = {.how = how}});
    });
    if (how == relay::never) CHECK(converted == all_ready(4, "ready"));
    else
      check_refused(
          converted, 2,
          "device 2, kept: param of family 0, member 0, expert 0 is bf16 and is kept as fp32; what is relayed "
          "is sent on as it is kept, so keep it as it is, or route it directly");
  }
}

TEST_CASE("sources are offered once, and where it passes something on, an arena behind them") {
  const auto change = relaying();
  for (const relay how : {relay::never, relay::always})
    CHECK(on_all(change, [&](auto& mine) {
            const auto made = mine.ready({.route = {.how = how}});
            std::vector<const binding*> wanted = {&mine.before.tensors()};
            if (how == relay::always) wanted.push_back(&made->arena->sent());
            CHECK(mine.here.offered == wanted);
          }) == all_ready(4, "ready"));
}

TEST_CASE("bindings are sealed, whatever the order of their boxes, and their list of states is the switch's") {
  const auto change = gathering();
  CHECK(on_all(change, [](auto& mine) {
          binding from = turned_round(mine.before.tensors(), "sources"), to = turned_round(mine.after.tensors(), "new");
          (void)mine.ready(from, to, {});
        }) == all_ready(3, "ready"));
  const state_list other = parse_state_list("param:fp16:3");
  for (const bool of_from : {true, false})
    check_refused(on_all(change,
                         [&](auto& mine) {
                           const rank_storage& held = of_from ? mine.before : mine.after;
                           binding odd = turned_round(held.tensors(), "odd", other);
                           const bool here = mine.here.device() == 1;
                           (void)mine.ready(here && of_from ? odd : mine.before.tensors(),
                                            here && !of_from ? odd : mine.after.tensors(), {});
                         }),
                  1,
                  "device 1, odd: state 0 is bound as param:fp16:3, and the switch moves param:bf16:3; "
                  "bindings and switch have one list of states");
}

TEST_CASE("where the transport lags, so do the slots in which pages are taken") {
  const auto change = plain_swapping();
  mailbox_group world(2, soon);
  world.run([&](auto& here) {
    const rank_t d = here.device();
    rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
    auto devices = detail::one_of_switch(here);
    const switch_options options{.route = {.stages = 4}};
    const auto made = detail::ready_maker(change, before.tensors(), after.tensors(), devices, options).make();
    CHECK(made->report.lag == 1);
    CHECK(made->times().slots() == 5);
    CHECK(made->taken.size() == 5);
  });
}
