// SPDX-License-Identifier: Apache-2.0
// How a ready switch moves, by hand over threads: what who watches is told of each stage, which pages are there when,
// what a throw of its own ends, and what is left of the sources afterwards.
#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include <reshard/memory/rank_storage.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/listed_holding.hpp>
#include <reshard/switch/detail/make_ready.hpp>
#include <reshard/switch/detail/run_ready.hpp>
#include <reshard/testing/known_values.hpp>
#include <reshard/transport/forwarding.hpp>
#include <reshard/transport/mailbox_group.hpp>
#include <reshard/transport/thread_group.hpp>

#include "../support/page_rows.hpp"

using namespace reshard;
using testing::rows;

namespace {

constexpr patience soon = std::chrono::seconds(20);
constexpr bytes_t page = testing::bytes_of_row;

auto switch_of(const std::vector<shard>& from, const std::vector<shard>& to, const std::vector<rank_t>& from_devices,
               const std::vector<rank_t>& to_devices, const cluster& on = {}) {
  return layout_switch(shard_list(from, std::ssize(from_devices)), shard_list(to, std::ssize(to_devices)),
                       {.from = device_map(from_devices), .to = device_map(to_devices), .on = on});
}
/// Two devices that swap a tensor of 16 pages each.
auto swapping() {
  return switch_of({rows(0, "a", 0, 16, 16), rows(1, "b", 0, 16, 16)},
                   {rows(0, "b", 0, 16, 16), rows(1, "a", 0, 16, 16)}, {0, 1}, {0, 1});
}
/// Device 0 has the first six rows and 1 the others; 1 and 2 need all.
auto gathering() {
  return switch_of({rows(0, "w", 0, 6, 12), rows(1, "w", 6, 12, 12)},
                   {rows(0, "w", 0, 12, 12), rows(1, "w", 0, 12, 12)}, {0, 1}, {2, 1});
}
/// From device 0 to 1, and on to 2: in phases 1 and 2.
auto chained() {
  return switch_of({rows(0, "w", 0, 12, 12)}, {rows(0, "w", 0, 12, 12), rows(1, "w", 0, 12, 12)}, {0}, {1, 2},
                   nodes_of(1));
}

/// One device's end of a switch with its memory, whose sources are filled.
template <typename Change>
struct one_end {
  const Change& change;
  thread_group::endpoint& here;
  rank_storage before, after;
  std::vector<stage_report> told = {};
  detail::all_or_none<thread_group::endpoint> devices;

  static rank_storage storage_of(const auto& side, rank_t rank) {
    return rank < 0 ? rank_storage() : rank_storage(side, rank, "rank " + std::to_string(rank));
  }
  one_end(const Change& of, thread_group::endpoint& on)
      : change(of), here(on), before(storage_of(of.from(), of.from_rank(on.device()))),
        after(storage_of(of.to(), of.to_rank(on.device()))), devices(detail::one_of_switch(on)) {
    fill(before.tensors(), change.from());
  }
  /// Ready with these options; `look` is called with every stage that is told.
  auto ready(switch_options options, std::function<void(const stage_report&)> look = {}) {
    options.on_stage = [this, look](const stage_report& r) {
      told.push_back(r);
      if (look) look(r);
    };
    return detail::ready_maker(change, before.tensors(), after.tensors(), devices, options).make();
  }
  std::string run(auto& made) {
    try {
      detail::ready_run(*made, devices).run();
    } catch (const std::exception& why) {
      return why.what();
    }
    return "done";
  }
  index_t wrong() const { return compare(after.tensors(), change.to()).wrong; }
};

/// Makes every device of a switch do this.
template <typename Change, typename Body>
void on_all(const Change& change, Body&& body) {
  thread_group world(change.devices(), soon);
  world.run([&](auto& here) {
    one_end<Change> mine(change, here);
    body(mine);
  });
}

}  // namespace

TEST_CASE("who watches is told of each stage once, with what came in it and from how many") {
  const auto direct = gathering();
  const auto relayed = chained();
  const auto watched = [](const auto& change, const switch_options& options, const std::vector<bytes_t>& bytes,
                          const std::vector<rank_t>& peers) {
    on_all(change, [&](auto& mine) {
      const auto d = static_cast<std::size_t>(mine.here.device());
      const auto made = mine.ready(options);
      const auto begin = std::chrono::steady_clock::now();
      CHECK(mine.run(made) == "done");
      const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      CHECK(mine.wrong() == 0);
      REQUIRE(mine.told.size() == 3);
      double sum = 0;
      for (index_t k = 0; k < 3; ++k) {
        const stage_report& r = mine.told[static_cast<std::size_t>(k)];
        CHECK(r.stage == k);
        CHECK(r.stages == 3);
        CHECK(r.bytes == bytes[d]);
        CHECK(r.peers == peers[d]);
        CHECK(r.seconds >= 0);
        sum += r.seconds;
      }
      CHECK(sum > 0);
      CHECK(sum <= took);
    });
  };
  watched(direct, {.route = {.stages = 3}}, {0, 2 * page, 4 * page}, {0, 1, 2});
  watched(relayed, {.route = {.how = relay::always, .stages = 3}}, {0, 4 * page, 4 * page}, {0, 1, 1});
}

TEST_CASE("within a budget pages come slot by slot, and sources go when their stage is in place everywhere") {
  const auto change = swapping();
  on_all(change, [&](auto& mine) {
    std::vector<bytes_t> before, after;
    const auto made = mine.ready({.budget = 4 * page}, [&](const stage_report&) {
      before.push_back(mine.before.resident_bytes() / page), after.push_back(mine.after.resident_bytes() / page);
    });
    CHECK(made->report.stages == 4);
    CHECK(made->report.memory.peak == 20 * page);
    CHECK(mine.before.resident_bytes() == 16 * page);
    CHECK(mine.after.resident_bytes() == 0);
    CHECK_FALSE(made->touched);
    CHECK(mine.run(made) == "done");
    CHECK(mine.wrong() == 0);
    CHECK(before == std::vector<bytes_t>{16, 12, 8, 4});
    CHECK(after == std::vector<bytes_t>{4, 8, 12, 16});
    CHECK(mine.before.resident_bytes() == 0);
    CHECK(made->touched);
    CHECK(made->moved);
    CHECK(made->left == 5);
  });
}

TEST_CASE("without a budget sources go once everything is in place, or are kept and run again") {
  const auto change = swapping();
  for (const sources after_use : {sources::release, sources::keep})
    on_all(change, [&](auto& mine) {
      std::vector<bytes_t> before, after;
      const auto made = mine.ready({.after_use = after_use, .route = {.stages = 4}}, [&](const stage_report&) {
        before.push_back(mine.before.resident_bytes() / page), after.push_back(mine.after.resident_bytes() / page);
      });
      CHECK(mine.run(made) == "done");
      CHECK(before == std::vector<bytes_t>{16, 16, 16, 16});
      CHECK(after == std::vector<bytes_t>{4, 8, 12, 16});
      CHECK(mine.wrong() == 0);
      CHECK(mine.before.resident_bytes() == (after_use == sources::keep ? 16 * page : 0));
      CHECK(made->left == 5);
      if (after_use == sources::release) return;
      fill(mine.before.tensors(), change.from(), known_values{7});
      CHECK(mine.run(made) == "done");
      CHECK(compare(mine.after.tensors(), change.to(), known_values{7}).wrong == 0);
      CHECK(mine.told.size() == 8);
    });
}

TEST_CASE("what is relayed arrives whole, whether the arena goes with each slot or stays") {
  const auto change = chained();
  // through devices that need nothing of it: those of the same node as who has, and as who needs
  const auto passed = switch_of({rows(0, "w", 0, 12, 12), rows(1, "x", 0, 1, 1)},
                                {rows(0, "w", 0, 12, 12), rows(1, "x", 0, 1, 1)}, {0, 1}, {2, 3}, nodes_of(2));
  const auto relayed = [](const auto& of, const switch_options& options, int runs) {
    on_all(of, [&](auto& mine) {
      const auto made = mine.ready(options);
      CHECK(made->relayed());
      for (int run = 0; run < runs; ++run) {
        CHECK(mine.run(made) == "done");
        CHECK(mine.wrong() == 0);
      }
      if (options.after_use == sources::release) CHECK(mine.before.resident_bytes() == 0);
    });
  };
  for (const index_t stages : {1, 4}) {
    const routing how{.how = relay::always, .stages = stages};
    relayed(change, {.route = how}, 1);
    relayed(passed, {.route = how}, 1);
    relayed(passed, {.after_use = sources::keep, .route = how}, 3);
    relayed(passed, {.budget = 64 * page, .after_use = sources::keep, .route = how}, 2);
    relayed(passed, {.budget = 8 * page, .route = how}, 1);
  }
}

TEST_CASE("what on_stage throws ends the switch for all; of the last stage it comes when all have everything") {
  const auto change = swapping();
  for (const index_t stage : {0, 2, 3})
    on_all(change, [&](auto& mine) {
      const bool last = stage == 3, throws = mine.here.device() == 1;
      const auto made = mine.ready({.route = {.stages = 4}}, [&](const stage_report& r) {
        if (throws && r.stage == stage) throw std::runtime_error("the disk is full");
      });
      const std::string end = mine.run(made);
      CAPTURE(stage);
      if (throws) CHECK(end == "the disk is full");
      else if (last) CHECK(end == "done");
      else CHECK(end.find("the disk is full") != std::string::npos);
      CHECK(mine.before.resident_bytes() == (last ? 0 : 16 * page));
      if (last) CHECK(mine.wrong() == 0);
    });
}

TEST_CASE("what is left of the sources is given back where all have everything, and not where they are kept") {
  const auto change = swapping();
  for (const sources after_use : {sources::release, sources::keep})
    for (const index_t left : {0, 3})
      on_all(change, [&](auto& mine) {
        const bool kept = after_use == sources::keep;
        const auto made = mine.ready({.budget = kept ? 32 * page : 4 * page, .after_use = after_use});
        made->left = left;
        detail::ready_run(*made, mine.devices).leave_rest();
        // of four stages' lists, behind that which no stage reads, those from `left` on
        CHECK(mine.before.resident_bytes() == (kept ? 16 : left == 0 ? 0 : 8) * page);
        CHECK(made->left == (kept ? left : 5));
      });
}

namespace {

/// An end that writes down what a run asks of it.
template <typename Endpoint>
struct logging : forwarding<Endpoint> {
  using typename forwarding<Endpoint>::moves;
  using forwarding<Endpoint>::inner;
  std::vector<std::string> log = {};

  agreement agree(const proposal& mine) {
    log.push_back("agree");
    return inner.agree(mine);
  }
  std::int64_t all_reduce_max(std::int64_t n) {
    log.push_back("reduce");
    return inner.all_reduce_max(n);
  }
  void settle() {
    log.push_back("settle");
    inner.settle();
  }
  void move(moves& prepared, index_t slot) {
    log.push_back("move " + std::to_string(slot));
    inner.move(prepared, slot);
  }
  void await(index_t k) {
    log.push_back("await " + std::to_string(k));
    inner.await(k);
  }
};

/// What a run asks for: every slot's moves; once a stage is in place everywhere, its sources; at last all that is left.
std::vector<std::string> wanted_log(const switch_report& r, bool budget, bool kept, bool holds) {
  std::vector<std::string> log = {"agree"};
  const index_t span = r.phases == 1 ? 0 : (r.phases - 1) * (1 + r.lag), in_place = span + r.lag;
  const auto leaves = [&](index_t stage) {
    log.push_back("await " + std::to_string(stage + span));
    if (!kept && holds) log.push_back("settle");
  };
  index_t left = 0;
  for (index_t slot = 0; slot < r.stages + in_place; ++slot) {
    log.push_back("move " + std::to_string(slot));
    if (slot >= in_place) log.push_back("told " + std::to_string(slot - in_place));
    if (budget && slot >= in_place + r.lag) leaves(left++);
  }
  if (!budget) log.push_back("await " + std::to_string(r.stages - 1 + span));  // of what no stage reads
  for (; left < r.stages; ++left) leaves(budget ? left : r.stages - 1);
  log.push_back("reduce");
  return log;
}

/// Runs a switch on every device over such ends; sources are held by devices below `holders`.
template <typename World, typename Change>
void check_log(const Change& change, switch_options options, rank_t holders, int runs = 1) {
  World world(change.devices(), soon);
  world.run([&](auto& here) {
    logging<std::remove_reference_t<decltype(here)>> end{{here}};
    rank_storage before, after;
    if (const rank_t r = change.from_rank(here.device()); r >= 0) before = rank_storage(change.from(), r, "before");
    if (const rank_t r = change.to_rank(here.device()); r >= 0) after = rank_storage(change.to(), r, "after");
    fill(before.tensors(), change.from());
    switch_options mine = options;
    mine.on_stage = [&](const stage_report& r) { end.log.push_back("told " + std::to_string(r.stage)); };
    auto devices = detail::one_of_switch(end);
    const auto made = detail::ready_maker(change, before.tensors(), after.tensors(), devices, mine).make();
    for (int run = 0; run < runs; ++run) {
      end.log.clear();
      detail::ready_run(*made, devices).run();
      CHECK(end.log == wanted_log(made->report, options.budget != no_budget, options.after_use == sources::keep,
                                  here.device() < holders));
      CHECK(compare(after.tensors(), change.to()).wrong == 0);
    }
    CHECK(before.resident_bytes() == (options.after_use == sources::keep ? before.reserved_bytes() : 0));
  });
}

/// What the kernel holds of the arena of a switch, in pages.
template <typename Made>
bytes_t arena_pages(const Made& made, const binding& kept) {
  bytes_t pages = 0;
  for (const memory_block& block : made.written().blocks()) {
    if (kept.block_of(block.begin) >= 0) continue;
    std::vector<unsigned char> in_core(static_cast<std::size_t>(block.granules * block.granule / page));
    REQUIRE(::mincore(block.begin, in_core.size() * page, in_core.data()) == 0);
    for (const unsigned char c : in_core) pages += c & 1U;
  }
  return pages;
}

}  // namespace

TEST_CASE_TEMPLATE("what a run asks of its transport, slot by slot, whatever its lag", World, thread_group,
                   mailbox_group) {
  const auto swapped = swapping();
  check_log<World>(swapped, {.budget = 24 * page}, 2);
  check_log<World>(swapped, {.route = {.stages = 4}}, 2);
  check_log<World>(swapped, {.after_use = sources::keep, .route = {.stages = 4}}, 2, 2);
  const auto relayed = chained();
  check_log<World>(relayed, {.route = {.how = relay::always, .stages = 3}}, 1);
  check_log<World>(relayed, {.budget = 24 * page, .route = {.how = relay::always}}, 1);
}

TEST_CASE_TEMPLATE("stages of a relayed switch are told with what came in them, whatever the lag", World, thread_group,
                   mailbox_group) {
  const auto change = chained();
  World world(change.devices(), soon);
  world.run([&](auto& here) {
    rank_storage before, after;
    if (here.device() == 0) before = rank_storage(change.from(), 0, "before");
    else after = rank_storage(change.to(), here.device() - 1, "after");
    std::vector<bytes_t> bytes;
    std::vector<rank_t> peers;
    const switch_options options{.route = {.how = relay::always, .stages = 3}, .on_stage = [&](const stage_report& r) {
                                   bytes.push_back(r.bytes), peers.push_back(r.peers);
                                 }};
    auto devices = detail::one_of_switch(here);
    const auto made = detail::ready_maker(change, before.tensors(), after.tensors(), devices, options).make();
    detail::ready_run(*made, devices).run();
    CHECK(bytes == std::vector<bytes_t>(3, here.device() == 0 ? 0 : 4 * page));
    CHECK(peers == std::vector<rank_t>(3, here.device() == 0 ? 0 : 1));
  });
}

TEST_CASE("an arena's pages go once they are sent on, and stay where sources do and memory is no question") {
  const auto change = switch_of({rows(0, "w", 0, 16, 16), rows(1, "x", 0, 1, 1)},
                                {rows(0, "w", 0, 16, 16), rows(1, "x", 0, 1, 1)}, {0, 1}, {2, 3}, nodes_of(2));
  const routing how{.how = relay::always, .stages = 4};
  for (const sources after_use : {sources::release, sources::keep})
    on_all(change, [&](auto& mine) {
      std::vector<bytes_t> pages;
      detail::ready_switch<thread_group::endpoint>* ready = nullptr;
      const auto made = mine.ready({.after_use = after_use, .route = how}, [&](const stage_report&) {
        pages.push_back(arena_pages(*ready, mine.after.tensors()));
      });
      ready = made.get();
      CHECK(mine.run(made) == "done");
      // Device 1 passes on half of w: two pages a stage, which come in slot k and go in slot k + 1.
      if (mine.here.device() != 1) return;
      if (after_use == sources::keep) CHECK(pages == std::vector<bytes_t>{6, 8, 8, 8});
      else CHECK(pages == std::vector<bytes_t>{4, 4, 2, 0});
    });
}

TEST_CASE("what nobody reads goes with the stage that was agreed on") {
  // Device 0 has 4 pages for device 1, and 16 that nobody needs; it gets 32.
  const auto change = switch_of({rows(0, "a", 0, 4, 4), rows(0, "u", 0, 16, 16), rows(1, "c", 0, 32, 32)},
                                {rows(0, "c", 0, 32, 32), rows(1, "a", 0, 4, 4)}, {0, 1}, {0, 1});
  for (const auto& [budget, wanted] : {std::pair{1, std::vector<bytes_t>{20, 3, 2, 1}}, {3, {4, 2}}})
    on_all(change, [&, pages = budget, there = wanted](auto& mine) {
      std::vector<bytes_t> before;
      const auto made = mine.ready({.budget = pages * page},
                                   [&](const stage_report&) { before.push_back(mine.before.resident_bytes() / page); });
      CHECK(mine.run(made) == "done");
      if (mine.here.device() == 0) CHECK(before == there);
      CHECK(mine.before.resident_bytes() == 0);
      CHECK(mine.wrong() == 0);
    });
}

TEST_CASE("padding that nobody sends is zeros, whatever was in its memory") {
  const model m = make_transformer(
      {.name = "m", .layers = 1, .hidden = 8, .heads = 2, .groups = 2, .head_dim = 4, .ffn = 8, .vocabulary = 10});
  const layout_switch change(space(m, parse_degrees("")), space(m, parse_degrees("pad=16")));
  thread_group world(1, soon);
  world.run([&](auto& here) {
    rank_storage before(change.from(), 0, "before"), after(change.to(), 0, "after", pages_are::committed);
    fill(before.tensors(), change.from());
    for (const memory_block& block : after.tensors().blocks())
      std::memset(block.begin, 0xff, static_cast<std::size_t>(block.granules * block.granule));
    auto devices = detail::one_of_switch(here);
    const switch_options options;
    const auto made = detail::ready_maker(change, before.tensors(), after.tensors(), devices, options).make();
    detail::ready_run(*made, devices).run();
    CHECK(compare(after.tensors(), change.to()).wrong == 2 * 6 * 8 * 4);  // which is no value of a parameter
    index_t ones = 0, bytes = 0;
    for (const staged_piece& p : made->staged->creates)
      for (const int state : p.states)
        after.tensors().meet({state, p.tensor, p.where}, [&](const bound_box& b) {
          for (index_t i = 0; i < b.bytes(); ++i, ++bytes) ones += b.data[i] == std::byte{0} ? 0 : 1;
        });
    CHECK(bytes == 2 * 6 * 8 * 14);  // rows 10 to 15 of the embedding and of the output, of 8 columns
    CHECK(ones == 0);
  });
}
