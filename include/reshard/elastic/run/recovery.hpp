// SPDX-License-Identifier: Apache-2.0
// What follows a death, as each member drives it: its promise and standing, and, once all are accounted for, the world
// that the policy makes of who is there; or that nobody fits, or that state is gone.
// Builds on: elastic/run/job_core.hpp, elastic/run/torn_state.hpp, elastic/decide.hpp, elastic/entry.hpp.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <reshard/elastic/decide.hpp>
#include <reshard/elastic/entry.hpp>
#include <reshard/elastic/run/job_core.hpp>
#include <reshard/elastic/run/torn_state.hpp>

namespace reshard::detail {

/// `since` is when the recovery was first seen.
class recovery {
  using time = member_clock::time_point;

 public:
  explicit recovery(job_core& core) : core_(core) {}

  void recovering(const job_record& r, time since) {
    promise_if_asked(r, since);
    if (r.promise_of(core_.me()) == nullptr) return;  // who has not promised itself calls nobody to account
    job_event e = event_about(r, job_event_kind::accounted);
    for (const member_name& who : r.concerned())
      if (r.promise_of(who) == nullptr) e.members.push_back(who);
    if (!e.members.empty() && seconds_since(since) < seconds(core_.settings.grace)) return;
    if (waits_for_living(r, e.members, since)) return;
    const state_source s = source_of(r, e.members);
    if (s.from == nullptr || !s.target.refused.empty()) return none_holds(r, e.members, since);
    const std::vector<kept_snapshot> copies = whole_copies(r, s);
    const elastic_decision d = decided(r, s, copies, since);
    if (!d.layout) {
      if (d.unheld > 0 && copies.empty()) return none_holds(r, e.members, since);
      core_.happen(event_about(r, job_event_kind::no_plan));
      return;
    }
    e.from_copies = d.taken == rung::snapshot;
    e.to = {{r.epoch + 1, d.world, *d.layout, d.version, s.from->cursor_at(d.version), s.from->batch}};
    if (core_.happen(e)) core_.watcher.at("accounted");
  }

  void waiting(const job_record& r, time since) {
    promise_if_asked(r, since);
    if (r.promise_of(core_.me()) != nullptr && untold(r)) tell_why(r, since);
    member_list there = core_.locked([&] { return core_.registered(); });
    std::erase_if(there, [&](const member_name& who) { return has_member(r.concerned(), who); });
    if (!has_members(waited_with_, there) && r.promise_of(core_.me()) != nullptr) {
      job_event e = event_about(r, job_event_kind::come);
      e.members = there;
      core_.happen(e);
    }
    waited_with_ = there;
  }

 private:
  /// A member between two steps promises at once. One that computes gradients has contributed nothing to the last
  /// collective, and cannot any more once this is said for it; it is given half the grace to come to rest. One that has
  /// entered a world, and does not hold it yet, is on its way to rest.
  void promise_if_asked(const job_record& r, time since) {
    if (!has_member(r.concerned(), core_.me()) || r.promise_of(core_.me()) != nullptr) return;
    const bool patient = seconds_since(since) < seconds(core_.settings.grace) / 2;
    const std::optional<promise> mine = core_.locked([&]() -> std::optional<promise> {
      const bool rests = core_.at == trainer_at::rest;
      if (!rests && (core_.at != trainer_at::gradients || patient)) return {};
      bool of_a_world = core_.holds == 0;
      for (const world& w : r.worlds) of_a_world = of_a_world || w.epoch == core_.holds;
      if (!of_a_world) return {};
      core_.promised = true;
      core_.changed.notify_all();
      promise p{{core_.me(), holds_nothing}, bits_of_scalar(core_.scalar), core_.holds};
      if (core_.holds > 0) p.told.version = core_.version, p.copies = core_.copies;
      if (core_.torn) {
        p.torn_stages = core_.torn->stages, p.torn_in_place = core_.torn->share.in_place;
        p.torn_here = core_.torn->share.here;
        p.torn_unread = core_.torn->share.unread_kept.value_or(0);
      }
      if (core_.holds > 0 && rests) p.told.stage = core_.stage;
      return p;
    });
    if (!mine) return;
    if (std::exchange(told_, std::pair(r.epoch, r.attempt)) != std::pair(r.epoch, r.attempt))
      core_.watcher.broken(r.epoch, members_text(r.gone), mine->told.version);
    put(r, *mine);
  }
  /// Puts it into the record, as often as somebody else was faster.
  void put(const job_record& about, const promise& p) {
    for (;;) {
      const auto [r, revision] = core_.locked([&] { return std::pair(*core_.record, core_.record_revision); });
      if (r.attempt != about.attempt || answer_to(r, about.epoch, p) != promise_answer::taken) return;
      core_.watcher.at("promised");
      if (core_.swap_record(with_promise(r, about.epoch, p), revision, "promise")) return;
      const std::optional<stored> now = core_.store.read(core_.keys.record());
      if (now) core_.locked([&] { core_.take(*now, false); });
    }
  }

  /// Whether somebody who has not promised lives for all that is known: its lease holds, and nothing speaks against it.
  /// It makes a long update; a world without it would cost it its place, and maybe the job a version. One whose trainer
  /// hangs is waited for as long as a change waits for groups.
  bool waits_for_living(const job_record& r, const member_list& silent, time since) {
    if (seconds_since(since) >= seconds(core_.settings.ready)) return false;
    return core_.locked([&] {
      const member_list there = core_.registered();
      return std::any_of(silent.begin(), silent.end(), [&](const member_name& who) {
        return has_member(there, who) && !has_member(r.gone, who) && !has_member(core_.suspects, who);
      });
    });
  }
  /// Nobody who promised holds what is needed. Whoever did not, and has its lease, may hold it: wrong evidence costs a
  /// place and never the state; that the job waits for it is told. A store that was slow takes the leases of all, who
  /// then register again: that they are out is believed where nobody was back for the patience.
  void none_holds(const job_record& r, const member_list& silent, time since) {
    const member_list all = core_.locked([&] { return core_.registered(); });
    const auto has_lease = [&](const member_name& who) { return has_member(all, who); };
    const auto holds = std::find_if(silent.begin(), silent.end(), has_lease);
    const bool anew = std::exchange(missed_in_, std::pair(r.epoch, r.attempt)) != std::pair(r.epoch, r.attempt);
    if (holds != silent.end() && seconds_since(since) > 2 * seconds(core_.settings.lease) && untold(r))
      core_.watcher.waiting(
          text_of(holds->text(), " has its lease, did not promise, and may hold what nobody else has"));
    if (anew || holds != silent.end() || !has_lease(core_.me())) missed_ = member_clock::now();
    if (!silent.empty() && seconds_since(missed_) < seconds(core_.settings.wait)) return;
    core_.happen(event_about(r, job_event_kind::nobody));
  }

  /// Whether it was not told yet in this attempt why the job waits.
  bool untold(const job_record& r) {
    return std::exchange(waits_, std::pair(r.epoch, r.attempt)) != std::pair(r.epoch, r.attempt);
  }
  void tell_why(const job_record& r, time since) {
    const state_source s = source_of(r, r.gone);
    if (s.from == nullptr || !s.target.refused.empty()) return;
    const elastic_decision d = decided(r, s, whole_copies(r, s), since);
    if (!d.layout) core_.watcher.waiting(to_text(d));  // else somebody has come since
  }

  /// Copies of versions up to the target, of those of which they hold every element; none where the policy has no rung
  /// for them.
  std::vector<kept_snapshot> whole_copies(const job_record& r, const state_source& s) const {
    std::vector<kept_snapshot> all;
    const std::vector<rung>& rungs = core_.settings.policy.rungs;
    if (std::find(rungs.begin(), rungs.end(), rung::snapshot) == rungs.end()) return all;
    std::map<index_t, bool> whole;
    for (const promise& p : r.promises)
      for (const kept_copy& c : p.copies) {
        if (c.version > s.target.version || has_member(s.dead, p.told.member)) continue;
        const auto [at, first] = whole.try_emplace(c.version);
        if (first)
          at->second = uncovered_bytes(copied_holding(
                           computed_holding(space(core_.settings.model, s.from->layout), core_.settings.list.all()),
                           copies_told(r, s, c.version))) == 0;
        if (at->second) all.push_back({c.of, p.told.member, c.version});
      }
    return all;
  }

  elastic_decision decided(const job_record& r, const state_source& s, const std::vector<kept_snapshot>& copies,
                           time since) {
    std::optional<bytes_t> unheld;  // of what lies between worlds; else who holds a world's layout tells
    if (s.into != nullptr) unheld = torn_state(core_.settings.model, core_.settings.list, s).unheld();
    const auto is_dead = [&](const member_name& who) { return has_member(s.dead, who); };
    const bool all_live = std::none_of(s.from->members.begin(), s.from->members.end(), is_dead);
    if (all_live && unheld.value_or(0) == 0) {  // the world is made again
      elastic_decision again;
      again.world = s.from->members, again.layout = s.from->layout, again.version = s.target.version;
      return again;
    }
    elastic_situation now;
    now.model = core_.settings.model;
    now.layout = s.from->layout;
    now.version = s.target.version;
    now.waited = seconds_since(since);
    now.snapshots = copies;
    now.unheld = unheld;
    for (const member_name& who : s.from->members)
      now.members.push_back({who, is_dead(who), has_member(s.empty, who), {}});
    now.spares = core_.locked([&] { return core_.registered(); });
    std::erase_if(now.spares, [&](const member_name& who) {
      const bool silent = has_member(r.concerned(), who) && r.promise_of(who) == nullptr;
      return s.from->has(who) || silent || has_member(r.gone, who);
    });
    return decide(core_.settings.policy, now);
  }

  job_core& core_;
  member_list waited_with_;
  // of which epoch and attempt it was told that it is broken, and why it waits
  std::pair<index_t, index_t> told_ = {-1, -1}, waits_ = {-1, -1};
  time missed_ = {};  // since when nobody who did not promise is registered, and in which epoch and attempt
  std::pair<index_t, index_t> missed_in_ = {-1, -1};
};

}  // namespace reshard::detail
