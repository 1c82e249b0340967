// SPDX-License-Identifier: Apache-2.0
// What a process of a test leaves behind, and its part of a switch whose memory is watched: the same for every
// transport between processes.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <reshard/memory/rank_storage.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/volume.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/testing/known_values.hpp>
#include <reshard/transport/exchange/moves.hpp>

#include "../oracle/random_layouts.hpp"
#include "dice.hpp"
#include "expand.hpp"
#include "stages_told.hpp"
#include "switches.hpp"
#include "tries.hpp"

namespace testing {

/// What every process leaves behind; plain data.
struct left_behind {
  char sentence[600] = {};
  double began = 0, seconds = 0,
         away = 0;  // when it began, and something was; how long it did not run, while it should
  long wrong = 0, elements = 0, stages = 0, untouched = 0, unsent = 0, kernel_agrees = 0, reached = 0, several = 0;

  void say(const std::string& told) { std::snprintf(sentence, sizeof sentence, "%s", told.c_str()); }
};

/// One device's part of a switch, its memory watched.
template <typename Endpoint>
void switch_watched(const reshard::computed_switch& change, Endpoint& here, const reshard::switch_options& options,
                    left_behind& left) {
  using namespace reshard;
  const rank_t f = change.from_rank(here.device()), t = change.to_rank(here.device());
  rank_storage before("no rank"), after("no rank");
  if (f >= 0) before = rank_storage(change.from(), f, "rank " + std::to_string(f) + " of FROM");
  if (t >= 0) after = rank_storage(change.to(), t, "rank " + std::to_string(t) + " of TO");
  fill(before.tensors(), change.from());
  const bytes_t held = before.resident_bytes();
  testing::watched<Endpoint> looking{{here}, before, after};
  looking.after_use = options.after_use, looking.budget = options.budget;
  stages_told told;
  const switch_report report = switch_state(change, before.tensors(), after.tensors(), looking, told.watch(options));
  const bytes_t most = std::max({report.memory.before, report.memory.after, looking.seen});
  left.kernel_agrees = held == report.memory.before && after.resident_bytes() == report.memory.after &&
                       before.resident_bytes() == 0 && looking.slots == report.stages + report.lag &&
                       looking.staging_kept && looking.every_slot && most == report.memory.peak &&
                       report.memory.excess() <= options.budget && told.right(report);
  const comparison found = compare(after.tensors(), change.to());
  left.wrong = static_cast<long>(found.wrong), left.elements = static_cast<long>(found.elements);
  left.stages = static_cast<long>(report.stages);
}

/// The elements that a device holds after a switch, of all states.
inline reshard::bytes_t elements_of(const reshard::computed_switch& change, reshard::rank_t device) {
  using namespace reshard;
  const rank_t rank = change.to_rank(device);
  bytes_t elements = 0;
  if (rank >= 0)
    for (const int s : change.states())
      each_held(change.to(), rank, change.states().role_of(s),
                [&](int, const family_box& b) { elements += b.volume(); });
  return elements;
}

/// The least budget that a refusal tells; 0 where it is another sentence.
inline reshard::bytes_t least_budget_told(const std::string& sentence) {
  const std::string told = "; the least budget that does is ";
  const std::size_t at = sentence.find(told);
  return at == sentence.npos ? 0 : std::stoll(sentence.substr(at + told.size()));
}

/// Random switches of 2 to 8 devices, in one stage and in many, in every way, checked and not: run(change, options,
/// how) carries one out on as many processes and returns what they left behind. Where no number of stages keeps a
/// budget, the least one that does, as the refusal tells it, does.
template <typename Run>
void random_switches(int count, Run&& run) {
  using namespace reshard;
  oracle::generator cases(seed());
  int tried = 0, raised = 0;
  long stages = 0;
  for (int i = 0; (tried < tries(count) || stages == tried) && i < 1000; ++i) {  // one is in several stages
    const oracle::switch_case c = cases.next_switch();
    const auto map = [](const std::vector<long>& d) { return device_map(std::vector<rank_t>(d.begin(), d.end())); };
    const computed_switch change(space(to_model(c.m), parse_degrees(c.from_text)),
                                 space(to_model(c.m), parse_degrees(c.to_text)),
                                 {map(c.from_devices), map(c.to_devices)});
    if (change.devices() < 2 || change.devices() > 8) continue;
    INFO(c.describe());
    bytes_t budget = tried % 2 == 0 ? no_budget : greatest(1_MiB, largest_holding(change) / 2);
    const auto how = static_cast<exchange_as>(tried % 3 == 2 ? tried % 2 : 2);
    ++tried;
    const auto carried_out = [&] {
      return run(change, switch_options{.budget = budget, .checks = tried % 4 < 2}, how);
    };
    std::vector<left_behind> left = carried_out();
    if (const bytes_t least = least_budget_told(left.front().sentence); least > 0) {
      CHECK(least > budget);
      budget = least, ++raised;
      left = carried_out();
    }
    REQUIRE(left.size() == static_cast<std::size_t>(change.devices()));
    for (rank_t d = 0; d < change.devices(); ++d) {
      const left_behind& of = left[static_cast<std::size_t>(d)];
      CHECK(std::string(of.sentence).empty());
      CHECK(of.wrong == 0);
      CHECK(of.elements == elements_of(change, d));
      CHECK(of.kernel_agrees == 1);
    }
    stages += left[0].stages;
  }
  CHECK(tried >= tries(count));
  CHECK(stages > tried);
  MESSAGE(tried, " switches, ", stages, " stages; ", raised, " budgets were raised to the least that is kept");
}

}  // namespace testing
