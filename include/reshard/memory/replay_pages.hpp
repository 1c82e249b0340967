// SPDX-License-Identifier: Apache-2.0
// The committed memory of one device over the stages of a switch, before anything is touched: exact to the page.
// Builds on: memory/page_stages.hpp, schedule/memory_replay.hpp (what a replay tells).
#pragma once

#include <vector>

#include <reshard/memory/page_stages.hpp>
#include <reshard/schedule/memory_replay.hpp>

namespace reshard {

/// The committed memory of one device over the stages: pages of the sources go after their last reader, pages of the
/// targets come with their first writer, and `staging[k]` bytes more are there in stage k. What is bound outside
/// blocks, or committed beforehand, is there all the time.
inline memory_replay replay_pages(const page_stages& source, const page_stages& target, index_t stages,
                                  sources after_use, const std::vector<bytes_t>& staging) {
  const std::vector<bytes_t> goes = source.bytes_by_stage(stages), comes = target.bytes_by_stage(stages);
  bytes_t live = source.outside_bytes() + target.outside_bytes();
  for (const bytes_t bytes : goes) live += bytes;
  memory_replay result{live - target.outside_bytes(), target.outside_bytes(), live};
  for (std::size_t k = 0; k <= static_cast<std::size_t>(stages); ++k) {
    if (k > 0) {
      live += comes[k];
      result.after += comes[k];
      result.peak = greatest(result.peak, live + (k <= staging.size() ? staging[k - 1] : 0));
    }
    if (after_use == sources::release) live -= goes[k];
  }
  result.peak = greatest(result.peak, result.after);
  return result;
}

}  // namespace reshard
