// SPDX-License-Identifier: Apache-2.0
// Which steps a job's state has seen: runs of steps of one world and batch. A cursor is of a version, so that going
// back to version v goes back to its cursor, and what was beyond is used again.
// Builds on: job/cursor.hpp.
#pragma once

#include <cstddef>
#include <vector>

#include <reshard/job/cursor.hpp>

namespace reshard {

/// Steps that follow each other in one world: `count` of them from step `first`, each of `batch` samples of `length`
/// tokens (1, where samples are what is counted) over `ranks` ranks; the first begins at `begin`.
struct step_run {
  index_t first = 0;
  index_t count = 0;
  rank_t ranks = 1;
  index_t batch = 1;
  index_t length = 1;
  index_t begin = 0;

  /// Where step `first` + i begins.
  constexpr index_t cursor(index_t i) const { return begin + i * (batch * length); }

  friend constexpr bool operator==(const step_run&, const step_run&) = default;
};

/// The history of a job. Step s makes version s + 1 of version s; steps that were undone are none of it.
/// Law: over any worlds, batches and undone steps the shares of its steps, by step and rank, tile [start, cursor()).
class step_history {
 public:
  constexpr explicit step_history(index_t start = 0) : start_(start) {
    if (start < 0) refuse("history: it starts at ", start, ", and data count from 0");
  }

  /// The version that the state has: the number of steps that stand.
  constexpr index_t version() const { return runs_.empty() ? 0 : runs_.back().first + runs_.back().count; }
  /// Where the next step begins.
  constexpr index_t cursor() const { return runs_.empty() ? start_ : runs_.back().cursor(runs_.back().count); }
  /// Where the step that makes version + 1 begins, or began.
  constexpr index_t cursor(index_t of_version) const {
    if (of_version < 0 || of_version > version())
      refuse("history: there is no version ", of_version, "; they are 0 to ", version());
    if (of_version == version()) return cursor();
    const step_run& r = run_of(of_version);
    return r.cursor(of_version - r.first);
  }
  constexpr const std::vector<step_run>& runs() const { return runs_; }

  /// `count` steps more; what is refused changes nothing.
  constexpr void add(rank_t ranks, index_t batch, index_t count = 1, index_t length = 1) {
    if (count < 0) refuse("history: ", count, " steps more; there is at least 0");
    if (count == 0) return;
    detail::require_rank(0, ranks);
    const interval step = token_cursor{cursor()}.step(batch, length);
    index_t data = 0, end = 0;  // each step takes one at least: versions fit where these do
    if (RESHARD_MULTIPLY_OVERFLOWS(step.size(), count, &data) || RESHARD_ADD_OVERFLOWS(step.begin, data, &end))
      refuse("history: ", count, " steps of ", step.size(), " from ", step.begin, " do not fit 64 bits");
    runs_.push_back({version(), count, ranks, batch, length, step.begin});
  }

  /// Goes back: steps from `version` on are undone, and the history goes on there.
  constexpr void undo_to(index_t to) {
    if (to < 0 || to > version())
      refuse("history: it cannot go back to version ", to, "; versions are 0 to ", version());
    while (!runs_.empty() && runs_.back().first >= to) runs_.pop_back();
    if (!runs_.empty()) runs_.back().count = least(runs_.back().count, to - runs_.back().first);
  }

  /// The run that a step which stands belongs to.
  constexpr const step_run& run_of(index_t step) const {
    if (step < 0 || step >= version()) refuse("history: there is no step ", step, "; it has ", version(), " steps");
    std::size_t low = 0, high = runs_.size();
    while (high - low > 1) {
      const std::size_t middle = low + (high - low) / 2;
      if (runs_[middle].first <= step) low = middle;
      else high = middle;
    }
    return runs_[low];
  }
  /// What a rank used in a step that stands.
  constexpr interval share(index_t step, rank_t rank) const {
    const step_run& r = run_of(step);
    return token_cursor{r.cursor(step - r.first)}.share(r.batch, r.length, rank, r.ranks);
  }

  friend constexpr bool operator==(const step_history&, const step_history&) = default;

 private:
  index_t start_;
  std::vector<step_run> runs_;  // none of them without steps
};

}  // namespace reshard
