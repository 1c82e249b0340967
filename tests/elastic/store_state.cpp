// SPDX-License-Identifier: Apache-2.0
// A store as a value: whose time passes as the test says, and what it remembers and forgets.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <reshard/elastic/detail/store_state.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using ms = patience;

TEST_CASE("a lease ends when its time is over since it was made or renewed, and takes its keys along") {
  store_state s;
  CHECK_FALSE(s.next_end());
  const lease_id a = s.lease(ms(100), ms(1000)), b = s.lease(ms(50), ms(1000));
  CHECK(a == 1);
  CHECK(b == 2);
  CHECK(s.next_end() == ms(1050));
  CHECK(s.swap("x", "1", no_revision, a) == 1);
  CHECK(s.swap("y", "2", no_revision, a) == 2);
  CHECK(s.swap("z", "3", no_revision, b) == 3);
  CHECK(s.swap("y", "4", 1, b) == 0);
  CHECK(s.swap("y", "4", no_revision, b) == 0);
  CHECK(s.swap("y", "4", 2, b) == 4);  // b's now
  CHECK_FALSE(s.over(ms(1049)));
  CHECK(s.over(ms(1050)) == b);
  CHECK(s.renew(b, ms(1050)));
  CHECK(s.over(ms(1100)) == a);
  s.postpone(ms(1));
  CHECK_FALSE(s.over(ms(1100)));
  CHECK(s.over(ms(1101)) == a);
  CHECK(s.revoke(a));
  CHECK_FALSE(s.revoke(a));
  CHECK_FALSE(s.renew(a, ms(1101)));
  CHECK(s.swap("x", "5", no_revision, a) == 0);
  CHECK(s.list("").all == std::vector<stored>{{"y", "4", 4}, {"z", "3", 3}});
  CHECK(s.revoke(b));
  CHECK(s.changes("", 4).changes ==
        std::vector<store_change>{{{"x", "", 5}, true}, {{"y", "", 6}, true}, {{"z", "", 7}, true}});
  CHECK(s.lease(ms(1), ms(0)) == 3);  // none is used twice
  CHECK_REFUSED(s.lease(ms(-1), ms(0)), "a lease of -1 ms");
  CHECK_REFUSED(s.lease(longest_store_wait + ms(1), ms(0)), "a lease of 604800001 ms; it is of 1 to 604800000 ms");
  CHECK(s.lease(ms(1), ms(0)) == 4);
}

TEST_CASE("of several leases the one that ends first is the next; the longest is of a week") {
  store_state s;
  CHECK((s.last_lease() == no_lease && s.revision() == 0));
  const lease_id a = s.lease(ms(50), ms(0)), b = s.lease(ms(30), ms(0));
  CHECK(s.lease(ms(40), ms(0)) == b + 1);
  CHECK(s.next_end() == ms(30));
  CHECK(s.renew(b, ms(30)));
  CHECK(s.next_end() == ms(40));
  CHECK(s.renew(b + 1, ms(20)));
  CHECK(s.next_end() == ms(50));
  CHECK(s.over(ms(55)) == a);
  CHECK(s.leases().at(b).time == ms(30));
  CHECK(s.leases().at(b).ends == ms(60));
  s.postpone(ms(5));
  CHECK(s.next_end() == ms(55));
  CHECK(s.last_lease() == b + 1);
  CHECK(s.lease(longest_store_wait, ms(0)) == b + 2);
  CHECK(s.revision() == 0);
  CHECK(s.swap("a", "", no_revision, no_lease) == 1);
  CHECK(s.revision() == 1);
}

TEST_CASE("what is remembered of a change counts by its key and its value") {
  const std::string key(40, 'k'), value(40, 'v');
  store_state s(store_memory{100, 2 * (sizeof(store_change) + 80)});
  for (std::uint64_t r = 0; r < 2; ++r) CHECK(s.swap(key, value, r, no_lease) == r + 1);
  CHECK_FALSE(s.changes("", 0).anew);
  CHECK(s.swap(key, value, 2, no_lease) == 3);
  CHECK(s.changes("", 0).anew);
  CHECK_FALSE(s.changes("", 1).anew);
  CHECK(s.remove(key, 3));  // whose value is none
  CHECK(s.changes("", 1).anew);
  CHECK(s.changes("", 2).changes.size() == 2);
  CHECK(s.swap(key, value, no_revision, no_lease) == 5);
  CHECK(s.changes("", 2).anew);
  CHECK(s.changes("", 3).changes.size() == 2);
}

TEST_CASE("nobody removes a key that is not there, or by another revision than its own") {
  store_state s;
  CHECK_FALSE(s.remove("a", no_revision));
  CHECK(s.swap("a", "1", no_revision, no_lease) == 1);
  CHECK_FALSE(s.remove("a", no_revision));
  CHECK_FALSE(s.remove("a", 2));
  CHECK(s.revision() == 1);
  CHECK(s.remove("a", 1));
  CHECK(s.revision() == 2);
  CHECK_FALSE(s.read("a"));
}

TEST_CASE("a key that is removed or written without a lease goes with none") {
  store_state s;
  const lease_id a = s.lease(ms(100), ms(0));
  s.swap("x", "", no_revision, a);
  CHECK(s.remove("x", 1));
  CHECK(s.swap("x", "", no_revision, no_lease) == 3);
  CHECK(s.leases().at(a).keys.empty());
  s.revoke(a);
  CHECK(s.read("x"));
}

TEST_CASE("what is asked of before the changes that are remembered is told anew") {
  for (const store_memory memory : {store_memory{3, 1 << 20}, store_memory{100, 3 * sizeof(store_change) + 6}}) {
    store_state s(memory);
    for (std::uint64_t r = 0; r < 5; ++r)
      CHECK(s.swap("k" + std::to_string(r % 2), "", r < 2 ? 0 : r - 1, no_lease) == r + 1);
    const store_news all = s.changes("k", 2);
    CHECK_FALSE(all.anew);
    CHECK(all.revision == 5);
    REQUIRE(all.changes.size() == 3);
    CHECK(all.changes[0].now.revision == 3);
    const store_news anew = s.changes("k0", 1);
    CHECK(anew.anew);
    CHECK(anew.revision == 5);
    CHECK(anew.changes == std::vector<store_change>{{{"k0", "", 5}, false}});
    CHECK(s.changes("k", 6).anew);  // of another store, or of one that has lost something
    CHECK(s.changes("k", 5).changes.empty());
    CHECK_FALSE(s.changes("k", 5).anew);
  }
  store_state none(store_memory{0, 0});
  CHECK(none.swap("a", "b", no_revision, no_lease) == 1);
  CHECK(none.changes("", 0).anew);
}

TEST_CASE("a state that is read back counts on") {
  store_state s;
  s.restore(70, 4);
  s.grant(3, ms(10), ms(0));
  s.put({"a", "1", 60}, 3);
  CHECK(s.read("a") == stored{"a", "1", 60});
  CHECK(s.swap("a", "2", 60, no_lease) == 71);
  CHECK(s.lease(ms(10), ms(0)) == 5);
  CHECK(s.changes("", 69).anew);
  CHECK(s.changes("", 70).changes.size() == 1);
  s.revoke(3);
  CHECK(s.read("a") == stored{"a", "2", 71});
}
