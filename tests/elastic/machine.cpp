// SPDX-License-Identifier: Apache-2.0
// The table of a job's state machine against a twin that is read from the contract's rows: every pair of phase and
// event, and which phases have a way to which end.
#include <doctest/doctest.h>

#include <set>
#include <string>

#include <reshard/elastic/machine.hpp>

#include "../oracle/job_machine.hpp"

using namespace reshard;

TEST_CASE("every pair of phase and event is answered as the contract's rows answer it") {
  const oracle::job_machine twin;
  std::set<std::string> phases, events;
  int pairs = 0, taken = 0;
  for (int p = 0; p < job_phases; ++p)
    for (int e = 0; e < job_events; ++e) {
      const auto from = static_cast<job_phase>(p);
      const auto kind = static_cast<job_event_kind>(e);
      const std::string phase(name(from)), event(name(kind));
      phases.insert(phase), events.insert(event), ++pairs;
      CAPTURE(phase);
      CAPTURE(event);
      const auto row = transition_of(from, kind);
      CHECK(row.has_value() == twin.has(phase, event));
      if (!row) continue;
      ++taken;
      CHECK(name(row->to) == twin.after(phase, event).first);
      CHECK(row->epoch == twin.after(phase, event).second);
    }
  CHECK(phases == twin.phases());
  CHECK(events == twin.events());
  CHECK(pairs == 9 * 13);
  CHECK(taken == static_cast<int>(twin.rows()));
  CHECK(taken == static_cast<int>(std::size(job_table)));
}

TEST_CASE("from every phase but the ends both ends are reached, by the twin's walk as by the table's") {
  const oracle::job_machine twin;
  int ends = 0;
  for (int p = 0; p < job_phases; ++p) {
    const auto from = static_cast<job_phase>(p);
    const std::set<std::string> reached = twin.reached_from(std::string(name(from)));
    ends += is_end(from) ? 1 : 0;
    CHECK((reached.count("lost") > 0 && reached.count("done") > 0) == !is_end(from));
    unsigned bits = 0;
    for (int q = 0; q < job_phases; ++q)
      if (reached.count(std::string(name(static_cast<job_phase>(q)))) > 0) bits |= 1u << q;
    CHECK(bits == detail::phases_reached_from(from));
  }
  CHECK(ends == 2);
  CHECK(detail::phases_reached_from(job_phase::done) == 1u << static_cast<int>(job_phase::done));
}

TEST_CASE("steps are made while the world is whole and decided") {
  std::set<std::string> steps;
  for (int p = 0; p < job_phases; ++p)
    if (makes_steps(static_cast<job_phase>(p))) steps.insert(std::string(name(static_cast<job_phase>(p))));
  CHECK(steps == std::set<std::string>{"idle", "proposed", "armed"});
}

TEST_CASE("what is asserted of the table holds at run time as by the compiler") {
  CHECK(detail::table_is_total());
  CHECK(detail::every_phase_reaches_both_ends());
  CHECK(detail::every_phase_is_reached());
  CHECK(detail::epochs_rise_with_worlds());
}
