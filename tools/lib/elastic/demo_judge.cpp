// SPDX-License-Identifier: Apache-2.0
#include "demo_judge.hpp"

#include <reshard/base/digest.hpp>
#include <reshard/base/text.hpp>

namespace elastic {

using namespace reshard;
using reshard::detail::text_of;

namespace {

using world_map = std::map<index_t, log_event>;

std::uint64_t sum_of(index_t begin, index_t end) {
  std::uint64_t sum = 0;
  for (index_t k = begin; k < end; ++k) sum += mix64(static_cast<std::uint64_t>(k));
  return sum;
}

world_map worlds_of(job_verdict& v, const event_list& workers) {
  world_map all;
  for (const log_event& e : workers) {
    if (e.ev != "world") continue;
    const log_event& first = all.try_emplace(e.epoch, e).first->second;
    if (first.members != e.members || first.layout != e.layout || first.first_step != e.first_step ||
        first.cursor != e.cursor || first.batch != e.batch)
      v.wrong.push_back(text_of("epoch ", e.epoch, " is one world to ", first.id, " and another to ", e.id));
  }
  return all;
}

/// Who was killed, by signal 9; who is not in the last world, as it left; everybody else with the job done.
void judge_ends(job_verdict& v, const log_event& last, const event_list& deeds, const event_list& workers) {
  std::map<std::string, std::string> due, said;
  std::map<std::string, index_t> code;
  for (const log_event& e : workers) {
    if (e.ev == "start") due.try_emplace(e.id, "left");
    if (e.ev == "end" && !said.try_emplace(e.id, e.why).second) v.wrong.push_back(e.id + " ends twice");
    if (e.ev != "end" || e.why != "done") continue;
    if (v.steps != 0 && v.steps != e.version)
      v.wrong.push_back(text_of("the job is done with version ", v.steps, ", and with ", e.version, " to ", e.id));
    v.steps = e.version;
  }
  for (const std::string& one : last.members) due[one] = "done";
  for (const log_event& d : deeds) {
    if (d.ev == "exit") code[d.who] = d.code;
    if (d.ev == "killed") due[d.who].clear();
    if (d.ev == "asked" && d.text != "done")
      v.wrong.push_back(text_of(d.what, " ", d.who, " is answered '", d.text, "'"));
  }
  for (const auto& [who, why] : due) {
    if (said[who] != why) v.wrong.push_back(text_of(who, " ends as '", said[who], "', expected is '", why, "'"));
    const int due_code = why.empty() ? -9 : 0;
    if (!code.contains(who)) v.wrong.push_back("no exit code is told of " + who);
    else if (code[who] != due_code) v.wrong.push_back(text_of(who, " ends with ", code[who], ", not ", due_code));
  }
}

/// Step s is of the last epoch e with first_step(e) <= s.
index_t epoch_at(const world_map& worlds, index_t step) {
  index_t found = 0;
  for (const auto& [epoch, w] : worlds)
    if (w.first_step <= step) found = epoch;
  return found;
}

void judge_samples(job_verdict& v, const world_map& worlds, const event_list& workers) {
  const index_t batch = worlds.begin()->second.batch;
  std::map<index_t, std::map<index_t, const log_event*>> shares;  // by step and dp
  for (const log_event& e : workers) {
    if (e.step >= v.steps || (e.ev != "samples" && e.ev != "step") || e.epoch != epoch_at(worlds, e.step)) continue;
    if (e.ev == "step" && e.sum != sum_of(e.step * batch, (e.step + 1) * batch))
      v.wrong.push_back(text_of("the sum of ", e.id, " in step ", e.step, " is not that of its samples"));
    if (e.ev == "step") continue;
    const log_event& first = *shares[e.step].try_emplace(e.dp, &e).first->second;
    if (first.begin != e.begin || first.end != e.end)
      v.wrong.push_back(text_of(first.id, " and ", e.id, " take other samples in step ", e.step));
  }
  for (index_t s = 0; s < v.steps; ++s) {
    index_t at = s * batch, of = 0;
    for (const auto& [dp, e] : shares[s]) {
      if (e->begin != at)
        v.wrong.push_back(text_of("step ", s, ": ", e->id, " begins with sample ", e->begin, ", not ", at));
      at = e->end, of = e->of;
    }
    if (at != (s + 1) * batch || of != static_cast<index_t>(shares[s].size()))
      v.wrong.push_back(text_of("step ", s, ": samples end at ", at, ", not ", (s + 1) * batch, ", by ",
                                static_cast<index_t>(shares[s].size()), " of ", of, " ranks"));
  }
  v.samples = v.steps * batch;
}

}  // namespace

job_verdict judge_history(const event_list& deeds, const event_list& workers) {
  job_verdict v;
  const world_map worlds = worlds_of(v, workers);
  if (worlds.empty()) {
    v.wrong.push_back("no world was ever entered");
    return v;
  }
  for (const auto& [epoch, w] : worlds)
    if (w.cursor != w.first_step * w.batch || w.batch != worlds.begin()->second.batch)
      v.wrong.push_back(text_of("epoch ", epoch, " begins at step ", w.first_step, " with sample ", w.cursor));
  judge_ends(v, worlds.rbegin()->second, deeds, workers);
  if (v.steps == 0) v.wrong.push_back("nobody says that the job is done");
  judge_samples(v, worlds, workers);
  return v;
}

}  // namespace elastic
