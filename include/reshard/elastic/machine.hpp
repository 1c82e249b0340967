// SPDX-License-Identifier: Apache-2.0
// The state machine of an elastic job: phases, events and one table of transitions. A pair that the table does not have
// is ignored. What must hold of the table for a job to come to an end is asserted below it, so that a table that breaks
// it does not compile.
// Builds on: base/text.hpp.
#pragma once

#include <cstddef>
#include <iterator>
#include <optional>
#include <string_view>

namespace reshard {

/// What a job is at, as its record says.
enum class job_phase {
  founding,    // its first members gather
  idle,        // steps go on and no change is under way
  proposed,    // another world is named, and its members make their groups
  armed,       // all have their groups, and a boundary is named
  entering,    // of a new epoch: state moves, and members go over
  recovering,  // a member is gone: who lives stops, promises and tells its standing
  waiting,     // state is held, and no world can be made of who is there
  lost,        // an end: what is needed has no holder any more
  done,        // an end: it is finished
};

/// What takes a job from phase to phase. Any member may bring any of them about.
enum class job_event_kind {
  found,      // as many members as were asked for are there
  ask,        // a request or the policy names another world
  ready,      // all of both worlds have their groups
  late,       // the time for it is over, or one that was to come died or refused
  acked,      // all members of the old world are armed
  passed,     // one was beyond the boundary
  entered,    // all of the new world have switched
  broke,      // a member of the old or new world is dead, silent or failed
  accounted,  // everybody has promised, is dead, or was silent for the grace; a world can be made
  no_plan,    // no world that the policy allows can be made of who is there
  come,       // somebody registered
  nobody,     // what is needed has no holder, snapshot or checkpoint
  finish,     // the job has made its steps
};

/// Phases by their numbers, in the words of the record.
inline constexpr std::string_view job_phase_names[] = {"founding",   "idle",    "proposed", "armed", "entering",
                                                       "recovering", "waiting", "lost",     "done"};
/// Events by their numbers, in the words of the table.
inline constexpr std::string_view job_event_names[] = {"found",  "ask",     "ready", "late",      "acked",
                                                       "passed", "entered", "broke", "accounted", "no_plan",
                                                       "come",   "nobody",  "finish"};
/// How many phases there are.
inline constexpr int job_phases = static_cast<int>(std::size(job_phase_names));
/// How many events there are.
inline constexpr int job_events = static_cast<int>(std::size(job_event_names));

/// "recovering"
constexpr std::string_view name(job_phase p) { return job_phase_names[static_cast<std::size_t>(p)]; }
/// "no_plan"
constexpr std::string_view name(job_event_kind e) { return job_event_names[static_cast<std::size_t>(e)]; }

/// A row of the table: in phase `from`, `event` leads to phase `to`; the epoch rises by `epoch`, 0 or 1.
struct job_transition {
  job_phase from;
  job_event_kind event;
  job_phase to;
  int epoch;

  friend constexpr bool operator==(const job_transition&, const job_transition&) = default;
};

/// The table. Epochs begin with 0, before a world is founded.
inline constexpr job_transition job_table[] = {
    {job_phase::founding, job_event_kind::found, job_phase::idle, 1},
    {job_phase::idle, job_event_kind::ask, job_phase::proposed, 0},
    {job_phase::proposed, job_event_kind::ready, job_phase::armed, 0},
    {job_phase::proposed, job_event_kind::late, job_phase::idle, 0},
    {job_phase::armed, job_event_kind::acked, job_phase::entering, 1},
    {job_phase::armed, job_event_kind::passed, job_phase::armed, 0},
    {job_phase::armed, job_event_kind::late, job_phase::idle, 0},
    {job_phase::entering, job_event_kind::entered, job_phase::idle, 0},
    {job_phase::idle, job_event_kind::broke, job_phase::recovering, 0},
    {job_phase::proposed, job_event_kind::broke, job_phase::recovering, 0},
    {job_phase::armed, job_event_kind::broke, job_phase::recovering, 0},
    {job_phase::entering, job_event_kind::broke, job_phase::recovering, 0},
    {job_phase::waiting, job_event_kind::broke, job_phase::recovering, 0},
    {job_phase::recovering, job_event_kind::accounted, job_phase::entering, 1},
    {job_phase::recovering, job_event_kind::no_plan, job_phase::waiting, 0},
    {job_phase::waiting, job_event_kind::come, job_phase::recovering, 0},
    {job_phase::recovering, job_event_kind::nobody, job_phase::lost, 0},
    {job_phase::idle, job_event_kind::finish, job_phase::done, 0},
};

/// The row of a pair; none where it is ignored.
constexpr std::optional<job_transition> transition_of(job_phase from, job_event_kind event) {
  for (const job_transition& row : job_table)
    if (row.from == from && row.event == event) return row;
  return {};
}

/// p = lost or p = done
constexpr bool is_end(job_phase p) { return p == job_phase::lost || p == job_phase::done; }
/// p in { idle, proposed, armed }: the world is whole and decided, and steps go on. Elsewhere none is made.
constexpr bool makes_steps(job_phase p) {
  return p == job_phase::idle || p == job_phase::proposed || p == job_phase::armed;
}

namespace detail {

/// Bit q is set: phase q is reached from this one, by any number of rows.
constexpr unsigned phases_reached_from(job_phase from) {
  unsigned reached = 1u << static_cast<int>(from), before = 0;
  while (before != reached) {
    before = reached;
    for (const job_transition& row : job_table)
      if ((reached >> static_cast<int>(row.from) & 1u) != 0) reached |= 1u << static_cast<int>(row.to);
  }
  return reached;
}
/// No pair stands twice, none leaves an end, and phases and events have names.
constexpr bool table_is_total() {
  for (int p = 0; p < job_phases; ++p)
    for (int e = 0; e < job_events; ++e) {
      int rows = 0;
      for (const job_transition& row : job_table)
        rows += row.from == static_cast<job_phase>(p) && row.event == static_cast<job_event_kind>(e) ? 1 : 0;
      if (rows > (is_end(static_cast<job_phase>(p)) ? 0 : 1)) return false;
    }
  return name(job_phase::done) == "done" && name(job_event_kind::finish) == "finish";
}
/// From every phase that is no end both are reached.
constexpr bool every_phase_reaches_both_ends() {
  constexpr unsigned ends = 1u << static_cast<int>(job_phase::lost) | 1u << static_cast<int>(job_phase::done);
  for (int p = 0; p < job_phases; ++p)
    if (const auto from = static_cast<job_phase>(p); !is_end(from) && (phases_reached_from(from) & ends) != ends)
      return false;
  return true;
}
/// All phases are reached from founding.
constexpr bool every_phase_is_reached() { return phases_reached_from(job_phase::founding) == (1u << job_phases) - 1; }
/// A world is entered in a new epoch: the epoch rises by one into entering and by the founding, and nowhere else.
constexpr bool epochs_rise_with_worlds() {
  for (const job_transition& row : job_table) {
    const bool another_world = row.to == job_phase::entering || row.event == job_event_kind::found;
    if (row.epoch != (another_world ? 1 : 0)) return false;
  }
  return true;
}

static_assert(table_is_total(), "a pair of phase and event has one answer, and ends have none");
static_assert(every_phase_reaches_both_ends(), "there is a phase without a way to an end");
static_assert(every_phase_is_reached(), "there is a phase that no job comes to");
static_assert(epochs_rise_with_worlds(), "epochs never fall, and rise by one with each world");

}  // namespace detail

}  // namespace reshard
