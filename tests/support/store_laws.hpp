// SPDX-License-Identifier: Apache-2.0
// What every store owes who asks it: by one caller, question by question; and by many at the same time, from what each
// was answered and what all saw change.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <reshard/elastic/store.hpp>

namespace testing {

using std::chrono::milliseconds;

/// Revisions never fall; no key changes twice in one.
inline void check_order(const std::vector<reshard::store_change>& changes, std::uint64_t after) {
  std::map<std::string, std::uint64_t> last;
  for (const reshard::store_change& c : changes) {
    CHECK(c.now.revision >= after);
    CHECK(last[c.now.key] < c.now.revision);
    last[c.now.key] = after = c.now.revision;
  }
}

/// Asks until the store answers; a minute long, so that one which never does is told.
template <typename Ask>
auto insist(Ask&& ask) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (true) try {
      return ask();
    } catch (const reshard::store_unreachable&) {
      if (std::chrono::steady_clock::now() > until) throw;
    }
}

/// The sentence with which a store does not answer; "answered" where it does.
template <typename Ask>
std::string unreachable(Ask&& ask) {
  try {
    ask();
  } catch (const reshard::store_unreachable& e) {
    return e.what();
  }
  return "answered";
}

inline void law_of_one(const reshard::any_store& s) {
  using namespace reshard;
  const std::uint64_t begin = s.list("one/").revision;
  CHECK(s.list("one/").all.empty());
  CHECK_FALSE(s.read("one/a"));
  CHECK(s.swap("one/a", "x", begin + 100) == 0);  // it is not there
  const std::uint64_t first = s.swap("one/a", "x", no_revision);
  CHECK(first > begin);
  CHECK(s.swap("one/a", "y", no_revision) == 0);
  CHECK(s.read("one/a") == stored{"one/a", "x", first});
  const std::string odd("\0\xFF\n\"\\ \xC3\xA4", 8);  // any bytes
  const std::uint64_t second = s.swap("one/a", odd, first);
  CHECK(second > first);
  CHECK(s.swap("one/a", "z", first) == 0);
  CHECK(s.read("one/a") == stored{"one/a", odd, second});
  const std::uint64_t third = s.swap("one/b" + odd, "", no_revision);
  const std::uint64_t outside = s.swap("onf", "", no_revision);
  CHECK(outside > third);
  const stored_list all = s.list("one/");
  REQUIRE(all.all.size() == 2);
  CHECK(all.all[0] == stored{"one/a", odd, second});
  CHECK(all.all[1] == stored{"one/b" + odd, "", third});
  CHECK(all.revision >= outside);
  CHECK(s.list("").all.size() >= 3);

  CHECK_FALSE(s.remove("one/a", first));
  CHECK_FALSE(s.remove("one/a", no_revision));
  CHECK_FALSE(s.remove("one/none", no_revision));
  CHECK(s.remove("one/a", second));
  CHECK_FALSE(s.remove("one/a", second));
  CHECK_FALSE(s.read("one/a"));
  CHECK(s.swap("one/a", "again", second) == 0);
  const std::uint64_t again = s.swap("one/a", "again", no_revision);

  const store_news news = s.changes("one/", begin, milliseconds(0));
  CHECK_FALSE(news.anew);
  CHECK(news.revision >= again);
  REQUIRE(news.changes.size() == 5);
  CHECK(news.changes[0] == store_change{{"one/a", "x", first}, false});
  CHECK(news.changes[1] == store_change{{"one/a", odd, second}, false});
  CHECK(news.changes[2] == store_change{{"one/b" + odd, "", third}, false});
  CHECK(news.changes[3].removed);
  CHECK(news.changes[3].now.key == "one/a");
  CHECK(news.changes[3].now.value.empty());
  CHECK(news.changes[4] == store_change{{"one/a", "again", again}, false});
  check_order(news.changes, begin + 1);
  CHECK(s.changes("one/", first, milliseconds(0)).changes.size() == 4);  // what followed it, not it

  // Nothing: it has waited, and goes on from a revision that is no earlier.
  const auto asked = std::chrono::steady_clock::now();
  const store_news none = s.changes("one/", news.revision, milliseconds(120));
  CHECK(std::chrono::steady_clock::now() - asked >= milliseconds(120));
  CHECK(none.changes.empty());
  CHECK_FALSE(none.anew);
  CHECK(none.revision >= news.revision);
  s.remove("onf", outside);
}

/// Whether this machine was fast enough to say anything of leases that are as short.
inline bool leases_end_and_are_renewed(const reshard::any_store& s, reshard::patience shortest, const std::string& in) {
  using namespace reshard;
  using clock = std::chrono::steady_clock;
  const std::uint64_t begin = s.list("").revision;
  const auto began = clock::now();
  const lease_id kept = s.lease(shortest), left = s.lease(shortest), given_up = s.lease(milliseconds(600'000));
  const std::uint64_t stays = s.swap(in + "stays", "s", no_revision, left);
  const bool written = s.swap(in + "kept", "k", no_revision, kept) != 0 &&
                       s.swap(in + "a", "a", no_revision, left) != 0 && s.swap(in + "b", "b", no_revision, left) != 0 &&
                       s.swap(in + "given up", "g", no_revision, given_up) != 0 &&
                       s.swap(in + "stays", "of none", stays) != 0;  // goes with the lease no longer
  s.revoke(given_up);
  if (clock::now() - began > shortest / 2) return false;
  CHECK(kept != no_lease);
  CHECK(left != kept);
  CHECK(written);
  CHECK_FALSE(s.read(in + "given up"));
  CHECK_FALSE(s.renew(given_up));
  CHECK(s.swap(in + "late", "l", no_revision, given_up) == 0);
  s.revoke(given_up);  // it is over: so be it

  // One is renewed, from another thread; nobody else asks while the other one ends.
  std::atomic<bool> ended = false;
  int renewals = 0;
  clock::duration longest{};
  auto last = began;
  std::thread renews([&] {
    while (!ended) try {
        renewals += s.renew(kept);
        longest = std::max(longest, clock::now() - std::exchange(last, clock::now()));
        std::this_thread::sleep_for(shortest / 8);
      } catch (const store_unreachable&) {
      }
  });
  std::vector<store_change> seen;
  long removed = 0;
  for (std::uint64_t after = begin; removed < 3 && clock::now() - began < 10 * shortest + std::chrono::seconds(10);) {
    store_news news = insist([&] { return s.changes(in, after, milliseconds(60'000)); });
    CHECK_FALSE(news.anew);
    after = news.revision;
    for (const store_change& c : news.changes) removed += c.removed;
    seen.insert(seen.end(), news.changes.begin(), news.changes.end());
  }
  const bool there = insist([&] { return s.read(in + "kept"); }).has_value();
  ended = true;
  renews.join();
  if (std::max(longest, clock::now() - last) > shortest * 3 / 4) return false;  // it may not have had a turn at all
  CHECK(there);
  CHECK(renewals > 0);
  CHECK(removed == 3);  // given up, a and b
  CHECK(seen.size() == 9);
  check_order(seen, begin + 1);
  CHECK_FALSE(s.renew(left));
  CHECK_FALSE(s.read(in + "a"));
  CHECK_FALSE(s.read(in + "b"));
  CHECK(s.read(in + "stays"));
  return true;
}

/// `shortest`: a lease that lasts no longer than the store lets it; where the machine is too slow for it, a longer one.
inline void law_of_leases(const reshard::any_store& s, reshard::patience shortest) {
  for (int tries = 0; tries < 5; ++tries, shortest *= 2)
    if (leases_end_and_are_renewed(s, shortest, "leases/" + std::to_string(tries) + "/")) return;
  FAIL("this machine is too slow for any lease");
}

/// What callers were told of their swaps.
struct told_swap {
  std::string key, value;
  std::uint64_t expected = 0, revision = 0;
  enum { made, refused, unknown } what = unknown;
};
struct store_counts {
  long made = 0, refused = 0, unknown = 0, unknown_made = 0, changes = 0;
};

/// Each of some threads, with a store of its own, swaps values that occur once into three keys, until it was told of so
/// many that they were made; `watcher` sees the changes meanwhile, and during() happens.
template <typename During>
store_counts law_of_many(const std::vector<reshard::any_store>& stores, const reshard::any_store& watcher,
                         int made_each, During&& during) {
  using namespace reshard;
  const std::uint64_t begin = insist([&] { return watcher.list("many/").revision; });
  std::vector<std::vector<told_swap>> told(stores.size());
  std::vector<std::thread> threads;
  std::atomic<bool> done = false;
  std::vector<store_change> seen;
  std::atomic<int> anew = 0;
  std::vector<std::string> wrong(stores.size() + 1);  // what a thread was told beside that nobody answers
  std::thread watches([&] {
    std::uint64_t after = begin;
    for (bool last = false; !last;) try {
        last = done;  // what is asked after the end sees all of it
        const store_news news = insist([&] { return watcher.changes("many/", after, milliseconds(last ? 0 : 50)); });
        anew += news.anew;
        after = news.revision;
        seen.insert(seen.end(), news.changes.begin(), news.changes.end());
      } catch (const std::exception& e) {
        wrong.back() = e.what();
      }
  });
  for (std::size_t t = 0; t < stores.size(); ++t)
    threads.emplace_back([&, t] {
      const any_store& s = stores[t];
      for (int made = 0, i = 0; made < made_each && wrong[t].empty(); ++i) try {
          const std::string key = "many/" + std::to_string(i % 3);
          const std::optional<stored> now = insist([&] { return s.read(key); });
          told_swap swap{key, std::to_string(t) + ":" + std::to_string(i), now ? now->revision : no_revision};
          try {
            swap.revision = s.swap(key, swap.value, swap.expected);
            swap.what = swap.revision == 0 ? told_swap::refused : told_swap::made;
            made += swap.what == told_swap::made;
          } catch (const store_unreachable&) {
          }
          told[t].push_back(swap);
        } catch (const std::exception& e) {
          wrong[t] = e.what();
        }
    });
  during();
  for (std::thread& t : threads) t.join();
  done = true;
  watches.join();

  for (const std::string& what : wrong) CHECK(what == "");
  CHECK(anew == 0);
  check_order(seen, begin + 1);
  store_counts counts;
  counts.changes = static_cast<long>(seen.size());
  std::map<std::string, std::vector<std::pair<std::uint64_t, std::uint64_t>>> changed;  // by value: before it, and its
  std::map<std::string, stored> last;
  for (const store_change& c : seen) {
    CHECK_FALSE(c.removed);
    changed[c.now.value].emplace_back(last[c.now.key].revision, c.now.revision);
    last[c.now.key] = c.now;
  }
  for (const auto& one : changed) CHECK_MESSAGE(one.second.size() == 1, one.first);
  for (const auto& of : told) {
    std::uint64_t before = begin;
    for (const told_swap& s : of) {
      const auto at = changed.find(s.value);
      const bool there = at != changed.end();
      if (s.what == told_swap::made) {
        ++counts.made;
        CHECK(s.revision > before);
        before = s.revision;
        CHECK_MESSAGE((there && at->second.front() == std::pair(s.expected, s.revision)), s.value);
      } else if (s.what == told_swap::refused) {
        ++counts.refused;
        CHECK_MESSAGE(!there, s.value);
      } else {
        ++counts.unknown;
        counts.unknown_made += there;
        if (there) CHECK(at->second.front().first == s.expected);
      }
    }
  }
  CHECK(counts.changes == counts.made + counts.unknown_made);
  CHECK(last.size() == 3);
  for (const auto& one : last) CHECK(insist([&] { return watcher.read(one.first); }) == one.second);
  return counts;
}
inline store_counts law_of_many(const std::vector<reshard::any_store>& stores, const reshard::any_store& watcher,
                                int made_each) {
  return law_of_many(stores, watcher, made_each, [] {});
}

}  // namespace testing
