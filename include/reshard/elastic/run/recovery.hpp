// SPDX-License-Identifier: Apache-2.0
// What follows a death, as each member drives it: once all are accounted for, the world that the policy makes of who is
// there; or that nobody fits, and who is waited for, or that state is gone.
// Builds on: elastic/run/own_promise.hpp, elastic/run/torn_state.hpp, elastic/decide.hpp, elastic/entry.hpp.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <reshard/elastic/decide.hpp>
#include <reshard/elastic/entry.hpp>
#include <reshard/elastic/run/own_promise.hpp>
#include <reshard/elastic/run/torn_state.hpp>

namespace reshard::detail {

/// `since` is when the attempt was first seen.
class recovery {
  using time = member_clock::time_point;

 public:
  explicit recovery(job_core& core) : core_(core), mine_(core) {}

  void recovering(const job_record& r, time since) {
    know(r, since);
    mine_.give_if_asked(r, since);
    if (r.promise_of(core_.me()) == nullptr) return;  // who has not promised itself calls nobody to account
    job_event e = event_about(r, job_event_kind::accounted);
    e.members = silent_of(r);
    if (!e.members.empty() && seconds_since(since) < seconds(core_.settings.grace)) return;
    if (waits_for_living(r, e.members, since)) return;
    const state_source s = source_of(r, e.members);
    if (s.from == nullptr || !s.target.refused.empty()) return none_holds(r, e.members, since);
    const std::vector<kept_snapshot> copies = whole_copies(r, s);
    const elastic_decision d = decided(r, s, copies);
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
    know(r, since);
    mine_.give_if_asked(r, since);
    member_list there = core_.locked([&] { return core_.registered(); });
    std::erase_if(there, [&](const member_name& who) { return has_member(r.concerned(), who); });
    const bool some_came = !has_members(waited_with_, there);
    const bool promised = r.promise_of(core_.me()) != nullptr;
    if (promised && some_came) core_.happen(event_about(r, job_event_kind::come));
    else if (promised) look_again(r, since);
    waited_with_ = there;
  }

 private:
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
    const bool anew = missed_in_.first(r);
    if (holds != silent.end() && seconds_since(since) > 2 * seconds(core_.settings.lease) && missed_told_.first(r))
      core_.watcher.waiting(
          text_of(holds->text(), " has its lease, did not promise, and may hold what nobody else has"));
    if (anew || holds != silent.end() || !has_lease(core_.me())) missed_ = member_clock::now();
    if (!silent.empty() && seconds_since(missed_) < seconds(core_.settings.wait)) return;
    core_.happen(event_about(r, job_event_kind::nobody));
  }

  /// Members of the worlds that state may lie in, and that did not promise.
  static member_list silent_of(const job_record& r) {
    member_list silent;
    for (const member_name& who : r.concerned())
      if (r.promise_of(who) == nullptr) silent.push_back(who);
    return silent;
  }
  /// Whether somebody fits by now, as one promised late or has its lease again, or the policy has waited for long
  /// enough: then this member says that it is gone, and promises again, so that all decide anew. Else why not is told.
  void look_again(const job_record& r, time since) {
    const bool waited = seconds_since(known_) >= core_.settings.policy.wait;
    std::tuple as_it_is(r.epoch, r.attempt, r.promises.size(), core_.locked([&] { return core_.registered(); }),
                        waited);
    if (as_it_is == looked_at_) return;
    const state_source s = source_of(r, silent_of(r));
    if (s.from == nullptr || !s.target.refused.empty()) return;
    const elastic_decision d = decided(r, s, whole_copies(r, s));
    if (d.layout) {
      if (seconds_since(since) < seconds(core_.settings.grace)) return;  // others may know later how long it waited
      job_event e = event_about(r, job_event_kind::broke);
      e.members = {core_.me()};
      if (!core_.happen(e)) return;
    } else if (waits_told_.first(r)) {
      core_.watcher.waiting(to_text(d));
    }
    looked_at_ = std::move(as_it_is);
  }
  /// Keeps since when this member knows that the world of this epoch is broken, over all attempts.
  void know(const job_record& r, time since) {
    if (std::exchange(known_in_, r.epoch) != r.epoch) known_ = since;
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

  elastic_decision decided(const job_record& r, const state_source& s, const std::vector<kept_snapshot>& copies) {
    elastic_situation now;
    now.model = core_.settings.model;
    now.list = core_.settings.list;
    now.layout = s.from->layout;
    now.version = s.target.version;
    now.batch = s.from->batch;
    now.waited = seconds_since(known_);
    now.snapshots = copies;
    if (s.into != nullptr)  // of what lies between worlds; else who holds a world's layout tells
      now.unheld = torn_state(core_.settings.model, core_.settings.list, s).unheld();
    const auto is_dead = [&](const member_name& who) { return has_member(s.dead, who); };
    for (const member_name& who : s.from->members)
      now.members.push_back({who, is_dead(who), has_member(s.empty, who), {}});
    now.spares = core_.locked([&] { return core_.registered(); });
    std::erase_if(now.spares, [&](const member_name& who) {
      const bool silent = has_member(r.concerned(), who) && r.promise_of(who) == nullptr;
      return s.from->has(who) || silent || has_member(r.gone, who);
    });
    elastic_decision d = decide(core_.settings.policy, now);
    if (d.unheld > 0 || std::any_of(s.from->members.begin(), s.from->members.end(), is_dead)) return d;
    elastic_decision again;  // nobody is dead: the world is made again
    again.world = s.from->members, again.layout = s.from->layout, again.version = s.target.version;
    return again;
  }

  job_core& core_;
  own_promise mine_;
  member_list waited_with_;
  once_an_attempt missed_told_, waits_told_;  // for whom it waits, and why nobody fits
  // what it last looked at: epoch, attempt, promises, who is registered, and whether the wait was over
  std::tuple<index_t, index_t, std::size_t, member_list, bool> looked_at_ = {-1, -1, 0, {}, false};
  time known_ = {};  // since when the world of which epoch is known to be broken
  index_t known_in_ = -1;
  time missed_ = {};  // since when nobody who did not promise is registered
  once_an_attempt missed_in_;
};

}  // namespace reshard::detail
