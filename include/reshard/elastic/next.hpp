// SPDX-License-Identifier: Apache-2.0
// next(record, event): the record that follows, by the table and by what each of its rows demands. Every transition of
// a job is one swap of it, so that two who do the same do it once.
// Builds on: elastic/record.hpp.
#pragma once

#include <string_view>

#include <reshard/elastic/record.hpp>

namespace reshard {

namespace detail {

/// What an event has to be about beside the epoch. A death is about a member, a request about a world, whatever is
/// under way.
constexpr bool is_of_an_attempt(job_event_kind e) {
  return e != job_event_kind::found && e != job_event_kind::ask && e != job_event_kind::broke &&
         e != job_event_kind::finish;
}

/// Why a death changes nothing; empty where it does. A spare's is no matter of the record's.
constexpr std::string_view broke_in_vain(const job_record& r, const job_event& e) {
  for (const member_name& who : e.members) {
    for (const world& w : r.worlds)
      if (w.has(who) && !has_member(r.gone, who)) return {};
    for (const world& w : r.proposed)
      if (w.has(who)) return {};
  }
  return "it names no member of the old or new world that was thought to live";
}

/// Whether somebody who promised has a copy of a version.
constexpr bool tells_copies(const job_record& r, index_t version) {
  for (const promise& p : r.promises)
    for (const kept_copy& c : p.copies)
      if (c.version == version) return true;
  return false;
}

/// Why nobody can be called to account yet; empty where the world may be made. A living member of the epoch need not be
/// among those who promised: before all had entered its world no step was made in it, and whom it was to leave holds
/// the state.
constexpr std::string_view not_accounted(const job_record& r, const job_event& e) {
  member_list out = r.gone;
  add_members(out, e.members);
  bool holds = false;
  for (const promise& p : r.promises) holds = holds || (p.holds_state() && !has_member(out, p.told.member));
  for (const member_name& who : r.concerned())
    if (r.promise_of(who) == nullptr && !has_member(out, who)) return "a member has neither promised nor is it gone";
  if (!holds) return "nobody who holds state has promised";
  if (e.to.size() != 1 || e.to[0].epoch != r.epoch + 1) return "it names no world of the next epoch";
  for (const member_name& who : e.to[0].members)
    if (has_member(out, who)) return "its world has a member that is gone";
  if (e.from_copies && !tells_copies(r, e.to[0].first_step)) return "nobody has a copy of the version it begins with";
  if (e.to[0].first_step >= r.now().first_step && !follows(r.now(), e.to[0])) return "its world has another cursor";
  return {};
}

/// Why another world is not proposed; empty where it is.
constexpr std::string_view asked_in_vain(const job_record& r, const job_event& e) {
  if (e.to.size() != 1 || e.to[0].epoch != r.epoch + 1) return "it names no world of the next epoch";
  const world &now = r.now(), &to = e.to[0];
  if (to.members == now.members && to.layout == now.layout && to.batch == now.batch) return "it names no other world";
  return {};
}

/// What a row of the table demands of its event.
constexpr std::string_view demand_unmet(const job_record& r, const job_event& e) {
  switch (e.kind) {
    case job_event_kind::found:
      if (e.to.size() != 1 || e.to[0].epoch != 1) return "it names no world of epoch 1";
      if (static_cast<index_t>(e.to[0].members.size()) < r.wanted) return "fewer members are there than were asked for";
      return {};
    case job_event_kind::ask: return asked_in_vain(r, e);
    case job_event_kind::ready:
      if (!has_members(e.members, r.now().members) || !has_members(e.members, r.proposed[0].members))
        return "a member of the old or new world does not have its groups";
      return e.at < r.now().first_step ? "its boundary is before the first step of the world" : std::string_view{};
    case job_event_kind::acked:
      return has_members(e.members, r.now().members) ? std::string_view{} : "a member of the old world is not armed";
    case job_event_kind::passed: return e.at > r.boundary ? std::string_view{} : "it names no later boundary";
    case job_event_kind::entered:
      return has_members(e.members, r.now().members) ? std::string_view{}
                                                     : "a member of the new world has not switched";
    case job_event_kind::broke: return broke_in_vain(r, e);
    case job_event_kind::accounted: return not_accounted(r, e);
    default: return {};
  }
}

/// Names the boundary: the proposed world begins there, and its data where the old world's end.
constexpr void arm(job_record& r, index_t at) {
  r.boundary = at;
  r.proposed[0].first_step = at;
  r.proposed[0].cursor = r.now().cursor_at(at);
}

/// Who is gone stays so while a world that state may lie in has it: its death is known, and breaks nothing again.
/// Promises stay until the world is entered: from them its members know where the state lies that they begin with.
constexpr void begin_epoch(job_record& r, const world& w) {
  ++r.epoch;
  r.attempt = 0;
  r.worlds.push_back(w);
}

}  // namespace detail

/// Why an event changes nothing; empty where it is taken.
[[nodiscard]] constexpr std::string_view why_ignored(const job_record& r, const job_event& e) {
  if (!transition_of(r.phase, e.kind)) return "the table has no such pair";
  if (e.epoch != r.epoch) return "it is about another epoch";
  if (detail::is_of_an_attempt(e.kind) && e.attempt != r.attempt) return "it is about another attempt";
  if (r.phase == job_phase::armed && detail::is_of_an_attempt(e.kind) && e.boundary != r.boundary)
    return "it is about another boundary";
  return detail::demand_unmet(r, e);
}

/// The record after an event: by the table, or unchanged. Laws: the epoch never falls, and rises by one exactly where
/// the table says; a world of the next epoch comes with the acks of all members, or with the promise of one that holds
/// the state. A world that is none is refused, as require_world refuses it.
[[nodiscard]] constexpr job_record next(const job_record& r, const job_event& e) {
  if (!why_ignored(r, e).empty()) return r;
  for (const world& w : e.to) require_world(w);
  job_record after = r;
  after.from_copies = e.kind == job_event_kind::accounted && e.from_copies;
  after.phase = transition_of(r.phase, e.kind)->to;
  switch (e.kind) {
    case job_event_kind::ready:
    case job_event_kind::passed: detail::arm(after, e.at); return after;
    case job_event_kind::ask:
      ++after.attempt;
      after.proposed = e.to;
      after.request = e.request;
      return after;
    case job_event_kind::acked: detail::begin_epoch(after, r.proposed[0]); break;
    case job_event_kind::found: detail::begin_epoch(after, e.to[0]); break;
    case job_event_kind::accounted:
      add_members(after.gone, e.members);
      detail::begin_epoch(after, e.to[0]);
      break;
    case job_event_kind::broke:
      ++after.attempt;
      after.promises.clear();  // what was said of the epoch before is over
      after.request = {};      // it is taken up again
      add_members(after.gone, e.members);
      break;
    case job_event_kind::nobody: add_members(after.gone, e.members); break;
    case job_event_kind::come: ++after.attempt; break;
    case job_event_kind::entered:
      after.worlds = {r.now()};
      after.promises.clear();
      after.gone.clear();
      break;
    default: break;
  }
  after.proposed.clear();
  after.boundary = 0;
  if (e.kind == job_event_kind::finish) after.boundary = e.at, after.request = e.request;
  // What was called off is still to be answered.
  if (after.phase == job_phase::idle && e.kind != job_event_kind::late) after.request = {};
  return after;
}

/// What becomes of a promise.
enum class promise_answer {
  taken,     // it is in the record
  said,      // that member's was there already
  too_late,  // a later epoch has begun without it: who said it is expelled once that world stands
  not_asked  // nothing broke, or the member is in no world that state may lie in
};

/// Whether a promise to leave `epoch` is taken into the record. It counts while a recovery of that epoch goes on or
/// waits, also of one whom the evidence called gone.
[[nodiscard]] constexpr promise_answer answer_to(const job_record& r, index_t epoch, const promise& p) {
  if (epoch < r.epoch) return r.now().has(p.told.member) ? promise_answer::not_asked : promise_answer::too_late;
  if (epoch > r.epoch || (r.phase != job_phase::recovering && r.phase != job_phase::waiting))
    return promise_answer::not_asked;
  if (!has_member(r.concerned(), p.told.member)) return promise_answer::not_asked;
  return r.promise_of(p.told.member) != nullptr ? promise_answer::said : promise_answer::taken;
}

/// The record with a promise, where it is taken; it changes no phase.
[[nodiscard]] constexpr job_record with_promise(const job_record& r, index_t epoch, const promise& p) {
  if (answer_to(r, epoch, p) != promise_answer::taken) return r;
  job_record after = r;
  after.promises.push_back(p);
  member_list gone;
  for (const member_name& who : r.gone)
    if (who != p.told.member) gone.push_back(who);
  after.gone = gone;
  return after;
}

}  // namespace reshard
