// SPDX-License-Identifier: Apache-2.0
// The record of a job: the one value in the store that tells its epoch and phase; and the events that change it. Both
// are plain values, and which record follows is a pure function (elastic/next.hpp).
// Builds on: elastic/machine.hpp, elastic/standing.hpp, elastic/world.hpp.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include <reshard/elastic/machine.hpp>
#include <reshard/elastic/standing.hpp>
#include <reshard/elastic/world.hpp>

namespace reshard {

/// The 64 bits of a scalar that is a floating-point number: promises carry them as they are.
constexpr std::uint64_t bits_of_scalar(double x) { return std::bit_cast<std::uint64_t>(x); }
/// scalar_of_bits(bits_of_scalar(x)) is x, bit for bit.
constexpr double scalar_of_bits(std::uint64_t bits) { return std::bit_cast<double>(bits); }

/// A copy of a member's states as they were at a version: of all of them at that member itself, at another one of what
/// that member alone holds.
struct kept_copy {
  member_name of = {};
  index_t version = 0;

  friend constexpr bool operator==(const kept_copy&, const kept_copy&) = default;
};

/// A member's word that it contributes to no further step of the record's epoch, and its standing.
struct promise {
  standing told = {};
  std::uint64_t scalar = 0;  // 64 bits of the trainer's, of the update that it made last, or at stage 2 could make
  index_t of_epoch = 0;      // the epoch whose layout its arrays are in; 0 where it holds nothing
  // Of a switch to the next epoch's world that gave sources back, and of which it did not hear that all ended it: its
  // stages; 0, where it holds one layout whole, or nothing.
  index_t torn_stages = 0;
  index_t torn_in_place = 0;  // .. how many of them it knows to be in place everywhere
  index_t torn_here = 0;      // .. how many are in place at this member
  index_t torn_unread = 0;    // .. and with the sources of which one went what nobody reads (torn_share::unread_kept)
  std::vector<kept_copy> copies = {};  // that it has, of members of that epoch's world

  constexpr bool holds_state() const { return told.version != holds_nothing; }
  constexpr bool is_torn() const { return torn_stages > 0; }

  friend constexpr bool operator==(const promise&, const promise&) = default;
};

/// The record. Laws: worlds are in order of their epochs, and the last one is of `epoch`; there is one of them while
/// steps are made, and each more is one that state may still lie in since a switch was torn.
struct job_record {
  job_phase phase = job_phase::founding;
  index_t epoch = 0;
  index_t attempt = 0;   // how often in this epoch a world was proposed or a recovery was begun: never falls in it
  index_t boundary = 0;  // armed: the step that all of the old world stop before; done: that it ended before, or 0
  index_t wanted = 1;    // founding: as many members
  bool from_copies =
      false;  // entering: the world begins with copies of its first step's version, not with what is held
  std::vector<world> worlds = {};
  std::vector<world> proposed = {};  // the world that comes next, where one is named
  std::vector<promise> promises = {};
  member_list gone = {};  // dead, silent or failed, by evidence
  // The request that is worked on; idle: that was called off; done: by which it ended. Empty where the policy asked.
  member_name request = {};

  /// The world of the epoch. Founding there is none.
  constexpr const world& now() const {
    if (worlds.empty()) refuse("record: there is no world yet; the job is ", name(phase));
    return worlds.back();
  }
  constexpr const promise* promise_of(const member_name& who) const {
    for (const promise& p : promises)
      if (p.told.member == who) return &p;
    return nullptr;
  }
  /// Members of every world that state may lie in, each once.
  constexpr member_list concerned() const {
    member_list all;
    for (const world& w : worlds) add_members(all, w.members);
    return all;
  }

  friend constexpr bool operator==(const job_record&, const job_record&) = default;
};

/// What happened, or was found out, and what it is about: an epoch, an attempt in it and a boundary. About what is over
/// it changes nothing.
struct job_event {
  job_event_kind kind = job_event_kind::found;
  index_t epoch = 0;
  index_t attempt = 0;
  index_t boundary = 0;        // acked, passed, late: the boundary that it is about
  index_t at = 0;              // ready, passed, finish: the boundary that is named now
  member_list members = {};    // ready, acked, entered: who says so; broke, accounted, nobody: who is dead or silent
  std::vector<world> to = {};  // found, ask, accounted: the world
  bool from_copies = false;    // accounted: it begins with copies
  member_name request = {};    // ask: by which request

  friend constexpr bool operator==(const job_event&, const job_event&) = default;
};

/// An event of this kind about what a record is at.
[[nodiscard]] constexpr job_event event_about(const job_record& r, job_event_kind kind) {
  return {.kind = kind, .epoch = r.epoch, .attempt = r.attempt, .boundary = r.boundary};
}

/// "armed in epoch 3, attempt 1: all stop before step 120; epoch 3: a and b; .."
inline std::string to_text(const job_record& r) {
  std::string text = detail::text_of(name(r.phase), " in epoch ", r.epoch, ", attempt ", r.attempt);
  if (r.phase == job_phase::founding) text += detail::text_of(": ", r.wanted, " members are asked for");
  if (r.phase == job_phase::armed) text += detail::text_of(": all stop before step ", r.boundary);
  for (const world& w : r.worlds) text += "; " + to_text(w);
  for (const world& w : r.proposed) text += "; proposed is " + to_text(w);
  if (r.from_copies) text += "; it begins with copies";
  if (!r.request.empty()) text += detail::text_of("; asked for by ", r.request.text());
  for (const promise& p : r.promises) text += "; promised: " + detail::standing_text(p.told);
  if (!r.gone.empty()) text += "; gone: " + members_text(r.gone);
  return text;
}

/// "acked about epoch 3, attempt 1, boundary 120: a and b"
inline std::string to_text(const job_event& e) {
  std::string text = detail::text_of(name(e.kind), " about epoch ", e.epoch, ", attempt ", e.attempt);
  if (e.boundary > 0) text += detail::text_of(", boundary ", e.boundary);
  if (e.at > 0) text += detail::text_of(", at step ", e.at);
  if (!e.members.empty()) text += ": " + members_text(e.members);
  for (const world& w : e.to) text += "; to " + to_text(w);
  if (e.from_copies) text += ", from copies";
  return text;
}

}  // namespace reshard
