// SPDX-License-Identifier: Apache-2.0
// The committed memory of one device over the stages of a switch, before anything is touched: exact to the page.
// Builds on: memory/page_stages.hpp, schedule/slot_times.hpp, schedule/memory_replay.hpp (what a replay tells).
#pragma once

#include <vector>

#include <reshard/memory/page_stages.hpp>
#include <reshard/schedule/memory_replay.hpp>
#include <reshard/schedule/slot_times.hpp>

namespace reshard {

/// What a device passes on, in an arena whose pages are among the target's: by the slot of their last reader; null
/// where it passes nothing on. They go at the end of slot s + 2 L, s their slot, or after the last; where they are
/// `held`, all after the last.
struct passed_pages {
  const page_stages* by_reader = nullptr;
  bool held = false;
};

/// The committed memory of one device over the slots of a transport of lag L: granules of the targets come with their
/// first writer's slot; those of the sources go L slots after stage k is in place, k the stage of their last reader, or
/// after the last slot; `staging[slot]` bytes more are there in a slot. What is bound outside blocks, or committed
/// beforehand, is there all the time.
inline memory_replay replay_pages(const page_stages& source, const page_stages& target, const slot_times& times,
                                  sources after_use, const std::vector<bytes_t>& staging,
                                  const passed_pages& passed = {}) {
  const index_t slots = times.slots(), late = times.span() + 2 * times.lag;
  const std::vector<bytes_t> goes = source.bytes_by_stage(times.stages), comes = target.bytes_by_stage(slots);
  std::vector<bytes_t> passes;  // by slot, 1 more
  if (passed.by_reader != nullptr) passes = passed.by_reader->bytes_by_stage(slots);
  bytes_t live = source.outside_bytes() + target.outside_bytes();
  for (const bytes_t bytes : goes) live += bytes;
  memory_replay result{live - target.outside_bytes(), target.outside_bytes(), live};
  const auto release = [&](index_t stage) {  // -1: what nobody reads
    if (after_use == sources::release && stage >= -1) live -= goes[static_cast<std::size_t>(stage + 1)];
  };
  release(-1);
  for (index_t slot = 0; slot < slots; ++slot) {
    const bytes_t come = comes[static_cast<std::size_t>(slot) + 1];
    live += come;
    result.after += come;
    const bytes_t beside =
        static_cast<std::size_t>(slot) < staging.size() ? staging[static_cast<std::size_t>(slot)] : 0;
    result.peak = greatest(result.peak, live + beside);
    if (slot >= late) release(slot - late);
    const index_t read = slot - 2 * times.lag + 1;
    if (passes.empty() || passed.held || read < 1) continue;
    live -= passes[static_cast<std::size_t>(read)];
  }
  for (const bytes_t bytes : passes) result.after -= bytes;
  result.peak = greatest(result.peak, result.after);
  return result;
}

}  // namespace reshard
