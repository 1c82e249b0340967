// SPDX-License-Identifier: Apache-2.0
// Where the state of a job lies, as its record says: the world whose arrays hold it, who of it lives, which version all
// go on from and who makes an update before; and the devices of the switch by which the next world is entered. Pure
// functions of the record, so that old members, new ones and who comes to stay derive one switch. Where a switch gave
// sources back and was torn, state lies between two worlds.
// Builds on: elastic/record.hpp, elastic/standing.hpp, space/copied_holding.hpp, switch/ending.hpp.
#pragma once

#include <string>
#include <vector>

#include <reshard/elastic/record.hpp>
#include <reshard/elastic/standing.hpp>
#include <reshard/space/copied_holding.hpp>
#include <reshard/switch/ending.hpp>

namespace reshard {

/// What a world is entered from. Without promises, so where a change was planned, all of the old world hold one
/// version.
struct state_source {
  const world* from = nullptr;  // of the record; null where nobody holds state
  const world* into = nullptr;  // of the record: state lies on the way there; null where it lies in `from` alone
  member_list dead = {};        // of these: they promised nothing
  member_list empty = {};       // of `from`: they live, and what they hold is of another version, or nothing
  target_version target = {};   // that the next world begins with, and who makes the update first
  std::uint64_t scalar = 0;     // with which they make it
  bool known = false;           // whether some promise tells it
  // of a torn switch: its stages, and what each device of it holds that lives and holds anything
  index_t stages = 0;
  std::vector<torn_share> shares = {};

  /// Whether a member has a part in what comes from here.
  bool takes_part(const member_name& who) const {
    return from != nullptr && (from->has(who) || (into != nullptr && into->has(who))) && !has_member(dead, who);
  }
};

/// Devices of a switch between two worlds: those of the first by rank, then who else is in the other one.
[[nodiscard]] inline member_list devices_between(const world& from, const world& to) {
  member_list all = from.members;
  add_members(all, to.members);
  return all;
}

namespace detail {
/// A switch that gave sources back, and that not all ended, leaves state between two worlds: who did not begin it has
/// all of `from`, and whoever did tells how far it came.
inline void read_torn_switch(const job_record& r, const member_list& also_dead, state_source& s) {
  for (const promise& p : r.promises) {
    if (!p.is_torn() || p.of_epoch != s.from->epoch || has_member(also_dead, p.told.member)) continue;
    s.stages = p.torn_stages;
    for (const world& w : r.worlds)
      if (w.epoch == p.of_epoch + 1) s.into = &w;
  }
  if (s.into == nullptr) return;
  const member_list all = devices_between(*s.from, *s.into);
  for (rank_t device = 0; device < std::ssize(all); ++device) {
    const member_name& who = all[static_cast<std::size_t>(device)];
    const promise* p = r.promise_of(who);
    if (p == nullptr || has_member(also_dead, who)) add_members(s.dead, {who});
    else if (p->is_torn()) s.shares.push_back({device, p->torn_in_place, p->torn_here, p->torn_unread});
    else if (p->holds_state()) s.shares.push_back({device, 0, 0, {}});
  }
}
}  // namespace detail

/// The world whose arrays hold the state: of the latest epoch that somebody who promised holds arrays of. Once one
/// member has them all, everything was in place on every member of that world.
[[nodiscard]] inline state_source source_of(const job_record& r, const member_list& also_dead = {}) {
  state_source s;
  const bool planned = r.promises.empty();
  if (planned) {
    if (r.worlds.size() < 2) return s;
    s.from = &r.worlds[r.worlds.size() - 2];
    s.target.version = r.now().first_step;
    return s;
  }
  index_t epoch = 0;
  for (const promise& p : r.promises)
    if (p.holds_state() && !has_member(also_dead, p.told.member)) epoch = greatest(epoch, p.of_epoch);
  for (const world& w : r.worlds)
    if (w.epoch == epoch) s.from = &w;
  if (s.from == nullptr) return s;
  std::vector<standing> told;
  for (const member_name& who : s.from->members) {
    const promise* p = r.promise_of(who);
    if (p == nullptr || has_member(also_dead, who)) {
      s.dead.push_back(who);
      continue;
    }
    // Who holds arrays of an earlier world has all of this one's in place, and only did not hear so.
    if (p->holds_state()) told.push_back(p->told);
    else s.empty.push_back(who);
  }
  for (const promise& p : r.promises)  // who came with a switch that was torn
    if (p.is_torn() && p.of_epoch == epoch && !s.from->has(p.told.member) && !has_member(also_dead, p.told.member))
      told.push_back(p.told);
  s.target = target(told);
  add_members(s.empty, s.target.empty);
  detail::read_torn_switch(r, also_dead, s);
  for (const promise& p : r.promises)
    if (p.holds_state() && !has_member(also_dead, p.told.member) &&
        ((p.told.version == s.target.version && p.told.stage == update_stage::nothing) ||
         (p.told.version + 1 == s.target.version && p.told.stage == update_stage::scalar)))
      s.scalar = p.scalar, s.known = true;
  return s;
}

/// Who has copies of a version, by rank of the world that state comes from, as the promises of who lives tell.
[[nodiscard]] inline rank_copies copies_told(const job_record& r, const state_source& s, index_t version) {
  rank_copies all = rank_copies::none(std::ssize(s.from->members));
  for (const promise& p : r.promises) {
    const rank_t at = s.from->rank_of(p.told.member);
    if (at < 0 || p.of_epoch != s.from->epoch || has_member(s.dead, p.told.member)) continue;
    for (const kept_copy& c : p.copies) {
      const rank_t of = s.from->rank_of(c.of);
      if (c.version != version || of < 0) continue;
      if (of == at) all.own[static_cast<std::size_t>(at)] = true;
      else all.keeper[static_cast<std::size_t>(of)] = at;
    }
  }
  return all;
}

/// Devices of the switch into another world: those that state comes from, then who else is in that world.
[[nodiscard]] inline member_list devices_of_entry(const state_source& s, const world& to) {
  member_list all = s.from->members;
  if (s.into != nullptr) add_members(all, s.into->members);
  add_members(all, to.members);
  return all;
}

}  // namespace reshard
