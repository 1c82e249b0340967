// SPDX-License-Identifier: Apache-2.0
// With how many ranks are batches of B samples fastest? Asked of measured throughputs, or of a model fitted to some.
// Builds on: base/integer.hpp, base/same_seconds.hpp.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <reshard/base/integer.hpp>
#include <reshard/base/same_seconds.hpp>

namespace reshard {

/// What was measured: batches of `batch` samples over `ranks` ranks, so many samples a second.
struct measured_throughput {
  index_t batch = 1;
  rank_t ranks = 1;
  double samples_per_second = 0;

  friend constexpr bool operator==(const measured_throughput&, const measured_throughput&) = default;
};

/// A table of measured throughputs. What was not measured is refused, never guessed.
class throughput_table {
 public:
  constexpr explicit throughput_table(std::span<const measured_throughput> rows) {
    for (const measured_throughput& row : rows) add(row);
  }
  constexpr void add(const measured_throughput& row) {
    if (row.ranks < 1 || row.batch < row.ranks)
      refuse("throughput: a batch of ", row.batch, " samples over ", row.ranks, " ranks; each has at least one");
    if (!(row.samples_per_second >= 1e-100 && row.samples_per_second <= 1e100))  // squares of seconds are added up
      refuse("throughput: that of a batch of ", row.batch, " over ", row.ranks,
             " ranks is not from 1e-100 to 1e100 samples a second");
    for (const measured_throughput& other : rows_)
      if (other.batch == row.batch && other.ranks == row.ranks)
        refuse("throughput: a batch of ", row.batch, " over ", row.ranks, " ranks is there twice");
    rows_.push_back(row);
  }
  constexpr const std::vector<measured_throughput>& rows() const { return rows_; }

  /// Among the n that were measured with batches of B: the largest with the highest throughput.
  constexpr rank_t operator()(index_t batch) const {
    const measured_throughput* best = nullptr;
    for (const measured_throughput& row : rows_) {
      if (row.batch != batch) continue;
      if (best == nullptr || row.samples_per_second > best->samples_per_second ||
          (row.samples_per_second == best->samples_per_second && row.ranks > best->ranks))
        best = &row;
    }
    if (best == nullptr)
      refuse("throughput: batches of ", batch, " samples were not measured; the table has ", rows_.size(),
             " other rows");
    return best->ranks;
  }

 private:
  std::vector<measured_throughput> rows_;
};

/// The largest world that a model is asked about.
inline constexpr rank_t most_modelled_ranks = rank_t{1} << 22;

namespace detail {

/// The first n of [low, high) that something holds for, as it does from there on; else high.
template <typename Holds>
constexpr rank_t first_rank(rank_t low, rank_t high, Holds&& holds) {
  while (low < high) {
    const rank_t middle = low + (high - low) / 2;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

}  // namespace detail

/// A model of a step: seconds = a + b B / n + c n, a, b, c >= 0. It assumes that what does not depend on the world (a)
/// overlaps nothing, that ranks are equal and their time is in proportion to their samples (b), and that gradients cost
/// in proportion to the ranks (c), as in a ring over slow links. It knows no memory, no nodes and no kernel that is
/// slow where few samples are left: trust it between what was measured, not far beyond.
struct step_model {
  double a = 0, b = 0, c = 0;
  rank_t most_ranks = 1;  // the largest world that is asked about

  constexpr double seconds(index_t batch, rank_t ranks) const {
    return a + b * static_cast<double>(batch) / static_cast<double>(ranks) + c * static_cast<double>(ranks);
  }
  /// The largest n of [1, min(most_ranks, B)] whose seconds are those of the fastest, equal within 1e-9 of them.
  constexpr rank_t operator()(index_t batch) const {
    if (batch < 1) refuse("throughput: a batch of ", batch, " samples; it has at least 1");
    // seconds are convex in n: they fall while c n (n + 1) < b B, and from there on rise
    const rank_t most = least(most_ranks, batch);
    const double work = b * static_cast<double>(batch);
    const rank_t fastest = detail::first_rank(
        1, most, [&](rank_t n) { return c * static_cast<double>(n) * static_cast<double>(n + 1) >= work; });
    const double best = seconds(batch, fastest);
    return detail::first_rank(fastest, most, [&](rank_t n) { return fewer_seconds(best, seconds(batch, n + 1)); });
  }

  friend constexpr bool operator==(const step_model&, const step_model&) = default;
};

namespace detail {

/// Least squares over some of (1, B/n, n), by Gauss on the normal equations; false where they tell too little apart.
constexpr bool fit_some(std::span<const measured_throughput> rows, unsigned used, double (&found)[3], double& squares) {
  double m[3][4] = {};
  const auto features = [](const measured_throughput& row, double(&x)[3]) {
    x[0] = 1;
    x[1] = static_cast<double>(row.batch) / static_cast<double>(row.ranks);
    x[2] = static_cast<double>(row.ranks);
    return static_cast<double>(row.batch) / row.samples_per_second;
  };
  for (const measured_throughput& row : rows) {
    double x[3] = {};
    const double seconds = features(row, x);
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) m[i][j] += x[i] * x[j];
      m[i][3] += x[i] * seconds;
    }
  }
  for (int i = 0; i < 3; ++i)
    if ((used >> i & 1u) == 0)
      for (int j = 0; j < 4; ++j) m[i][j] = j == i ? 1 : 0;  // coefficient i is 0
  const double scale[3] = {m[0][0], m[1][1], m[2][2]};
  for (int i = 0; i < 3; ++i) {  // positive definite: no pivots are sought
    if (!(m[i][i] > 1e-9 * scale[i])) return false;
    for (int row = 0; row < 3; ++row) {
      if (row == i) continue;
      const double times = m[row][i] / m[i][i];
      for (int j = i; j < 4; ++j) m[row][j] -= times * m[i][j];
    }
  }
  for (int i = 0; i < 3; ++i) found[i] = m[i][3] / m[i][i];
  squares = 0;
  for (const measured_throughput& row : rows) {
    double x[3] = {};
    const double off = features(row, x) - found[0] * x[0] - found[1] * x[1] - found[2] * x[2];
    squares += off * off;
  }
  return true;
}

}  // namespace detail

/// The model whose squares of (measured - modelled) seconds add up to the least, coefficients below 0 being left out.
constexpr step_model fit_step_model(std::span<const measured_throughput> rows, rank_t most_ranks) {
  if (most_ranks < 1 || most_ranks > most_modelled_ranks)
    refuse("throughput: a model of at most ", most_ranks, " ranks; that is 1 to ", most_modelled_ranks);
  step_model best{.most_ranks = most_ranks};
  double least_squares = -1;
  double all[3] = {}, squares = 0;
  if (!detail::fit_some(rows, 7, all, squares))
    refuse("throughput: ", rows.size(),
           " rows do not tell a, b and c of a + b B / n + c n apart; three that differ in B / n and in n do");
  for (unsigned used = 1; used < 8; ++used) {
    double found[3] = {};
    if (!detail::fit_some(rows, used, found, squares)) continue;
    if (found[0] < 0 || found[1] < 0 || found[2] < 0) continue;
    if (least_squares >= 0 && squares >= least_squares) continue;
    least_squares = squares;
    best.a = found[0], best.b = found[1], best.c = found[2];
  }
  return best;
}

}  // namespace reshard
