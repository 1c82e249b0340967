// SPDX-License-Identifier: Apache-2.0
// Switches over NCCL between real processes, on the emulation of NCCL and CUDA: it proves the order, the reuse, the
// matching, the errors and the aborts of this library's code, and nothing about kernels on silicon, NCCL itself, memory
// or speed. Device memory can't be read by the host; every broken rule ends a process with a sentence.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <reshard/exec/nccl.hpp>
#include <reshard/exec/socket_meeting.hpp>
#include <reshard/exec/switch_state.hpp>

#include "../support/device_storage.hpp"
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
                  static_cast<bytes_t>(emulation::used_bytes()) == here.fixed_bytes() + after->mapped_bytes() &&
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

TEST_CASE("the demo's switches") {
  const long stages = check(change_of(small_llama(), "tp=2,pp=2,dp=2,zero=1", "tp=4,pp=1,dp=2,zero=1"),
                            {.options = {.budget = 40_MiB}});
  MESSAGE("stages " << stages);
}
