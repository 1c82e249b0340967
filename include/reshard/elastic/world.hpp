// SPDX-License-Identifier: Apache-2.0
// A world of a job: who is in it and by which layout, from which step on and where its data begin. Worlds follow each
// other by epochs, so that each step belongs to one: step s is of the last epoch e with first_step(e) <= s.
// Builds on: elastic/member_name.hpp, parallelism/parse_degrees.hpp.
#pragma once

#include <string>
#include <vector>

#include <reshard/elastic/member_name.hpp>
#include <reshard/parallelism/parse_degrees.hpp>

namespace reshard {

/// A value: members by rank, the layout of their state, the first step and the cursor that it begins at, and the batch.
struct world {
  index_t epoch = 1;
  member_list members = {};
  degrees layout = {};
  index_t first_step = 0;
  index_t cursor = 0;
  index_t batch = 1;

  /// The member's rank; -1 where it is not in this world.
  constexpr rank_t rank_of(const member_name& who) const {
    for (std::size_t r = 0; r < members.size(); ++r)
      if (members[r] == who) return static_cast<rank_t>(r);
    return -1;
  }
  constexpr bool has(const member_name& who) const { return rank_of(who) >= 0; }
  /// c + B (s - first_step): where step s begins, if this world makes all steps before it.
  constexpr index_t cursor_at(index_t step) const {
    return checked_add(cursor, checked_multiply(batch, step - first_step));
  }

  friend constexpr bool operator==(const world&, const world&) = default;
};

/// Refuses what is no world: members twice, without a name or not as many as the layout has ranks, numbers below their
/// least.
constexpr void require_world(const world& w) {
  if (w.epoch < 1) refuse("world: epoch ", w.epoch, "; epochs count from 1");
  if (w.first_step < 0 || w.cursor < 0)
    refuse("world: it begins at step ", w.first_step, " and sample ", w.cursor, "; both count from 0");
  if (w.batch < 1) refuse("world: a batch of ", w.batch, " samples; it has at least 1");
  for (std::size_t r = 0; r < w.members.size(); ++r)
    if (w.members[r].empty()) refuse("world: rank ", r, " has no name");
    else if (const rank_t first = w.rank_of(w.members[r]); first != static_cast<rank_t>(r))
      refuse("world: ranks ", first, " and ", r, " are both ", w.members[r].text(), "; a member has one rank");
  if (const rank_t ranks = w.layout.world(); ranks != static_cast<rank_t>(w.members.size()))
    refuse("world: ", w.members.size(), " members, and the layout has ", ranks, " ranks");
}

/// Whether `after` goes on with the history where `before` leads: e' = e + 1, s' >= 0, and, where no step is undone,
/// s' >= s and c' = c + B (s' - s). Steps are undone where s' < s: then c' is for an earlier world to tell.
constexpr bool follows(const world& before, const world& after) {
  if (after.epoch != before.epoch + 1 || after.first_step < 0) return false;
  return after.first_step < before.first_step || after.cursor == before.cursor_at(after.first_step);
}

/// The epoch of step s: the last e with first_step(e) <= s among worlds in order of their epochs; 0 where none is.
constexpr index_t epoch_of_step(const std::vector<world>& worlds, index_t step) {
  for (std::size_t i = worlds.size(); i > 0; --i)
    if (worlds[i - 1].first_step <= step) return worlds[i - 1].epoch;
  return 0;
}

/// "epoch 3: a, b and c; tp=3; from step 120, sample 30720, in batches of 256"
inline std::string to_text(const world& w) {
  return detail::text_of("epoch ", w.epoch, ": ", members_text(w.members), "; ", layout_word(w.layout), "; from step ",
                         w.first_step, ", sample ", w.cursor, ", in batches of ", w.batch);
}

}  // namespace reshard
