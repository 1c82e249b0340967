// SPDX-License-Identifier: Apache-2.0
// The batch of another world for all N, N' <= 32 and B <= 512, against the contract's words; beside Elan's Algorithm 1
// as printed, every difference with its reason, and the table of docs/explanation/elans-formulas.md.
#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <reshard/job/batch.hpp>
#include <reshard/job/throughput.hpp>

#include "../oracle/job_walk.hpp"
#include "../support/refused.hpp"

using namespace reshard;

namespace {

constexpr index_t most = std::numeric_limits<index_t>::max();

/// optimum(B) of jobs that want `each` samples a rank at least: the more, the sooner a batch must grow.
struct wants_each {
  index_t each = 1;
  constexpr index_t operator()(index_t batch) const { return greatest(1, batch / each); }
};
constexpr index_t kinds[] = {1, 16, 1'000'000};  // the last: a job that no batch makes wide enough

/// The library's answer; 0 where it is refused.
index_t ours(rank_t n, index_t batch, rank_t to, const wants_each& optimum) {
  try {
    return choose_batch(n, batch, to, optimum).batch;
  } catch (const refusal&) {
    return 0;
  }
}

/// Why ours is another batch than what is printed: K keeps, F rounds down, R refuses; '.' where both say the same.
char difference(rank_t n, index_t batch, rank_t to, const wants_each& optimum) {
  const index_t mine = ours(n, batch, to, optimum);
  const oracle::ratio printed = oracle::printed_batch(n, batch, to, optimum);
  if (mine * printed.d == printed.n) return '.';
  if (mine == 0) return 'R';
  return mine == printed.n / printed.d ? 'F' : to < n && mine == batch ? 'K' : '?';
}

/// Whether the page about the paper's formulas has these lines.
bool page_has(const std::string& lines) {
  std::ifstream page(std::string(RESHARD_TEST_DATA) + "/../../docs/explanation/elans-formulas.md");
  const std::string text{std::istreambuf_iterator<char>(page), {}};
  INFO("docs/explanation/elans-formulas.md lacks:\n" << lines);
  CHECK(text.find(lines) != std::string::npos);
  return text.find(lines) != std::string::npos;
}
std::string row(const std::string& why, index_t count) { return "| " + why + " | " + std::to_string(count) + " |\n"; }

}  // namespace

TEST_CASE(
    "all N, N' <= 32 and B <= 512: the contract's batch, and every difference from what is printed has its reason") {
  index_t asked = 0, wrong = 0, unexplained = 0, kept = 0, rounded = 0, refused = 0, equal = 0;
  for (const index_t each : kinds)
    for (rank_t n = 1; n <= 32; ++n)
      for (rank_t to = 1; to <= 32; ++to)
        for (index_t batch = 1; batch <= 512; ++batch) {
          const index_t wanted = oracle::contract_batch(n, batch, to, wants_each{each});
          const char why = difference(n, batch, to, wants_each{each});
          ++asked;
          wrong += ours(n, batch, to, wants_each{each}) != wanted ? 1 : 0;
          unexplained += why == '?' ? 1 : 0;
          equal += why == '.' ? 1 : 0;
          refused += why == 'R' ? 1 : 0;
          kept += why == 'K' ? 1 : 0;
          rounded += why == 'F' ? 1 : 0;
          // K: nothing but the loop that is not entered; F: nothing but the fraction of a sample
          if (why == 'K') unexplained += wants_each{each}(batch) >= to && to < n ? 0 : 1;
          if (why == 'F') unexplained += batch * to % n != 0 ? 0 : 1;
        }
  CHECK(wrong == 0);
  CHECK(unexplained == 0);
  CHECK(page_has(row("the same", equal) + row("R", refused) + row("K", kept) + row("F", rounded) + row("all", asked)));
}

TEST_CASE("the page's picture of one batch") {
  std::string picture = "      to   1         11        21        31\n";
  for (rank_t n = 1; n <= 32; ++n) {
    const std::string number = std::to_string(n);
    picture += "from " + std::string(3 - number.size(), ' ') + number + "   ";
    for (rank_t to = 1; to <= 32; ++to) picture += difference(n, 100, to, wants_each{16});
    picture += "\n";
  }
  CHECK(page_has(picture));
}

TEST_CASE("the answer, and every k that was tried") {
  const auto at = [](index_t, index_t low, index_t high) {
    return [=](index_t batch) { return batch < 1000 ? low : high; };
  };
  CHECK(choose_batch(4, 256, 16, at(0, 8, 32)) == batch_choice{1024, 4, {1, 2, 4}});
  CHECK(choose_batch(4, 256, 16, at(0, 16, 32)) == batch_choice{256, 1, {1}});
  CHECK(choose_batch(4, 256, 16, at(0, 8, 15)) == batch_choice{1024, 0, {1, 2, 4}});
  CHECK(choose_batch(4, 256, 15, at(0, 8, 15)) == batch_choice{960, 0, {1, 2}});  // 4 > 15 / 4
  CHECK(choose_batch(4, 256, 3, at(0, 3, 15)) == batch_choice{256, 1, {1}});
  CHECK(choose_batch(4, 256, 3, at(0, 2, 15)) == batch_choice{192, 0, {1}});
  CHECK(choose_batch(4, 255, 3, at(0, 2, 15)) == batch_choice{191, 0, {1}});
  CHECK(choose_batch(1, 1, 1, at(0, 1, 1)) == batch_choice{1, 1, {1}});
}

TEST_CASE(
    "each k that could be the first to do: which were asked about until then; and the least limit that allows it") {
  for (rank_t n = 1; n <= 9; ++n)
    for (rank_t to = 1; to <= 40; ++to)
      for (const index_t batch : {1, 7, 40, 41}) {
        std::vector<index_t> ks = {1};
        while (ks.back() * 2 * n <= to) ks.push_back(ks.back() * 2);
        for (std::size_t first = 0; first <= ks.size(); ++first) {
          const bool some = first < ks.size() || to == 1;
          const std::size_t which = to == 1 ? 0 : first;
          const auto optimum = [&](index_t b) { return some && b == ks[which] * batch ? to : greatest(1, to - 1); };
          batch_choice wanted{batch * to / n, 0, ks};
          if (some) {
            wanted = {ks[which] * batch, ks[which], ks};
            wanted.tried.resize(which + 1);
          }
          CAPTURE(n);
          CAPTURE(to);
          CAPTURE(batch);
          const std::string over = std::to_string(wanted.batch) + " samples over " + std::to_string(to) + " ranks";
          if (wanted.batch < to) {
            const std::string sentence = testing::refused([&] { choose_batch(n, batch, to, optimum); });
            CHECK(sentence == "reshard: batch: " + over + "; each has at least one, so at most " +
                                  std::to_string(wanted.batch) + " ranks");
            continue;
          }
          CHECK(choose_batch(n, batch, to, optimum) == wanted);
          const index_t most_of_one = wanted.batch / to + (wanted.batch % to > 0 ? 1 : 0), less = most_of_one - 1;
          CHECK(choose_batch(n, batch, to, optimum, most_of_one) == wanted);
          if (less == 0) continue;
          index_t ranks = 1;
          while (ranks * less < wanted.batch) ++ranks;
          CHECK(testing::refused([&] { choose_batch(n, batch, to, optimum, less); }) ==
                "reshard: batch: " + over + " are " + std::to_string(most_of_one) + " a rank, and the limit is " +
                    std::to_string(less) + "; at least " + std::to_string(ranks) + " ranks, or a batch of at most " +
                    std::to_string(less * to) + ", would do");
        }
      }
}

TEST_CASE("what is refused, by name; up to the ends of 64 bits") {
  const wants_each one{1};
  const auto none = [](index_t) { return rank_t{1}; };
  CHECK_REFUSED(choose_batch(0, 8, 4, one), "batch: from 0 to 4 ranks; there is at least 1");
  CHECK_REFUSED(choose_batch(4, 8, 0, one), "batch: from 4 to 0 ranks; there is at least 1");
  CHECK_REFUSED(choose_batch(4, 0, 4, one), "batch: a batch of 0 samples; it has at least 1");
  CHECK_REFUSED(choose_batch(4, 8, 4, one, 0), "batch: a limit of 0 samples a rank; it is at least 1");
  CHECK_REFUSED(choose_batch(4, 8, 4, [](index_t) { return rank_t{0}; }),
                "batch: the optimum for 8 samples is 0 ranks; it is at least 1");
  CHECK_REFUSED(choose_batch(4, 2, 3, none),
                "batch: 1 samples over 3 ranks; each has at least one, so at most 1 ranks");
  CHECK_REFUSED(choose_batch(1, 2, 3, [](index_t) { return rank_t{8}; }),
                "batch: 2 samples over 3 ranks; each has at least one");
  CHECK_REFUSED(choose_batch(4, 1024, 16, one, 63),
                "batch: 1024 samples over 16 ranks are 64 a rank, and the limit is 63; at least 17 ranks, or a batch "
                "of at most 1008, would do");
  CHECK_REFUSED(choose_batch(4, 1025, 16, one, 64), "batch: 1025 samples over 16 ranks are 65 a rank");
  CHECK(choose_batch(4, 1024, 16, one, 64).batch == 1024);
  CHECK_REFUSED(choose_batch(1, most / 2 + 1, 4, none), "batch: 2 x 4611686018427387904 samples do not fit 64 bits");
  CHECK_REFUSED(choose_batch(2, most, 3, none), "floor(9223372036854775807 x 3 / 2) does not fit 64 bits");
  CHECK(choose_batch(3, most, 2, none).batch == most / 3 * 2);
  CHECK(choose_batch(most, most, most, one).batch == most);
  CHECK(choose_batch(1, 1, most, [](index_t batch) { return batch; }).tried.size() == 63);
  CHECK(choose_batch(1, most, 2, one, most - 1).batch == most);
  CHECK_REFUSED(choose_batch(1, most, 2, one, most / 2), "or a batch of at most 9223372036854775806, would do");
  CHECK_REFUSED(choose_batch(-1, 8, 4, one), "batch: from -1 to 4 ranks; there is at least 1");
  CHECK_REFUSED(choose_batch(1, 8, -4, one), "batch: from 1 to -4 ranks; there is at least 1");
  CHECK_REFUSED(choose_batch(4, 8, 4, [](index_t) { return rank_t{-1}; }), "batch: the optimum for 8 samples is -1");
  CHECK(testing::refused([] { require_samples(3, 3); }) == "accepted");
  CHECK_REFUSED(require_samples(3, 4), "batch: 3 samples over 4 ranks; each has at least one, so at most 3 ranks");
  CHECK_REFUSED(choose_batch(most - 1, most, 1, wants_each{1}, most - 1),
                "or a batch of at most 9223372036854775806, would do");
}
