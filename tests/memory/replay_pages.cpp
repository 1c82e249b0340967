// SPDX-License-Identifier: Apache-2.0
// The replay of committed pages, by hand: what is live in each stage, and the peak.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <reshard/memory/pages.hpp>
#include <reshard/memory/replay_pages.hpp>

#include "../support/dice.hpp"

using namespace reshard;

namespace {

/// Pages of one binding, each an array of its own: page i is touched in stage[i], or by nobody where that is -1.
struct paged {
  page_range range;
  std::vector<std::byte> plain;
  binding bound;
  page_stages pages;

  static binding bind(page_range& range, std::vector<std::byte>& plain, const std::vector<index_t>& stage,
                      pages_are at_first) {
    binding b;
    for (std::size_t i = 0; i < stage.size(); ++i)
      b.add({1, {0, static_cast<index_t>(i), 0}, {{{0, 1}, {0, 1}, {0, 1024}}}},
            {range.data() + static_cast<index_t>(i) * page_bytes, page_bytes});
    if (!plain.empty()) {
      const index_t elements = static_cast<index_t>(plain.size()) / 4;
      b.add({2, {0, 0, 0}, {{{0, 1}, {0, 1}, {0, elements}}}}, {plain.data(), 4 * elements});
    }
    b.own(range, at_first);
    b.seal();
    return b;
  }
  /// `beside`: pages that hold what nobody reads beside what is read.
  paged(binding_side side, const std::vector<index_t>& stage, std::size_t outside = 0,
        pages_are at_first = pages_are::reserved, const std::set<index_t>& beside = {})
      : range(static_cast<std::int64_t>(stage.size()) * page_bytes), plain(outside),
        bound(bind(range, plain, stage, at_first)), pages(bound, side) {
    for (const bound_box& b : bound.boxes()) {
      if (b.state != 1 || stage[static_cast<std::size_t>(b.tensor.member)] < 0) continue;
      if (side == binding_side::source) pages.read(b, stage[static_cast<std::size_t>(b.tensor.member)]);
      else pages.written(b, stage[static_cast<std::size_t>(b.tensor.member)]);
    }
    for (const bound_box& b : bound.boxes())
      if (side == binding_side::source && b.state == 1 &&
          (stage[static_cast<std::size_t>(b.tensor.member)] < 0 || beside.contains(b.tensor.member)))
        pages.unread(b);
  }
};

void check(const memory_replay& found, bytes_t before, bytes_t after, bytes_t peak) {
  CHECK(found.before == before);
  CHECK(found.after == after);
  CHECK(found.peak == peak);
  CHECK(found.excess() == peak - std::max(before, after));
}

constexpr bytes_t page = page_bytes;
constexpr sources_go drained{sources::release, -1'000'000'000};  // no u keeps that, so what nobody reads goes first

}  // namespace

TEST_CASE("what arrives in a stage is there with what is read in it") {
  const paged from(binding_side::source, {0, 1, 2, 2}), to(binding_side::target, {0, 1, 1, 2});
  // stage 0: 4 + 1; stage 1: 3 + 1 + 2; stage 2: 2 + 3 + 1
  check(replay_pages(from.pages, to.pages, {3, 1, 0}, drained, {0, 0, 0}).memory, 4 * page, 4 * page, 6 * page);
  check(replay_pages(from.pages, to.pages, {3, 1, 0}, {sources::keep}, {0, 0, 0}).memory, 4 * page, 4 * page, 8 * page);
  check(replay_pages(from.pages, to.pages, {3, 1, 0}, drained, {}).memory, 4 * page, 4 * page, 6 * page);
}

TEST_CASE("what nobody reads goes before the first stage, and what nobody writes never comes") {
  const paged from(binding_side::source, {-1, -1, 0, -1}), to(binding_side::target, {0, -1, 0, -1});
  check(replay_pages(from.pages, to.pages, {1, 1, 0}, drained, {0}).memory, 4 * page, 2 * page, 4 * page);
  check(replay_pages(from.pages, to.pages, {1, 1, 0}, {sources::keep}, {0}).memory, 4 * page, 2 * page, 6 * page);
}

TEST_CASE("staging counts in its own stage") {
  const paged from(binding_side::source, {0, 0, 1}), to(binding_side::target, {0, 1, 1});
  // stage 0: 3 + 1; stage 1: 1 + 1 + 2
  check(replay_pages(from.pages, to.pages, {2, 1, 0}, drained, {0, 0}).memory, 3 * page, 3 * page, 4 * page);
  check(replay_pages(from.pages, to.pages, {2, 1, 0}, drained, {100, 0}).memory, 3 * page, 3 * page, 4 * page + 100);
  check(replay_pages(from.pages, to.pages, {2, 1, 0}, drained, {100, 300}).memory, 3 * page, 3 * page, 4 * page + 300);
  const paged late(binding_side::target, {1, 1, 1});  // stage 0: 3; stage 1: 1 + 3
  check(replay_pages(from.pages, late.pages, {2, 1, 0}, drained, {page + 1, 0}).memory, 3 * page, 3 * page,
        4 * page + 1);
}

TEST_CASE("memory outside blocks, and pages committed beforehand, are there all the time") {
  const paged from(binding_side::source, {0, 0}, 400), to(binding_side::target, {0}, 1000);
  check(replay_pages(from.pages, to.pages, {1, 1, 0}, drained, {0}).memory, 2 * page + 400, page + 1000,
        3 * page + 1400);
  const paged there(binding_side::target, {0, 1, 1}, 0, pages_are::committed);
  check(replay_pages(from.pages, there.pages, {2, 1, 0}, drained, {0, 0}).memory, 2 * page + 400, 3 * page,
        5 * page + 400);
}

TEST_CASE("the peak is at least what is there before and after") {
  const paged from(binding_side::source, {-1, -1, -1}), to(binding_side::target, {-1}),
      big(binding_side::target, {0, 0, 0, 0, 0});
  check(replay_pages(from.pages, to.pages, {1, 1, 0}, drained, {0}).memory, 3 * page, 0, 3 * page);
  check(replay_pages(to.pages, big.pages, {1, 1, 0}, drained, {0}).memory, page, 5 * page, 5 * page);
  const binding none;
  const page_stages nothing(none, binding_side::source), nowhere(none, binding_side::target);
  check(replay_pages(nothing, nowhere, {4, 1, 0}, drained, {0, 0, 0, 0}).memory, 0, 0, 0);
}

TEST_CASE("without a budget nothing goes before the end; with one what nobody reads stays as long as it keeps it") {
  // what is read, with what comes: 2 + 1, 2 + 2, 1 + 3; nobody reads two pages
  const paged from(binding_side::source, {-1, -1, 1, 2}), to(binding_side::target, {0, 1, 2});
  const page_replay all = replay_pages(from.pages, to.pages, {3, 1, 0}, {sources::release}, {});
  check(all.memory, 4 * page, 3 * page, 7 * page);
  CHECK(all.unread_kept == 3);
  for (const auto& [budget, u] :
       {std::pair(bytes_t{0}, 0), {page - 1, 0}, {page, 1}, {2 * page - 1, 1}, {2 * page, 3}}) {
    const page_replay found = replay_pages(from.pages, to.pages, {3, 1, 0}, {sources::release, budget}, {});
    CHECK(found.unread_kept == u);
    CHECK(found.memory.excess() <= budget);
  }
}

TEST_CASE("random pages against a count of every page in every slot, and of every u") {
  testing::dice random(31);
  int some_u = 0, all_u = 0;
  for (int round = 0; round < 300; ++round) {
    const index_t stages = random.within(1, 6), lag = random.below(3), slots = stages + lag;
    const auto some = [&](index_t below) {
      std::vector<index_t> stage(static_cast<std::size_t>(random.within(1, 12)));
      for (index_t& k : stage) k = random.within(-1, below - 1);
      return stage;
    };
    const std::vector<index_t> reads = some(stages), writes = some(slots);
    std::vector<bytes_t> staging;
    for (index_t k = 0; k < slots; ++k) staging.push_back(random.below(3) * 5000);
    std::set<index_t> beside;
    bytes_t unread = 0, before = static_cast<bytes_t>(reads.size()) * page, after = 0;
    for (std::size_t i = 0; i < reads.size(); ++i) {
      if (reads[i] < 0 || random.below(4) == 0) beside.insert(static_cast<index_t>(i));
      unread += beside.contains(static_cast<index_t>(i)) ? page : 0;
    }
    for (const index_t w : writes) after += w >= 0 ? page : 0;
    const paged from(binding_side::source, reads, 0, pages_are::reserved, beside), to(binding_side::target, writes);
    const auto peak = [&](index_t u, bool stay) {  // what nobody reads goes with the sources of stage u - 1
      bytes_t most = std::max(before, after);
      for (index_t slot = 0; slot < slots; ++slot) {
        bytes_t bytes = staging[static_cast<std::size_t>(slot)];
        for (std::size_t i = 0; i < reads.size(); ++i) {
          const index_t last = beside.contains(static_cast<index_t>(i)) ? std::max(reads[i], u - 1) : reads[i];
          bytes += stay || (last >= 0 && last + 2 * lag >= slot) ? page : 0;
        }
        for (const index_t w : writes) bytes += w >= 0 && w <= slot ? page : 0;
        most = std::max(most, bytes);
      }
      return most;
    };
    check(replay_pages(from.pages, to.pages, {stages, 1, lag}, drained, staging).memory, before, after, peak(0, false));
    for (const sources_go& stay : {sources_go{sources::keep}, sources_go{sources::keep, 5}, sources_go{}})
      check(replay_pages(from.pages, to.pages, {stages, 1, lag}, stay, staging).memory, before, after, peak(0, true));
    const bytes_t budget = random.below(peak(0, true) - std::max(before, after) + page);
    const page_replay found = replay_pages(from.pages, to.pages, {stages, 1, lag}, {sources::release, budget}, staging);
    index_t u = stages;
    while (u > 0 && peak(u, false) > std::max(before, after) + budget) --u;
    CHECK(found.unread_kept == u);
    CHECK(found.memory.peak == peak(u, false));
    some_u += unread > 0 && u > 0 && u < stages ? 1 : 0, all_u += unread > 0 && u == stages ? 1 : 0;
  }
  CHECK_DRAWN(some_u > 5);
  CHECK_DRAWN(all_u > 20);
}

TEST_CASE("what is passed on goes two lags after its last reader, or where it is held after the last; it is not kept") {
  testing::dice random(32);
  int early = 0, outside_met = 0;
  for (int round = 0; round < 300; ++round) {
    const index_t stages = random.within(1, 6), lag = random.below(3), slots = stages + lag;
    std::vector<index_t> reads, writes, passed_first, passed_last;
    for (index_t n = random.within(1, 6); n > 0; --n) reads.push_back(random.below(stages));
    for (index_t n = random.within(1, 6); n > 0; --n) writes.push_back(random.below(slots));
    for (index_t n = random.within(1, 6); n > 0; --n) {
      passed_first.push_back(random.below(slots));
      passed_last.push_back(random.within(passed_first.back(), slots - 1));
    }
    std::vector<index_t> all_writes = writes;  // pages of the arena are among the target's
    all_writes.insert(all_writes.end(), passed_first.begin(), passed_first.end());
    const auto beside_from = static_cast<std::size_t>(4 * random.below(200)),
               beside_to = static_cast<std::size_t>(4 * random.below(200));
    const paged from(binding_side::source, reads, beside_from), to(binding_side::target, all_writes, beside_to),
        arena(binding_side::source, passed_last);
    const bytes_t outside = static_cast<bytes_t>(beside_from + beside_to);
    for (const bool held : {false, true})
      for (const bool drains : {false, true}) {
        const bytes_t before = static_cast<bytes_t>(reads.size()) * page + static_cast<bytes_t>(beside_from),
                      after = static_cast<bytes_t>(writes.size()) * page + static_cast<bytes_t>(beside_to);
        bytes_t most = std::max(before, after);
        for (index_t slot = 0; slot < slots; ++slot) {
          bytes_t bytes = outside;
          for (const index_t k : reads) bytes += !drains || k + 2 * lag >= slot ? page : 0;
          for (const index_t w : writes) bytes += w <= slot ? page : 0;
          for (std::size_t i = 0; i < passed_first.size(); ++i) {
            bytes += passed_first[i] <= slot && (held || slot <= passed_last[i] + 2 * lag) ? page : 0;
            early += !held && passed_last[i] + 2 * lag < slots - 1 ? 1 : 0;
          }
          most = std::max(most, bytes);
        }
        const sources_go go = drains ? drained : sources_go{sources::keep};
        check(replay_pages(from.pages, to.pages, {stages, 1, lag}, go, {}, {&arena.pages, held}).memory, before, after,
              most);
        outside_met += outside > 0 ? 1 : 0;
      }
  }
  for (const int seen : {early, outside_met}) CHECK_DRAWN(seen > 100);
}

TEST_CASE("sources that are kept go with no stage, whatever the budget") {
  const paged from(binding_side::source, {-1, 0, 1}), to(binding_side::target, {0, 1, 2});
  for (const bytes_t budget : {bytes_t{0}, page, no_budget}) {
    const page_replay kept = replay_pages(from.pages, to.pages, {3, 1, 0}, {sources::keep, budget}, {});
    check(kept.memory, 3 * page, 3 * page, 6 * page);
    CHECK(kept.unread_kept == 3);
  }
}
