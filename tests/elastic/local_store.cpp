// SPDX-License-Identifier: Apache-2.0
// A store in one process: what every store owes, and that a waiter is woken by what ends without anybody asking.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <reshard/elastic/local_store.hpp>

#include "../support/refused.hpp"
#include "../support/store_laws.hpp"

using namespace reshard;
using std::chrono::milliseconds;

static_assert(Store<local_store>);

TEST_CASE("what every store owes, in one process") {
  local_store store;
  const any_store s(store);
  testing::law_of_one(s);
  testing::law_of_leases(s, milliseconds(200));
  const testing::store_counts counts = testing::law_of_many({s, s, s, s}, s, 200);
  CHECK(counts.made == 800);
  CHECK(counts.unknown == 0);
}

TEST_CASE("a waiter is woken by a change, and by a lease that was made while it waited") {
  local_store store;
  std::vector<store_change> seen;
  std::thread waits([&] {
    for (std::uint64_t after = 0; seen.size() < 2;) {
      const store_news news = store.changes("a", after, longest_store_wait + milliseconds(1));
      after = news.revision;
      seen.insert(seen.end(), news.changes.begin(), news.changes.end());
    }
  });
  std::this_thread::sleep_for(milliseconds(20));  // it waits, most likely; else this finds less
  const auto began = std::chrono::steady_clock::now();
  while (store.swap("a", "", no_revision, store.lease(milliseconds(60))) == 0) continue;  // over before it was used
  waits.join();
  CHECK(std::chrono::steady_clock::now() - began >= milliseconds(59));
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(20));
  CHECK(seen == std::vector<store_change>{{{"a", "", 1}, false}, {{"a", "", 2}, true}});
}

TEST_CASE("two who wait for each other's changes wake each other, without a lease that would") {
  local_store store;
  const auto turn = [&](const char* own, const char* others, bool begins) {
    std::uint64_t after = 0, mine = no_revision;
    for (int n = 0; n < 100; ++n) {
      if (begins || n > 0) mine = store.swap(own, "", mine, no_lease);
      const store_news news = store.changes(others, after, std::chrono::seconds(20));
      if (news.changes.size() != 1) return false;
      after = news.revision;
    }
    if (!begins) store.swap(own, "", mine, no_lease);
    return true;
  };
  bool other = false;
  std::thread waits([&] { other = turn("b", "a", false); });
  CHECK(turn("a", "b", true));
  waits.join();
  CHECK(other);
}

TEST_CASE("whoever asks after the end of a lease finds its keys gone") {
  local_store store;
  const lease_id lease = store.lease(milliseconds(1));
  store.swap("a", "", no_revision, lease);
  std::this_thread::sleep_for(milliseconds(4));
  CHECK(store.list("").all.empty());
  CHECK_FALSE(store.renew(lease));
  CHECK_REFUSED(store.lease(milliseconds(0)), "a lease of 0 ms; it is of 1 to 604800000 ms");
}
