// SPDX-License-Identifier: Apache-2.0
// Assignments: who of n takes which of n places. The least bottleneck, and the most weight among cells that are
// allowed; both exact.
// Builds on: base/integer.hpp.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include <reshard/base/integer.hpp>

namespace reshard {

/// n rows of n cells.
template <typename T>
struct square {
  std::size_t size = 0;
  std::vector<T> cells = {};

  constexpr explicit square(std::size_t n, T value = {}) : size(n), cells(n * n, value) {}
  constexpr const T& at(std::size_t row, std::size_t column) const { return cells[row * size + column]; }
  constexpr T& at(std::size_t row, std::size_t column) { return cells[row * size + column]; }
};

/// The column of each row: a permutation of 0 .. n-1.
using assignment = std::vector<std::size_t>;

namespace detail {

/// Matches rows to columns, one row at a time, along paths on which rows that have a column are given another.
template <typename Allowed>
class row_matcher {
 public:
  constexpr row_matcher(std::size_t size, const Allowed& allowed)
      : size_(size), allowed_(&allowed), row_of_(size, size) {}

  constexpr bool match_all() {
    for (std::size_t row = 0; row < size_; ++row)
      if (!match(row)) return false;
    return true;
  }

 private:
  /// Breadth first: each column is looked at once.
  constexpr bool match(std::size_t first) {
    std::vector<std::size_t> rows{first}, reached_by(size_, size_);
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t column = 0; column < size_; ++column) {
        if (reached_by[column] != size_ || !(*allowed_)(rows[i], column)) continue;
        reached_by[column] = rows[i];
        if (row_of_[column] != size_) {
          rows.push_back(row_of_[column]);
          continue;
        }
        for (std::size_t at = column;;) {  // back along the path
          const std::size_t row = reached_by[at];
          std::size_t had = 0;
          while (had < size_ && row_of_[had] != row) ++had;
          row_of_[at] = row;
          if (row == first) return true;
          at = had;
        }
      }
    return false;
  }

  std::size_t size_;
  const Allowed* allowed_;
  std::vector<std::size_t> row_of_;  // of each column; size_: none
};

}  // namespace detail

/// min over permutations p of max over rows i of cost(i, p(i)): the least cell t such that those of at most t let every
/// row have a column of its own. 0 without rows.
template <typename T>
[[nodiscard]] constexpr T least_bottleneck(const square<T>& cost) {
  if (cost.size == 0) return {};
  std::vector<T> values = cost.cells;
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  std::size_t low = 0, high = values.size() - 1;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    const auto allowed = [&](std::size_t row, std::size_t column) { return cost.at(row, column) <= values[middle]; };
    if (detail::row_matcher(cost.size, allowed).match_all()) high = middle;
    else low = middle + 1;
  }
  return values[low];
}

/// max over permutations p, all cells (i, p(i)) of which are allowed, of sum over i of weight(i, p(i)): the Hungarian
/// method, n^3 steps. Refused where there is no such permutation.
template <typename Allowed>
[[nodiscard]] constexpr assignment heaviest_assignment(const square<index_t>& weight, const Allowed& allowed) {
  const std::size_t n = weight.size;
  constexpr index_t never = std::numeric_limits<index_t>::max();
  std::vector<index_t> of_row(n, 0), of_column(n, 0), slack;  // -weight(i, j) - of_row[i] - of_column[j] >= 0
  std::vector<std::size_t> row_of(n, n), before;
  std::vector<char> done;
  for (std::size_t first = 0; first < n; ++first) {
    slack.assign(n, never), before.assign(n, n), done.assign(n, 0);
    std::size_t row = first, column = n;
    for (;;) {  // the cheapest path from the row to a free column
      std::size_t next = n;
      for (std::size_t j = 0; j < n; ++j) {
        if (done[j] != 0) continue;
        if (allowed(row, j))
          if (const index_t cost = -weight.at(row, j) - of_row[row] - of_column[j]; cost < slack[j])
            slack[j] = cost, before[j] = column;
        if (slack[j] != never && (next == n || slack[j] < slack[next])) next = j;
      }
      if (next == n) refuse("assignment: of ", n, " rows, row ", first, " gets no column that is allowed");
      const index_t step = slack[next];
      of_row[first] += step;
      for (std::size_t j = 0; j < n; ++j) {
        if (done[j] != 0) of_row[row_of[j]] += step, of_column[j] -= step;
        else if (slack[j] != never) slack[j] -= step;
      }
      done[next] = 1, column = next;
      if (row_of[column] == n) break;
      row = row_of[column];
    }
    for (std::size_t at = column; at != n; at = before[at]) row_of[at] = before[at] == n ? first : row_of[before[at]];
  }
  assignment result(n);
  for (std::size_t j = 0; j < n; ++j) result[row_of[j]] = j;
  return result;
}

}  // namespace reshard
