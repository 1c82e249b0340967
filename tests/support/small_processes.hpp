// SPDX-License-Identifier: Apache-2.0
// Small state between processes, the same for every transport: random worlds, what is refused, the most there can be,
// and a process that does something else.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <reshard/job/exchange_small_state.hpp>

#include "dice.hpp"
#include "left_behind.hpp"
#include "small_worlds.hpp"
#include "tries.hpp"

namespace testing {

/// One process's part of a world: compared with what it shall come to; and whether the same devices go on after it.
template <typename Endpoint>
void exchange_small(const small_world& world, const small_outcome& shall, Endpoint& here, left_behind& left) {
  const auto d = static_cast<std::size_t>(here.device());
  try {
    const reshard::small_state after = reshard::exchange_small_state(world.has(d), world.wants(d), here);
    left.elements = static_cast<long>(after.blobs().size());
    left.wrong = shall.refused() || after.blobs().size() != shall.after[d].size() ? 1 : 0;
    if (!shall.refused())
      for (const auto& [id, bytes] : shall.after[d]) left.wrong += after.bytes_of({id.first, id.second}) != bytes;
  } catch (const reshard::refusal& e) {
    left.say(e.what());
  }
  reshard::small_state own;
  const auto lowest = std::find_if(world.devices.begin(), world.devices.end(), [](const auto& e) { return !e.absent; });
  if (lowest - world.devices.begin() == here.device()) own.add_same("still", std::as_bytes(std::span("here")));
  left.reached = reshard::exchange_small_state(own, {}, here).has({"still"}) ? 1 : 0;
}

/// The last of three devices has another step than the first; the second has none.
inline small_world differing_small_world() {
  small_world world;
  world.devices.resize(3);
  for (const std::size_t d : {0u, 2u}) world.devices[d].has[{"step", ""}] = std::vector<std::byte>(8, std::byte(d));
  return world;
}

/// A world whose copies differ, then random ones of 2 to 8 processes: run(world, body) starts body(end, what it leaves
/// behind) on every device that is not absent, and returns what they left.
template <typename Run>
void random_small_worlds(std::uint64_t stream, int count, bool some_absent, Run&& run) {
  small_features met;
  dice random(stream);
  for (int i = 0; i < tries(count) || (met.moved == 0 && i < 400); ++i) {
    const small_world world =
        i == 0 ? differing_small_world()
               : next_small_world(random, random.within(2, 8), some_absent, i % 4 == 1 ? 300'000 : 1000);
    const small_outcome shall = outcome_of(world, met);
    CAPTURE(i);
    const std::vector<left_behind> left =
        run(world, [&](auto& here, left_behind& mine) { exchange_small(world, shall, here, mine); });
    for (std::size_t d = 0; d < world.devices.size(); ++d) {
      if (world.devices[d].absent) continue;
      const std::string sentence = left[d].sentence;
      CAPTURE(d);
      CAPTURE(sentence);
      CHECK(left[d].wrong == 0);
      CHECK(left[d].reached == 1);
      CHECK(sentence.empty() != shall.refused());
      if (!world.devices[0].absent) CHECK(sentence == left[0].sentence);
      for (const std::string& part : shall.refusal_words) CHECK(sentence.find(part) != sentence.npos);
      if (!shall.refused()) CHECK(left[d].elements == static_cast<long>(shall.after[d].size()));
    }
  }
  MESSAGE("worlds " << met.worlds << ", absent " << met.absent << ", moved " << met.moved << ", kept " << met.kept
                    << ", per rank " << met.per_rank << ", above 16 KiB " << met.large << "; differ " << met.differs
                    << ", two rules " << met.rules << ", missing " << met.missing << ", asked though the same "
                    << met.of_same << ", too much " << met.too_much);
  CHECK(met.moved > 0);
  CHECK(met.differs > 0);
}

/// 1 MiB from one device to all: what a world of n comes to.
inline small_world most_small_world(std::size_t devices, std::size_t from) {
  small_world world;
  world.devices.resize(devices);
  std::vector<std::byte> bytes(static_cast<std::size_t>(reshard::most_small_bytes) - 4);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i % 251);
  world.devices[from].has[{"most", ""}] = bytes;
  return world;
}

/// Device `odd` exchanges small state where the others begin a switch; then all do both.
template <typename Endpoint>
void small_beside_switch(const reshard::computed_switch& change, reshard::rank_t odd, Endpoint& here,
                         left_behind& left) {
  using namespace reshard;
  rank_storage before(change.from(), here.device(), "before"), after(change.to(), here.device(), "after");
  fill(before.tensors(), change.from());
  small_state mine;
  mine.add_same("step", std::as_bytes(std::span("7")));
  try {
    if (here.device() == odd) static_cast<void>(exchange_small_state(mine, {}, here));
    else switch_state(change, before.tensors(), after.tensors(), here);
  } catch (const std::exception& e) {
    left.say(e.what());
  }
  left.untouched = after.resident_bytes() == 0;
  left.wrong = exchange_small_state(mine, {}, here) == mine ? 0 : 1;
  switch_state(change, before.tensors(), after.tensors(), here);
  left.wrong += static_cast<long>(compare(after.tensors(), change.to()).wrong);
}
/// What they leave behind then.
inline void check_small_beside_switch(const std::vector<left_behind>& left, std::size_t odd) {
  for (std::size_t d = 0; d < left.size(); ++d) {
    const std::string sentence = left[d].sentence;
    CAPTURE(sentence);
    CHECK(left[d].wrong == 0);
    CHECK(left[d].untouched == 1);
    CHECK(sentence.find(d == odd ? "device " + std::to_string(odd) + " exchanges small state, and another device does"
                                 : "device " + std::to_string(odd) + " refused the switch: it exchanges small state") !=
          sentence.npos);
  }
}

}  // namespace testing
