// SPDX-License-Identifier: Apache-2.0
// One member's end of a job without any of its threads, over a store in this process: what others say and what the
// record is are put there by the test, and what the member does is read from there and from what its watcher was told.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <reshard/elastic/local_store.hpp>
#include <reshard/elastic/run/job_core.hpp>
#include <reshard/model/transformer.hpp>

namespace testing {

using namespace reshard;

/// A world of that epoch: steps from 10, samples from 80, 8 a step; dp as many as there are members.
inline world world_at(index_t epoch, const member_list& members, index_t first_step = 10) {
  world w{.epoch = epoch, .members = members, .first_step = first_step, .cursor = 8 * first_step, .batch = 8};
  w.layout.dp = static_cast<rank_t>(members.size());
  return w;
}
/// A record of these worlds, the last of which is of now.
inline job_record record_at(job_phase phase, const std::vector<world>& worlds, index_t attempt = 0) {
  job_record r{.phase = phase, .epoch = worlds.back().epoch, .attempt = attempt};
  r.worlds = worlds;
  return r;
}

/// All that a member's watcher is told, in order, a line each.
struct told_all : job_watcher {
  void at(std::string_view where) override {
    say(std::string(where));
    if (where == breaks_at) throw peer_failed("reshard: it breaks there");
  }
  void answered(const member_name& request, std::string_view text) override {
    say(std::string(request.text()) + ": " + std::string(text));
  }
  void slow(const member_list& who, const std::string&) override { say("slow: " + members_text(who)); }
  void waiting(const std::string& why) override { say("waits: " + why); }
  void broken(index_t epoch, std::string_view why, index_t version) override {
    say("broken: " + std::to_string(epoch) + ", " + std::string(why) + ", " + std::to_string(version));
  }
  void failed(const std::string& sentence) override { say("failed: " + sentence); }
  void entered(const world& w, std::string_view why, double took) override {
    switch_seconds = took;
    say("in epoch " + std::to_string(w.epoch) + ", " + std::string(why));
  }
  void stopped(index_t step, double) override { say("stopped at " + std::to_string(step)); }

  void say(const std::string& line) {
    const std::lock_guard lock(mutex);
    lines += line + "\n";
  }
  std::string taken() {
    const std::lock_guard lock(mutex);
    return std::exchange(lines, {});
  }
  std::mutex mutex;  // of the lines: groups are made and copies sent by threads of their own
  std::string lines;
  double switch_seconds = -1;  // of the world that was entered last
  std::string breaks_at;       // where it throws, as if another were gone
};

struct one_member {
  explicit one_member(const std::string& me = "a", const std::function<void(job_settings&)>& differs = {},
                      trainer_calls calls = {}, local_store* shared = nullptr)
      : store(shared != nullptr ? *shared : kept), core(store, settings_of(me, differs), std::move(calls), watcher) {
    core.listed = true;
  }
  static job_settings settings_of(const std::string& me, const std::function<void(job_settings&)>& differs) {
    job_settings s;
    s.job = "j", s.me = me;
    s.model = make_transformer(
        {.name = "tiny", .layers = 2, .hidden = 8, .heads = 2, .groups = 2, .head_dim = 4, .ffn = 8, .vocabulary = 16});
    if (differs) differs(s);
    return s;
  }

  /// What is in the store by now.
  void hear() { core.take(store.changes(core.keys.prefix(), core.revision, patience(0))); }
  void put(const std::string& key, const std::string& value) {
    const std::optional<stored> there = store.read(key);
    REQUIRE(store.swap(key, value, there ? there->revision : no_revision) != 0);
    hear();
  }
  /// The record, in the store and here.
  job_record put(const job_record& r) {
    put(core.keys.record(), stored_text(r));
    REQUIRE(*core.record == r);
    return r;
  }
  /// The record as the store has it.
  job_record record() {
    const std::optional<stored> there = store.read(core.keys.record());
    return there ? record_of(there->value) : job_record{};
  }
  job_phase phase() { return record().phase; }
  void enlist(const std::string& who) {
    put(core.keys.places() + who, "127.0.0.1:1 127.0.0.1:2 here");
    put(core.keys.members() + who, "127.0.0.1:1 127.0.0.1:2 here");
  }
  void delist(const std::string& who) {
    const std::string key = core.keys.members() + who;
    REQUIRE(store.remove(key, store.read(key)->revision));
    hear();
  }
  /// A member's word about an attempt.
  void say(const std::string& who, const job_record& about, std::string_view what, const std::string& value = "1") {
    put(core.keys.said(about.epoch, about.attempt, what) + who, value);
  }
  /// This member's word; "" where it said none.
  std::string said(const job_record& about, std::string_view what) {
    const auto there = store.read(core.keys.said(about.epoch, about.attempt, what) + std::string(core.me().text()));
    return there ? there->value : "";
  }
  /// The answer to a request; "" where there is none.
  std::string answer(const std::string& id) {
    const std::optional<stored> there = store.read(core.keys.answers() + id);
    return there ? there->value : "";
  }
  std::string told() { return watcher.taken(); }

  local_store kept;  // its own, where it shares none
  any_store store;
  told_all watcher;
  detail::job_core core;
};

using the_time = detail::member_clock::time_point;
inline the_time seconds_ago(double s) {
  return detail::member_clock::now() -
         std::chrono::duration_cast<detail::member_clock::duration>(std::chrono::duration<double>(s));
}
inline the_time just_now() { return detail::member_clock::now(); }

}  // namespace testing
