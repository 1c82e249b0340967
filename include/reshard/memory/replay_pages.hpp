// SPDX-License-Identifier: Apache-2.0
// The committed memory of one device over the stages of a switch, before anything is touched: exact to the page.
// Builds on: memory/page_stages.hpp, schedule/slot_times.hpp, schedule/memory_replay.hpp (what a replay tells).
#pragma once

#include <algorithm>
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

/// When pages of the sources go that are not kept: without a budget, all after the last stage; with one, as it drains,
/// and those that nobody reads as late as it lets them (unread_kept).
struct sources_go {
  sources after_use = sources::release;
  bytes_t budget = no_budget;  // beyond max(before, after), for pages and staging
};

/// What is told of a device's pages: their replay; and u, which says when those go that hold what nobody reads.
struct page_replay {
  memory_replay memory;
  index_t unread_kept = 0;
};

/// The committed memory of one device over the slots of a transport of lag L: granules of the targets come with their
/// first writer's slot; those of the sources go L slots after stage k is in place, k the stage of their last reader, or
/// after the last slot; `staging[slot]` bytes more are there in a slot. What is bound outside blocks, or committed
/// beforehand, is there all the time. Pages that hold what nobody reads go with the sources of stage u - 1 at the
/// soonest, u the greatest that keeps the budget; where none does, u = 0, and the replay tells what is needed.
inline page_replay replay_pages(const page_stages& source, const page_stages& target, const slot_times& times,
                                const sources_go& go, const std::vector<bytes_t>& staging,
                                const passed_pages& passed = {}) {
  const index_t slots = times.slots(), late = times.span() + 2 * times.lag;
  const bool drains = go.after_use == sources::release && go.budget != no_budget;
  const auto at = [](const std::vector<bytes_t>& list, index_t i) {
    return i >= 0 && i < static_cast<index_t>(list.size()) ? list[static_cast<std::size_t>(i)] : 0;
  };
  const std::vector<bytes_t> goes = source.bytes_by_stage(times.stages), comes = target.bytes_by_stage(slots);
  const std::vector<bytes_t> unread = source.unread_by_stage(times.stages);
  std::vector<bytes_t> passes;  // by slot, 1 more
  if (passed.by_reader != nullptr) passes = passed.by_reader->bytes_by_stage(slots);
  timeline pages(source.outside_bytes() + target.outside_bytes(), slots), waits(drains ? at(unread, 0) : 0, slots);
  for (const bytes_t bytes : goes) pages.held += bytes;
  page_replay result{{pages.held - target.outside_bytes(), target.outside_bytes(), pages.held}, times.stages};
  pages.held -= drains ? at(goes, 0) : 0;
  for (index_t slot = 0; slot < slots; ++slot) {
    const auto k = static_cast<std::size_t>(slot);
    result.memory.after += at(comes, slot + 1);
    pages.comes[k] = at(comes, slot + 1) + at(staging, slot);
    pages.goes[k] = at(staging, slot);
    if (drains && slot >= late) pages.goes[k] += at(goes, slot - late + 1);
    if (drains && slot > late) waits.comes[k] = at(unread, slot - late);
    const index_t read = slot - 2 * times.lag + 1;
    if (!passed.held && read >= 1) pages.goes[k] += at(passes, read);
  }
  // what is there in each slot, where what nobody reads went first and never goes
  std::vector<bytes_t> gone = pages.live(), there = waits.live();
  for (std::size_t k = 0; k < there.size(); ++k) there[k] += gone[k];
  for (const bytes_t bytes : passes) result.memory.after -= bytes;
  if (drains) {
    const bytes_t limit = checked_add(greatest(result.memory.before, result.memory.after), go.budget);
    result.unread_kept = unread_kept(gone, there, limit, times.stages, late);
    const index_t u = result.unread_kept, stay = u == times.stages ? slots : u == 0 ? 0 : u + late;
    std::copy(there.begin(), there.begin() + least(stay, slots), gone.begin());
  }
  result.memory.peak = peak_of(gone, greatest(result.memory.peak, result.memory.after));
  return result;
}

}  // namespace reshard
