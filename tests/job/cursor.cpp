// SPDX-License-Identifier: Apache-2.0
// A step's shares, as the formulas say them, up to the ends of 64 bits; and micro-batches.
#include <doctest/doctest.h>

#include <limits>

#include <reshard/job/cursor.hpp>

#include "../oracle/job_walk.hpp"
#include "../support/refused.hpp"

using namespace reshard;

namespace {
constexpr index_t most = std::numeric_limits<index_t>::max();

/// How many samples a rank was dealt.
index_t dealt(const oracle::walked_job& job, rank_t rank) {
  index_t count = 0;
  for (const oracle::used_sample& one : job.steps[0].samples) count += one.rank == rank ? 1 : 0;
  return count;
}
}  // namespace

TEST_CASE("shares of samples and of sequences follow each other and are what dealing one by one gives") {
  for (rank_t ranks = 1; ranks <= 9; ++ranks)
    for (index_t batch = 1; batch <= 20; ++batch) {
      const index_t begin = 100 * ranks + batch, length = 1 + batch % 4;
      oracle::walked_job serial{begin, {}}, tokens{begin, {}};
      serial.step(ranks, batch, 1);
      tokens.step(ranks, batch, length);
      index_t reached = begin, reached_tokens = begin;
      for (rank_t r = 0; r < ranks; ++r) {
        const interval share = serial_cursor{begin}.share(batch, r, ranks);
        const interval sequences = token_cursor{begin}.share(batch, length, r, ranks);
        CHECK(share.begin == reached);
        CHECK(sequences.begin == reached_tokens);
        reached = share.end, reached_tokens = sequences.end;
        for (const oracle::used_sample& one : serial.steps[0].samples)
          CHECK(share.contains(one.begin) == (one.rank == r));
        for (const oracle::used_sample& one : tokens.steps[0].samples)
          CHECK(sequences.contains(interval{one.begin, one.begin + one.length}) == (one.rank == r));
        CHECK(gradient_weight(share, batch) * static_cast<double>(batch) ==
              doctest::Approx(static_cast<double>(dealt(serial, r))).epsilon(1e-15));
      }
      CHECK(serial_cursor{begin}.after(batch) == serial_cursor{begin + batch});
      CHECK(token_cursor{begin}.after(batch, length) == token_cursor{begin + batch * length});
      CHECK(reached == serial.at);
      CHECK(reached_tokens == tokens.at);
      CHECK(serial_cursor{begin}.step(batch) == interval{begin, reached});
      CHECK(token_cursor{begin}.step(batch, length) == interval{begin, reached_tokens});
      for (index_t i = 0; i < batch; ++i) {
        CHECK(token_cursor{begin}.inputs(i, batch, length) == interval{begin + i * length, begin + (i + 1) * length});
        CHECK(token_cursor{begin}.targets(i, batch, length) ==
              interval{begin + i * length + 1, begin + (i + 1) * length + 1});
      }
    }
}

TEST_CASE("micro-batches tile a share, and differ by one sample at most") {
  for (index_t begin : {0, 5})
    for (index_t size = 0; size <= 12; ++size)
      for (index_t m = 1; m <= 15; ++m) {
        index_t reached = begin;
        for (index_t i = 0; i < m; ++i) {
          const interval part = micro_batch({begin, begin + size}, i, m);
          CHECK(part.begin == reached);
          CHECK(part.size() >= size / m);
          CHECK(part.size() <= size / m + 1);
          reached = part.end;
        }
        CHECK(reached == begin + size);
      }
  CHECK(micro_batch({10, 17}, 1, 3) == interval{12, 14});  // floor(7/3), floor(14/3)
}

TEST_CASE("up to the ends of 64 bits nothing is lost") {
  CHECK(serial_cursor{0}.share(most, most - 1, most) == interval{most - 1, most});
  CHECK(serial_cursor{5}.share(most - 5, 1, 3) == interval{5 + (most - 5) / 3, 5 + index_t(2.0L * (most - 5) / 3)});
  CHECK(serial_cursor{0}.share(index_t{1} << 62, (index_t{1} << 61) - 1, index_t{1} << 61) ==
        interval{(index_t{1} << 62) - 2, index_t{1} << 62});
  CHECK(token_cursor{1}.share(index_t{1} << 31, index_t{1} << 31, 4, 5).end == (index_t{1} << 62) + 1);
  CHECK(micro_batch({0, most}, most - 1, most) == interval{most - 1, most});
  CHECK_REFUSED(serial_cursor{most - 9}.step(10),
                "cursor: 9223372036854775798 samples and a batch of 10 do not fit 64 bits");
  CHECK_REFUSED(token_cursor{0}.step(index_t{1} << 32, index_t{1} << 31),
                "cursor: 0 tokens and a batch of 4294967296 sequences of 2147483648 do not fit 64 bits");
  CHECK_REFUSED(token_cursor{most - 3}.step(2, 2), "tokens and a batch of 2 sequences of 2 do not fit 64 bits");
  CHECK(serial_cursor{most - 9}.step(9) == interval{most - 9, most});
  CHECK(serial_cursor{most - 9}.after(9) == serial_cursor{most});
  CHECK(token_cursor{most - 4}.step(2, 2) == interval{most - 4, most});
  CHECK(token_cursor{0}.step(most, 1) == interval{0, most});
  CHECK(token_cursor{0}.step(1, most) == interval{0, most});
  CHECK(token_cursor{most - 4}.inputs(1, 2, 2) == interval{most - 2, most});
  CHECK(token_cursor{most - 5}.targets(1, 2, 2) == interval{most - 2, most});
  CHECK_REFUSED(token_cursor{most - 4}.targets(1, 2, 2), "9223372036854775807 + 1 does not fit 64 bits");
  CHECK_REFUSED(token_cursor{1}.step(most, 1), "cursor: 1 tokens and a batch of 9223372036854775807 sequences of 1");
}

TEST_CASE("what is no step is refused") {
  CHECK_REFUSED(serial_cursor{}.share(8, 0, 0), "cursor: 0 ranks; there is at least 1");
  CHECK_REFUSED(serial_cursor{}.share(8, 4, 4), "cursor: there is no rank 4; ranks are 0 to 3");
  CHECK_REFUSED(serial_cursor{}.share(8, -1, 4), "cursor: there is no rank -1; ranks are 0 to 3");
  CHECK_REFUSED(serial_cursor{-1}.step(8), "cursor: it is at -1, and counts from 0");
  CHECK_REFUSED(serial_cursor{}.step(0), "cursor: a batch of 0 samples; it has at least 1");
  CHECK_REFUSED(token_cursor{}.step(2, 0), "cursor: sequences of 0 tokens; they have at least 1");
  CHECK_REFUSED(token_cursor{}.inputs(2, 2, 4), "cursor: there is no sequence 2 in a batch of 2");
  CHECK_REFUSED(token_cursor{}.targets(-1, 2, 4), "cursor: there is no sequence -1 in a batch of 2");
  CHECK_REFUSED(micro_batch({0, 4}, 2, 2), "cursor: micro-batch 2 of 2; they count from 0, and there is at least 1");
  CHECK_REFUSED(micro_batch({0, 4}, 0, 0), "cursor: micro-batch 0 of 0");
  CHECK_REFUSED(micro_batch({0, 4}, -1, 2), "cursor: micro-batch -1 of 2");
  CHECK_REFUSED(micro_batch({0, 4}, -2, -1), "cursor: micro-batch -2 of -1");
  CHECK_REFUSED(token_cursor{-1}.step(8, 1), "cursor: it is at -1, and counts from 0");
  CHECK_REFUSED(token_cursor{}.step(0, 1), "cursor: a batch of 0 samples; it has at least 1");
  CHECK_REFUSED(token_cursor{}.share(8, 1, 0, 0), "cursor: 0 ranks; there is at least 1");
  CHECK_REFUSED(token_cursor{}.share(8, 1, 4, 4), "cursor: there is no rank 4; ranks are 0 to 3");
  CHECK_REFUSED(token_cursor{}.share(8, 1, -1, 4), "cursor: there is no rank -1; ranks are 0 to 3");
  CHECK_REFUSED(token_cursor{}.share(0, 5, 0, 1), "cursor: a batch of 0 samples; it has at least 1");
  CHECK_REFUSED(token_cursor{}.inputs(0, 0, 5), "cursor: a batch of 0 samples; it has at least 1");
  CHECK_REFUSED(token_cursor{}.after(0, 5), "cursor: a batch of 0 samples; it has at least 1");
  CHECK_REFUSED(gradient_weight({0, 4}, 0), "cursor: a batch of 0 samples; it has at least 1");
}
