// SPDX-License-Identifier: Apache-2.0
// What the threads of one member's job share: what the store told last, what the trainer's thread is doing, and how an
// event is brought about: by one swap of the record.
// Builds on: elastic/job_calls.hpp, elastic/job_keys.hpp, elastic/next.hpp, elastic/record_text.hpp,
// elastic/run/told_condition.hpp, elastic/store.hpp, switch/ending.hpp.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <reshard/base/digest.hpp>
#include <reshard/elastic/job_calls.hpp>
#include <reshard/elastic/job_keys.hpp>
#include <reshard/elastic/next.hpp>
#include <reshard/elastic/record_text.hpp>
#include <reshard/elastic/run/told_condition.hpp>
#include <reshard/elastic/store.hpp>
#include <reshard/switch/ending.hpp>

namespace reshard::detail {

using member_clock = std::chrono::steady_clock;
inline double seconds(patience p) { return std::chrono::duration<double>(p).count(); }
inline double seconds_since(member_clock::time_point then) {
  return std::chrono::duration<double>(member_clock::now() - then).count();
}

/// What the trainer's thread is at.
enum class trainer_at {
  rest,       // between two steps: it holds a version
  gradients,  // it may be called back: it has contributed nothing to the last collective
  scalar,     // it may have
  update,
  change  // it goes over to another world
};

/// How far a member came in a switch.
struct torn_part {
  index_t stages = 1;
  torn_share share = {};
};

/// A change that nobody asked for, and why one of its members refused it.
struct refused_change {
  world from, to;
  std::string why;
};

struct job_core {
  job_core(const any_store& of, const job_settings& s, trainer_calls c, job_watcher& w)
      : store(of), settings(s), keys(s.job), calls(std::move(c)), watcher(w) {}

  any_store store;
  const job_settings settings;
  const job_keys keys;
  const trainer_calls calls;
  job_watcher& watcher;

  std::atomic<index_t> published = -1, stop = std::numeric_limits<index_t>::max();
  std::atomic<bool> ends = false, leaving = false;

  std::mutex mutex;  // of what follows
  told_condition changed;
  std::optional<job_record> record = {};
  std::uint64_t record_revision = no_revision;
  std::map<std::string, stored> known = {};  // all keys of the job but the record
  std::uint64_t revision = 0;
  bool listed = false;  // all keys were told once

  trainer_at at = trainer_at::rest;
  index_t epoch = 0;  // of the world that it has entered; 0: none
  index_t holds = 0;  // the epoch whose arrays it holds; 0: none
  index_t tried = 0;  // the epoch whose world it entered last, or tried to; the trainer's thread alone writes it
  index_t version = holds_nothing;
  update_stage stage = update_stage::nothing;
  double scalar = 0, step_seconds = 0;
  std::vector<kept_copy> copies = {};  // that it has, of the world that it is in
  // How far it came in a switch that gave sources back: until all have entered, it holds that of both worlds' arrays.
  std::optional<torn_part> torn = {};
  bool promised = false;  // it contributes to no further step of the world that it is in
  bool finished = false;  // all steps of the job are made
  member_clock::time_point failed_since = {};
  index_t failed_in = 0;    // the epoch that it was about
  std::string failed = {};  // a step broke off, and by what sentence

  std::vector<refused_change> refused = {};  // they are not tried again
  member_list suspects = {};                 // by evidence that a pulse gave, and no promise took back

  const member_name& me() const { return settings.me; }
  /// What read() finds while no other thread changes anything.
  template <typename Read>
  auto locked(Read&& read) {
    const std::lock_guard lock(mutex);
    return read();
  }
  bool is_known(const std::string& key) {
    return locked([&] { return known.contains(key); });
  }

  /// What of a list's keys belongs to whom, in order of their creation.
  std::vector<std::pair<std::string, stored>> under(const std::string& prefix) const {
    std::vector<std::pair<std::string, stored>> all;
    for (auto at_key = known.lower_bound(prefix); at_key != known.end() && at_key->first.starts_with(prefix); ++at_key)
      all.emplace_back(at_key->first.substr(prefix.size()), at_key->second);
    std::sort(all.begin(), all.end(),
              [](const auto& a, const auto& b) { return a.second.revision < b.second.revision; });
    return all;
  }
  member_list registered() const {
    member_list all;
    for (const auto& [name_of, key] : under(keys.members())) all.push_back(member_name(name_of));
    return all;
  }
  std::optional<registration> where(const member_name& who) const {
    const auto found = known.find(keys.places() + std::string(who.text()));
    if (found == known.end()) return {};
    return registration::of(found->second.value);
  }

  /// News of the store. Of a key the latest revision counts, from whom ever it comes.
  void take(const store_news& news) {
    const std::lock_guard lock(mutex);
    if (news.anew) std::erase_if(known, [&](const auto& one) { return one.second.revision <= news.revision; });
    for (const store_change& c : news.changes) take(c.now, c.removed);
    revision = std::max(revision, news.revision);
    listed = true;
    changed.notify_all();
  }
  void take(const stored& now, bool removed) {
    if (now.key == keys.record()) {
      if (now.revision <= record_revision || removed) return;
      take_record(record_of(now.value), now.revision);
      return;
    }
    const auto found = known.find(now.key);
    if (found != known.end() && found->second.revision >= now.revision) return;
    if (!removed) known[now.key] = now;
    else if (found != known.end()) known.erase(found);
  }
  void take_record(const job_record& r, std::uint64_t of_revision) {
    // Who promised since it was suspected lives. Promises are kept where somebody comes to a job that waits.
    const bool same_attempt = record && record->epoch == r.epoch && record->attempt == r.attempt;
    const bool come = record && record->epoch == r.epoch && record->phase == job_phase::waiting &&
                      r.phase == job_phase::recovering && record->promises == r.promises;
    std::erase_if(suspects, [&](const member_name& one) {
      return r.promise_of(one) != nullptr && !((same_attempt || come) && record->promise_of(one) != nullptr);
    });
    record = r;
    record_revision = of_revision;
  }

  /// Brings an event about, where it still says something; whether this member did.
  bool happen(const job_event& e) {
    const auto [before, expected] = locked([&] { return std::pair(record, record_revision); });
    if (!before) return false;
    const job_record after = next(*before, e);
    return !(after == *before) && swap_record(after, expected, name(e.kind));
  }
  bool swap_record(const job_record& after, std::uint64_t expected, std::string_view what) {
    watcher.at("swap-" + std::string(what));
    const std::uint64_t made = store.swap(keys.record(), stored_text(after), expected);
    if (made == 0) return false;
    watcher.at("swapped-" + std::string(what));
    const std::lock_guard lock(mutex);
    if (made > record_revision) take_record(after, made);
    changed.notify_all();
    return true;
  }

  /// Says a word about an attempt, once.
  void say(const job_record& about, std::string_view what, const std::string& value = "1") {
    const std::string key = keys.said(about.epoch, about.attempt, what) + std::string(me().text());
    if (is_known(key)) return;
    const std::uint64_t made = store.swap(key, value, no_revision);
    // It was said before, and the answer was lost.
    const std::optional<stored> there = made != 0 ? stored{key, value, made} : store.read(key);
    if (!there) return;
    const std::lock_guard lock(mutex);
    take(*there, false);
    changed.notify_all();
  }
  /// What members said about an attempt; those who said nothing yet are missing.
  std::vector<std::pair<member_name, std::string>> words(const job_record& about, std::string_view what) {
    const std::lock_guard lock(mutex);
    std::vector<std::pair<member_name, std::string>> all;
    for (const auto& [who, key] : under(keys.said(about.epoch, about.attempt, what)))
      all.emplace_back(member_name(who), key.value);
    return all;
  }
  /// The numbers that members said about an attempt.
  std::vector<index_t> numbers(const job_record& about, std::string_view what) {
    std::vector<index_t> all;
    for (const auto& [who, value] : words(about, what)) {
      const std::optional<index_t> n = whole_number(value);
      if (!n) refuse("job: ", who.text(), " says '", value.substr(0, 100), "' where a step is said");
      all.push_back(*n);
    }
    return all;
  }
  member_list said_by(const job_record& about, std::string_view what) {
    member_list all;
    for (const auto& [who, value] : words(about, what)) all.push_back(who);
    return all;
  }

  /// Answers a request, once.
  void answer(const member_name& request, const std::string& text) {
    if (request.empty()) return;
    const std::string key = keys.answers() + std::string(request.text());
    const std::uint64_t made = store.swap(key, text, no_revision);
    if (made == 0) {  // somebody else did
      const std::optional<stored> there = store.read(key);
      const std::lock_guard lock(mutex);
      if (there) take(*there, false);
      return;
    }
    watcher.answered(request, text);
    watcher.at("answered");
    const std::lock_guard lock(mutex);
    take({key, text, made}, false);
  }

  /// 64 bits of this job's world or making: who calls for another is turned away.
  std::uint64_t number_of(std::string_view what, index_t of_epoch, index_t attempt, const member_list& members) const {
    std::string text = text_of(settings.job, "\n", what, "\n", of_epoch, "\n", attempt);
    for (const member_name& one : members) text += "\n" + std::string(one.text());
    return fnv1a(text);
  }
};

}  // namespace reshard::detail
