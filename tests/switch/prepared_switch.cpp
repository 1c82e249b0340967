// SPDX-License-Identifier: Apache-2.0
// A switch made ready once and run often: every run moves what the sources hold by then, allocates nothing from the
// second on, and is as right beside other switches of the same world; and what a refusal leaves behind.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include <reshard/memory/rank_storage.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/switch/prepared_switch.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/testing/known_values.hpp>
#include <reshard/transport/forwarding.hpp>
#include <reshard/transport/mailbox_group.hpp>
#include <reshard/transport/thread_group.hpp>

#include "../support/judged.hpp"
#include "../support/refused.hpp"
#include "../support/sanitized.hpp"
#include "../support/switches.hpp"
#include "../support/tiny.hpp"

using namespace reshard;

namespace {
std::atomic<long> allocations = 0;
}

// A sanitizer has its own, which clang's ThreadSanitizer does not let replace; there nothing is counted.
#ifndef RESHARD_TEST_SANITIZED
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* at = std::malloc(bytes)) return at;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* at) noexcept { std::free(at); }
[[gnu::noinline]] void operator delete(void* at, std::size_t) noexcept { std::free(at); }
#endif

namespace {

constexpr patience soon = std::chrono::seconds(20);

computed_switch change_of(const char* from, const char* to, state_set states = all_states) {
  const model m = make_transformer({.name = "tiny",
                                    .layers = 4,
                                    .hidden = 64,
                                    .heads = 4,
                                    .groups = 4,
                                    .head_dim = 16,
                                    .ffn = 128,
                                    .vocabulary = 256});
  return layout_switch(space(m, parse_degrees(from)), space(m, parse_degrees(to)), {.states = states});
}

/// Both sides of a switch in memory, for one device.
struct both_sides {
  rank_storage before, after;
  both_sides(const computed_switch& change, rank_t device)
      : before(change.from(), change.from_rank(device), "before", pages_are::reserved, change.states()),
        after(change.to(), change.to_rank(device), "after", pages_are::reserved, change.states()) {}
};

/// Elements of TO that are not what they should be after the sources were filled with `seed`; -1 where nothing was
/// compared.
index_t wrong_after(const both_sides& mine, const computed_switch& change, std::uint64_t seed) {
  const comparison found = compare(mine.after.tensors(), change.to(), known_values{seed});
  return found.elements > 0 || mine.after.tensors().boxes().empty() ? found.wrong : -1;
}

}  // namespace

TEST_CASE_TEMPLATE("every run moves what the sources hold by then, and keeps them", World, thread_group,
                   mailbox_group) {
  for (const index_t in_stages : {1, 5})  // kept sources need no more stages for any budget
    for (const char* to : {"dp=4,zero=1", "pp=2", "tp=4,dp=2,zero=1"}) {
      CAPTURE(to);
      CAPTURE(in_stages);
      const computed_switch change = change_of("tp=2,pp=2,zero=1", to);
      std::atomic<index_t> wrong = 0, spoilt = 0, stages = 0;
      World world(change.devices(), soon);
      world.run([&](auto& here) {
        both_sides mine(change, here.device());
        prepared_switch again(change, mine.before.tensors(), mine.after.tensors(), here,
                              {.route = {.stages = in_stages}});
        CHECK(mine.after.resident_bytes() == 0);  // nothing is touched before the first run
        for (std::uint64_t run = 1; run <= 4; ++run) {
          fill(mine.before.tensors(), change.from(), known_values{run});
          again.run();
          wrong += wrong_after(mine, change, run) != 0 ? 1 : 0;
          spoilt += compare(mine.before.tensors(), change.from(), known_values{run}).wrong;
          here.all_reduce_max(0);  // all have looked before anybody writes again
        }
        stages = again.report().stages;
        CHECK(mine.after.resident_bytes() == again.report().memory.after);
      });
      CHECK(wrong == 0);
      CHECK(spoilt == 0);
      CHECK(stages == in_stages);
    }
}

TEST_CASE_TEMPLATE("from the second run on nothing is allocated", World, thread_group, mailbox_group) {
  const computed_switch change = change_of("tp=2,dp=2,zero=1", "pp=2,dp=2");
  std::atomic<long> before = 0, after = 0;
  World world(change.devices(), soon);
  world.run([&](auto& here) {
    both_sides mine(change, here.device());
    fill(mine.before.tensors(), change.from());
    prepared_switch again(change, mine.before.tensors(), mine.after.tensors(), here, {.route = {.stages = 7}});
    again.run();
    here.all_reduce_max(0);
    before = allocations.load();
    here.all_reduce_max(0);
    for (int run = 0; run < 5; ++run) again.run();
    here.all_reduce_max(0);
    after = allocations.load();
    here.all_reduce_max(0);
    CHECK(again.report().stages == 7);
    CHECK(wrong_after(mine, change, 1) == 0);
  });
  CHECK((before > 0) != testing::sanitized);
  CHECK(after == before);
}

TEST_CASE_TEMPLATE("several prepared switches and others in between share a world", World, thread_group,
                   mailbox_group) {
  const computed_switch there = change_of("tp=4", "dp=4"), back = change_of("dp=4", "pp=4"),
                        once = change_of("tp=2,dp=2", "pp=2,dp=2,zero=1");
  std::atomic<index_t> wrong = 0;
  World world(4, soon);
  world.run([&](auto& here) {
    const rank_t device = here.device();
    both_sides first(there, device), second(back, device);
    prepared_switch one(there, first.before.tensors(), first.after.tensors(), here);
    prepared_switch two(back, first.after.tensors(), second.after.tensors(), here);
    for (std::uint64_t run = 1; run <= 3; ++run) {
      fill(first.before.tensors(), there.from(), known_values{run});
      one.run();
      two.run();
      wrong += wrong_after(second, back, run) != 0 ? 1 : 0;
      both_sides other(once, device);
      fill(other.before.tensors(), once.from(), known_values{run + 10});
      switch_state(once, other.before.tensors(), other.after.tensors(), here, {.budget = 1_MiB});
      wrong += wrong_after(other, once, run + 10) != 0 ? 1 : 0;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("what cannot be is refused where the switch is made, by all, and nothing is touched", World,
                   thread_group, mailbox_group) {
  const computed_switch change = change_of("tp=2", "dp=2");
  std::string sentences[2], later[2];
  World world(2, soon);
  world.run([&](auto& here) {
    const auto d = static_cast<std::size_t>(here.device());
    both_sides mine(change, here.device());
    fill(mine.before.tensors(), change.from());
    const auto attempt = [&](const switch_options& options) -> std::string {
      try {
        prepared_switch again(change, mine.before.tensors(), mine.after.tensors(), here, options);
        again.run();
      } catch (const std::exception& e) {
        return e.what();
      }
      return "done";
    };
    sentences[d] = attempt({.budget = 1_MiB});
    CHECK(mine.after.resident_bytes() == 0);
    later[d] = attempt({});  // whatever the options say, sources stay
    CHECK(wrong_after(mine, change, 1) == 0);
    CHECK(compare(mine.before.tensors(), change.from()).wrong == 0);
  });
  for (std::size_t d = 0; d < 2; ++d) {
    CAPTURE(sentences[d]);
    CHECK(sentences[d].find("above") == std::string::npos);
    CHECK(sentences[d].find("the sources being kept, and of 1, 2, 4 .. 4096 stages none keeps it; the least "
                            "budget that does is ") != std::string::npos);
    CHECK(later[d] == "done");
  }
}

TEST_CASE("as many stages as the budget asks for and no more, and at the least budget the excess may be all of it") {
  // 4 MiB, of which a stage of 1024 moves a page
  const std::vector<shard> list = {{0, "w", bf16, {2048, 1024}, {0, 0}, {2048, 1024}}};
  const layout_switch change(list, list);
  thread_group world(1, soon);
  world.run([&](auto& here) {
    const auto under = [&](bytes_t budget, sources after_use = sources::release) {
      rank_storage before(change.from(), 0, "before"), after(change.to(), 0, "after");
      fill(before.tensors(), change.from());
      return switch_state(change, before.tensors(), after.tensors(), here, {.budget = budget, .after_use = after_use});
    };
    CHECK_REFUSED(under(4095),
                  "a budget of 4095 bytes cannot work: in one stage a device needs 4194304 bytes beyond max(before, "
                  "after), and of 1, 2, 4 .. 4096 stages none keeps it; the least budget that does is 4096 bytes");
    CHECK_REFUSED(
        under(4096, sources::keep),
        "a budget of 4096 bytes cannot work: in one stage a device needs 4194304 bytes beyond max(before, after), the "
        "sources being kept, and of 1, 2, 4 .. 4096 stages none keeps it");
    const switch_report report = under(4096);
    CHECK(report.stages == 1024);
    CHECK(report.memory.excess() == 4096);
    CHECK(under(2 * 4096 - 1).stages == 1024);
    CHECK(under(2 * 4096).stages == 512);
  });
}

TEST_CASE("a run waits until every device's sources are ready") {
  const computed_switch change = change_of("tp=2", "dp=2", parameter_states);
  std::atomic<index_t> wrong = 0;
  thread_group world(2, soon);
  world.run([&](auto& here) {
    both_sides mine(change, here.device());
    prepared_switch again(change, mine.before.tensors(), mine.after.tensors(), here);
    for (std::uint64_t run = 1; run <= 3; ++run) {
      if (here.device() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      fill(mine.before.tensors(), change.from(), known_values{run});
      again.run();
      wrong += wrong_after(mine, change, run) != 0 ? 1 : 0;
      here.all_reduce_max(0);
    }
  });
  CHECK(wrong == 0);
}

namespace {

/// An endpoint that looks, after every slot and at the end of a run, at the pages in which its device passes bytes on.
template <typename Endpoint>
struct passing : forwarding<Endpoint> {
  using typename forwarding<Endpoint>::moves;
  using forwarding<Endpoint>::inner;
  const binding& after;
  bool stays;
  testing::arena_pages passed = {};
  index_t slots = 0, moved = 0, wrong = 0, ended = 0;
  bytes_t most = 0;

  moves prepare(const staged_plan& plan, const binding& into, page_stages& pages) {
    const reshard::footprint taken = inner.footprint(plan);
    passed = testing::arena_pages(plan, into, after,
                                  [&](index_t slot) { return taken.written_in.at(static_cast<std::size_t>(slot)); });
    slots = plan.times().slots();
    return inner.prepare(plan, into, pages);
  }
  void move(moves& prepared, index_t slot) {
    inner.move(prepared, slot);
    moved = slot + 1;
    if (ended == 0)  // of a later run others may write to the next slot's already
      wrong += passed.resident_bytes() != passed.at_end_of(slot, inner.facts().lag, stays) ? 1 : 0;
    most = std::max(most, passed.resident_bytes());
  }
  std::int64_t all_reduce_max(std::int64_t n) {
    if (slots > 0 && moved == slots) {  // what ends a run
      wrong += passed.resident_bytes() != (stays ? all() : 0) ? 1 : 0;
      ++ended, moved = 0;
    }
    return inner.all_reduce_max(n);
  }
  bytes_t all() const { return page_bytes * static_cast<bytes_t>(passed.pages.size()); }
};

template <typename World>
void check_passing(bytes_t budget, index_t in_stages) {
  CAPTURE(budget);
  CAPTURE(in_stages);
  const layout_switch change(space(testing::tiny(2), parse_degrees("tp=2,pp=2,zero=1")),
                             space(testing::tiny(2), parse_degrees("dp=4,zero=1")), {.on = nodes_of(2)});
  const routing route{relay::always, 1, in_stages};
  std::atomic<index_t> wrong = 0, ended = 0;
  std::atomic<bytes_t> most = 0, passed_on = 0;
  World world(change.devices(), soon);
  world.run([&](auto& here) {
    const rank_t d = here.device();
    both_sides mine(change, d);
    const bool stays = budget == no_budget;
    passing<std::remove_reference_t<decltype(here)>> looking{{here}, mine.after.tensors(), stays};
    prepared_switch again(change, mine.before.tensors(), mine.after.tensors(), looking,
                          {.budget = budget, .route = route});
    for (std::uint64_t run = 1; run <= 2; ++run) {
      fill(mine.before.tensors(), change.from(), known_values{run});
      again.run();
      wrong += wrong_after(mine, change, run) != 0 ? 1 : 0;
      here.all_reduce_max(0);
    }
    bytes_t sent = 0, received = 0, retained = 0, on = 0;
    const plan p = make_plan(change, d, route);
    for (const transfer& t : p.sends) sent += t.bytes();
    for (const transfer& t : p.retains) retained += t.bytes();
    for (const transfer& t : p.receives) received += t.bytes(), on += t.why == purpose::passed_on ? t.bytes() : 0;
    const switch_report& report = again.report();
    CHECK(report.sent == sent);
    CHECK(report.received == received);
    CHECK(report.retained == retained);
    CHECK(report.passed_on == on);
    CHECK(report.passed_on < report.received);
    CHECK(report.phases == phases_of(change, route));
    CHECK((looking.most > 0) == (on > 0));
    wrong += looking.wrong, ended += looking.ended, most += looking.most, passed_on += on;
  });
  CHECK(wrong == 0);
  CHECK(ended == 2 * change.devices());
  CHECK(most > 0);
  CHECK(passed_on > 0);
}

}  // namespace

TEST_CASE_TEMPLATE("pages in which bytes are passed on go with their last reader, but where they stay for all runs",
                   World, thread_group, mailbox_group) {
  for (const bytes_t budget : {bytes_t{64_MiB}, no_budget})
    for (const index_t in_stages : {1, 5}) check_passing<World>(budget, in_stages);
}
