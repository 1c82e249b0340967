// SPDX-License-Identifier: Apache-2.0
// A job whose world changes while it trains: one member's end of it. The trainer's thread makes steps and, between two
// of them, goes over to another world; threads of the job's own hear pulses, watch the store, drive the protocol and
// make groups.
// Builds on: elastic/run/job_driver.hpp, elastic/run/missing.hpp, elastic/run/world_change.hpp.
#pragma once

#include <string>
#include <thread>
#include <utility>

#include <reshard/elastic/run/job_driver.hpp>
#include <reshard/elastic/run/missing.hpp>
#include <reshard/elastic/run/world_change.hpp>

namespace reshard {

/// One member's end of a job. One thread uses it: while (job.runs()) job.step(..);
class elastic_job {
 public:
  /// Registers, founds the job with others where there is none yet, and is then in its world, or a spare.
  elastic_job(const any_store& store, const job_settings& settings, trainer_calls calls,
              job_watcher& watcher = nobody_watches())
      : core_(store, settings, std::move(calls), watcher), door_(listening_socket(settings.listen)),
        pulses_(settings.me, listening_socket(host_of(settings.listen) + ":0"), settings.wait,
                [this](const member_name& who, detail::found_gone how, double after) { suspect(who, how, after); }),
        change_(core_, door_), driver_(core_, pulses_, change_) {
    place_ = registration{host_of(settings.listen) + ":" + std::to_string(door_.port()),
                          host_of(settings.listen) + ":" + std::to_string(pulses_.port()), settings.node};
  }
  elastic_job(const elastic_job&) = delete;
  ~elastic_job() { close(); }

  /// What this member is called at.
  const registration& place() const { return place_; }
  const member_name& me() const { return core_.me(); }
  /// At which this member's groups are called, too.
  process_door& door() { return door_; }
  /// The world that it is in. Refused before there is one.
  const world& now() const {
    if (now_.epoch == 0) refuse("job: ", me().text(), " is in no world yet");
    return now_;
  }
  index_t version() const { return core_.version; }
  job_end why() const { return why_; }
  const std::string& sentence() const { return sentence_; }

  /// Whether there is a step to make. Waits where this member is a spare, where all stop for a change, and while a
  /// world is made after a death; goes over to another world. False once the job is over for this member: why() says
  /// how.
  bool runs() {
    begin();
    while (why_ == job_end::runs) {
      std::unique_lock lock(core_.mutex);
      if (!refused_.empty()) return over(job_end::refused, refused_);
      if (!core_.record || !core_.listed) {
        core_.changed.wait_for(lock, std::chrono::milliseconds(50));
        continue;
      }
      const job_record r = *core_.record;
      lock.unlock();
      if (r.epoch == 0) wait();
      else if (const std::optional<bool> known = act(r)) return *known;
    }
    return false;
  }

  /// Makes one step, or begins one that a death ends: then runs() does what there is to do.
  void step(const step_calls& calls) {
    sample_share mine = share();
    core_.watcher.samples(core_.epoch, mine);
    core_.watcher.at("samples");
    const auto begun = detail::member_clock::now();
    try {
      if (!enters(detail::trainer_at::gradients)) return;
      calls.gradients(mine);
      {
        const std::lock_guard lock(core_.mutex);
        if (core_.promised) return rest();
        core_.stage = update_stage::gradients;
      }
      core_.watcher.at("gradients");
      if (!enters(detail::trainer_at::scalar)) return;
      const double scalar = calls.scalar();
      {
        const std::lock_guard lock(core_.mutex);
        core_.stage = update_stage::scalar;
        core_.scalar = scalar;
        core_.at = detail::trainer_at::update;
      }
      core_.watcher.at("scalar");
      core_.watcher.at("updating");
      calls.update(scalar);
      const std::lock_guard lock(core_.mutex);
      ++core_.version;
      core_.stage = update_stage::nothing;
      core_.at = detail::trainer_at::rest;
      const double took = detail::seconds_since(begun);
      core_.step_seconds = core_.step_seconds > 0 ? 0.8 * core_.step_seconds + 0.2 * took : took;
    } catch (const peer_failed& why) {
      broke_off(why.what());
      return;
    } catch (const peer_missing& why) {
      broke_off(why.what());
      return;
    }
    core_.watcher.at("updated");
  }

 private:
  static job_watcher& nobody_watches() {
    static job_watcher nobody;
    return nobody;
  }
  static std::string host_of(const std::string& address) { return address.substr(0, address.rfind(':')); }

  void begin() {
    if (watches_.joinable() || why_ != job_end::runs) return;
    watches_ = std::thread([this] { watch(); });
    drives_ = std::thread([this] { drive(); });
  }
  bool over(job_end how, std::string sentence = {}) {
    why_ = how;
    sentence_ = std::move(sentence);
    return false;
  }
  void wait() {
    std::unique_lock lock(core_.mutex);
    core_.changed.wait_for(lock, std::chrono::milliseconds(20));
  }
  void wait_for_another(const job_record& than) {
    std::unique_lock lock(core_.mutex);
    core_.changed.wait_for(lock, std::chrono::milliseconds(20),
                           [&] { return !(core_.record && *core_.record == than); });
  }

  /// What the record wants of this member; whether it runs, where that is known.
  std::optional<bool> act(const job_record& r) {
    const bool mine = r.now().has(me()), concerned = has_member(r.concerned(), me());
    if (is_end(r.phase) && core_.epoch > 0 && !concerned) return out(r);
    if (r.phase == job_phase::lost)
      return over(job_end::lost, detail::missing_of(r, core_.settings.model, core_.settings.list));
    if (r.phase == job_phase::done) return over(job_end::done);
    if (r.phase == job_phase::recovering || r.phase == job_phase::waiting) {
      if (mine && came_ && core_.epoch != r.epoch && tried_ == r.epoch && r.worlds.size() == 1) settle(r);  // all had
      if (core_.epoch > 0 && !concerned) return over(job_end::expelled, "the job went on without it");
      if (concerned && r.promise_of(me()) == nullptr) promise_now(r);
      wait_for_another(r);
      return {};
    }
    // The change is decided, and steps go on up to the boundary.
    if (r.phase == job_phase::entering && r.promises.empty() && core_.epoch > 0 && core_.epoch + 1 == r.epoch &&
        core_.version < r.now().first_step)
      return steps(r);
    if (r.epoch > tried_) {
      if (mine || takes_part(r)) enter(r);
      else if (core_.epoch > 0) return out(r);
      else wait_for_another(r);
      return {};
    }
    if (r.phase == job_phase::entering || (core_.epoch != r.epoch && mine)) {  // until all have entered, or it breaks
      if (core_.epoch > 0 && !mine && !takes_part(r)) return out(r);
      if (r.phase != job_phase::entering && came_) settle(r);
      else wait_for_another(r);
      return {};
    }
    if (!mine) {
      if (core_.epoch > 0) return out(r);
      wait_for_another(r);
      return {};
    }
    return steps(r);
  }
  /// A member of the world that state comes from has a part in the switch, though it is not in the next one.
  bool takes_part(const job_record& r) const {
    if (r.phase != job_phase::entering || core_.holds == 0) return false;
    const state_source s = source_of(r);
    return s.from != nullptr && s.from->has(me()) && !has_member(s.dead, me());
  }
  /// It is in no world: it left, or goes on as a spare where it promised, or came too late.
  std::optional<bool> out(const job_record& r) {
    if (leaving_) return over(job_end::left);
    if (r.epoch == tried_) {  // it took part in the switch
      if (planned_) return over(job_end::left);
      change_.drop();
      now_ = {};
      const std::lock_guard lock(core_.mutex);
      core_.epoch = core_.holds = 0;
      core_.version = holds_nothing;
      return {};
    }
    return over(job_end::expelled, detail::text_of("epoch ", r.epoch, " began without it"));
  }

  /// Goes over to the record's world: state moves to it.
  void enter(const job_record& r) {
    tried_ = r.epoch;
    {
      const std::lock_guard lock(core_.mutex);
      core_.failed.clear();
    }
    planned_ = r.promises.empty();
    if (r.phase == job_phase::entering && planned_ && core_.epoch > 0) {
      const bool waited = stopped_at_ == core_.version;
      if (!waited) core_.watcher.at("boundary");
      core_.watcher.stopped(core_.version, waited ? detail::seconds_since(stopped_since_) : 0);
      stopped_at_ = -1;
      core_.watcher.at("decided");
    }
    if (!r.now().has(me())) leave_registration();
    const detail::world_change::result done = change_.enter(r);
    switch_seconds_ = done.seconds;
    came_ = done.sentence.empty();
    if (!came_) return broke_off(done.sentence);
    if (r.now().has(me())) {
      // What it held it holds until all have entered: until then a death costs nothing that was there before.
      core_.watcher.at("entered");
      if (r.phase == job_phase::entering) say(r, "entered");
    }
    if (r.phase != job_phase::entering) settle(r);
  }
  void leave_registration() {
    if (planned_) leaving_ = true;
  }
  /// All have entered: the world is this member's, and the old arrays go.
  void settle(const job_record& r) {
    change_.settle(r.now());
    now_ = r.now();
    std::string why = r.epoch == 1 ? "founded" : planned_ ? "asked" : "recovered";
    {
      const std::lock_guard lock(core_.mutex);
      core_.epoch = core_.holds = r.epoch;
      core_.version = now_.first_step;
      core_.stage = update_stage::nothing;
      core_.failed.clear();
      // Who was found gone while the world was entered is gone in it.
      std::erase_if(core_.suspects, [&](const auto& one) { return !now_.has(member_name(one.first)); });
      core_.published.store(core_.version);
      core_.stop.store(std::numeric_limits<index_t>::max());
    }
    core_.watcher.entered(now_, why, switch_seconds_);
  }

  /// Idle, or a change is prepared: steps go on, up to where all stop.
  std::optional<bool> steps(const job_record& r) {
    if (!core_.failed.empty()) {
      wait_for_another(r);
      return {};
    }
    if (core_.settings.steps && core_.version >= *core_.settings.steps && r.phase != job_phase::done) {
      {
        const std::lock_guard lock(core_.mutex);
        core_.finished = true;
        core_.published.store(core_.version);
      }
      wait_for_another(r);
      return {};
    }
    leaving_ = (r.phase == job_phase::armed && !r.proposed[0].has(me())) ||
               (r.phase == job_phase::entering && !r.now().has(me()));  // or it would be invited back at once
    core_.published.store(core_.version);  // before it reads where to stop: the driver stores that, then reads this
    if (core_.stop.load() > core_.version) {
      if (stopped_at_ >= 0) core_.watcher.stopped(core_.version, detail::seconds_since(stopped_since_));
      stopped_at_ = -1;
      return true;
    }
    if (stopped_at_ != core_.version) {
      stopped_at_ = core_.version;
      stopped_since_ = detail::member_clock::now();
      core_.watcher.at("boundary");
    }
    wait_for_another(r);
    return {};
  }

  sample_share share() const {
    const mesh dense = mesh_of(now_.layout, mesh_kind::dense);
    const rank_t of = now_.layout.dp, dp = dense.coordinate(mesh_axis::data, now_.rank_of(me()));
    const serial_cursor cursor{now_.cursor_at(core_.version)};
    return {core_.version, cursor.share(now_.batch, dp, of), dp, of};
  }
  /// The trainer's thread begins a part of the step, where no promise was made meanwhile.
  bool enters(detail::trainer_at part) {
    const std::lock_guard lock(core_.mutex);
    if (core_.promised) {
      core_.at = detail::trainer_at::rest;
      return false;
    }
    core_.at = part;
    return true;
  }
  void rest() { core_.at = detail::trainer_at::rest; }
  void broke_off(const std::string& sentence) {
    core_.watcher.failed(sentence);
    const std::lock_guard lock(core_.mutex);
    core_.at = detail::trainer_at::rest;
    core_.failed = sentence;
    core_.failed_since = detail::member_clock::now();
    core_.changed.notify_all();
  }
  /// Asks the store until it answers.
  template <typename Ask>
  auto store_does(Ask&& ask) {
    for (;;) {
      try {
        return ask();
      } catch (const store_unreachable&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    }
  }

  void promise_now(const job_record& r) {
    promise p;
    {
      const std::lock_guard lock(core_.mutex);
      if (core_.promised) return;  // the driver does
      core_.promised = true;
      p = {{me(), core_.holds == 0 ? holds_nothing : core_.version, core_.stage},
           bits_of_scalar(core_.scalar),
           core_.holds};
    }
    core_.watcher.broken(r.epoch, members_text(r.gone), core_.version);
    const promise_answer a = store_does([&] { return detail::job_driver::put_promise(core_, r, p); });
    if (a == promise_answer::too_late) over(job_end::expelled, "its promise came after the job went on");
  }
  void say(const job_record& r, std::string_view what) {
    store_does([&] {
      core_.say(r, what);
      return true;
    });
  }
  void suspect(const member_name& who, detail::found_gone how, double after) {
    const char* by = how == detail::found_gone::ended ? "eof" : "silence";
    core_.watcher.gone(who, by, after);
    const std::lock_guard lock(core_.mutex);
    core_.suspects[std::string(who.text())] = {by, after};
    core_.changed.notify_all();
  }

  void drive() {
    while (!core_.ends.load()) {
      try {
        driver_.turn();
      } catch (const store_unreachable&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      } catch (const refusal& why) {
        refuse_on(why.what());
        return;
      }
      std::unique_lock lock(core_.mutex);
      core_.changed.wait_for(lock, driver_.rest());
    }
  }
  void refuse_on(const std::string& sentence) {
    const std::lock_guard lock(core_.mutex);
    refused_ = sentence;
    core_.changed.notify_all();
  }

  /// Whether its name is new; else it is refused. A name whose place is this member's own was written by a swap whose
  /// answer was lost.
  bool takes_name() {
    const std::string key = core_.keys.places() + std::string(me().text());
    if (core_.store.swap(key, place_.text(), absent) != 0) return true;
    const std::optional<stored> there = core_.store.read(key);
    if (there && there->value == place_.text()) return true;
    refuse_on("job: a member is called " + std::string(me().text()) + " already; a name is never used twice");
    return false;
  }
  /// Registers, renews, and hears what changes.
  void watch() {
    lease_id lease = no_lease;
    auto renewed = detail::member_clock::now();
    const std::string key = core_.keys.members() + std::string(me().text());
    bool once = false;
    while (!core_.ends.load()) {
      try {
        if (lease == no_lease && !leaving_) {
          const std::optional<stored> there = core_.store.read(key);
          if (!once && !takes_name()) return;
          lease = core_.store.lease(core_.settings.lease);
          renewed = detail::member_clock::now();
          if (core_.store.swap(key, place_.text(), there ? there->revision : absent, lease) != 0 && !once)
            core_.watcher.at("registered");
          once = true;
        }
        if (leaving_ && lease != no_lease) core_.store.revoke(std::exchange(lease, no_lease));
        core_.take(core_.store.changes(core_.keys.prefix(), core_.revision,
                                       std::min<patience>(core_.settings.lease / 4, std::chrono::milliseconds(500))));
        if (lease != no_lease && detail::member_clock::now() - renewed > core_.settings.lease / 4) {
          renewed = detail::member_clock::now();
          if (!core_.store.renew(lease)) lease = no_lease;
        }
      } catch (const store_unreachable&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      } catch (const refusal& why) {
        return refuse_on(why.what());
      }
    }
    if (lease == no_lease) return;
    try {
      core_.store.revoke(lease);
    } catch (const store_unreachable&) {
    }
  }

  void close() {
    core_.ends.store(true);
    if (why_ == job_end::runs) pulses_.abandon();
    {
      const std::lock_guard lock(core_.mutex);
      core_.changed.notify_all();
    }
    if (drives_.joinable()) {
      drives_.join();
      try {
        driver_.turn();  // what was asked of a job that is over is answered
      } catch (const store_unreachable&) {
      } catch (const refusal&) {
      }
    }
    if (watches_.joinable()) watches_.join();
    change_.end();
  }

  detail::job_core core_;
  process_door door_;
  detail::pulses pulses_;
  detail::world_change change_;
  detail::job_driver driver_;
  registration place_;
  std::string refused_;  // by a thread of its own; of core_.mutex
  world now_{.epoch = 0};
  index_t tried_ = 0;  // the epoch whose world it entered, or tried to
  bool planned_ = false, came_ = false;
  std::atomic<bool> leaving_ = false;
  double switch_seconds_ = 0;
  index_t stopped_at_ = -1;
  detail::member_clock::time_point stopped_since_ = {};
  job_end why_ = job_end::runs;
  std::string sentence_;
  std::thread watches_, drives_;
};

}  // namespace reshard
