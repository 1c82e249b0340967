// SPDX-License-Identifier: Apache-2.0
// Whose sample is it? A job's place in its data is one integer, and what a data-parallel rank reads in a step is
// computed from that, whatever the world was before. What a loader has read ahead is no state. A cursor travels as
// small state, as a random generator does: its eight bytes, the same on all devices.
// Builds on: algebra/interval.hpp.
#pragma once

#include <reshard/algebra/interval.hpp>

namespace reshard {

namespace detail {
/// [begin + floor(i w / parts) unit, begin + floor((i + 1) w / parts) unit), w being `whole`; its end fits.
constexpr interval share_of(index_t begin, index_t whole, index_t i, index_t parts, index_t unit) {
  return {begin + floor_of_product(i, whole, parts) * unit, begin + floor_of_product(i + 1, whole, parts) * unit};
}
constexpr void require_rank(rank_t rank, rank_t ranks) {
  if (ranks < 1) refuse("cursor: ", ranks, " ranks; there is at least 1");
  if (rank < 0 || rank >= ranks) refuse("cursor: there is no rank ", rank, "; ranks are 0 to ", ranks - 1);
}
constexpr void require_place(index_t at, index_t batch) {
  if (at < 0) refuse("cursor: it is at ", at, ", and counts from 0");
  if (batch < 1) refuse("cursor: a batch of ", batch, " samples; it has at least 1");
}
}  // namespace detail

/// Micro-batch i of m of a share [a, b): [a + floor(i (b - a) / m), a + floor((i + 1) (b - a) / m)).
constexpr interval micro_batch(interval share, index_t i, index_t m) {
  if (i < 0 || i >= m) refuse("cursor: micro-batch ", i, " of ", m, "; they count from 0, and there is at least 1");
  return detail::share_of(share.begin, share.size(), i, m, 1);
}

/// What a rank's gradient weighs in a batch: (its samples) / B.
constexpr double gradient_weight(interval share, index_t batch) {
  if (batch < 1) refuse("cursor: a batch of ", batch, " samples; it has at least 1");
  return static_cast<double>(share.size()) / static_cast<double>(batch);
}

/// The place of a job in samples: how many were used. Position p of the data is an element by `sample_set`.
struct serial_cursor {
  index_t used = 0;

  /// [c, c + B): what the next step uses, on all ranks together.
  constexpr interval step(index_t batch) const {
    detail::require_place(used, batch);
    index_t end = 0;
    if (RESHARD_ADD_OVERFLOWS(used, batch, &end))
      refuse("cursor: ", used, " samples and a batch of ", batch, " do not fit 64 bits");
    return {used, end};
  }
  /// [c + floor(r B / n), c + floor((r + 1) B / n)): what rank r of n uses in the next step.
  constexpr interval share(index_t batch, rank_t rank, rank_t ranks) const {
    detail::require_rank(rank, ranks);
    return detail::share_of(step(batch).begin, batch, rank, ranks, 1);
  }
  /// Where the job is after the next step: c + B.
  constexpr serial_cursor after(index_t batch) const { return {step(batch).end}; }

  friend constexpr bool operator==(const serial_cursor&, const serial_cursor&) = default;
};

/// The place of a job in tokens of documents laid end to end: how many were used. A step takes B sequences of L tokens;
/// both may change at every boundary.
struct token_cursor {
  index_t used = 0;

  /// [T, T + B L)
  constexpr interval step(index_t batch, index_t length) const {
    detail::require_place(used, batch);
    if (length < 1) refuse("cursor: sequences of ", length, " tokens; they have at least 1");
    index_t tokens = 0, end = 0;
    if (RESHARD_MULTIPLY_OVERFLOWS(batch, length, &tokens) || RESHARD_ADD_OVERFLOWS(used, tokens, &end))
      refuse("cursor: ", used, " tokens and a batch of ", batch, " sequences of ", length, " do not fit 64 bits");
    return {used, end};
  }
  /// [T + floor(r B / n) L, T + floor((r + 1) B / n) L): whole sequences.
  constexpr interval share(index_t batch, index_t length, rank_t rank, rank_t ranks) const {
    detail::require_rank(rank, ranks);
    return detail::share_of(step(batch, length).begin, batch, rank, ranks, length);
  }
  /// Inputs of sequence i of the next step: [T + i L, T + (i + 1) L).
  constexpr interval inputs(index_t i, index_t batch, index_t length) const {
    const interval all = step(batch, length);
    if (i < 0 || i >= batch) refuse("cursor: there is no sequence ", i, " in a batch of ", batch);
    return {all.begin + i * length, all.begin + (i + 1) * length};
  }
  /// Its targets, one token further.
  constexpr interval targets(index_t i, index_t batch, index_t length) const {
    const interval these = inputs(i, batch, length);
    return {these.begin + 1, checked_add(these.end, 1)};
  }
  constexpr token_cursor after(index_t batch, index_t length) const { return {step(batch, length).end}; }

  friend constexpr bool operator==(const token_cursor&, const token_cursor&) = default;
};

}  // namespace reshard
