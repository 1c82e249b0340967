// SPDX-License-Identifier: Apache-2.0
// A job's data walked one sample at a time, and the contract's rules of batch and rate, said once more without a line
// of the library's.
#pragma once

#include <cstdint>
#include <vector>

namespace oracle {

using int64 = std::int64_t;

/// A sample (a sequence, of tokens) that a rank used.
struct used_sample {
  int64 rank = 0, begin = 0, length = 1;
};
/// A step that was made, sample by sample.
struct walked_step {
  int64 began = 0;
  std::vector<used_sample> samples;
};

/// A job that deals its samples like cards: every rank is owed B more than it was, and takes one where it is owed n.
struct walked_job {
  int64 at = 0;
  std::vector<walked_step> steps;

  void step(int64 ranks, int64 batch, int64 length) {
    walked_step made{at, {}};
    int64 owed = 0;
    for (int64 rank = 0; rank < ranks; ++rank)
      for (owed += batch; owed >= ranks; owed -= ranks, at += length) made.samples.push_back({rank, at, length});
    steps.push_back(made);
  }
  void undo() {
    at = steps.back().began;
    steps.pop_back();
  }
};

/// n / d, compared by multiplying: numbers of these tests are small.
struct ratio {
  int64 n = 0, d = 1;
};
inline bool at_most(ratio a, ratio b) { return a.n * b.d <= b.n * a.d; }

/// Elan's Algorithm 1, lines 1 to 17, as printed: N' / N is a number, and so is what line 16 returns.
template <typename Optimum>
ratio printed_batch(int64 n, int64 tbs, int64 to, const Optimum& optimum) {
  int64 k = 1;
  while (at_most({k, 1}, {to, n})) {
    const int64 larger = k * tbs;
    if (optimum(larger) >= to) return {larger, 1};
    k = k * 2;
  }
  return {tbs * to, n};
}

/// The contract's words: for k = 1, 2, 4 .. while k <= max(1, N' / N): if optimum(k TBS) >= N' return k TBS; then
/// floor(TBS N' / N). 0 where it is refused: below one sample a rank.
template <typename Optimum>
int64 contract_batch(int64 n, int64 tbs, int64 to, const Optimum& optimum) {
  int64 chosen = 0;
  for (int64 k = 1; chosen == 0 && (k == 1 || k * n <= to); k += k)
    if (optimum(k * tbs) >= to) chosen = k * tbs;
  if (chosen == 0) chosen = (tbs * to - tbs * to % n) / n;
  return chosen < to ? 0 : chosen;
}

}  // namespace oracle
