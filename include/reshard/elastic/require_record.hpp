// SPDX-License-Identifier: Apache-2.0
// What is no record of a job: told before it is stored, as nobody could go on from it, and when it is read.
// Builds on: elastic/record.hpp.
#pragma once

#include <string_view>

#include <reshard/elastic/record.hpp>

namespace reshard {

namespace detail {
constexpr void require_promise(const job_record& r, std::size_t at) {
  const promise& p = r.promises[at];
  const std::string_view who = p.told.member.text();
  if (r.promise_of(p.told.member) != &p) refuse("record: ", who, " promises twice; a member has one promise");
  if (!has_member(r.concerned(), p.told.member))
    refuse("record: ", who, " promises, and is in no world that state may lie in");
  if (p.told.version < holds_nothing)
    refuse("record: ", who, " promises version ", p.told.version, "; versions count from 0, and nothing is ",
           holds_nothing);
  bool known = p.of_epoch == 0;
  for (const world& w : r.worlds) known = known || w.epoch == p.of_epoch;
  if (!known) refuse("record: ", who, " holds the layout of epoch ", p.of_epoch, ", and no world is of that");
  if (p.torn_in_place < 0 || p.torn_here < p.torn_in_place || p.torn_here > p.torn_stages)
    refuse("record: ", who, " has ", p.torn_here, " of ", p.torn_stages, " stages in place, and knows of ",
           p.torn_in_place, " everywhere");
  if (p.torn_unread < 0 || p.torn_unread > p.torn_stages)
    refuse("record: what nobody reads went at ", who, " with stage ", p.torn_unread, " of ", p.torn_stages);
  bool next = false;
  for (const world& w : r.worlds) next = next || w.epoch == p.of_epoch + 1;
  if (p.is_torn() && (!p.holds_state() || p.of_epoch == 0 || !next))
    refuse("record: ", who, " holds a torn switch from epoch ", p.of_epoch, " at version ", p.told.version,
           "; it is between two worlds that the record has, and of a version");
  for (const kept_copy& c : p.copies)
    if (c.of.empty() || c.version < 0)
      refuse("record: ", who, " has a copy of version ", c.version, " of ", c.of.empty() ? "nobody" : c.of.text(),
             "; a copy is of a member, and versions count from 0");
}
}  // namespace detail

/// Refuses what is no record: numbers below their least, what is no world, worlds that are not in order of their epochs
/// up to the record's, another one proposed than of the next epoch or in another phase than it is, and promises that
/// nobody could have made.
constexpr void require_record(const job_record& r) {
  if (r.epoch < 0 || r.attempt < 0 || r.boundary < 0 || r.wanted < 1)
    refuse("record: epoch ", r.epoch, ", attempt ", r.attempt, ", boundary ", r.boundary, " and ", r.wanted,
           " members wanted; numbers count from 0, and a job has at least 1 member");
  if ((r.phase == job_phase::founding) != (r.epoch == 0))
    refuse("record: it is ", name(r.phase), " in epoch ", r.epoch, "; founding is epoch 0, and only that");
  index_t before = 0;
  for (const world& w : r.worlds) {
    require_world(w);
    if (w.epoch <= before) refuse("record: a world of epoch ", w.epoch, " comes after one of ", before);
    before = w.epoch;
  }
  if (before != r.epoch) refuse("record: its last world is of epoch ", before, ", and it is of epoch ", r.epoch);
  if (makes_steps(r.phase) && r.worlds.size() != 1)
    refuse("record: state may lie in ", r.worlds.size(), " worlds, and it is ", name(r.phase));
  const bool named = r.phase == job_phase::proposed || r.phase == job_phase::armed;
  if (r.proposed.size() != (named ? 1u : 0u))
    refuse("record: ", r.proposed.size(), " worlds are proposed, and it is ", name(r.phase));
  for (const world& w : r.proposed) {
    require_world(w);
    if (w.epoch != r.epoch + 1)
      refuse("record: a world of epoch ", w.epoch, " is proposed, and it is of epoch ", r.epoch);
  }
  if (r.from_copies && (r.phase != job_phase::entering || r.promises.empty()))
    refuse("record: its world begins with copies, and it is ", name(r.phase), " with ", r.promises.size(),
           " promises; copies are told by promises, and begin a world that is entered");
  if (has_member(r.gone, {})) refuse("record: of ", r.gone.size(), " members that are gone one has no name");
  for (std::size_t i = 0; i < r.promises.size(); ++i) detail::require_promise(r, i);
}

}  // namespace reshard
