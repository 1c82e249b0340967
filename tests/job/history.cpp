// SPDX-License-Identifier: Apache-2.0
// Ten thousand random histories of worlds, batches and undone steps, of samples and of tokens, against a walk that
// takes one sample after the other: every sample of a history once, in order, by the rank that dealing gives it.
#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <span>
#include <string>

#include <reshard/job/documents.hpp>
#include <reshard/job/history.hpp>
#include <reshard/job/order.hpp>
#include <reshard/job/small_state.hpp>

#include "../oracle/job_walk.hpp"
#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice;

namespace {

constexpr index_t most = std::numeric_limits<index_t>::max();

/// How often what makes histories differ occurred.
struct tally {
  int histories = 0, steps = 0, undone = 0, undone_all = 0, undivided = 0, empty_shares = 0, tokens = 0, passes = 0;
};

/// Every step that stands, rank by rank, and the elements that its samples are in a set gone through in passes.
void check_same(const step_history& history, const oracle::walked_job& walked, tally& seen) {
  REQUIRE(history.version() == static_cast<index_t>(walked.steps.size()));
  REQUIRE(history.cursor() == walked.at);
  index_t reached = history.cursor(0), wrong = 0;
  for (index_t s = 0; s < history.version(); ++s) {
    const oracle::walked_step& step = walked.steps[static_cast<std::size_t>(s)];
    wrong += history.cursor(s) != step.began ? 1 : 0;
    std::size_t next = 0;
    const rank_t ranks = history.run_of(s).ranks;
    for (rank_t r = 0; r < ranks; ++r) {
      const interval share = history.share(s, r);
      wrong += share.begin != reached ? 1 : 0;
      seen.empty_shares += share.empty() ? 1 : 0;
      for (; reached < share.end && next < step.samples.size(); ++next) {
        wrong += step.samples[next].rank != r || step.samples[next].begin != reached ? 1 : 0;
        reached += step.samples[next].length;
      }
      wrong += reached != share.end ? 1 : 0;
    }
    wrong += next != step.samples.size() ? 1 : 0;
  }
  CHECK(wrong == 0);
  CHECK(reached == walked.at);
}

void check_one(dice& random, tally& seen) {
  const index_t start = random.coin() ? 0 : random.below(1000);
  const bool tokens = random.coin();
  step_history history(start);
  oracle::walked_job walked{start, {}};
  for (index_t changes = random.within(1, 6); changes > 0; --changes) {
    const rank_t ranks = random.within(1, 64);
    const index_t batch = random.below(4) == 0 ? random.within(1, 20) : random.within(1, 200);
    const index_t length = tokens ? random.within(1, 9) : 1, count = random.within(0, 4);
    history.add(ranks, batch, count, length);
    for (index_t i = 0; i < count; ++i) walked.step(ranks, batch, length);
    seen.steps += static_cast<int>(count);
    seen.undivided += batch % ranks != 0 ? 1 : 0;
    if (random.below(3) != 0) continue;
    const index_t to = random.below(history.version() + 1);
    seen.undone += to < history.version() ? 1 : 0;
    seen.undone_all += to == 0 && history.version() > 0 ? 1 : 0;
    history.undo_to(to);
    while (static_cast<index_t>(walked.steps.size()) > to) walked.undo();
  }
  ++seen.histories;
  seen.tokens += tokens ? 1 : 0;
  check_same(history, walked, seen);
}

}  // namespace

TEST_CASE("ten thousand histories are what a walk of their samples is") {
  dice random;
  tally seen;
  for (int i = 0; i < testing::thrown(testing::tries(10'000)); ++i) check_one(random, seen);
  MESSAGE(seen.histories << " histories, " << seen.tokens << " of tokens: " << seen.steps << " steps; " << seen.undone
                         << " times undone, " << seen.undone_all << " of these wholly; " << seen.undivided
                         << " runs of a batch that does not divide, " << seen.empty_shares << " shares of nothing");
  CHECK_DRAWN(seen.tokens * 3 > seen.histories);
  CHECK_DRAWN(seen.undone * 3 > seen.histories);
  CHECK_DRAWN(seen.undone_all * 20 > seen.histories);
  CHECK_DRAWN(seen.undivided > seen.histories);
  CHECK_DRAWN(seen.empty_shares > seen.histories);
}

TEST_CASE("in passes over a set, a pass has every element once, whatever the worlds were") {
  dice random(1);
  for (int i = 0; i < testing::tries(200); ++i) {
    const sample_set set{random.within(1, 60), random.bits()};
    step_history history;
    while (history.cursor() < 5 * set.size) history.add(random.within(1, 9), random.within(1, 80), random.within(1, 3));
    std::vector<int> times(static_cast<std::size_t>(set.size) * 5);
    for (index_t s = 0; s < history.version(); ++s)
      for (rank_t r = 0; r < history.run_of(s).ranks; ++r)
        for (index_t p = history.share(s, r).begin; p < history.share(s, r).end && p < 5 * set.size; ++p)
          ++times[static_cast<std::size_t>(set.pass_of(p) * set.size + set.element(p))];
    CHECK(times == std::vector<int>(times.size(), 1));
  }
}

TEST_CASE("versions, and what is refused with nothing changed") {
  step_history h(7);
  CHECK(h.version() == 0);
  CHECK(h.cursor(0) == 7);
  h.add(3, 10, 2);
  h.add(2, 4, 0);
  h.add(2, 4, 3, 5);
  CHECK(h.runs().size() == 2);
  CHECK(h.runs()[1] == step_run{.first = 2, .count = 3, .ranks = 2, .batch = 4, .length = 5, .begin = 27});
  CHECK(h.cursor(1) == 17);
  CHECK(h.cursor(3) == 47);
  CHECK(h.cursor() == 87);
  CHECK(h.share(2, 1) == interval{37, 47});
  const step_history before = h;
  CHECK_REFUSED(h.add(1, most), "do not fit 64 bits");
  CHECK_REFUSED(h.add(1, 1, most), "history: 9223372036854775807 steps of 1 from 87 do not fit 64 bits");
  CHECK_REFUSED(h.add(1, 1, -1), "history: -1 steps more; there is at least 0");
  CHECK_REFUSED(h.add(0, 1), "cursor: 0 ranks; there is at least 1");
  CHECK_REFUSED(h.undo_to(6), "history: it cannot go back to version 6; versions are 0 to 5");
  CHECK_REFUSED(h.undo_to(-1), "history: it cannot go back to version -1");
  CHECK_REFUSED(h.cursor(6), "history: there is no version 6; they are 0 to 5");
  CHECK_REFUSED(h.share(5, 0), "history: there is no step 5; it has 5 steps");
  CHECK_REFUSED(h.share(0, 3), "cursor: there is no rank 3; ranks are 0 to 2");
  CHECK_REFUSED(step_history(-1), "history: it starts at -1, and data count from 0");
  CHECK_REFUSED(h.cursor(-1), "history: there is no version -1; they are 0 to 5");
  CHECK_REFUSED(h.run_of(-1), "history: there is no step -1; it has 5 steps");
  CHECK_REFUSED(h.share(0, -1), "cursor: there is no rank -1; ranks are 0 to 2");
  CHECK_REFUSED(h.add(1, 0), "cursor: a batch of 0 samples; it has at least 1");
  CHECK_REFUSED(h.add(1, 1, 1, 0), "cursor: sequences of 0 tokens; they have at least 1");
  CHECK(h == before);
  h.undo_to(5);
  CHECK(h == before);
  h.undo_to(3);
  CHECK(h.version() == 3);
  CHECK(h.cursor() == 47);
  h.undo_to(2);
  CHECK(h.runs().size() == 1);
  h.undo_to(0);
  CHECK(h == step_history(7));
}

TEST_CASE("each version that a history of three runs can go back to, and what is added there") {
  step_history whole(3);
  whole.add(2, 5, 2);
  whole.add(3, 4, 1, 2);
  whole.add(1, 6, 3);
  const index_t began[] = {3, 8, 13, 21, 27, 33, 39};
  const rank_t ranks[] = {2, 2, 3, 1, 1, 1};
  for (index_t to = 0; to <= 6; ++to) {
    step_history back = whole;
    back.undo_to(to);
    CHECK(back.version() == to);
    CHECK(back.cursor() == began[to]);
    CHECK(back.runs().size() == (to == 0 ? 0u : to <= 2 ? 1u : to == 3 ? 2u : 3u));
    for (index_t v = 0; v <= to; ++v) CHECK(back.cursor(v) == began[v]);
    for (index_t s = 0; s < to; ++s) CHECK(back.run_of(s).ranks == ranks[s]);
    back.add(4, 8);
    CHECK(back.cursor() == began[to] + 8);
    CHECK(back.run_of(to) == step_run{.first = to, .count = 1, .ranks = 4, .batch = 8, .begin = began[to]});
  }
  step_history none(7);
  none.undo_to(0);
  CHECK(none == step_history(7));
  CHECK(none.cursor() == 7);
  CHECK_REFUSED(none.undo_to(1), "history: it cannot go back to version 1; versions are 0 to 0");
  CHECK_REFUSED(none.run_of(0), "history: there is no step 0; it has 0 steps");
}

TEST_CASE("a history goes up to the end of 64 bits, and not beyond") {
  step_history steps, sevens(7), wide(10), tokens(most - 12);
  steps.add(1, 1, most);
  CHECK(steps.version() == most);
  CHECK(steps.cursor() == most);
  CHECK_REFUSED(steps.add(1, 1), "do not fit 64 bits");
  sevens.add(3, 7, most / 7 - 1);  // 2^63 - 1 is a multiple of 7
  CHECK(sevens.cursor() == most);
  CHECK_REFUSED(step_history(8).add(3, 7, most / 7 - 1), "steps of 7 from 8 do not fit 64 bits");
  CHECK_REFUSED(wide.add(1, most / 2, 2), "history: 2 steps of 4611686018427387903 from 10 do not fit 64 bits");
  CHECK_REFUSED(wide.add(1, most / 2, 3), "history: 3 steps of 4611686018427387903 from 10 do not fit 64 bits");
  CHECK(wide == step_history(10));
  tokens.add(1, 2, 2, 3);
  CHECK(tokens.cursor() == most);
  CHECK(tokens.share(1, 0) == interval{most - 6, most});
}

TEST_CASE("a cursor is small state: eight bytes, the same on all devices, and the job goes on where it was") {
  const serial_cursor at = serial_cursor{1000}.after(96).after(96);
  small_state carried;
  carried.add_same("cursor", std::as_bytes(std::span(&at.used, 1)));
  const std::vector<std::byte>& bytes = carried.bytes_of({"cursor"});
  REQUIRE(bytes.size() == sizeof at.used);
  serial_cursor there;
  std::memcpy(&there.used, bytes.data(), sizeof there.used);
  CHECK(there == at);
  CHECK(there.share(96, 2, 5) == interval{1192 + 38, 1192 + 57});  // in another world
}
