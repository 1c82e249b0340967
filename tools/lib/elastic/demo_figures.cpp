// SPDX-License-Identifier: Apache-2.0
#include "demo_figures.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <reshard/base/refusal.hpp>

namespace elastic {

using namespace reshard;

namespace {

bool among(const std::vector<std::string>& names, const std::string& who) {
  return std::find(names.begin(), names.end(), who) != names.end();
}
bool fits(const log_event& deed, const std::vector<std::string>& members) {
  if (deed.what == "join") return among(members, deed.who);
  return !among(members, deed.who) && (deed.what != "replace" || among(members, deed.by));
}

std::string words_of(const log_event& deed) {
  return deed.what + " " + deed.who + (deed.by.empty() ? "" : " " + deed.by);
}

/// When each member ended its steps, by epoch; lines are in order of time within a log.
using step_times = std::map<std::string, std::map<index_t, std::vector<double>>>;

double median_gap(const std::vector<double>& at) {
  std::vector<double> gaps;
  for (std::size_t i = 1; i < at.size(); ++i) gaps.push_back(at[i] - at[i - 1]);
  std::sort(gaps.begin(), gaps.end());
  const std::size_t n = gaps.size();
  return n % 2 == 1 ? gaps[n / 2] : (gaps[n / 2 - 1] + gaps[n / 2]) / 2;
}

change_figures of_change(const log_event& deed, index_t epoch, const step_times& ended, const event_list& workers) {
  change_figures f{.what = deed.what, .who = deed.who + (deed.by.empty() ? "" : " " + deed.by), .epoch = epoch};
  std::optional<double> pause, first_of_all;
  for (const auto& [member, by_epoch] : ended) {
    const auto after = by_epoch.lower_bound(epoch);
    if (after == by_epoch.end()) continue;
    if (!first_of_all || after->second.front() < *first_of_all) first_of_all = after->second.front();
    if (after == by_epoch.begin()) continue;  // it came with this change, or later
    if (after->second.size() < 2) refuse(member, " ended one step after ", words_of(deed), ", and no usual one");
    const double took = after->second.front() - std::prev(after)->second.back() - median_gap(after->second);
    if (!pause || took > *pause) pause = took;
    for (const log_event& e : workers)
      if (e.ev == "world" && e.epoch == epoch && e.id == member) f.switched = std::max(f.switched, e.switched);
  }
  if (!pause) refuse("nobody ended steps both before and after ", words_of(deed));
  f.pause = *pause;
  if (deed.ev == "killed") f.recovery = *first_of_all - deed.t;
  return f;
}

/// Whether a line names one; `broken` names several: "a, b and c".
bool names(const log_event& e, const std::string& who) {
  if (e.ev != "broken") return e.ev == "gone" && e.who == who;
  std::string all = ", " + e.why + ",";
  if (const std::size_t last = all.rfind(" and "); last != all.npos) all.replace(last, 5, ", ");
  return all.find(", " + who + ",") != all.npos;
}

void add_death(change_figures& f, const log_event& deed, const event_list& workers) {
  std::map<std::string, double> told;  // when each first said so
  std::set<std::string> members;
  for (const log_event& e : workers) {
    if (e.ev == "world" && e.epoch == f.epoch) members.insert(e.id);
    if (e.t >= deed.t && names(e, deed.who)) told.try_emplace(e.id, e.t);
  }
  for (const std::string& one : members) {
    if (!told.contains(one)) refuse(one, " goes on after the death of ", deed.who, " and never named it");
    const double after = told.at(one) - deed.t;
    f.detection = std::min(f.detection.value_or(after), after);
    f.known = std::max(f.known.value_or(after), after);
  }
}

}  // namespace

index_t epoch_of(const log_event& deed, const event_list& workers, index_t after) {
  index_t found = 0;
  for (const log_event& e : workers)
    if (e.ev == "world" && e.epoch > after && fits(deed, e.members) && (found == 0 || e.epoch < found)) found = e.epoch;
  return found;
}

std::vector<change_figures> figures_of(const event_list& deeds, const event_list& workers) {
  step_times ended;
  for (const log_event& e : workers)
    if (e.ev == "step") ended[e.id][e.epoch].push_back(e.t);
  std::vector<change_figures> all;
  index_t epoch = 1;
  for (const log_event& deed : deeds) {
    if (deed.ev == "exit" || deed.what == "finish") continue;
    const index_t next = epoch_of(deed, workers, epoch);
    if (next == 0) refuse("no world follows ", words_of(deed));
    all.push_back(of_change(deed, next, ended, workers));
    if (deed.ev == "killed") add_death(all.back(), deed, workers);
    epoch = next;
  }
  return all;
}

}  // namespace elastic
