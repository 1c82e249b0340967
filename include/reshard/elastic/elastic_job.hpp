// SPDX-License-Identifier: Apache-2.0
// A job whose world changes while it trains: one member's end of it. The trainer's thread makes steps and, between two
// of them, goes over to another world; threads of the job's own hear pulses, watch the store, drive the protocol and
// make groups.
// Builds on: elastic/run/job_driver.hpp, elastic/run/member_course.hpp, elastic/run/store_watch.hpp.
#pragma once

#include <string>
#include <thread>
#include <utility>

#include <reshard/elastic/run/job_driver.hpp>
#include <reshard/elastic/run/member_course.hpp>
#include <reshard/elastic/run/store_watch.hpp>

namespace reshard {

/// One member's end of a job. One thread uses it: while (job.runs()) job.step(..);
class elastic_job {
 public:
  /// Once it runs it registers, founds the job with others where there is none yet, and is then in its world, or a
  /// spare. The watcher is called from all threads.
  elastic_job(const any_store& store, const job_settings& settings, trainer_calls calls,
              job_watcher& watcher = nobody_watches())
      : core_(store, settings, std::move(calls), watcher), door_(listening_socket(settings.listen)),
        pulses_(settings.me, listening_socket(host_of(settings.listen) + ":0"), settings.wait,
                [this](const member_name& who, detail::found_gone how, double after) { suspect(who, how, after); }),
        groups_(core_, door_), copies_(core_, groups_), course_(core_, groups_, copies_), pace_(core_),
        driver_(core_, pulses_, groups_, copies_, pace_), place_{host_of(settings.listen) + ":" +
                                                                     std::to_string(door_.port()),
                                                                 host_of(settings.listen) + ":" +
                                                                     std::to_string(pulses_.port()),
                                                                 settings.node},
        watch_(core_, place_) {}
  elastic_job(const elastic_job&) = delete;
  ~elastic_job() { close(); }

  /// What this member is called at.
  const registration& place() const { return place_; }
  const member_name& me() const { return core_.me(); }
  /// At which this member's groups are called, too.
  process_door& door() { return door_; }
  /// The world that it is in. Refused before there is one.
  const world& now() const {
    if (course_.now().epoch == 0) refuse("job: ", me().text(), " is in no world yet");
    return course_.now();
  }
  index_t version() const { return core_.version; }
  job_end why() const { return course_.why(); }
  const std::string& sentence() const { return course_.sentence(); }

  /// Whether there is a step to make. Waits where this member is a spare, where all stop for a change, and while a
  /// world is made after a death; goes over to another world. False once the job is over for this member: why() says
  /// how.
  bool runs() {
    begin();
    while (why() == job_end::runs) {
      std::optional<job_record> r;
      std::string refused;
      {
        std::unique_lock lock(core_.mutex);
        if (!refused_.empty()) refused = refused_;
        else if (core_.listed && core_.record && core_.record->epoch > 0) r = core_.record;
        else core_.changed.wait_for(lock, std::chrono::milliseconds(20));
      }
      if (!refused.empty()) course_.end(job_end::refused, refused);
      if (r && course_.steps(*r)) return true;
    }
    return false;
  }

  /// Makes one step, or begins one that a death ends: then runs() does what there is to do.
  void step(const step_calls& calls) {
    const sample_share mine = share();
    core_.watcher.samples(core_.epoch, mine);
    core_.watcher.at("samples");
    const auto begun = detail::member_clock::now();
    try {
      if (!goes_on(detail::trainer_at::gradients, update_stage::nothing)) return;
      calls.gradients(mine);
      if (!goes_on(detail::trainer_at::gradients, update_stage::gradients)) return;
      core_.watcher.at("gradients");
      if (!goes_on(detail::trainer_at::scalar, update_stage::gradients)) return;
      const double scalar = calls.scalar();
      core_.locked([&] {
        core_.stage = update_stage::scalar;
        core_.scalar = scalar;
        core_.at = detail::trainer_at::update;
      });
      core_.watcher.at("scalar");
      core_.watcher.at("updating");
      calls.update(scalar);
    } catch (const peer_failed& why) {
      return course_.broke_off(why.what());
    } catch (const peer_missing& why) {
      return course_.broke_off(why.what());
    }
    core_.locked([&] {
      ++core_.version;
      core_.stage = update_stage::nothing;
      core_.at = detail::trainer_at::rest;
      const double took = detail::seconds_since(begun);
      core_.step_seconds = core_.step_seconds > 0 ? 0.8 * core_.step_seconds + 0.2 * took : took;
    });
    if (calls.own) pace_.add(calls.own());
    core_.watcher.at("updated");
  }

 private:
  static job_watcher& nobody_watches() {
    static job_watcher nobody;
    return nobody;
  }
  static std::string host_of(const std::string& address) { return address.substr(0, address.rfind(':')); }

  sample_share share() const {
    const mesh dense = mesh_of(now().layout, mesh_kind::dense);
    const rank_t of = now().layout.dp, dp = dense.coordinate(mesh_axis::data, now().rank_of(me()));
    const serial_cursor cursor{now().cursor_at(core_.version)};
    return {core_.version, cursor.share(now().batch, dp, of), dp, of};
  }
  /// The trainer comes to a part of the step, and so far with it; not where a promise was made for it meanwhile.
  bool goes_on(detail::trainer_at part, update_stage so_far) {
    return core_.locked([&] {
      core_.at = core_.promised ? detail::trainer_at::rest : part;
      if (!core_.promised) core_.stage = so_far;
      return !core_.promised;
    });
  }

  void begin() {
    if (watches_.joinable() || why() != job_end::runs) return;
    watches_ = std::thread([this] { unless_refused([this] { watch_.run(); }); });
    drives_ = std::thread([this] { unless_refused([this] { drive(); }); });
  }
  void drive() {
    while (!core_.ends.load()) {
      const std::uint64_t before = core_.locked([&] { return core_.changed.times(); });
      try {
        driver_.turn();
      } catch (const store_unreachable&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      std::unique_lock lock(core_.mutex);
      core_.changed.wait_for(lock, driver_.rest(), [&] { return core_.changed.times() != before; });
    }
  }
  template <typename Run>
  void unless_refused(Run&& run) {
    try {
      run();
    } catch (const refusal& why) {
      core_.locked([&] {
        refused_ = why.what();
        core_.changed.notify_all();
      });
    }
  }
  void suspect(const member_name& who, detail::found_gone how, double after) {
    core_.watcher.gone(who, how == detail::found_gone::ended ? "eof" : "silence", after);
    core_.locked([&] {
      add_members(core_.suspects, {who});
      core_.changed.notify_all();
    });
  }
  /// What was asked of a job that is over is answered before this member ends.
  void close() {
    core_.ends.store(true);
    if (why() == job_end::runs) pulses_.abandon();
    core_.locked([&] { core_.changed.notify_all(); });
    if (drives_.joinable()) {
      drives_.join();
      try {
        driver_.turn();
      } catch (const store_unreachable&) {
      } catch (const refusal&) {
      }
    }
    if (watches_.joinable()) watches_.join();
  }

  detail::job_core core_;
  process_door door_;
  detail::pulses pulses_;
  detail::world_groups groups_;
  detail::snapshots copies_;
  detail::member_course course_;
  detail::pace pace_;
  detail::job_driver driver_;
  registration place_;
  detail::store_watch watch_;
  std::string refused_;  // by a thread of its own; of core_.mutex
  std::thread watches_, drives_;
};

}  // namespace reshard
