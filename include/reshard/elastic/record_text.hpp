// SPDX-License-Identifier: Apache-2.0
// The record as the text that the store keeps: one word after the other, nothing of it lost.
//   reshard-record-3 DIGEST PHASE EPOCH ATTEMPT BOUNDARY WANTED REQUEST GONE [from_copies] ..
//   .. {world|proposed EPOCH MEMBERS LAYOUT FIRST_STEP CURSOR BATCH} ..
//   .. {promise MEMBER VERSION STAGE SCALAR OF_EPOCH TORN_STAGES TORN_IN_PLACE TORN_HERE TORN_UNREAD {copy OF VERSION}}
// Builds on: elastic/require_record.hpp, elastic/detail/stored_words.hpp.
#pragma once

#include <string>
#include <string_view>

#include <reshard/elastic/detail/stored_words.hpp>
#include <reshard/elastic/require_record.hpp>

namespace reshard {

/// The first word of a stored record: its form, and the version of that.
inline constexpr std::string_view record_form = "reshard-record-3";

namespace detail {
inline void store_world(words_to_store& to, std::string_view as, const world& w) {
  to.word(as), to.number(w.epoch), to.names(w.members), to.layout(w.layout);
  to.number(w.first_step), to.number(w.cursor), to.number(w.batch);
}
inline world world_from(stored_words& from) {
  world w;
  w.epoch = from.number("the epoch of a world");
  w.members = from.names("a world");
  w.layout = from.layout();
  w.first_step = from.number("the first step of a world");
  w.cursor = from.number("the cursor of a world");
  w.batch = from.number("the batch of a world");
  return w;
}
inline void store_promise(words_to_store& to, const promise& p) {
  to.word("promise"), to.name_or_none(p.told.member), to.number(p.told.version);
  to.number(static_cast<index_t>(p.told.stage)), to.bits(p.scalar), to.number(p.of_epoch);
  to.number(p.torn_stages), to.number(p.torn_in_place), to.number(p.torn_here);
  to.number(p.torn_unread);
  for (const kept_copy& c : p.copies) to.word("copy"), to.name_or_none(c.of), to.number(c.version);
}
inline promise promise_from(stored_words& from) {
  constexpr std::string_view stages[] = {"0", "1", "2"};
  promise p;
  p.told.member = from.name_or_none("who promises");
  p.told.version = from.number("the version of a promise");
  p.told.stage = static_cast<update_stage>(from.one_of(stages, "the stage of a promise"));
  p.scalar = from.bits("the scalar of a promise");
  p.of_epoch = from.number("the epoch of a promise");
  p.torn_stages = from.number("the stages of a torn switch");
  p.torn_in_place = from.number("what is in place of a torn switch");
  p.torn_here = from.number("what is in place here of a torn switch");
  p.torn_unread = from.number("what nobody reads of a torn switch");
  while (from.took("copy")) {
    kept_copy& c = p.copies.emplace_back();
    c.of = from.name_or_none("whose copy it is");
    c.version = from.number("the version of a copy");
  }
  return p;
}
}  // namespace detail

/// The text of a record. Refused is what is no record, as require_record refuses it: nobody could read it again.
[[nodiscard]] inline std::string stored_text(const job_record& r) {
  require_record(r);
  detail::words_to_store to;
  to.word(name(r.phase));
  for (const index_t n : {r.epoch, r.attempt, r.boundary, r.wanted}) to.number(n);
  to.name_or_none(r.request), to.names(r.gone);
  if (r.from_copies) to.word("from_copies");
  for (const world& w : r.worlds) detail::store_world(to, "world", w);
  for (const world& w : r.proposed) detail::store_world(to, "proposed", w);
  for (const promise& p : r.promises) detail::store_promise(to, p);
  return to.text(record_form);
}

/// record_of(stored_text(r)) == r. Refused: a text of another form or version, one in which a byte is not what it was,
/// and a text that says what is no record.
[[nodiscard]] inline job_record record_of(std::string_view text) {
  detail::stored_words from(text, record_form, "record");
  job_record r;
  r.phase = static_cast<job_phase>(from.one_of(job_phase_names, "the phase"));
  r.epoch = from.number("the epoch");
  r.attempt = from.number("the attempt");
  r.boundary = from.number("the boundary");
  r.wanted = from.number("what is wanted");
  r.request = from.name_or_none("the request");
  r.gone = from.names("who is gone");
  r.from_copies = from.took("from_copies");
  while (from.took("world")) r.worlds.push_back(detail::world_from(from));
  while (from.took("proposed")) r.proposed.push_back(detail::world_from(from));
  while (from.took("promise")) r.promises.push_back(detail::promise_from(from));
  from.end();
  require_record(r);
  return r;
}

}  // namespace reshard
