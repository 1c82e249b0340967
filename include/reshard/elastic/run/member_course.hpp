// SPDX-License-Identifier: Apache-2.0
// What the record wants of a member's trainer, between two steps: to make the next one, to wait, to go over to another
// world, or to end.
// Builds on: elastic/run/world_change.hpp, elastic/run/missing.hpp.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <reshard/elastic/run/missing.hpp>
#include <reshard/elastic/run/world_change.hpp>

namespace reshard::detail {

/// One thread uses it.
class member_course {
 public:
  member_course(job_core& core, world_groups& groups, snapshots& copies)
      : core_(core), copies_(copies), change_(core, groups, copies) {}

  const world& now() const { return now_; }
  job_end why() const { return why_; }
  const std::string& sentence() const { return sentence_; }
  /// Arrays that a switch has given back in part are no state of one world: the trainer is told that it has none.
  void end(job_end how, std::string sentence = {}) {
    if (core_.torn) change_.drop();
    why_ = how;
    sentence_ = std::move(sentence);
  }

  /// Whether there is a step to make as the record stands; it waits a little where there is none.
  bool steps(const job_record& r) {
    const bool mine = r.now().has(core_.me()), concerned = has_member(r.concerned(), core_.me());
    if (is_end(r.phase)) return finish(r, concerned), false;
    if (r.phase == job_phase::recovering || r.phase == job_phase::waiting) {
      if (mine && r.epoch == 1 && core_.tried == 0)
        return begin(r), false;  // it broke before this one knew that it is founded
      // All had entered the first of these worlds, this one too, before it broke; and it was not told yet.
      const world& whole = r.worlds.front();
      if (whole.has(core_.me()) && came_ && core_.tried == whole.epoch && core_.epoch != whole.epoch) settle(whole);
      if (core_.epoch > 0 && !concerned) return leave(r), false;
      return wait(r);
    }
    const bool entering = r.phase == job_phase::entering, planned = r.promises.empty();
    // The change is decided, and steps go on up to the boundary.
    if (entering && planned && core_.epoch + 1 == r.epoch && core_.version < r.now().first_step) return next_step(r);
    const bool part = mine || takes_part(r);
    if (!part && core_.epoch > 0) {
      // It was taken for gone; should that world come to nothing, others may need what it holds.
      if (entering && concerned) return wait(r);
      return leave(r), false;
    }
    if (!part) {  // a spare; what it was given in a switch that broke off others have now
      if (change_.has_arrays() && !concerned) forget();
      if (!concerned) core_.locked([&] { core_.failed.clear(); });  // what broke off then is no matter of this world's
      return wait(r);
    }
    if (r.epoch > core_.tried) return enter(r), false;
    if (entering || core_.epoch != r.epoch) {  // until all have entered, or it breaks
      if (entering || !came_) return wait(r);
      settle(r.now());
      return false;
    }
    return next_step(r);
  }

  void say(const job_record& r, std::string_view what) {
    until_stored([&] { core_.say(r, what); });
  }
  void answer(const member_name& request, const std::string& text) {
    until_stored([&] { core_.answer(request, text); });
  }
  /// Asks the store until it answers.
  template <typename Ask>
  static void until_stored(Ask&& ask) {
    for (;;) {
      try {
        return ask();
      } catch (const store_unreachable&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    }
  }
  /// A step or a change broke off; the record says what follows. Where all know that one refused, nobody is gone, and
  /// no evidence is waited for.
  void broke_off(const std::string& sentence, bool all_know = false) {
    core_.watcher.failed(sentence);
    core_.locked([&] {
      core_.at = trainer_at::rest;
      core_.failed = sentence, core_.failed_in = greatest(core_.epoch, core_.tried);
      core_.failed_since = all_know ? member_clock::time_point() : member_clock::now();
      core_.changed.notify_all();
    });
  }

 private:
  bool wait(const job_record& than) {
    std::unique_lock lock(core_.mutex);
    core_.changed.wait_for(lock, std::chrono::milliseconds(20),
                           [&] { return !(core_.record && *core_.record == than); });
    return false;
  }
  void finish(const job_record& r, bool concerned) {
    if (core_.epoch > 0 && !concerned) leave(r);
    else if (r.phase == job_phase::done) end(job_end::done);
    else end(job_end::lost, missing_of(r, core_.settings.model, core_.settings.list));
  }

  /// A member of the world that state comes from has a part in the switch, though it is not in the next one. Where none
  /// is entered state comes from nowhere.
  bool takes_part(const job_record& r) const {
    const state_source s = source_of(r);
    return s.takes_part(core_.me());
  }
  /// It is in no world: it left; or it gave its state away in a recovery and goes on as a spare; or it came too late.
  void leave(const job_record& r) {
    const bool took_part = r.epoch == core_.tried;
    if (core_.leaving.load() || (took_part && planned_)) return end(job_end::left);
    if (!took_part) return end(job_end::expelled, text_of("the job went on in epoch ", r.epoch, " without it"));
    forget();
  }
  void forget() {
    change_.drop();
    now_ = {.epoch = 0};
    core_.locked([&] {
      core_.epoch = core_.holds = 0;
      core_.version = holds_nothing;
      core_.promised = false;
      core_.published.store(-1);
    });
  }

  void begin(const job_record& r) {
    core_.locked([&] { core_.at = trainer_at::change, core_.tried = r.epoch; });
    change_.begin(r.now());
    core_.locked([&] { core_.at = trainer_at::rest; });
  }
  void enter(const job_record& r) {
    planned_ = r.promises.empty();
    core_.locked([&] {
      core_.failed.clear();
      core_.at = trainer_at::change, core_.tried = r.epoch;
    });
    if (planned_ && !r.now().has(core_.me())) core_.leaving.store(true);
    if (planned_ && core_.epoch > 0) {
      if (stopped_at_ != core_.version) stop_here();
      go_on();
      core_.watcher.at("decided");
    }
    const world_change::result done = change_.enter(r);
    switch_seconds_ = done.seconds;
    came_ = done.sentence.empty();
    if (done.refused && planned_) refused(r, std::string(without_prefix(done.sentence)));
    if (!came_) return broke_off(done.sentence, done.refused && planned_);
    core_.locked([&] { core_.at = trainer_at::rest; });
    if (r.phase != job_phase::entering) return settle(r.now());  // the job is founded
    if (!r.now().has(core_.me())) return;
    core_.watcher.at("entered");
    say(r, "entered");
  }
  /// One of its members refused a planned change: who asked is told, and what nobody asked for is not tried again.
  void refused(const job_record& r, const std::string& why) {
    if (!r.request.empty()) return answer(r.request, "failed: " + why);
    core_.locked([&] { core_.refused.push_back({*source_of(r).from, r.now(), why}); });
  }
  /// All have entered: the world is this member's, and what it held before goes.
  void settle(const world& entered) {
    change_.settle(entered);
    now_ = entered;
    stopped_at_ = -1;
    core_.locked([&] {
      core_.epoch = core_.holds = now_.epoch;
      core_.version = now_.first_step;
      core_.finished = false;  // steps may be undone
      core_.stage = update_stage::nothing;
      core_.promised = false;
      core_.failed.clear();
      // Who was found gone while the world was entered is gone in it.
      std::erase_if(core_.suspects, [&](const member_name& one) { return !now_.has(one); });
      core_.published.store(core_.version);
      core_.stop.store(std::numeric_limits<index_t>::max());
    });
    core_.watcher.entered(now_, now_.epoch == 1 ? "founded" : planned_ ? "asked" : "recovered", switch_seconds_);
  }

  bool next_step(const job_record& r) {
    if (!core_.failed.empty()) return wait(r);
    if (core_.settings.steps && core_.version >= *core_.settings.steps) {
      core_.locked([&] {
        core_.finished = true;
        core_.published.store(core_.version);
      });
      return wait(r);
    }
    // Who leaves takes its registration away before, or it would be invited back at once.
    core_.leaving.store((r.phase == job_phase::armed && !r.proposed[0].has(core_.me())) ||
                        (r.phase == job_phase::entering && !r.now().has(core_.me())));
    core_.published.store(core_.version);  // before it reads where to stop: the driver stores that, then reads this
    if (core_.stop.load() > core_.version) {
      if (stopped_at_ >= 0) go_on();
      copies_.before_step(core_.version);
      return true;
    }
    if (stopped_at_ != core_.version) stop_here();
    return wait(r);
  }
  void stop_here() {
    stopped_at_ = core_.version;
    stopped_since_ = member_clock::now();
    core_.watcher.at("boundary");
  }
  void go_on() {
    core_.watcher.stopped(core_.version, seconds_since(stopped_since_));
    stopped_at_ = -1;
  }

  job_core& core_;
  snapshots& copies_;
  world_change change_;
  world now_ = {.epoch = 0};
  bool planned_ = false, came_ = false;
  double switch_seconds_ = 0;
  index_t stopped_at_ = -1;
  member_clock::time_point stopped_since_ = {};
  job_end why_ = job_end::runs;
  std::string sentence_;
};

}  // namespace reshard::detail
