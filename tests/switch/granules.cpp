// SPDX-License-Identifier: Apache-2.0
// Switches between memory of other granules than pages: what must be taken is there before the slot's copies, what is
// given back is read by nobody any more, and both as often and as much as was said. Memory that is not there cannot be
// touched: whoever does ends the program.
#include <doctest/doctest.h>

#include <atomic>
#include <list>
#include <string>

#include <sys/mman.h>

#include <reshard/memory/rank_arrays.hpp>
#include <reshard/memory/rank_storage.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/testing/known_values.hpp>
#include <reshard/transport/forwarding.hpp>
#include <reshard/transport/mailbox_group.hpp>
#include <reshard/transport/thread_group.hpp>

#include "../support/refused.hpp"

using namespace reshard;

namespace {

constexpr patience soon = std::chrono::seconds(20);

computed_switch change_of(const char* from, const char* to, const cluster& on = cluster()) {
  const model m = make_transformer({.name = "tiny",
                                    .layers = 4,
                                    .hidden = 64,
                                    .heads = 4,
                                    .groups = 4,
                                    .head_dim = 16,
                                    .ffn = 128,
                                    .vocabulary = 256});
  return layout_switch(space(m, parse_degrees(from)), space(m, parse_degrees(to)), {.on = on});
}

/// Arrays of a rank in address space that may be touched only between a take and a give back.
struct granular_storage {
  bytes_t granule;
  granules_come come;
  binding tensors;
  bytes_t there = 0, most_there = 0;
  index_t takes = 0, gifts = 0;
  std::list<memory> mapped = {};

  granular_storage(const computed_holding& h, rank_t rank, bytes_t of, pages_are at_first)
      : granule(of), come(at_first == pages_are::reserved ? granules_come::when_taken : granules_come::when_written) {
    tensors = bind_rank(h, rank, "rank " + std::to_string(rank), [&](const rank_array& a) { return map(a, at_first); });
    for (const memory& m : mapped) tensors.own(block_of(m, at_first));
    tensors.seal();
  }
  granular_storage(const granular_storage&) = delete;
  ~granular_storage() {
    for (const memory& m : mapped) ::munmap(m.data, static_cast<std::size_t>(m.bytes));
  }

  memory map(const rank_array& a, pages_are at_first) {
    const bytes_t bytes = ceil_divide(a.bytes(), granule) * granule;
    void* at = ::mmap(nullptr, static_cast<std::size_t>(bytes),
                      at_first == pages_are::committed ? PROT_READ | PROT_WRITE : PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(at != MAP_FAILED);
    mapped.emplace_back(static_cast<std::byte*>(at), bytes);
    if (at_first == pages_are::committed) most_there = there += bytes;
    return {static_cast<std::byte*>(at), a.bytes()};
  }
  memory_block block_of(const memory& m, pages_are at_first) {
    memory_block block{.begin = m.data, .granules = m.bytes / granule, .granule = granule, .at_first = at_first};
    block.come = come;
    block.take = [this](std::byte* at, bytes_t bytes) {
      REQUIRE(::mprotect(at, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE) == 0);
      most_there = std::max(most_there, there += bytes);
      ++takes;
    };
    block.give_back = [this](std::byte* at, bytes_t bytes) {
      REQUIRE(::mprotect(at, static_cast<std::size_t>(bytes), PROT_NONE) == 0);
      there -= bytes;
      ++gifts;
    };
    return block;
  }
};

template <typename World, typename Make>
void check_granules(Make&& make) {
  for (const bytes_t granule : {4_KiB, 16_KiB, 64_KiB})
    for (const bytes_t budget : {no_budget, granule < 64_KiB ? 500_KiB : 1500_KiB}) {
      CAPTURE(granule);
      CAPTURE(budget);
      const computed_switch change = change_of("tp=2,pp=2,zero=1", "dp=4,zero=1");
      std::atomic<bytes_t> wrong = 0;
      std::atomic<bool> as_said = true, by_stages = false;
      World world = make(change.devices());
      world.run([&](auto& here) {
        granular_storage before(change.from(), change.from_rank(here.device()), granule, pages_are::committed),
            after(change.to(), change.to_rank(here.device()), granule, pages_are::reserved);
        fill(before.tensors, change.from());
        const bytes_t held = before.there;
        const switch_report report = switch_state(change, before.tensors, after.tensors, here, {.budget = budget});
        wrong += compare(after.tensors, change.to()).wrong;
        if (before.there != 0 || before.takes != 0 || after.gifts != 0 || report.memory.before != held ||
            report.memory.after != after.there || report.memory.excess() > budget)
          as_said = false;
        if (after.takes > 1 && before.gifts > 1 && report.stages > 1) by_stages = true;
      });
      CHECK(wrong == 0);
      CHECK(as_said);
      CHECK(by_stages == (budget != no_budget));
    }
}

}  // namespace

TEST_CASE_TEMPLATE("granules are taken before the copies of a slot and given back after the last reader", World,
                   thread_group, mailbox_group) {
  check_granules<World>([](rank_t devices) { return World(devices, soon); });
}

TEST_CASE("the same where stages are made in rounds") {
  check_granules<mailbox_group>(
      [](rank_t devices) { return mailbox_group(devices, soon, exchange_as::asynchronous, least_round_bytes); });
}

TEST_CASE("an array that is dropped whole goes with the last reader of any of it") {
  const computed_switch change = change_of("dp=1,zero=1", "pp=2");
  std::atomic<index_t> dropped = 0, arrays = 0, wrong = 0;
  thread_group world(2, soon);
  world.run([&](auto& here) {
    std::list<std::vector<std::byte>> kept;
    const auto allocate = [&](const rank_array& a) {
      return memory{kept.emplace_back(static_cast<std::size_t>(a.bytes())).data(), a.bytes()};
    };
    binding before = bind_rank(change.from(), change.from_rank(here.device()), "before", allocate);
    for (std::vector<std::byte>& array : kept) {
      ++arrays;
      before.own_whole({array.data(), static_cast<bytes_t>(array.size())}, pages_are::committed, [&] {
        std::vector<std::byte>().swap(array);
        ++dropped;
      });
    }
    fill(before, change.from());
    binding after = bind_rank(change.to(), change.to_rank(here.device()), "after", allocate);
    switch_state(change, before, after, here);
    wrong += compare(after, change.to()).wrong;
  });
  CHECK(wrong == 0);
  CHECK(arrays > 0);
  CHECK(dropped == arrays);
}

TEST_CASE("memory that a transport does not reach is refused, by name, and one that it does is not") {
  struct reaching : forwarding<thread_group::endpoint> {
    bool reaches(memory_place place) const { return place.is == memory_place::kind::device && place.number == 1; }
  };
  const computed_switch change = change_of("dp=2,zero=1", "tp=2");
  const auto sentence_with = [&](memory_place place, bool target, bool all) {
    return testing::refused([&] {
      thread_group world(2, soon);
      world.run([&](auto& here) {
        granular_storage before(change.from(), here.device(), 4_KiB, pages_are::committed),
            after(change.to(), here.device(), 4_KiB, pages_are::reserved);
        if (all) before.tensors.lies_in(place), after.tensors.lies_in(place);
        if (here.device() == 1) (target ? after : before).tensors.lies_in(place);
        reaching through{{here}};
        if (all) switch_state(change, before.tensors, after.tensors, through);
        else switch_state(change, before.tensors, after.tensors, here);
      });
    });
  };
  using kind = memory_place::kind;
  CHECK(sentence_with({kind::device, 3}, false, false) ==
        "reshard: device 1, rank 1: lies in device memory of device 3, which this transport does not reach");
  CHECK(sentence_with({kind::device, 0}, true, false) ==
        "reshard: device 1, rank 1: lies in device memory of device 0, which this transport does not reach");
  CHECK(sentence_with({kind::pinned}, true, false) == "accepted");
  CHECK(sentence_with({kind::device, 1}, true, true) == "accepted");
  CHECK(sentence_with({kind::host}, true, true).ends_with("lies in host memory, which this transport does not reach"));
}

TEST_CASE("what is relayed is not passed on through a device's memory") {
  struct reaching : forwarding<thread_group::endpoint> {
    bool reaches(memory_place) const { return true; }
  };
  const computed_switch change = change_of("tp=2,pp=2", "dp=4", nodes_of(2));
  const auto sentence_with = [&](relay how, memory_place place) {
    return testing::refused([&] {
      thread_group world(4, soon);
      world.run([&](auto& here) {
        rank_storage before(change.from(), here.device(), "before"), after(change.to(), here.device(), "after");
        if (here.device() == 3) after.tensors().lies_in(place);
        reaching through{{here}};
        switch_state(change, before.tensors(), after.tensors(), through, {.route = {how}});
      });
    });
  };
  using kind = memory_place::kind;
  CHECK(sentence_with(relay::never, {kind::device, 2}) == "accepted");
  CHECK(sentence_with(relay::always, {kind::pinned}) == "accepted");
  CHECK(
      sentence_with(relay::always, {kind::device, 2}) ==
      "reshard: device 3, after: lies in device memory of device 2, and what is relayed is passed on through memory of "
      "the host; route it directly");
}
