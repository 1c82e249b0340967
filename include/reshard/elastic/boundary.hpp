// SPDX-License-Identifier: Apache-2.0
// The boundary of a planned change: before which step do all of the old world stop? A member's second thread stores the
// stop and then reads the step; its first publishes the step and then reads the stop. So one of the two sees the other.
// Builds on: elastic/record.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <reshard/elastic/record.hpp>

namespace reshard {

/// The most steps that a boundary lies ahead.
inline constexpr index_t most_margin = index_t{1} << 20;

/// 1 + ceil(decision / step), of measured seconds, at most most_margin: in the time of a decision the foremost member
/// goes on by ceil(decision / step) steps at most, and the boundary has to be beyond.
[[nodiscard]] inline index_t boundary_margin(double decision_seconds, double step_seconds) {
  if (!(decision_seconds >= 0) || !(step_seconds > 0))
    refuse("boundary: a decision takes 0 seconds or more, and a step more than 0; other times were measured");
  const double steps = std::ceil(decision_seconds / step_seconds);
  return steps < static_cast<double>(most_margin) ? 1 + static_cast<index_t>(steps) : most_margin;
}

/// at = max(published) + margin, of the steps that the members of the old world have published.
[[nodiscard]] constexpr index_t boundary_after(const std::vector<index_t>& published, index_t margin) {
  if (published.empty()) refuse("boundary: nobody has published a step");
  if (margin < 1)
    refuse("boundary: a margin of ", margin, " steps; it is at least 1, or who is foremost has passed it");
  return checked_add(*std::max_element(published.begin(), published.end()), margin);
}

/// What a member answers to a stop, with the step that it read after it had stored it.
enum class stop_answer { acked, passed };
/// step < at: acked, as it will read the stop before it begins step `at`; else passed.
[[nodiscard]] constexpr stop_answer answer_to_stop(index_t step, index_t at) {
  return step < at ? stop_answer::acked : stop_answer::passed;
}

/// What a member that has come to its stop does next, by the record.
enum class at_stop {
  wait,   // nothing is decided
  enter,  // the change is made: it goes over to the new world, or leaves
  later,  // the boundary is a later one: it goes on until there
  off,    // there is no change any more
  broke   // a member is gone: it promises
};
/// The way on from the stop of an epoch, attempt and boundary.
[[nodiscard]] constexpr at_stop at_stop_of(const job_record& r, index_t epoch, index_t attempt, index_t boundary) {
  if (r.epoch > epoch) return at_stop::enter;
  if (r.phase == job_phase::recovering || r.phase == job_phase::waiting || r.phase == job_phase::lost)
    return at_stop::broke;
  if (r.phase != job_phase::armed || r.attempt != attempt) return at_stop::off;
  return r.boundary > boundary ? at_stop::later : at_stop::wait;
}

}  // namespace reshard
