// SPDX-License-Identifier: Apache-2.0
// How a job ends that is asked to: all stop before one step, as before another world; once all are there it is done.
// Who dies before that is recovered from, and the request is taken up again.
// Builds on: elastic/run/job_core.hpp, elastic/boundary.hpp.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <reshard/elastic/boundary.hpp>
#include <reshard/elastic/run/job_core.hpp>

namespace reshard::detail {

/// Says this member's part of a finish, and ends the job where all have said theirs. All tell their steps; the boundary
/// is the highest + 2, or + 4, + 8 .. where somebody had passed the one before.
inline void finish_job(job_core& core, const job_record& r, const member_name& request) {
  const std::string word = "finish." + std::string(request.text());
  core.say(r, word, std::to_string(core.published.load()));
  const std::vector<index_t> steps = core.numbers(r, word);
  if (steps.size() < r.now().members.size()) return;
  for (index_t margin = 2;; margin = checked_multiply(margin, 2)) {
    const index_t at = boundary_after(steps, margin);
    const std::string round = word + "." + std::to_string(at);
    core.stop.store(at);  // before it reads the step
    core.say(r, round, answer_to_stop(core.published.load(), at) == stop_answer::acked ? "acked" : "passed");
    const auto answers = core.words(r, round);
    if (answers.size() < r.now().members.size()) return;
    if (std::any_of(answers.begin(), answers.end(), [](const auto& a) { return a.second != "acked"; })) continue;
    if (core.published.load() >= at) core.say(r, round + ".stopped");
    if (!has_members(core.said_by(r, round + ".stopped"), r.now().members)) return;
    job_event e = event_about(r, job_event_kind::finish);
    e.at = at;
    e.request = request;
    core.happen(e);
    return;
  }
}

}  // namespace reshard::detail
