// SPDX-License-Identifier: Apache-2.0
// A store in this process, for members that are threads of it, and for tests: under one lock, its leases by the steady
// clock. A lease that ends is seen by whoever waits for changes, though nobody else asks.
// Builds on: elastic/detail/store_state.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <reshard/elastic/detail/store_state.hpp>

namespace reshard {

/// A store in this process; any number of threads may ask it at the same time.
class local_store {
  using clock = std::chrono::steady_clock;
  // Rounded up, so that who waits for a moment finds that it has come.
  static patience now() { return std::chrono::ceil<patience>(clock::now().time_since_epoch()); }

  template <typename Work>
  auto at_once(Work&& work) {
    const std::lock_guard lock(alone_);
    const patience looked = now();
    end_leases(looked);
    const std::uint64_t before = state_.revision();
    auto result = work(looked);
    if (state_.revision() != before) changed_.notify_all();  // of a key with a lease too, which may be the next to end
    return result;
  }

 public:
  explicit local_store(store_memory memory = {}) : state_(memory) {}

  std::optional<stored> read(const std::string& key) {
    return at_once([&](patience) { return state_.read(key); });
  }
  stored_list list(const std::string& prefix) {
    return at_once([&](patience) { return state_.list(prefix); });
  }
  std::uint64_t swap(const std::string& key, const std::string& value, std::uint64_t expected,
                     lease_id lease = no_lease) {
    return at_once([&](patience) { return state_.swap(key, value, expected, lease); });
  }
  bool remove(const std::string& key, std::uint64_t expected) {
    return at_once([&](patience) { return state_.remove(key, expected); });
  }
  lease_id lease(patience time) {
    return at_once([&](patience now) { return state_.lease(time, now); });
  }
  bool renew(lease_id lease) {
    return at_once([&](patience now) { return state_.renew(lease, now); });
  }
  void revoke(lease_id lease) {
    at_once([&](patience) { return state_.revoke(lease); });
  }

  store_news changes(const std::string& prefix, std::uint64_t after, patience wait) {
    std::unique_lock lock(alone_);
    const patience until = now() + std::min(wait, longest_store_wait);
    while (true) {
      const patience looked = now();
      end_leases(looked);
      store_news news = state_.changes(prefix, after);
      if (news.anew || !news.changes.empty() || looked >= until) return news;
      patience wake = until;
      if (const std::optional<patience> end = state_.next_end(); end && *end < wake) wake = *end;
      changed_.wait_until(lock, clock::time_point(wake));
    }
  }

 private:
  void end_leases(patience now) {
    while (const std::optional<lease_id> over = state_.over(now)) {
      state_.revoke(*over);
      changed_.notify_all();
    }
  }

  std::mutex alone_;
  std::condition_variable changed_;
  store_state state_;
};

}  // namespace reshard
