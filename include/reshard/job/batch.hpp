// SPDX-License-Identifier: Apache-2.0
// How large a batch has a job that goes from N to N' ranks? After Elan's Algorithm 1: strong scaling where N' ranks are
// still worth it, else the least doubling that makes them so, else in proportion. docs/explanation/elans-formulas.md
// tells where this differs from the algorithm as printed, and why.
// Builds on: base/integer.hpp.
#pragma once

#include <limits>
#include <vector>

#include <reshard/base/integer.hpp>

namespace reshard {

/// The batch of the new world, and how it was found.
struct batch_choice {
  index_t batch = 0;
  index_t k = 0;               // batch = k TBS; 0 where no k would do, and it is in proportion
  std::vector<index_t> tried;  // every k that was asked about

  friend constexpr bool operator==(const batch_choice&, const batch_choice&) = default;
};

/// No limit of the samples that a rank's memory allows.
inline constexpr index_t any_samples = std::numeric_limits<index_t>::max();

/// Refuses batches with less than a sample a data-parallel rank.
constexpr void require_samples(index_t batch, rank_t ranks) {
  if (batch < ranks)
    refuse("batch: ", batch, " samples over ", ranks, " ranks; each has at least one, so at most ", batch, " ranks");
}

namespace detail {
constexpr batch_choice choose_any_batch(rank_t ranks, index_t batch, rank_t to, const auto& optimum) {
  batch_choice chosen;
  const index_t most_k = greatest(1, to / ranks);  // k <= N' / N, k being whole
  for (index_t k = 1;; k *= 2) {
    index_t larger = 0;
    if (RESHARD_MULTIPLY_OVERFLOWS(k, batch, &larger))
      refuse("batch: ", k, " x ", batch, " samples do not fit 64 bits");
    chosen.tried.push_back(k);
    const index_t best = optimum(larger);
    if (best < 1) refuse("batch: the optimum for ", larger, " samples is ", best, " ranks; it is at least 1");
    if (best >= to) {
      chosen.k = k;
      chosen.batch = larger;
      return chosen;
    }
    if (k > most_k / 2) break;
  }
  chosen.batch = floor_of_product(batch, to, ranks);
  return chosen;
}
}  // namespace detail

/// batch(N, TBS, N', optimum): for k = 1, 2, 4 .. while k <= max(1, N' / N): k TBS if optimum(k TBS) >= N'; then
/// floor(TBS N' / N). `optimum(B)` is the number of ranks with which batches of B are fastest. Refused below one sample
/// a rank, and where the largest share, ceil(batch / N'), is above `limit`.
template <typename Optimum>
constexpr batch_choice choose_batch(rank_t ranks, index_t batch, rank_t to, const Optimum& optimum,
                                    index_t limit = any_samples) {
  if (ranks < 1 || to < 1) refuse("batch: from ", ranks, " to ", to, " ranks; there is at least 1");
  if (batch < 1) refuse("batch: a batch of ", batch, " samples; it has at least 1");
  if (limit < 1) refuse("batch: a limit of ", limit, " samples a rank; it is at least 1");
  batch_choice chosen = detail::choose_any_batch(ranks, batch, to, optimum);
  require_samples(chosen.batch, to);
  if (const index_t most = ceil_divide(chosen.batch, to); most > limit)
    refuse("batch: ", chosen.batch, " samples over ", to, " ranks are ", most, " a rank, and the limit is ", limit,
           "; at least ", ceil_divide(chosen.batch, limit), " ranks, or a batch of at most ", limit * to, ", would do");
  return chosen;
}

}  // namespace reshard
