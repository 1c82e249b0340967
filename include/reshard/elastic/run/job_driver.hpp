// SPDX-License-Identifier: Apache-2.0
// What drives a job: one thread of each member looks at the record, at requests, at what members said and at evidence,
// and brings about the event that is due. All members do the same; who is first makes the swap, and it is made once.
// Builds on: elastic/run/job_core.hpp, elastic/run/pulses.hpp, elastic/boundary.hpp, elastic/decide.hpp,
// elastic/entry.hpp, elastic/take_up.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <reshard/elastic/boundary.hpp>
#include <reshard/elastic/decide.hpp>
#include <reshard/elastic/entry.hpp>
#include <reshard/elastic/run/job_core.hpp>
#include <reshard/elastic/run/pulses.hpp>
#include <reshard/elastic/take_up.hpp>

namespace reshard::detail {

/// Where groups are made while steps go on: told of a world that is proposed, and whether its groups stand.
struct group_maker {
  virtual ~group_maker() = default;
  virtual void begin(const job_record&) = 0;
  virtual void end() = 0;
  /// Ends what the trainer's thread waits for in a change.
  virtual void interrupt(const job_record& over) = 0;
  /// Whether the groups of an attempt stand; a sentence where they can't be made.
  virtual std::pair<bool, std::string> made(index_t epoch, index_t attempt) = 0;
};

class job_driver {
 public:
  job_driver(job_core& core, pulses& heard, group_maker& groups) : core_(core), pulses_(heard), groups_(groups) {}

  /// Looks once; throws store_unreachable where the store does not answer.
  void turn() {
    std::optional<job_record> seen;
    {
      const std::lock_guard lock(core_.mutex);
      if (!core_.listed) return;
      seen = core_.record;
    }
    if (!seen) return begin_record();
    const job_record& r = *seen;
    note(r);
    hear(r);
    if (broke(r)) return;
    switch (r.phase) {
      case job_phase::founding: return found(r);
      case job_phase::idle: return idle(r);
      case job_phase::proposed: return proposed(r);
      case job_phase::armed: return armed(r);
      case job_phase::entering: return entering(r);
      case job_phase::recovering: return recovering(r);
      case job_phase::waiting: return waiting(r);
      default: return answer_rest(r);
    }
  }
  /// How long to sleep where nothing comes.
  patience rest() const {
    const bool changing = phase_ != job_phase::idle && phase_ != job_phase::done && phase_ != job_phase::lost;
    return changing || suspects_ ? patience(5) : patience(200);
  }

 private:
  /// Keeps the time since this attempt's phase was first seen; ends what belongs to one that is over.
  void note(const job_record& r) {
    const auto now = std::tuple(r.phase, r.epoch, r.attempt, r.boundary);
    if (now == noted_) return;
    const bool same_epoch = std::get<1>(noted_) == r.epoch;
    noted_ = now;
    phase_ = r.phase;
    since_ = member_clock::now();
    if (r.phase == job_phase::idle) {
      core_.stop.store(std::numeric_limits<index_t>::max());
      if (same_epoch) margin_ *= 2;  // it was called off
    }
    if (r.phase != job_phase::proposed && r.phase != job_phase::armed && r.phase != job_phase::entering) groups_.end();
    if (r.phase == job_phase::recovering) groups_.interrupt(r);
    if (r.phase == job_phase::recovering && core_.calls.interrupt)
      core_.calls.interrupt(text_of("reshard: the world of epoch ", r.epoch, " is over: ", members_text(r.gone),
                                    r.gone.size() == 1 ? " is gone" : " are gone"));
    std::vector<std::pair<std::string, stored>> mine;
    {
      const std::lock_guard lock(core_.mutex);
      for (const auto& one : core_.under(core_.keys.said()))
        if (one.first.ends_with("/" + std::string(core_.me().text())) &&
            !one.first.starts_with(std::to_string(r.epoch) + "."))
          mine.push_back(one);
    }
    for (const auto& one : mine) core_.store.remove(core_.keys.said() + one.first, one.second.revision);
  }

  void begin_record() {
    job_record first;
    first.wanted = core_.settings.found;
    core_.swap_record(first, absent, "founding");
  }
  void found(const job_record& r) {
    member_list there;
    {
      const std::lock_guard lock(core_.mutex);
      there = core_.registered();
    }
    if (static_cast<index_t>(there.size()) < r.wanted) return;
    there.resize(static_cast<std::size_t>(r.wanted));
    job_event e = event_about(r, job_event_kind::found);
    e.to = {{1, there, core_.settings.layout, 0, 0, core_.settings.batch}};
    core_.happen(e);
  }

  /// Whose pulses are heard: those of the world; while one is entered, of both.
  void hear(const job_record& r) {
    if (r.epoch == 0 || r.phase == job_phase::recovering || r.phase == job_phase::waiting) return;
    const bool both = r.phase == job_phase::entering;
    const member_list all = both ? r.concerned() : r.now().members;
    const std::uint64_t number = core_.number_of(both ? "entering" : "world", r.epoch, 0, all);
    if (number == heard_ || !has_member(all, core_.me())) return;
    std::vector<pulse_peer> peers;
    {
      const std::lock_guard lock(core_.mutex);
      for (const member_name& who : all) {
        const std::optional<registration> at = core_.where(who);
        if (at) places_[who] = *at;
        if (has_member(r.gone, who)) continue;
        const auto known = places_.find(who);
        if (known == places_.end()) return;  // it registers yet
        peers.push_back({who, known->second.pulses, known->second.node});
      }
    }
    heard_ = number;
    pulses_.hear(number, peers);
  }

  /// Whether evidence begins a recovery.
  bool broke(const job_record& r) {
    suspects_ = false;
    if (r.epoch == 0 || is_end(r.phase) || r.phase == job_phase::recovering) return false;
    job_event e = event_about(r, job_event_kind::broke);
    {
      const std::lock_guard lock(core_.mutex);
      for (const auto& [who, found] : core_.suspects) e.members.push_back(member_name(who));
      // A step or a change that broke off by itself: this member says so, promises, and has its place again.
      if (!core_.failed.empty() && e.members.empty()) {
        suspects_ = true;
        if (seconds_since(core_.failed_since) > 2 * seconds(core_.settings.wait)) e.members.push_back(core_.me());
      }
    }
    return !e.members.empty() && core_.happen(e);
  }
  static double seconds(patience p) { return std::chrono::duration<double>(p).count(); }

  void idle(const job_record& r) {
    bool mine = false, finished = false;
    {
      const std::lock_guard lock(core_.mutex);
      mine = core_.epoch == r.epoch;
      finished = core_.finished && mine;
    }
    if (!mine) return;
    if (finished) {  // the job is done once all have made all steps
      core_.say(r, "finished");
      if (has_members(core_.said_by(r, "finished"), r.now().members))
        core_.happen(event_about(r, job_event_kind::finish));
      return;
    }
    if (!r.request.empty() && !is_answered(r.request)) {  // who called it off may tell why
      if (seconds_since(since_) < seconds(core_.settings.grace)) return;
      core_.answer(r.request, "failed: it was called off");
    }
    const std::optional<job_request> asked = first_request();
    if (!asked) return;
    if (asked->kind == request_kind::finish) return finish(r, *asked);
    member_list spares;
    {
      const std::lock_guard lock(core_.mutex);
      for (const member_name& who : core_.registered())
        if (!r.now().has(who)) spares.push_back(who);
    }
    if (waits_for_comers(*asked, r.now(), spares)) return;
    const taken_request to = take_up(*asked, r.now(), spares, core_.settings.policy, core_.settings.model);
    if (to.answer) return core_.answer(asked->id, to_text(*to.answer));
    job_event e = event_about(r, job_event_kind::ask);
    e.to = {*to.to};
    e.request = asked->id;
    try {
      core_.happen(e);
    } catch (const refusal& why) {  // it is no world
      core_.answer(asked->id, text_of("refused: ", without_prefix(why.what())));
    }
  }
  /// Whether the trainer's thread is in the record's world.
  bool is_in(const job_record& r) {
    const std::lock_guard lock(core_.mutex);
    return core_.epoch == r.epoch;
  }
  bool is_answered(const member_name& request) {
    const std::lock_guard lock(core_.mutex);
    return core_.known.contains(core_.keys.answers() + std::string(request.text()));
  }
  /// Who is asked for may be starting yet: it is given some time to register.
  bool waits_for_comers(const job_request& q, const world& now, const member_list& spares) {
    member_list comers;
    if (q.kind == request_kind::join) comers = q.members;
    if (q.kind == request_kind::replace) comers = {q.members[1]};
    bool all = true;
    for (const member_name& who : comers) all = all && (now.has(who) || has_member(spares, who));
    if (all) return false;
    if (waits_for_ != q.id) waits_for_ = q.id, waits_since_ = member_clock::now();
    return seconds_since(waits_since_) < seconds(core_.settings.comes);
  }
  /// The oldest request without an answer; what can't be read is answered at once.
  std::optional<job_request> first_request() {
    std::vector<std::pair<std::string, stored>> open;
    {
      const std::lock_guard lock(core_.mutex);
      for (const auto& one : core_.under(core_.keys.requests()))
        if (!core_.known.contains(core_.keys.answers() + one.first)) open.push_back(one);
    }
    for (const auto& [id, text] : open) {
      try {
        return request_of(text.value);
      } catch (const refusal& why) {
        core_.answer(member_name(id), text_of("refused: ", without_prefix(why.what())));
      }
    }
    return {};
  }

  /// All stop before one step, as before another world; once all are there the job is done. Who dies before that is
  /// recovered from, and the request is taken up again.
  void finish(const job_record& r, const job_request& asked) {
    const std::string word = "finish." + std::string(asked.id.text());
    core_.say(r, word, std::to_string(core_.published.load()));
    const auto told = core_.words(r, word);
    if (told.size() < r.now().members.size()) return;
    index_t margin = 2;
    for (;; margin *= 2) {
      const index_t at = boundary_after(numbers_of(told), margin);
      const std::string round = word + "." + std::to_string(at);
      core_.stop.store(at);
      const bool before = answer_to_stop(core_.published.load(), at) == stop_answer::acked;
      core_.say(r, round, before ? "acked" : "passed");
      const auto answers = core_.words(r, round);
      if (answers.size() < r.now().members.size()) return;
      if (std::any_of(answers.begin(), answers.end(), [](const auto& a) { return a.second != "acked"; })) continue;
      if (core_.published.load() >= at) core_.say(r, round + ".stopped");
      if (!has_members(core_.said_by(r, round + ".stopped"), r.now().members)) return;
      job_event e = event_about(r, job_event_kind::finish);
      e.at = at;
      e.request = asked.id;
      core_.happen(e);
      return;
    }
  }

  void proposed(const job_record& r) {
    const world &now = r.now(), &to = r.proposed[0];
    if (now.has(core_.me()) && !is_in(r)) return;  // it goes over yet
    if (now.has(core_.me()) || to.has(core_.me())) {
      groups_.begin(r);
      const auto [stands, why_not] = groups_.made(r.epoch, r.attempt);
      if (!why_not.empty()) return late(r, why_not);
      if (stands && !has_member(core_.said_by(r, "ready"), core_.me())) {
        core_.watcher.at("ready");
        core_.say(r, "ready", std::to_string(core_.published.load()));
      }
    }
    if (!now.has(core_.me())) return;
    if (seconds_since(since_) > seconds(core_.settings.ready))
      return late(r, text_of("its groups were not there in ", core_.settings.ready.count(), " ms"));
    member_list there;
    bool finished = false;
    {
      const std::lock_guard lock(core_.mutex);
      there = core_.registered();
      finished = core_.finished;
    }
    if (finished) return late(r, "the job ends before");
    for (const member_name& who : to.members)
      if (!now.has(who) && !has_member(there, who)) return late(r, text_of(who.text(), " is gone"));
    const auto told = core_.words(r, "ready");
    job_event e = event_about(r, job_event_kind::ready);
    std::vector<index_t> published;
    for (const auto& [who, at] : told) {
      e.members.push_back(who);
      if (now.has(who)) published.push_back(std::stoll(at));
    }
    if (!has_members(e.members, now.members) || !has_members(e.members, to.members)) return;
    double step = 0;
    {
      const std::lock_guard lock(core_.mutex);
      step = core_.step_seconds;
    }
    margin_ = std::max(margin_, step > 0 ? boundary_margin(2 * decision_, step) : index_t{2});
    e.at = at_most_end(boundary_after(published, margin_));
    core_.happen(e);
  }
  index_t at_most_end(index_t at) const { return core_.settings.steps ? least(at, *core_.settings.steps) : at; }
  /// Calls a change off, then tells who asked.
  void late(const job_record& r, const std::string& why) {
    if (core_.happen(event_about(r, job_event_kind::late))) core_.answer(r.request, "failed: " + why);
  }

  void armed(const job_record& r) {
    if (!r.now().has(core_.me())) return;
    const std::string word = "acked." + std::to_string(r.boundary);
    core_.stop.store(r.boundary);
    const index_t published = core_.published.load();
    if (answer_to_stop(published, r.boundary) == stop_answer::passed &&
        !has_member(core_.said_by(r, word), core_.me())) {
      margin_ *= 2;
      job_event e = event_about(r, job_event_kind::passed);
      e.at = at_most_end(published + margin_);
      if (e.at <= r.boundary) return late(r, "the job ends before");
      core_.happen(e);
      return;
    }
    if (!has_member(core_.said_by(r, word), core_.me())) {
      core_.watcher.at("acked");
      core_.say(r, word);
    }
    job_event e = event_about(r, job_event_kind::acked);
    e.members = core_.said_by(r, word);
    if (!has_members(e.members, r.now().members)) {
      if (seconds_since(since_) > seconds(core_.settings.ready)) late(r, "a member did not arm");
      return;
    }
    // Half of a decision: before it were the words by which it was armed.
    decision_ = std::max(decision_ / 2, seconds_since(since_));
    core_.happen(e);
  }

  void entering(const job_record& r) {
    job_event e = event_about(r, job_event_kind::entered);
    e.members = core_.said_by(r, "entered");
    if (!has_members(e.members, r.now().members)) return;
    core_.answer(r.request, "done");
    margin_ = 1;
    core_.happen(e);
  }

  void recovering(const job_record& r) {
    const double waited = seconds_since(since_);
    promise_for_trainer(r, waited);
    if (waited < seconds(core_.settings.grace) || !has_member(r.concerned(), core_.me())) {
      if (!all_promised(r)) return;
    }
    job_event e = event_about(r, job_event_kind::accounted);
    for (const member_name& who : r.concerned())
      if (r.promise_of(who) == nullptr) e.members.push_back(who);
    if (r.promise_of(core_.me()) == nullptr) return;  // who has not promised itself calls nobody to account
    const state_source s = source_of(r, e.members);
    if (s.from == nullptr || !s.target.refused.empty()) {
      core_.happen(event_about(r, job_event_kind::nobody));
      return;
    }
    const elastic_decision d = decided(r, s);
    if (d.taken && d.layout) {
      world to{r.epoch + 1, d.world, *d.layout, s.target.version, 0, s.from->batch};
      to.cursor = s.from->cursor_at(to.first_step);
      e.to = {to};
      if (core_.happen(e)) core_.watcher.at("accounted");
    } else if (d.taken) {
      core_.happen(event_about(r, job_event_kind::no_plan));
    } else {
      bool held = true;
      for (const rung_not_taken& why : d.because) held = held && why.why.find("no living holder") == std::string::npos;
      core_.happen(event_about(r, held ? job_event_kind::no_plan : job_event_kind::nobody));
    }
  }
  static bool all_promised(const job_record& r) {
    for (const member_name& who : r.concerned())
      if (r.promise_of(who) == nullptr) return false;
    return true;
  }
  elastic_decision decided(const job_record& r, const state_source& s) {
    elastic_situation now;
    now.model = core_.settings.model;
    now.layout = s.from->layout;
    now.version = s.target.version;
    for (const member_name& who : s.from->members)
      now.members.push_back({who, has_member(s.dead, who), has_member(s.empty, who), {}});
    {
      const std::lock_guard lock(core_.mutex);
      for (const member_name& who : core_.registered()) {
        const bool silent = has_member(r.concerned(), who) && r.promise_of(who) == nullptr;
        if (!s.from->has(who) && !silent && !has_member(r.gone, who)) now.spares.push_back(who);
      }
    }
    now.waited = seconds_since(since_);
    if (s.dead.empty()) {  // all live: the world is made again
      elastic_decision again;
      again.taken = rung::replace;
      again.world = s.from->members;
      again.layout = s.from->layout;
      again.version = s.target.version;
      return again;
    }
    return decide(core_.settings.policy, now);
  }
  /// While the trainer computes gradients it has contributed nothing, and cannot any more once this is said for it.
  void promise_for_trainer(const job_record& r, double waited) {
    promise p;
    {
      const std::lock_guard lock(core_.mutex);
      if (core_.promised || core_.at != trainer_at::gradients || waited < seconds(core_.settings.grace) / 2) return;
      core_.promised = true;
      p = {{core_.me(), core_.version, update_stage::nothing}, bits_of_scalar(core_.scalar), core_.holds};
    }
    put_promise(core_, r, p);
  }

 public:
  /// Puts a promise into the record, if it is asked for; what became of it.
  static promise_answer put_promise(job_core& core, const job_record& about, const promise& p) {
    for (;;) {
      job_record r;
      std::uint64_t revision;
      {
        const std::lock_guard lock(core.mutex);
        r = *core.record, revision = core.record_revision;
      }
      const promise_answer a = answer_to(r, about.epoch, p);
      if (a != promise_answer::taken || r.attempt != about.attempt) return a;
      core.watcher.at("promised");
      if (core.swap_record(with_promise(r, about.epoch, p), revision, "promise")) return a;
      // somebody was faster: the news say what the record is now
      std::optional<stored> now = core.store.read(core.keys.record());
      const std::lock_guard lock(core.mutex);
      if (now) core.take(*now, false);
    }
  }

 private:
  void waiting(const job_record& r) {
    member_list there;
    {
      const std::lock_guard lock(core_.mutex);
      for (const member_name& who : core_.registered())
        if (!has_member(r.concerned(), who)) there.push_back(who);
    }
    if (!has_members(waited_with_, there) && r.promise_of(core_.me()) != nullptr) {
      job_event e = event_about(r, job_event_kind::come);
      e.members = there;
      core_.happen(e);
    }
    waited_with_ = there;
  }

  void answer_rest(const job_record& r) {
    while (const std::optional<job_request> open = first_request())
      core_.answer(open->id, open->id == r.request ? "done" : text_of("refused: the job is ", name(r.phase)));
  }

  static std::vector<index_t> numbers_of(const std::vector<std::pair<member_name, std::string>>& told) {
    std::vector<index_t> numbers;
    for (const auto& one : told) numbers.push_back(std::stoll(one.second));
    return numbers;
  }

  job_core& core_;
  pulses& pulses_;
  group_maker& groups_;
  std::tuple<job_phase, index_t, index_t, index_t> noted_ = {job_phase::founding, -1, -1, -1};
  job_phase phase_ = job_phase::founding;
  member_clock::time_point since_ = member_clock::now();
  std::uint64_t heard_ = 0;
  std::map<member_name, registration> places_;
  member_list waited_with_;
  member_name waits_for_ = {};
  member_clock::time_point waits_since_ = {};
  index_t margin_ = 1;
  double decision_ = 0.02;
  bool suspects_ = false;
};

}  // namespace reshard::detail
