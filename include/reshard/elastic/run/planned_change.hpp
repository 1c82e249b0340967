// SPDX-License-Identifier: Apache-2.0
// A change that nobody's death forces, as each member drives it: a request names another world, or spares take the
// places of who is slow; its groups are made beside the steps, all stop before one step, and all enter.
// Builds on: elastic/run/job_end.hpp, elastic/run/job_requests.hpp, elastic/run/world_groups.hpp, elastic/run/pace.hpp,
// elastic/boundary.hpp, elastic/take_up.hpp.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <reshard/elastic/boundary.hpp>
#include <reshard/elastic/run/job_end.hpp>
#include <reshard/elastic/run/job_requests.hpp>
#include <reshard/elastic/run/pace.hpp>
#include <reshard/elastic/run/world_groups.hpp>
#include <reshard/elastic/take_up.hpp>

namespace reshard::detail {

/// `since` is when this phase was first seen.
class planned_change {
  using time = member_clock::time_point;

 public:
  planned_change(job_core& core, world_groups& groups, pace& steps)
      : core_(core), groups_(groups), requests_(core), pace_(steps) {}

  job_requests& requests() { return requests_; }
  /// Who passed a boundary, or saw a change called off, gives the next one more room.
  void widen() { margin_ = least(checked_multiply(margin_, 2), most_margin); }

  void idle(const job_record& r, time since) {
    if (enters_ && enters_->first == r.epoch) entered();
    if (!is_in(r)) return;
    if (core_.locked([&] { return core_.finished; })) {  // the job is done once all have made all steps
      core_.say(r, "finished");
      if (has_members(core_.said_by(r, "finished"), r.now().members))
        core_.happen(event_about(r, job_event_kind::finish));
      return;
    }
    if (!r.request.empty() && !requests_.is_answered(r.request)) {  // who called it off may tell why
      if (seconds_since(since) < seconds(core_.settings.grace)) return;
      core_.answer(r.request, "failed: it was called off");
    }
    if (const std::optional<job_request> asked = requests_.first()) return take(r, *asked);
    if (const std::optional<world> to = pace_.replaced(r, requests_.spares(r.now()))) {
      job_event e = event_about(r, job_event_kind::ask);
      e.to = {*to};
      core_.happen(e);
    }
  }

  void proposed(const job_record& r, time since) {
    const world &now = r.now(), &to = r.proposed[0];
    if (now.has(core_.me()) && !is_in(r)) return;  // it goes over yet
    if (now.has(core_.me()) || to.has(core_.me())) {
      groups_.begin(r);
      const auto [stands, why_not] = groups_.made(r);
      if (!why_not.empty()) return late(r, why_not);
      if (stands && !has_member(core_.said_by(r, "ready"), core_.me())) {
        core_.watcher.at("ready");
        core_.say(r, "ready", std::to_string(core_.published.load()));
      }
    }
    if (!now.has(core_.me())) return;
    if (std::string why = too_late(r, since); !why.empty()) return late(r, why);
    job_event e = event_about(r, job_event_kind::ready);
    e.members = core_.said_by(r, "ready");
    if (!has_members(e.members, now.members) || !has_members(e.members, to.members)) return;
    const double step = core_.locked([&] { return core_.step_seconds; });
    margin_ = greatest(margin_, step > 0 ? boundary_margin(2 * decision_, step) : index_t{2});
    e.at = at_most_end(boundary_after(core_.numbers(r, "ready"), margin_));  // who comes is at step -1
    core_.happen(e);
  }

  void armed(const job_record& r, time since) {
    if (!r.now().has(core_.me())) return;
    const std::string word = "acked." + std::to_string(r.boundary);
    core_.stop.store(r.boundary);  // before it reads the step
    const index_t step = core_.published.load();
    job_event e = event_about(r, job_event_kind::acked);
    e.members = core_.said_by(r, word);
    if (!has_member(e.members, core_.me())) {
      if (answer_to_stop(step, r.boundary) == stop_answer::passed) return passed(r, step);
      core_.watcher.at("acked");
      core_.say(r, word);
      e.members = core_.said_by(r, word);
    }
    if (!has_members(e.members, r.now().members)) {
      if (seconds_since(since) > seconds(core_.settings.ready)) late(r, "a member did not arm");
      return;
    }
    decision_ = std::max(decision_ / 2, seconds_since(since));  // half of one: before it were the words that armed it
    core_.happen(e);
  }

  void entering(const job_record& r) {
    job_event e = event_about(r, job_event_kind::entered);
    e.members = core_.said_by(r, "entered");
    enters_ = {r.epoch, r.request};
    if (core_.happen(e)) entered();  // else one is missing, another member was faster, or a death was found out before
  }

 private:
  /// That all have entered is in the record: whoever knows of it answers.
  void entered() {
    margin_ = 1;
    core_.answer(enters_->second, "done");
    enters_.reset();
  }
  /// Whether the trainer's thread is in the record's world.
  bool is_in(const job_record& r) {
    return core_.locked([&] { return core_.epoch == r.epoch; });
  }
  void take(const job_record& r, const job_request& asked) {
    if (asked.kind == request_kind::finish) return finish_job(core_, r, asked.id);
    const member_list spares = requests_.spares(r.now());
    if (requests_.waits_for_comers(asked, r.now(), spares)) return;
    const taken_request to =
        take_up(asked, r.now(), spares, core_.settings.policy, core_.settings.model, core_.settings.list);
    if (to.answer) return core_.answer(asked.id, to_text(*to.answer));
    job_event e = event_about(r, job_event_kind::ask);
    e.to = {*to.to};
    e.request = asked.id;
    try {
      core_.happen(e);
    } catch (const refusal& why) {  // it is no world
      core_.answer(asked.id, to_text(refused_by(why)));
    }
  }
  /// Why a change is called off; empty where it goes on.
  std::string too_late(const job_record& r, time since) {
    if (seconds_since(since) > seconds(core_.settings.ready))
      return text_of("its groups were not there in ", core_.settings.ready.count(), " ms");
    if (core_.locked([&] { return core_.finished; })) return "the job ends before";
    const member_list spares = requests_.spares(r.now());
    for (const member_name& who : r.proposed[0].members)
      if (!r.now().has(who) && !has_member(spares, who)) return text_of(who.text(), " is gone");
    return {};
  }
  /// Calls a change off, then tells who asked.
  void late(const job_record& r, const std::string& why) {
    if (core_.happen(event_about(r, job_event_kind::late))) core_.answer(r.request, "failed: " + why);
  }
  void passed(const job_record& r, index_t step) {
    widen();
    job_event e = event_about(r, job_event_kind::passed);
    e.at = at_most_end(step + margin_);
    if (e.at <= r.boundary) return late(r, "the job ends before");
    core_.happen(e);
  }
  index_t at_most_end(index_t at) const { return core_.settings.steps ? least(at, *core_.settings.steps) : at; }

  job_core& core_;
  world_groups& groups_;
  job_requests requests_;
  pace& pace_;
  std::optional<std::pair<index_t, member_name>> enters_ = {};  // the world of which epoch, and who asked for it
  index_t margin_ = 1;
  double decision_ = 0.02;
};

}  // namespace reshard::detail
