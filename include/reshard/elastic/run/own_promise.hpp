// SPDX-License-Identifier: Apache-2.0
// What a member promises in a recovery: what it holds, of which version, and that it makes no step until a world is
// made. Given once an attempt, as soon as its trainer is at rest.
// Builds on: elastic/run/job_core.hpp.
#pragma once

#include <optional>
#include <utility>

#include <reshard/elastic/run/job_core.hpp>

namespace reshard::detail {

/// Tells the first time in each attempt of an epoch from the others.
class once_an_attempt {
 public:
  bool first(const job_record& r) {
    return std::exchange(seen_, std::pair(r.epoch, r.attempt)) != std::pair(r.epoch, r.attempt);
  }

 private:
  std::pair<index_t, index_t> seen_ = {-1, -1};
};

/// `since` is when the attempt was first seen.
class own_promise {
 public:
  explicit own_promise(job_core& core) : core_(core) {}

  /// A member between two steps promises at once. One that computes gradients has contributed nothing to the last
  /// collective, and cannot any more once this is said for it; it is given half the grace to come to rest. One that has
  /// entered a world, and does not hold it yet, is on its way to rest: of a world that is the only one nobody holds
  /// nothing, as all have said that they entered it, or set its first values; so have they of the first of several.
  void give_if_asked(const job_record& r, member_clock::time_point since) {
    if (!has_member(r.concerned(), core_.me()) || r.promise_of(core_.me()) != nullptr) return;
    const bool patient = seconds_since(since) < seconds(core_.settings.grace) / 2;
    const std::optional<promise> mine = core_.locked([&]() -> std::optional<promise> {
      const bool rests = core_.at == trainer_at::rest;
      if (!rests && (core_.at != trainer_at::gradients || patient)) return {};
      const world& whole = r.worlds.front();
      const bool settles = whole.epoch > 1 && whole.has(core_.me()) && core_.tried == whole.epoch;
      bool of_a_world = core_.holds == 0 && r.worlds.size() > 1 && !settles;
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
    if (told_.first(r)) core_.watcher.broken(r.epoch, members_text(r.gone), mine->told.version);
    put(r, *mine);
  }

 private:
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

  job_core& core_;
  once_an_attempt told_;  // that the world is broken
};

}  // namespace reshard::detail
