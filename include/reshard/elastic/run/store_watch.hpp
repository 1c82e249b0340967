// SPDX-License-Identifier: Apache-2.0
// A member's registration: it takes its name, holds its lease, and hears what changes in the store, on a thread of its
// own. A slow store may take the lease of who lives: it registers again under its name.
// Builds on: elastic/run/job_core.hpp.
#pragma once

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include <reshard/elastic/run/job_core.hpp>

namespace reshard::detail {

class store_watch {
 public:
  store_watch(job_core& core, const registration& place)
      : core_(core), place_(place.text()), key_(core.keys.members() + std::string(core.me().text())) {}

  /// Until the job ends for this member; refused where its name is another's.
  void run() {
    while (!core_.ends.load()) {
      try {
        if (leaves()) revoke();
        else if (lease_ == no_lease) enlist();
        core_.take(core_.store.changes(core_.keys.prefix(), core_.revision,
                                       std::min<patience>(core_.settings.lease / 4, std::chrono::milliseconds(500))));
        renew();
      } catch (const store_unreachable&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    }
    try {
      revoke();
    } catch (const store_unreachable&) {  // it ends by itself
    }
  }

 private:
  /// Whether its registration is to be gone: it is about to leave. Where that breaks off it may hold what others lack,
  /// and its lease says that it lives.
  bool leaves() {
    return core_.leaving.load() && !core_.locked([&] {
      return core_.record && has_member(core_.record->concerned(), core_.me()) &&
             (core_.record->phase == job_phase::recovering || core_.record->phase == job_phase::waiting);
    });
  }
  void enlist() {
    if (!named_) take_name();
    const std::optional<stored> there = core_.store.read(key_);
    const lease_id lease = core_.store.lease(core_.settings.lease);
    renewed_ = member_clock::now();
    if (core_.store.swap(key_, place_, there ? there->revision : no_revision, lease) == 0) return;  // once more
    lease_ = lease;
    if (!std::exchange(named_, true)) core_.watcher.at("registered");
  }
  /// A name whose place is this member's own was written by a swap whose answer was lost.
  void take_name() {
    const std::string key = core_.keys.places() + std::string(core_.me().text());
    if (core_.store.swap(key, place_, no_revision) != 0) return;
    const std::optional<stored> there = core_.store.read(key);
    if (!there || there->value != place_)
      refuse("job: a member is called ", core_.me().text(), " already; a name is never used twice");
  }
  void renew() {
    if (lease_ == no_lease || member_clock::now() - renewed_ <= core_.settings.lease / 4) return;
    renewed_ = member_clock::now();
    if (!core_.store.renew(lease_)) lease_ = no_lease;
  }
  void revoke() {
    if (lease_ != no_lease) core_.store.revoke(std::exchange(lease_, no_lease));
  }

  job_core& core_;
  std::string place_, key_;
  bool named_ = false;
  lease_id lease_ = no_lease;
  member_clock::time_point renewed_ = {};
};

}  // namespace reshard::detail
