// SPDX-License-Identifier: Apache-2.0
// Whether all pairs of devices will exchange the same, and the sentence where they will not: by hand, and random worlds
// with one pair, or one device, that differs.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <reshard/transport/exchange/disagreement.hpp>
#include <reshard/transport/threads/rendezvous.hpp>

#include "../support/dice.hpp"

using namespace reshard;
using digests = std::vector<peer_digests>;

namespace {

/// What each device of a world hears.
std::vector<std::string> heard_by_all(const std::vector<digests>& all) {
  const auto devices = static_cast<rank_t>(all.size());
  std::vector<std::string> said(all.size());
  rendezvous meeting(devices, std::chrono::seconds(30));
  std::vector<std::thread> threads;
  for (rank_t d = 0; d < devices; ++d)
    threads.emplace_back([&, d] {
      meeting_of_threads mine(meeting, d);
      said[static_cast<std::size_t>(d)] = disagreement_of(mine, all[static_cast<std::size_t>(d)]);
    });
  for (std::thread& t : threads) t.join();
  return said;
}

std::string sentence(rank_t first, rank_t second, index_t differs, index_t devices) {
  return "device " + std::to_string(first) + " and device " + std::to_string(second) +
         " differ in what they will exchange; device " + std::to_string(first) + " differs from " +
         std::to_string(differs) + " of " + std::to_string(devices - 1) +
         " others. All devices want the same layouts, lists, placements, states, budget, build of the library and way "
         "to "
         "exchange: exchange_as and round_bytes";
}

}  // namespace

TEST_CASE("digests as text and back, whatever they are") {
  const digests all = {{3, 0, 18446744073709551615u}, {0, 7, 0}, {12, 5, 6}};
  CHECK(detail::text_of_digests(all) == "3 0 18446744073709551615;0 7 0;12 5 6;");
  for (const digests& some : {all, digests{}, digests{{1, 2, 3}}}) {
    const digests back = detail::digests_of_text(detail::text_of_digests(some));
    REQUIRE(back.size() == some.size());
    for (std::size_t i = 0; i < some.size(); ++i) {
      CHECK(back[i].peer == some[i].peer);
      CHECK(back[i].out == some[i].out);
      CHECK(back[i].in == some[i].in);
    }
  }
  for (const char* const torn : {"1", "1 ", "1 2", "1 2 3", "1 2 3;4", "1 2 3;4 "}) {  // of another build, say
    const digests some = detail::digests_of_text(torn);
    CHECK(some.size() == (std::string(torn).find(';') == std::string::npos ? 1u : 2u));
    CHECK(some[0].peer == 1);
  }
}

TEST_CASE("an addend is of both ends and the digest, and none where there is nothing") {
  CHECK(detail::addend_of(1, 2, 0) == 0);
  CHECK(detail::addend_of(1, 2, 5) != 0);
  digest by_hand;
  by_hand.add(1), by_hand.add(2), by_hand.add(5);
  CHECK(detail::addend_of(1, 2, 5) == by_hand.value());
  CHECK(detail::addend_of(1, 2, 5) != detail::addend_of(2, 1, 5));
  CHECK(detail::addend_of(1, 2, 5) != detail::addend_of(1, 3, 5));
  CHECK(detail::addend_of(1, 2, 5) != detail::addend_of(4, 2, 5));
  CHECK(detail::addend_of(1, 2, 5) != detail::addend_of(1, 2, 6));
}

TEST_CASE(
    "where two differ they are named; one that differs from more than any other is named first, else the lower one") {
  const digests of_0 = {{1, 10, 20}, {2, 30, 0}}, of_1 = {{0, 20, 10}, {2, 5, 6}}, of_2 = {{0, 0, 30}, {1, 6, 5}};
  CHECK(heard_by_all({of_0, of_1, of_2}) == std::vector<std::string>(3));
  const auto all_hear = [](const std::vector<digests>& all, const std::string& what) {
    for (const std::string& said : heard_by_all(all)) CHECK(said == what);
  };
  all_hear({of_0, of_1, {{0, 0, 30}, {1, 6, 4}}}, sentence(1, 2, 1, 3));
  all_hear({of_0, {{0, 21, 10}, {2, 5, 6}}, of_2}, sentence(0, 1, 1, 3));
  all_hear({of_0, {{0, 20, 11}, {2, 5, 6}}, of_2}, sentence(0, 1, 1, 3));
  all_hear({of_0, of_1, {{0, 0, 31}, {1, 7, 5}}}, sentence(2, 0, 2, 3));
  all_hear({of_0, {{0, 21, 10}, {2, 4, 6}}, of_2}, sentence(1, 0, 2, 3));
  all_hear({{{1, 11, 20}, {2, 31, 0}}, of_1, of_2}, sentence(0, 1, 2, 3));
  all_hear({of_0, {{0, 20, 10}}, of_2}, sentence(2, 1, 1, 3));  // who alone knows of it is first
  all_hear({{{2, 30, 0}}, of_1, of_2}, sentence(1, 0, 1, 3));
  all_hear({of_0, of_1, of_2, {{1, 5, 0}}}, sentence(3, 1, 1, 4));
  all_hear({of_0, {{0, 20, 10}, {2, 5, 6}, {9, 1, 1}}, {{0, 1, 30}, {1, 6, 5}}}, sentence(0, 2, 1, 3));  // 9 is nobody
}

TEST_CASE("of pairs that differ alike the first is named, and what is said of oneself or of nobody is not looked at") {
  // 0 and 1 differ, and so do 2 and 3
  CHECK(detail::sentence_of_pairs({{{1, 5, 6}}, {{0, 6, 4}}, {{3, 7, 8}}, {{2, 8, 9}}}) == sentence(0, 1, 1, 4));
  // 2 differs from 1 and 3, and agrees with 0
  CHECK(detail::sentence_of_pairs({{{2, 10, 20}}, {{2, 5, 6}}, {{0, 20, 10}, {1, 6, 4}, {3, 9, 8}}, {{2, 8, 7}}}) ==
        sentence(2, 1, 2, 4));
  CHECK(detail::sentence_of_pairs({{{1, 10, 20}}, {{0, 20, 10}, {1, 5, 6}, {2, 3, 4}}, {{1, 4, 2}, {3, 1, 1}}}) ==
        sentence(1, 2, 1, 3));
}

namespace {
/// Device 1 of three, in a world that does not agree: what it brings is kept, what the others say is given.
struct middle_device {
  std::vector<proposal> brought = {};
  std::vector<std::string> said = {}, others = {};

  rank_t device() const { return 1; }
  rank_t devices() const { return 3; }
  patience waits() const { return {}; }
  std::vector<rank_t> absent() const { return {}; }
  agreement agree(const proposal& mine) {
    brought.push_back(mine);
    return {0, 77, -1, ""};
  }
  std::vector<std::string> gather(const std::string& text) {
    said.push_back(text);
    return {others[0], text, others[1]};
  }
  void confirm(index_t) {}
  index_t confirmed() const { return 0; }
  bool in_place(index_t) const { return false; }
  std::vector<rank_t> behind(index_t) const { return {}; }
  void poll() {}
  void require_whole() {}
  void give_up(const std::string&) {}
  void fail(const std::string&) {}
};
}  // namespace

TEST_CASE("a device brings what it sends, less what it receives, and says its digests where the sum is not 0") {
  middle_device here;
  here.others = {"1 10 20;", "1 6 4;"};
  CHECK(disagreement_of(here, {{0, 20, 10}, {2, 5, 6}}) == sentence(1, 2, 1, 3));
  REQUIRE(here.brought.size() == 1);
  CHECK(here.brought[0].number == 0);
  CHECK(here.brought[0].sentence.empty());
  CHECK(here.brought[0].addend == detail::addend_of(1, 0, 20) - detail::addend_of(0, 1, 10) +
                                      detail::addend_of(1, 2, 5) - detail::addend_of(2, 1, 6));
  CHECK(here.said == std::vector<std::string>{"0 20 10;2 5 6;"});
}

TEST_CASE(
    "random worlds: in one that agrees nothing is said, and in one where a device differs from several it is named") {
  testing::dice random(77);
  int agreed = 0, odd = 0, pairs = 0;
  for (int n = 0; n < 60; ++n) {
    const auto devices = random.within(2, 7);
    std::vector<digests> all(static_cast<std::size_t>(devices));
    for (rank_t a = 0; a < devices; ++a)
      for (rank_t b = a + 1; b < devices; ++b) {
        if (random.below(4) == 0) continue;
        const auto out = static_cast<std::uint64_t>(random.within(0, 1'000'000)),
                   in = static_cast<std::uint64_t>(random.within(1, 1'000'000));
        all[static_cast<std::size_t>(a)].push_back({b, out, in});
        all[static_cast<std::size_t>(b)].push_back({a, in, out});
      }
    for (const std::string& said : heard_by_all(all)) CHECK(said.empty());
    ++agreed;
    const auto who = static_cast<std::size_t>(random.below(devices));
    if (all[who].empty()) continue;
    const bool several = all[who].size() > 1 && random.below(2) == 0;
    for (std::size_t i = 0; i < (several ? all[who].size() : 1); ++i)
      (random.below(2) == 0 ? all[who][i].out : all[who][i].in) ^= 1u << random.below(20);
    const auto differs = static_cast<index_t>(several ? all[who].size() : 1);
    const rank_t me = static_cast<rank_t>(who), peer = all[who][0].peer;
    const std::string expected =
        several ? sentence(me, peer, differs, devices) : sentence(std::min(me, peer), std::max(me, peer), 1, devices);
    (several ? odd : pairs) += 1;
    for (const std::string& said : heard_by_all(all)) CHECK(said == expected);
  }
  CHECK(agreed == 60);
  CHECK_DRAWN(odd > 5);
  CHECK_DRAWN(pairs > 5);
}
