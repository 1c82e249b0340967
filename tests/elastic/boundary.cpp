// SPDX-License-Identifier: Apache-2.0
// Boundaries: the margin by measured times, and the protocol of two stores and two loads in every interleaving: no
// member makes the boundary's step once all have acked.
#include <doctest/doctest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include <reshard/elastic/boundary.hpp>
#include <reshard/elastic/next.hpp>

#include "../support/refused.hpp"

using namespace reshard;

TEST_CASE("the margin grows with the time of a decision over that of a step") {
  CHECK(boundary_margin(0, 1) == 1);
  CHECK(boundary_margin(0.5, 1) == 2);
  CHECK(boundary_margin(1, 1) == 2);
  CHECK(boundary_margin(1.01, 1) == 3);
  CHECK(boundary_margin(3, 0.5) == 7);
  CHECK(boundary_margin(1e30, 1e-9) == most_margin);
  CHECK(most_margin == 1'048'576);
  CHECK(boundary_margin(1'048'574, 1) == 1'048'575);
  CHECK(boundary_margin(1'048'575, 1) == 1'048'576);
  CHECK(boundary_margin(1'048'576, 1) == 1'048'576);
  for (const double bad : {-1.0, std::numeric_limits<double>::quiet_NaN()})
    CHECK_REFUSED(boundary_margin(bad, 1),
                  "boundary: a decision takes 0 seconds or more, and a step more than 0; other times were measured");
  CHECK_REFUSED(boundary_margin(1, 0), "and a step more than 0");
  CHECK(boundary_after({3, 9, 4}, 2) == 11);
  CHECK(boundary_after({-1}, 1) == 0);
  CHECK_REFUSED(boundary_after({}, 2), "boundary: nobody has published a step");
  CHECK_REFUSED(boundary_after({1}, 0),
                "boundary: a margin of 0 steps; it is at least 1, or who is foremost has passed it");
  CHECK(answer_to_stop(10, 11) == stop_answer::acked);
  CHECK(answer_to_stop(11, 11) == stop_answer::passed);
}

TEST_CASE("two stores and two loads, every interleaving: who has acked comes to its stop and makes no step beyond") {
  // The first thread, for steps 0 to 3: publishes the step, reads the stop, and begins the step if it is below. The
  // second: stores the stop, then reads the step.
  struct state {
    index_t step = -1, published = -1, stop = 99;
    int second = 0;  // 1: stored, 2: has read
    bool told = false, halted = false;
    stop_answer said = stop_answer::acked;
    auto key() const {
      return std::vector<index_t>{step, published, stop, second, told, halted, static_cast<index_t>(said)};
    }
  };
  constexpr index_t at = 2;
  std::set<std::vector<index_t>> seen;
  std::vector<state> open{{}};
  int acked = 0, passed = 0;
  while (!open.empty()) {
    const state s = open.back();
    open.pop_back();
    if (!seen.insert(s.key()).second) continue;
    const bool first_ends = s.halted || s.step == 4;
    if (first_ends && s.second == 2) {
      ++(s.said == stop_answer::acked ? acked : passed);
      if (s.said == stop_answer::acked) CHECK((s.halted && s.step == at));
      else CHECK(s.step >= at);  // it may wait there all the same, for the record to name a later one
    }
    if (!first_ends) {
      state to = s;
      if (!s.told) to.published = ++to.step, to.told = true;  // publishes
      else to.told = false, to.halted = s.step >= s.stop;     // reads the stop
      open.push_back(to);
    }
    if (s.second < 2) {
      state to = s;
      if (to.second++ == 0) to.stop = at;
      else to.said = answer_to_stop(s.published, at);
      open.push_back(to);
    }
  }
  CHECK(acked > 0);
  CHECK(passed > 0);
}

TEST_CASE("what a member at its stop does, by the record") {
  job_record r;
  r.phase = job_phase::armed;
  r.epoch = 3, r.attempt = 2, r.boundary = 9;
  CHECK(at_stop_of(r, 3, 2, 9) == at_stop::wait);
  CHECK(at_stop_of(r, 3, 2, 7) == at_stop::later);
  CHECK(at_stop_of(r, 3, 1, 9) == at_stop::off);
  CHECK(at_stop_of(r, 2, 2, 9) == at_stop::enter);
  r.phase = job_phase::idle;
  CHECK(at_stop_of(r, 3, 2, 9) == at_stop::off);
  for (const job_phase p : {job_phase::recovering, job_phase::waiting, job_phase::lost}) {
    r.phase = p;
    CHECK(at_stop_of(r, 3, 2, 9) == at_stop::broke);
  }
}
