// SPDX-License-Identifier: Apache-2.0
// The committed memory of one device over the stages of a switch, before anything is touched: exact to the page.
// Builds on: memory/page_stages.hpp, schedule/memory_replay.hpp (what a replay tells).
#pragma once

#include <vector>

#include <reshard/memory/page_stages.hpp>
#include <reshard/schedule/memory_replay.hpp>

namespace reshard {

/// The committed memory of one device over the slots of a transport of lag L, 0 .. stages - 1 + L: granules of the
/// targets come with their first writer's slot; those of the sources go at the end of slot k + 2 L, k the stage of
/// their last reader, or after the last slot; `staging[slot]` bytes more are there in a slot. What is bound outside
/// blocks, or committed beforehand, is there all the time.
inline memory_replay replay_pages(const page_stages& source, const page_stages& target, index_t stages, index_t lag,
                                  sources after_use, const std::vector<bytes_t>& staging) {
  const index_t slots = stages + lag;
  const std::vector<bytes_t> goes = source.bytes_by_stage(stages), comes = target.bytes_by_stage(slots);
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
    if (slot >= 2 * lag) release(slot - 2 * lag);
  }
  result.peak = greatest(result.peak, result.after);
  return result;
}

}  // namespace reshard
