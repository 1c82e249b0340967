// SPDX-License-Identifier: Apache-2.0
// Switches with relay on real memory, over threads and by messages: nodes of 1 to 8 devices, worlds of up to 16, random
// layouts, one stage and many; every element compared, every page counted, what is passed on included.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <reshard/switch/prepared_switch.hpp>
#include <reshard/switch/torn_switch.hpp>
#include <reshard/testing/known_values.hpp>
#include <reshard/transport/mailbox_group.hpp>
#include <reshard/transport/thread_group.hpp>

#include "../support/dice.hpp"
#include "../support/switches.hpp"
#include "../support/tiny.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice, testing::switch_in_memory, testing::tiny;

namespace {
constexpr patience soon = std::chrono::seconds(60);
constexpr exchange_as ways[] = {exchange_as::asynchronous, exchange_as::buffered, exchange_as::naive};

/// How often something occurred.
struct census {
  std::map<std::string, long> times;
  void add(const std::string& what, bool occurs) { times[what] += occurs ? 1 : 0; }
  void add(const switch_in_memory& s, const switch_options& options) {
    index_t phases = 1, stages = 1;
    for (const switch_report& r : s.reports) phases = std::max(phases, r.phases), stages = std::max(stages, r.stages);
    add("passes bytes on", s.passed > 0);
    add("2 phases", phases == 2), add("3 phases or more", phases > 2);
    add("many stages", stages > 1), add("a budget", options.budget != no_budget);
    add("several chains", options.route.chains > 1);
  }
  void require(long least) const {
    for (const auto& occurred : times) {
      MESSAGE(occurred.first, ": ", occurred.second);
      CAPTURE(occurred.first);
      CHECK_DRAWN(occurred.second >= least);
    }
  }
};
}  // namespace

TEST_CASE("random switches with relay over threads and mailboxes") {
  oracle::generator cases(testing::seed() + 11);
  dice random(12);
  census met;
  for (int i = 0; i < (testing::few() ? 12 : testing::thrown(60)); ++i) {
    const oracle::switch_case c = cases.next_switch();
    const cluster on = nodes_of(random.within(1, 4));
    switch_options options{.route = {relay::always, random.within(1, 3), random.coin() ? 1 : random.within(2, 9)}};
    options.checks = random.coin();
    if (random.coin()) options.budget = 256_KiB;
    INFO(c.describe());
    CAPTURE(on.gpus);
    CAPTURE(options.route.chains);
    CAPTURE(options.route.stages);
    switch_in_memory s(c, on);
    if (i % 2 == 0) {
      if (options.budget != no_budget) s.run_in_stages_by<thread_group>(options);
      else {
        thread_group world(s.change.devices(), soon);
        s.run(world, options);
      }
    } else {
      const exchange_as how = ways[random.below(3)];
      if (options.budget != no_budget) s.run_in_stages_by<mailbox_group>(options, how);
      else {
        mailbox_group world(s.change.devices(), soon, how);
        s.run(world, options);
      }
    }
    met.add(s, options);
  }
  if (!testing::few()) met.require(3);
}

// Worlds of 1 to 16 devices on nodes of 1 to 8, those of 128 for which 3 n + gpus leaves one of these rests by 16.
static void worlds_and_nodes(int first_rest, int last_rest) {
  const model m = make_transformer(
      {.name = "tiny", .layers = 8, .hidden = 16, .heads = 2, .groups = 2, .head_dim = 8, .ffn = 16, .vocabulary = 64});
  if (testing::seed() != testing::fixed_seed) return;  // once is enough of these
  dice random(13);
  census met;
  for (rank_t n = 1; n <= 16; ++n)
    for (index_t gpus = 1; gpus <= 8; ++gpus) {
      const auto rest = static_cast<int>((3 * n + gpus) % 16);
      if (rest < first_rest || rest > last_rest) continue;
      const std::string small = "zero=1,tp=2,dp=" + std::to_string((n + 3) / 4),
                        large = "zero=1,dp=" + std::to_string(n);
      const bool grows = random.coin(), by_messages = random.coin();
      switch_options options{.route = {relay::always, random.within(1, 2)}};
      const bool bounded = random.coin();
      if (bounded) options.budget = 64_KiB;
      CAPTURE(n);
      CAPTURE(gpus);
      CAPTURE(grows);
      CAPTURE(by_messages);
      const device_map few(2 * ((n + 3) / 4)), all(n);
      switch_in_memory s(m, grows ? small : large, grows ? large : small, grows ? few : all, grows ? all : few,
                         pages_are::reserved, nodes_of(gpus));
      const exchange_as how = ways[random.below(2)];
      if (bounded && by_messages) s.run_in_stages_by<mailbox_group>(options, how);
      if (bounded && !by_messages) s.run_in_stages_by<thread_group>(options);
      if (!bounded && by_messages) {
        mailbox_group world(s.change.devices(), soon, how);
        s.run(world, options);
      }
      if (!bounded && !by_messages) {
        thread_group world(s.change.devices(), soon);
        s.run(world, options);
      }
      met.add("grows", grows), met.add("by messages", by_messages);
      met.add(s, options);
    }
  if (last_rest - first_rest > 8) met.require(10);
}

TEST_CASE("worlds of up to 16, on nodes of 1 to 8") { worlds_and_nodes(0, testing::few() ? 0 : 1); }
TEST_CASE("every size of world up to 16, on nodes of 1 to 8" * doctest::test_suite("many")) { worlds_and_nodes(2, 15); }

TEST_CASE("weights go to rollout replicas again and again: the arena stays, and nothing else changes") {
  const layout_switch change(
      space(tiny(4), parse_degrees("tp=2,pp=2")), space(tiny(4), parse_degrees("tp=2,dp=4")),
      {.to = device_map({4, 5, 6, 7, 8, 9, 10, 11}), .on = nodes_of(4), .states = parameter_states});
  const auto push = [&](auto& world) {
    bytes_t passed = 0;
    std::mutex mutex;
    world.run([&](auto& here) {
      const rank_t d = here.device(), f = change.from_rank(d), t = change.to_rank(d);
      rank_storage none("no rank"), nothing("no rank");
      if (f >= 0) none = rank_storage(change.from(), f, "trained", pages_are::reserved, parameter_states);
      if (t >= 0) nothing = rank_storage(change.to(), t, "replica", pages_are::reserved, parameter_states);
      prepared_switch again(change, none.tensors(), nothing.tensors(), here, {.route = {relay::always, 1, 3}});
      CHECK(again.report().phases > 1);
      for (int run = 0; run < 3; ++run) {
        const known_values known{static_cast<std::uint64_t>(run)};
        fill(none.tensors(), change.from(), known);
        again.run();
        CHECK(compare(nothing.tensors(), change.to(), known).wrong == 0);
        CHECK(compare(none.tensors(), change.from(), known).wrong == 0);
      }
      const std::lock_guard lock(mutex);
      passed += again.report().passed_on;
    });
    CHECK(passed > 0);
  };
  thread_group threads(12, soon);
  push(threads);
  for (const exchange_as how : ways) {
    mailbox_group mailboxes(12, soon, how);
    push(mailboxes);
  }
}

TEST_CASE("of a switch with relay that was torn, who held an element still has it, or its destinations do") {
  const routing route{relay::always};
  const layout_switch change(space(tiny(2), parse_degrees("tp=2,pp=2,zero=1")),
                             space(tiny(2), parse_degrees("dp=4,zero=1")), {.on = nodes_of(2)});
  REQUIRE(phases_of(change, route) > 1);
  for (const index_t stages : {1, 5})
    for (index_t in_place = 0; in_place <= stages; ++in_place) {
      index_t boxes = 0;
      ended::torn end{"", stages, in_place, {0, 1, 2, 3}};
      if (in_place % 2 == 0) end.unread_kept = {0, stages, 1, 0};  // of each device; none without a budget
      for (const torn_box& b : torn_boxes(change, end, route)) {
        CHECK_FALSE(b.lost());
        ++boxes;
        const family_box where = family_box_of(b.tensor, b.where);
        const role r = b.states.role_of(*b.states.begin());
        const auto holds = [&](const auto& side, rank_t rank) {  // all of it
          index_t volume = 0;
          each_held(side, rank, r, [&](int f, const family_box& held) {
            if (f == b.tensor.family) volume += intersect(held, where).volume();
          });
          return volume == where.volume();
        };
        for (const rank_t d : b.in_old) CHECK(holds(change.from(), change.from_rank(d)));
        for (const rank_t d : b.in_new) CHECK(holds(change.to(), change.to_rank(d)));
      }
      CHECK(boxes > 0);
    }
}

TEST_CASE("what can't be relayed is refused before anything is touched") {
  switch_in_memory s(tiny(2), "tp=2,pp=2", "dp=4", device_map(4), device_map(4), pages_are::reserved, nodes_of(2));
  const auto refused_with = [&](auto&& options_of) {
    thread_group world(4, soon);
    const std::string sentence = testing::refused([&] {
      world.run([&](auto& here) {
        const auto d = static_cast<std::size_t>(here.device());
        switch_state(s.change, s.before[d].tensors(), s.after[d].tensors(), here, options_of(here.device()));
      });
    });
    CHECK(s.untouched());
    return sentence;
  };
  const auto says = [](const std::string& sentence, const char* words) {
    CAPTURE(sentence);
    CHECK(sentence.find(words) != sentence.npos);
  };
  says(refused_with([](rank_t) {
         return switch_options{.route = {relay::always, 1, 0}};
       }),
       "a switch in 0 stages; it is made in 1 to 4096");
  says(refused_with([](rank_t) {
         return switch_options{.route = {relay::never, 1, 4097}};
       }),
       "a switch in 4097 stages; it is made in 1 to 4096");
  says(refused_with([](rank_t) { return switch_options{.route = {relay::always, 0}}; }), "0 chains of each node");
  says(refused_with([](rank_t d) { return switch_options{.route = {d == 2 ? relay::never : relay::always}}; }),
       "device 0 was given relay over 1 chains a node in 1 stages, nodes of 2 NICs and device 2 direct routes in 1 "
       "stages; all make one "
       "switch");
  says(refused_with([](rank_t d) {
         return switch_options{.route = {relay::always, d == 3 ? 2 : 1}};
       }),
       "device 0 was given relay over 1 chains a node in 1 stages, nodes of 2 NICs and device 3 relay over 2 chains");
}

TEST_CASE("stages are told of once all of their phases are in place, with what came in any of them") {
  for (const bool asynchronous : {true, false}) {
    switch_in_memory s(tiny(4), "tp=2,pp=2,zero=1", "dp=4,zero=1", device_map(4), device_map(4), pages_are::reserved,
                       nodes_of(2));
    mailbox_group world(4, soon, asynchronous ? exchange_as::asynchronous : exchange_as::buffered);
    world.run([&](auto& here) {
      const auto d = static_cast<std::size_t>(here.device());
      const binding& after = s.after[d].tensors();
      bytes_t told = 0, kept = 0;
      index_t next = 0, wrong = 0;
      const routing route{relay::always, 1, 4};
      const staged_plan plan = stage_plan(make_plan(s.change, here.device(), route), s.change, 4);
      const auto right_so_far = [&](index_t stage) {  // all that is delivered in stages up to this one is in place
        binding part("part", names_of(s.change.to()));
        for (const staged_piece& p : plan.receives)
          if (p.stage <= stage && p.why == purpose::delivered)
            for (const int state : p.states)
              after.meet({state, p.tensor, p.where}, [&](const bound_box& b) { part.add(b); });
        part.seal();
        const comparison found = testing::compare(s.by, part, s.change.to());
        wrong += found.wrong;
        kept = found.elements;
      };
      const auto watch = [&](const stage_report& r) {
        CHECK(r.stage == next++);
        told += r.bytes;
        right_so_far(r.stage);
      };
      const switch_report report = switch_state(s.change, s.before[d].tensors(), s.after[d].tensors(), here,
                                                {.route = route, .on_stage = watch});
      CHECK(next == 4);
      CHECK(told == report.received);
      CHECK(report.phases > 1);
      CHECK(wrong == 0);
      CHECK(kept > 0);
    });
  }
}
