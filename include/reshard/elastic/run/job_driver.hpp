// SPDX-License-Identifier: Apache-2.0
// What drives a job: one thread of each member looks at the record, at requests, at what members said and at evidence,
// and brings about the event that is due. All members do the same; who is first makes the swap, and it is made once.
// Builds on: elastic/run/deserted_job.hpp, elastic/run/planned_change.hpp, elastic/run/pulses.hpp,
// elastic/run/recovery.hpp, elastic/run/snapshots.hpp.
#pragma once

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <reshard/elastic/run/deserted_job.hpp>
#include <reshard/elastic/run/planned_change.hpp>
#include <reshard/elastic/run/pulses.hpp>
#include <reshard/elastic/run/recovery.hpp>
#include <reshard/elastic/run/snapshots.hpp>

namespace reshard::detail {

class job_driver {
 public:
  job_driver(job_core& core, pulses& heard, world_groups& groups, snapshots& copies, pace& steps)
      : core_(core), pulses_(heard), groups_(groups), copies_(copies), change_(core, groups, steps), recovery_(core),
        deserted_(core) {}

  /// Looks once; throws store_unreachable where the store does not answer.
  void turn() {
    const auto [listed, seen] = core_.locked([&] { return std::pair(core_.listed, core_.record); });
    if (!listed) return;
    if (!seen) return begin_record();
    const job_record& r = *seen;
    note(r);
    hear(r);
    if (broke(r) || deserted_.end(r)) return;
    switch (r.phase) {
      case job_phase::founding: return found(r);
      case job_phase::idle: return change_.idle(r, since_);
      case job_phase::proposed: return change_.proposed(r, since_);
      case job_phase::armed: return change_.armed(r, since_);
      case job_phase::entering: return change_.entering(r);
      case job_phase::recovering: return recovery_.recovering(r, since_);
      case job_phase::waiting: return recovery_.waiting(r, since_);
      default: return change_.requests().answer_rest(r);
    }
  }
  /// How long to sleep where nothing comes.
  patience rest() const {
    const job_phase phase = std::get<job_phase>(noted_);
    const bool changing = phase != job_phase::idle && !is_end(phase);
    return changing || doubts_ ? patience(5) : patience(200);
  }

 private:
  /// Keeps when this attempt's phase was first seen, and ends what belongs to one that is over.
  void note(const job_record& r) {
    const auto now = std::tuple(r.phase, r.epoch, r.attempt, r.boundary);
    if (now == noted_) return;
    const bool same_epoch = std::get<1>(noted_) == r.epoch;
    noted_ = now;
    since_ = member_clock::now();
    if (r.phase == job_phase::idle) {
      core_.stop.store(std::numeric_limits<index_t>::max());
      if (same_epoch) change_.widen();  // it was called off
    }
    // Before groups are ended, which may take a moment; and whatever phases were not seen.
    if (r.phase == job_phase::recovering || r.phase == job_phase::waiting || r.phase == job_phase::lost)
      interrupt(r, text_of("reshard: the world of epoch ", r.epoch, " is over: ", members_text(r.gone),
                           r.gone.size() == 1 ? " is gone" : " are gone"));
    else if (went_on_without(r))
      interrupt(r, text_of("reshard: the job went on in epoch ", r.epoch, " without ", core_.me().text()));
    if (is_end(r.phase) || is_out(r)) copies_.interrupt();  // nobody waits for what is sent
    if (is_out(r)) groups_.interrupt(r.epoch, 0);
    if (r.phase != job_phase::proposed && r.phase != job_phase::armed && r.phase != job_phase::entering) groups_.end();
    forget_words(r);
  }
  bool is_out(const job_record& r) { return !r.worlds.empty() && !has_member(r.concerned(), core_.me()); }
  /// Whether the job is in a world that this member, which is in another one, had no part in: it did not leave.
  bool went_on_without(const job_record& r) {
    return is_out(r) && !core_.leaving.load() &&
           core_.locked([&] { return core_.epoch > 0 && core_.tried != r.epoch; });
  }
  /// Ends what the trainer's thread waits for in a world that is over.
  void interrupt(const job_record& r, const std::string& sentence) {
    groups_.interrupt(r.epoch, r.attempt);
    copies_.interrupt();
    if (core_.calls.interrupt) core_.calls.interrupt(sentence);
  }
  /// What this member said of other epochs nobody reads any more.
  void forget_words(const job_record& r) {
    const std::string of_now = std::to_string(r.epoch) + ".", mine = "/" + std::string(core_.me().text());
    for (const auto& [word, key] : core_.locked([&] { return core_.under(core_.keys.said()); }))
      if (word.ends_with(mine) && !word.starts_with(of_now)) core_.store.remove(core_.keys.said() + word, key.revision);
  }

  void begin_record() {
    job_record first;
    first.wanted = core_.settings.found;
    core_.swap_record(first, no_revision, "founding");
  }
  void found(const job_record& r) {
    member_list there = core_.locked([&] { return core_.registered(); });
    if (static_cast<index_t>(there.size()) < r.wanted) return;
    there.resize(static_cast<std::size_t>(r.wanted));
    job_event e = event_about(r, job_event_kind::found);
    e.to = {{1, there, core_.settings.layout, 0, 0, core_.settings.batch}};
    core_.happen(e);
  }

  /// Whose pulses are heard: those of the world; while one is entered, of both. Who is known to be gone has none.
  void hear(const job_record& r) {
    if (r.epoch == 0 || r.phase == job_phase::recovering || r.phase == job_phase::waiting) return;
    const member_list all = r.concerned();  // of both worlds while one is entered
    const std::uint64_t number =
        core_.number_of(r.phase == job_phase::entering ? "entering" : "world", r.epoch, 0, all);
    if (number == heard_ || !has_member(all, core_.me())) return;
    std::vector<pulse_peer> peers;
    for (const member_name& who : all) {
      if (has_member(r.gone, who)) continue;
      const std::optional<registration> at = core_.locked([&] { return core_.where(who); });
      if (!at) return;  // the store tells yet
      peers.push_back({who, at->pulses, at->node});
    }
    heard_ = number;
    pulses_.hear(number, peers);
  }

  /// Whether evidence begins a recovery; against who is known to be gone it is none. Of a step or a change that broke
  /// off by itself nobody is known to be gone: this member says that it is, promises, and has its place again.
  bool broke(const job_record& r) {
    job_event e = event_about(r, job_event_kind::broke);
    core_.locked([&] {
      e.members = core_.suspects;
      if (!why_ignored(r, e).empty()) e.members.clear();
      const bool recovered_since = r.epoch > core_.failed_in && !r.promises.empty();
      // Where it waits all know that it broke.
      const bool goes_on = r.phase != job_phase::waiting && !is_end(r.phase);
      doubts_ = e.members.empty() && !core_.failed.empty() && !recovered_since && goes_on;
      if (doubts_ && seconds_since(core_.failed_since) > 2 * seconds(core_.settings.wait)) e.members = {core_.me()};
    });
    return !e.members.empty() && core_.happen(e);
  }

  job_core& core_;
  pulses& pulses_;
  world_groups& groups_;
  snapshots& copies_;
  planned_change change_;
  recovery recovery_;
  deserted_job deserted_;
  std::tuple<job_phase, index_t, index_t, index_t> noted_ = {job_phase::founding, -1, -1, -1};
  member_clock::time_point since_ = member_clock::now();
  std::uint64_t heard_ = 0;
  bool doubts_ = false;
};

}  // namespace reshard::detail
