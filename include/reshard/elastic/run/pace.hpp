// SPDX-License-Identifier: Apache-2.0
// How long members' own parts of a step take: each tells the mean of every window of time, all see who is slow, and a
// slow member makes place for a spare while it lives.
// Builds on: elastic/run/job_core.hpp, elastic/decide.hpp.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <reshard/elastic/decide.hpp>
#include <reshard/elastic/run/job_core.hpp>

namespace reshard::detail {

/// A key of each member holds "EPOCH MICROSECONDS ..": the means of its last windows in that epoch's world, the latest
/// last.
class pace {
 public:
  explicit pace(job_core& core) : core_(core) {}

  /// 1 ms, in microseconds: what takes less is told as this, for of so little a scheduler makes any ratio.
  static constexpr index_t least_told = 1000;

  /// A step is made, and so many seconds of it were this member's own. The trainer's thread.
  void add(double own) {
    const std::lock_guard lock(core_.mutex);
    if (of_epoch_ != core_.epoch) {
      of_epoch_ = core_.epoch;
      means_.clear(), fresh_ = false;
      steps_ = 0, sum_ = 0, begun_ = member_clock::now();
    }
    ++steps_, sum_ += own;
    if (seconds_since(begun_) < seconds(core_.settings.window)) return;
    const auto mean = static_cast<index_t>(1e6 * sum_ / static_cast<double>(steps_));
    means_.push_back(greatest(mean, least_told));
    if (std::ssize(means_) > core_.settings.policy.windows) means_.erase(means_.begin());
    steps_ = 0, sum_ = 0, begun_ = member_clock::now(), fresh_ = true;
  }

  /// Tells the store of a window that is over, and finds the world in which spares are in the places of who is slow:
  /// none where that change was refused before. The driver's thread, in a world where nothing is under way.
  std::optional<world> replaced(const job_record& r, const member_list& spares) {
    if (!has_rung(rung::hot)) return {};
    say(r);
    if (seconds_since(looked_) < seconds(core_.settings.window) / 2) return {};
    looked_ = member_clock::now();
    elastic_situation now = seen(r);
    if (now.members.empty()) return {};
    now.spares = spares;
    now.waited = slow_since_ ? seconds_since(*slow_since_) : 0;
    elastic_policy hot = core_.settings.policy;
    hot.rungs = {rung::hot};
    const elastic_decision d = decide(hot, now);
    if (d.slow.empty()) slow_since_.reset();
    else if (!slow_since_) slow_since_ = member_clock::now();
    std::string why;
    if (d.layout) {
      world to = r.now();
      ++to.epoch;
      to.members = d.world;
      why = refused(r.now(), to);
      if (why.empty()) return to;
    } else {
      why = d.because[0].why;
    }
    if (!d.slow.empty() && now.waited >= hot.wait && std::exchange(told_, r.epoch) != r.epoch)
      core_.watcher.slow(d.slow, why);
    return {};
  }

 private:
  bool has_rung(rung which) const {
    const std::vector<rung>& all = core_.settings.policy.rungs;
    return std::find(all.begin(), all.end(), which) != all.end();
  }
  /// Why a change between these members was refused; empty where it was not.
  std::string refused(const world& from, const world& to) {
    return core_.locked([&]() -> std::string {
      for (const refused_change& one : core_.refused)
        if (one.from.members == from.members && one.to.members == to.members && one.to.layout == to.layout)
          return "ignored: " + one.why;
      return {};
    });
  }
  std::string key_of(const member_name& who) const { return core_.keys.paces() + std::string(who.text()); }

  void say(const job_record& r) {
    const std::optional<std::string> text = core_.locked([&]() -> std::optional<std::string> {
      if (of_epoch_ != r.epoch || !std::exchange(fresh_, false)) return {};
      std::string words = std::to_string(of_epoch_);
      for (const index_t mean : means_) words += " " + std::to_string(mean);
      return words;
    });
    if (!text) return;
    const std::optional<stored> before = core_.store.read(key_of(core_.me()));
    core_.store.swap(key_of(core_.me()), *text, before ? before->revision : no_revision);
  }
  /// What all members told of this world; no members where one told nothing yet.
  elastic_situation seen(const job_record& r) {
    elastic_situation now;
    const std::lock_guard lock(core_.mutex);
    for (const member_name& who : r.now().members) {
      seen_member one{who, false, false, {}};
      if (const auto found = core_.known.find(key_of(who)); found != core_.known.end())
        one.steps = told_of(found->second.value, r.epoch);
      if (one.steps.empty()) return {};
      now.members.push_back(std::move(one));
    }
    now.model = core_.settings.model;
    now.list = core_.settings.list;
    now.layout = r.now().layout;
    return now;
  }
  /// Seconds; none of another epoch's.
  static std::vector<double> told_of(std::string_view text, index_t epoch) {
    std::vector<double> all;
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t end = std::min(text.find(' ', at), text.size());
      const std::optional<index_t> n = whole_number(text.substr(at, end - at));
      if (!n || (at == 0 && *n != epoch)) return {};
      if (at > 0) all.push_back(1e-6 * static_cast<double>(*n));
      at = end + 1;
    }
    return all;
  }

  job_core& core_;
  // of core.mutex
  index_t of_epoch_ = 0, steps_ = 0;
  double sum_ = 0;
  member_clock::time_point begun_ = {};
  std::vector<index_t> means_;  // microseconds, of the last windows
  bool fresh_ = false;
  // the driver's
  member_clock::time_point looked_ = {};
  std::optional<member_clock::time_point> slow_since_;
  index_t told_ = 0;  // the epoch in which it was told who is slow
};

}  // namespace reshard::detail
