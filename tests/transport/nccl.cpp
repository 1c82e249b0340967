// SPDX-License-Identifier: Apache-2.0
// Switches over NCCL between real processes, on the emulation of NCCL and CUDA: it proves the order, the reuse, the
// matching, the errors and the aborts of this library's code, and nothing about kernels on silicon, NCCL itself, memory
// or speed. Device memory can't be read by the host; every broken rule ends a process with a sentence.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <reshard/switch/switch_state.hpp>
#include <reshard/transport/nccl.hpp>
#include <reshard/transport/socket_meeting.hpp>

#include "../../tools/lib/device_storage.hpp"
#include "../support/dice.hpp"
#include "../support/emulated_copies.hpp"
#include "../support/left_behind.hpp"
#include "../support/processes.hpp"
#include "../support/tiny.hpp"

using namespace reshard;
using testing::device_storage, testing::left_behind, testing::processes;

namespace {

constexpr patience ample = std::chrono::seconds(8);  // the emulation's is 10 s

/// How a world of processes is run.
struct setting {
  switch_options options = {};
  nccl_options nccl = {};
  long seed = 1;
  int runs = 1;
  bool whole = false;  // arrays that can only be dropped whole, instead of granules
};

/// Device d's part of a switch and back, its memory watched; what was wrong.
template <typename From, typename To>
void take_part(long d, const layout_switch<From, To>& change, const setting& s, socket_meeting& meeting,
               left_behind& left) {
  const int gpu = static_cast<int>(d);
  nccl_endpoint here(meeting, gpu, s.nccl);
  device_granules pool(gpu);
  const rank_t f = change.from_rank(d), t = change.to_rank(d);
  const auto storage = [&](const auto& h, rank_t rank, pages_are pages) {
    return s.whole ? std::make_unique<device_storage>(h, rank, "rank " + std::to_string(rank), gpu)
                   : std::make_unique<device_storage>(h, rank, "rank " + std::to_string(rank), pool, pages);
  };
  const auto before = storage(change.from(), f, pages_are::committed),
             after = storage(change.to(), t, pages_are::reserved);
  before->fill(change.from());
  const bytes_t held = before->mapped_bytes();
  const switch_report report = switch_state(change, before->tensors, after->tensors, here, s.options);
  const comparison found = after->compare(change.to());
  left.wrong += static_cast<long>(found.wrong), left.elements = static_cast<long>(found.elements);
  left.stages = static_cast<long>(report.stages);
  left.kernel_agrees =
      s.whole || (held == report.memory.before && before->mapped_bytes() == 0 &&
                  after->mapped_bytes() == report.memory.after && pool.spare_bytes() == 0 &&
                  static_cast<bytes_t>(emulation::used_bytes()) == here.facts().fixed_bytes + after->mapped_bytes() &&
                  report.memory.excess() <= s.options.budget);
  const bytes_t peak = static_cast<bytes_t>(emulation::peak_bytes());
  if (s.options.budget != no_budget && !s.whole &&
      peak > std::max(report.memory.before, report.memory.after) + s.options.budget)
    left.kernel_agrees = 0;
}

template <typename From, typename To>
std::vector<left_behind> run(const layout_switch<From, To>& change, const setting& s) {
  processes all(change.devices());
  all.start_all([&](long d, listening_socket listening, left_behind& left) {
    emulation::seed(static_cast<std::uint64_t>(s.seed * 100 + d));
    {
      socket_meeting meeting(d, all.addresses, std::move(listening), ample);
      take_part(d, change, s, meeting, left);
    }
    emulation::finish();
    left.reached = 1;
  });
  REQUIRE(all.ended_within(120));
  std::vector<left_behind> left;
  for (long d = 0; d < change.devices(); ++d) left.push_back(all.of(d));
  return left;
}

template <typename From, typename To>
long check(const layout_switch<From, To>& change, const setting& s) {
  const std::vector<left_behind> left = run(change, s);
  for (rank_t d = 0; d < change.devices(); ++d) {
    const left_behind& of = left[static_cast<std::size_t>(d)];
    CAPTURE(d);
    CHECK(std::string(of.sentence) == "");
    CHECK(of.reached == 1);  // no rule was broken, no handle left
    CHECK(of.wrong == 0);
    CHECK(of.kernel_agrees == 1);
  }
  return left[0].stages;
}

/// The emulation's NCCL takes little for itself, that budgets of small models may be small.
const bool set_up = [] {
  ::setenv("EMULATION_PEER_KIB", "64", 0);
  return true;
}();

model small_llama(index_t layers = 6) {
  return make_transformer({.name = "llama",
                           .layers = layers,
                           .hidden = 256,
                           .heads = 8,
                           .groups = 4,
                           .head_dim = 32,
                           .ffn = 704,
                           .vocabulary = 2048});
}
computed_switch change_of(const model& m, const char* from, const char* to) {
  return layout_switch(space(m, parse_degrees(from)), space(m, parse_degrees(to)));
}

}  // namespace

TEST_CASE("a switch of two processes over NCCL") {
  const computed_switch change = testing::tiny_switch(2, "tp=2", "dp=2,zero=1");
  CHECK(check(change, {}) == 1);
}

TEST_CASE("the demo's three switches, each with 20 seeds of delays: nothing wrong, no rule broken, no handle left") {
  const model llama = small_llama();
  const model experts = make_transformer({.name = "qwen3-moe",
                                          .layers = 4,
                                          .hidden = 128,
                                          .heads = 8,
                                          .groups = 4,
                                          .head_dim = 32,
                                          .ffn = 384,
                                          .vocabulary = 2048,
                                          .experts = 16,
                                          .expert_ffn = 128});
  const char* const from = "tp=2,pp=2,dp=2,zero=1";
  const computed_switch changes[] = {
      change_of(llama, from, "tp=4,pp=1,dp=2,zero=1"),
      change_of(experts, "tp=2,pp=2,dp=2,ep=2,etp=1,zero=1", "tp=2,pp=1,dp=4,ep=4,etp=1,zero=1"),
      layout_switch(space(llama, parse_degrees(from)),
                    space(llama, parse_degrees("tp=2,pp=1,dp=3,bucket=1000000,zero=1")),
                    {.to = device_map({0, 1, 2, 4, 5, 6})})};
  long stages = 0;
  for (const computed_switch& change : changes)
    for (long seed = 0; seed < testing::tries(20); ++seed) {
      CAPTURE(seed);
      stages =
          std::max(stages, check(change, {.options = {.budget = seed % 2 == 0 ? 40_MiB : no_budget}, .seed = seed}));
    }
  CHECK(stages > 2);
}

TEST_CASE("60 random switches of 2 to 8 processes, in one stage and in many, in every way") {
  oracle::generator cases(testing::seed());
  int tried = 0;
  long stages = 0;
  for (int i = 0; tried < testing::tries(60) && i < 1000; ++i) {
    const oracle::switch_case c = cases.next_switch();
    const auto map = [](const std::vector<long>& d) { return device_map(std::vector<rank_t>(d.begin(), d.end())); };
    const computed_switch change(space(testing::to_model(c.m), parse_degrees(c.from_text)),
                                 space(testing::to_model(c.m), parse_degrees(c.to_text)),
                                 {map(c.from_devices), map(c.to_devices)});
    if (change.devices() < 2 || change.devices() > 8) continue;
    INFO(c.describe());
    setting s{.seed = tried};
    s.whole = tried % 5 == 4;
    if (tried % 2 == 1 && !s.whole) s.options.budget = 20_MiB;
    s.nccl.how = static_cast<exchange_as>(tried % 4 == 3 ? tried % 3 : 2);
    s.nccl.arenas = tried % 3 == 0 ? arenas_are::registered : arenas_are::plain;
    if (tried % 6 >= 4) s.nccl.round_bytes = least_round_bytes;
    ++tried;
    stages += check(change, s);
  }
  CHECK(tried == testing::tries(60));
  CHECK(stages >= tried);
}

TEST_CASE("1 to 64 stages, memory there, in every way; and the same moves again and again") {
  const computed_switch change = testing::tiny_switch(6, "tp=2,pp=2,zero=1", "dp=4,zero=1");
  int n = 0;
  for (const index_t stages : {1, 2, 3, 8, 17, 64}) {
    if (n++ >= testing::tries(6)) break;
    CAPTURE(stages);
    processes all(change.devices());
    all.start_all([&](long d, listening_socket listening, left_behind& left) {
      emulation::seed(static_cast<std::uint64_t>(stages * 100 + d));
      {
        socket_meeting meeting(d, all.addresses, std::move(listening), ample);
        nccl_endpoint here(meeting, static_cast<int>(d), {.how = static_cast<exchange_as>(stages % 3)});
        device_granules pool(static_cast<int>(d));
        device_storage before(change.from(), d, "before", pool, pages_are::committed),
            after(change.to(), d, "after", pool, pages_are::committed);
        const plan mine = make_plan(change, d);
        const staged_plan staged = stage_plan(mine, change, stages);
        page_stages pages(after.tensors, binding_side::target, change.states());
        here.offer(before.tensors);
        left.kernel_agrees = here.footprint(staged).most % device_granule_bytes == 0;
        exchange_moves moves = here.prepare(staged, after.tensors, pages);
        for (int run = 0; run < 3; ++run) {
          const known_values values{static_cast<std::uint64_t>(run + 1)};
          before.fill(change.from(), values);
          here.all_reduce_max(0);
          for (index_t slot = 0; slot < stages + here.facts().lag; ++slot) here.move(moves, slot);
          for (index_t k = stages - here.facts().lag; k < stages; ++k) here.await(k);
          here.all_reduce_max(0);
          left.wrong += static_cast<long>(after.compare(change.to(), values).wrong);
        }
        left.stages = static_cast<long>(moves.out.size());
      }
      emulation::finish();
      left.reached = 1;
    });
    REQUIRE(all.ended_within(60));
    for (rank_t d = 0; d < change.devices(); ++d) {
      CHECK(std::string(all.of(d).sentence) == "");
      CHECK(all.of(d).reached == 1);
      CHECK(all.of(d).wrong == 0);
      CHECK(all.of(d).kernel_agrees == 1);
      CHECK(all.of(d).stages >= stages);
    }
  }
}

TEST_CASE("what begins off 16 bytes in its tensor is packed, though it is one run there") {
  const std::vector<shard> rows = {{0, "wte", bf16, {130, 4}, {0, 0}, {130, 4}}};
  const std::vector<shard> parts = {{0, "wte", bf16, {130, 4}, {0, 0}, {1, 4}},
                                    {1, "wte", bf16, {130, 4}, {1, 0}, {64, 4}},
                                    {0, "wte", bf16, {130, 4}, {65, 0}, {65, 4}}};
  check(layout_switch(rows, parts), {});
}

TEST_CASE("what is only retained is read before it goes, message by message") {
  ::setenv("EMULATION_SYNC", "never", 1);
  const computed_switch change = testing::tiny_switch(24, "dp=2", "dp=2,zero=1");
  for (long seed = 0; seed < testing::tries(20); ++seed) {
    setting s{.seed = seed};
    s.nccl.how = exchange_as::naive;
    check(change, s);
  }
  ::unsetenv("EMULATION_SYNC");
}

TEST_CASE("devices that only send run ahead as far as their arenas allow") {
  const std::vector<shard> columns = {{1, "wte", bf16, {512, 256}, {0, 0}, {512, 128}},
                                      {2, "wte", bf16, {512, 256}, {0, 128}, {512, 128}}};
  const std::vector<shard> whole = {{0, "wte", bf16, {512, 256}, {0, 0}, {512, 256}}};
  const layout_switch change(columns, whole);
  for (long seed = 0; seed < testing::tries(20); ++seed) {
    CAPTURE(seed);
    processes all(3);
    all.start_all([&](long d, listening_socket listening, left_behind& left) {
      emulation::seed(static_cast<std::uint64_t>(seed * 10 + d));
      {
        socket_meeting meeting(d, all.addresses, std::move(listening), ample);
        nccl_endpoint here(meeting, static_cast<int>(d), {.arenas = arenas_are::registered});
        device_granules pool(static_cast<int>(d));
        device_storage before(change.from(), change.from_rank(d), "before", pool, pages_are::committed),
            after(change.to(), change.to_rank(d), "after", pool, pages_are::committed);
        before.fill(change.from());
        constexpr index_t stages = 12;
        const plan mine = make_plan(change, d);
        const staged_plan staged = stage_plan(mine, change, stages);
        page_stages pages(after.tensors, binding_side::target, change.states());
        here.offer(before.tensors);
        exchange_moves moves = here.prepare(staged, after.tensors, pages);
        here.all_reduce_max(0);
        for (index_t slot = 0; slot < stages + here.facts().lag; ++slot) here.move(moves, slot);
        here.await(stages - 1);
        left.wrong = static_cast<long>(after.compare(change.to()).wrong);
        here.all_reduce_max(0);
      }
      emulation::finish();
      left.reached = 1;
    });
    REQUIRE(all.ended_within(60));
    for (long d = 0; d < 3; ++d) {
      CHECK(std::string(all.of(d).sentence) == "");
      CHECK(all.of(d).reached == 1);
      CHECK(all.of(d).wrong == 0);
    }
  }
}

TEST_CASE("mapping, unmapping and freeing that wait for the whole device, and one hardware queue") {
  const computed_switch change = change_of(small_llama(), "tp=2,pp=2,zero=1", "dp=4,zero=1");
  for (const char* name : {"EMULATION_SYNC", "EMULATION_QUEUES"}) {
    CAPTURE(name);
    const bool sync = std::string(name) == "EMULATION_SYNC";
    for (long seed = 0; seed < testing::tries(8); ++seed) {
      ::setenv(name, sync ? (seed % 2 == 0 ? "always" : "never") : "1", 1);
      CHECK(check(change, {.options = {.budget = 40_MiB}, .seed = seed}) > 1);
      ::unsetenv(name);
    }
  }
}
