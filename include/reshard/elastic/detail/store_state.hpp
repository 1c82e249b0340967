// SPDX-License-Identifier: Apache-2.0
// What a store holds, as a value: keys, leases, and the changes that it remembers. It has no clock: who asks says what
// the time is, counted from an origin of its own. local_store and store_server are thin over it, so that both do the
// same.
// Builds on: elastic/store.hpp.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <reshard/elastic/store.hpp>

namespace reshard {

/// The longest that a lease lasts, and that is waited at once: a week.
inline constexpr patience longest_store_wait = std::chrono::hours(7 * 24);

/// How much of what changed a store remembers: the last so many changes, of at most so many bytes.
struct store_memory {
  std::size_t changes = 65536, bytes = std::size_t{64} << 20;
};

/// Keys and leases of a store, and its last changes. Each change has the revision after the one before.
class store_state {
 public:
  struct entry {
    std::string value;
    std::uint64_t revision = 0;
    lease_id lease = no_lease;
  };
  struct held_lease {
    patience time{}, ends{};
    std::set<std::string> keys;
  };

  explicit store_state(store_memory memory = {}) : memory_(memory) {}

  std::uint64_t revision() const { return revision_; }
  lease_id last_lease() const { return last_lease_; }
  const std::map<std::string, entry>& keys() const { return keys_; }
  const std::map<lease_id, held_lease>& leases() const { return leases_; }

  std::optional<stored> read(const std::string& key) const {
    const auto at = keys_.find(key);
    if (at == keys_.end()) return std::nullopt;
    return stored{key, at->second.value, at->second.revision};
  }
  stored_list list(const std::string& prefix) const {
    stored_list all{{}, revision_};
    for (auto at = keys_.lower_bound(prefix); at != keys_.end() && at->first.starts_with(prefix); ++at)
      all.all.push_back({at->first, at->second.value, at->second.revision});
    return all;
  }
  std::uint64_t swap(const std::string& key, const std::string& value, std::uint64_t expected, lease_id lease) {
    if (revision_of(key) != expected || (lease != no_lease && !leases_.contains(lease))) return 0;
    put({key, value, revision_ + 1}, lease);
    remember({{key, value, ++revision_}, false});
    return revision_;
  }
  bool remove(const std::string& key, std::uint64_t expected) {
    if (expected == no_revision || revision_of(key) != expected) return false;
    forget_lease_of(key);
    keys_.erase(key);
    remember({{key, "", ++revision_}, true});
    return true;
  }

  lease_id lease(patience time, patience now) {
    grant(last_lease_ + 1, time, now);
    return ++last_lease_;
  }
  bool renew(lease_id lease, patience now) {
    const auto at = leases_.find(lease);
    if (at == leases_.end()) return false;
    at->second.ends = now + at->second.time;
    return true;
  }
  /// Its keys go in ascending order; whether it was there.
  bool revoke(lease_id lease) {
    const auto at = leases_.find(lease);
    if (at == leases_.end()) return false;
    const std::set<std::string> keys = at->second.keys;
    for (const std::string& key : keys) remove(key, revision_of(key));
    leases_.erase(lease);
    return true;
  }
  /// A lease whose time is over; who asks revokes it.
  std::optional<lease_id> over(patience now) const {
    for (const auto& [lease, l] : leases_)
      if (l.ends <= now) return lease;
    return std::nullopt;
  }
  /// When the next lease ends.
  std::optional<patience> next_end() const {
    std::optional<patience> first;
    for (const auto& [lease, l] : leases_)
      if (!first || l.ends < *first) first = l.ends;
    return first;
  }
  /// All leases end later by so much: who keeps the time was away.
  void postpone(patience by) {
    for (auto& [lease, l] : leases_) l.ends += by;
  }

  /// What changed under a prefix after a revision, all that is known of it.
  store_news changes(const std::string& prefix, std::uint64_t after) const {
    store_news news{{}, revision_, after < forgotten_ || after > revision_};
    if (news.anew) {
      for (stored& now : list(prefix).all) news.changes.push_back({std::move(now), false});
      return news;
    }
    for (std::size_t i = static_cast<std::size_t>(after - forgotten_); i < history_.size(); ++i)
      if (history_[i].now.key.starts_with(prefix)) news.changes.push_back(history_[i]);
    return news;
  }

  /// A store that is read back: the counts that it had; then what it held. Changes up to there are forgotten.
  void restore(std::uint64_t revision, lease_id last_lease) {
    revision_ = forgotten_ = revision;
    last_lease_ = last_lease;
  }
  void grant(lease_id lease, patience time, patience now) {
    if (time.count() <= 0 || time > longest_store_wait)
      refuse("a lease of ", time.count(), " ms; it is of 1 to ", longest_store_wait.count(), " ms");
    leases_[lease] = {time, now + time, {}};
  }
  void put(stored now, lease_id lease) {
    forget_lease_of(now.key);
    if (lease != no_lease) leases_.at(lease).keys.insert(now.key);
    keys_[now.key] = {std::move(now.value), now.revision, lease};
  }

 private:
  std::uint64_t revision_of(const std::string& key) const {
    const auto at = keys_.find(key);
    return at == keys_.end() ? no_revision : at->second.revision;
  }
  void forget_lease_of(const std::string& key) {
    const auto at = keys_.find(key);
    if (at != keys_.end() && at->second.lease != no_lease) leases_.at(at->second.lease).keys.erase(key);
  }
  static std::size_t bytes_of(const store_change& c) { return sizeof c + c.now.key.size() + c.now.value.size(); }
  void remember(store_change change) {
    remembered_ += bytes_of(change);
    history_.push_back(std::move(change));
    while (history_.size() > memory_.changes || remembered_ > memory_.bytes) {
      forgotten_ = history_.front().now.revision;
      remembered_ -= bytes_of(history_.front());
      history_.pop_front();
    }
  }

  store_memory memory_;
  std::map<std::string, entry> keys_;
  std::map<lease_id, held_lease> leases_;
  std::deque<store_change> history_;  // of the revisions after forgotten_, one each
  std::size_t remembered_ = 0;
  std::uint64_t revision_ = 0, forgotten_ = 0;
  lease_id last_lease_ = no_lease;
};

}  // namespace reshard
