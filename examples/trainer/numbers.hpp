// SPDX-License-Identifier: Apache-2.0
// Numbers that are the same under every layout: bf16, a hash, a product of matrices whose elements do not depend on how
// many there are, and sums that do not depend on who adds what first.
#pragma once

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include <reshard/base/digest.hpp>
#include <reshard/base/integer.hpp>
#include <reshard/model/float_conversion.hpp>

#ifdef __FAST_MATH__
static_assert(false, "-ffast-math removes the rounding to the grid");
#endif
static_assert(FLT_EVAL_METHOD == 0, "x87 keeps more digits than a float has");

namespace trainer {

using namespace reshard;

/// x += 0x9E37..; (x ^ x >> 30) 0xBF58..; (x ^ x >> 27) 0x94D0..; x ^ x >> 31, mod 2^64: splitmix64's.
constexpr std::uint64_t mix(std::uint64_t x) { return mix64(x); }

/// The nearest bf16, of two the even one; and the float that it is.
inline std::uint16_t nearest_bf16(float x) {
  return static_cast<std::uint16_t>(bf16_of_fp32(std::bit_cast<std::uint32_t>(x)));
}
inline float widened(std::uint16_t x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }

/// Element (i, k) of a matrix lies at data[i row + k column].
template <typename Real>
struct strided {
  const Real* data;
  index_t row, column = 1;
};

/// What the kernel makes at once: 6 rows of 16 columns.
inline constexpr index_t tile_rows = 6, tile_columns = 16;
/// c[i][j] = sum over k, ascending, of a[k][i] b[k][j]: for an element the same operations wherever its tile lies.
void multiply_tile(index_t k, const float* a, const float* b, float* c);
void multiply_tile(index_t k, const double* a, const double* b, double* c);

/// C = A B, m x n, k long; store(i, j, values, count) is given each row of each tile. Missing rows and columns are
/// zeros beside it, so one kernel makes every element and none depends on m or n.
template <typename Real, typename Store>
void multiply(index_t m, index_t n, index_t k, strided<Real> a, strided<Real> b, Store&& store) {
  static thread_local std::vector<Real> panels, rows;
  const index_t wide = ceil_divide(n, tile_columns);
  panels.resize(static_cast<std::size_t>(wide * tile_columns * k));
  rows.resize(static_cast<std::size_t>(tile_rows * k));
  for (index_t p = 0; p < wide; ++p) {
    const index_t columns = least(tile_columns, n - p * tile_columns);
    Real* const panel = panels.data() + p * tile_columns * k;
    const Real* const from = b.data + p * tile_columns * b.column;
    if (columns < tile_columns) std::fill_n(panel, k * tile_columns, Real{0});
    if (b.column == 1) {
      for (index_t x = 0; x < k; ++x)
        for (index_t j = 0; j < columns; ++j) panel[x * tile_columns + j] = from[x * b.row + j];
    } else {
      for (index_t j = 0; j < columns; ++j)
        for (index_t x = 0; x < k; ++x) panel[x * tile_columns + j] = from[x * b.row + j * b.column];
    }
  }
  alignas(64) Real tile[tile_rows * tile_columns];
  for (index_t i = 0; i < m; i += tile_rows) {
    const index_t height = least(tile_rows, m - i);
    const Real* const from = a.data + i * a.row;
    if (height < tile_rows) std::fill(rows.begin(), rows.end(), Real{0});
    if (a.row == 1) {
      for (index_t x = 0; x < k; ++x)
        for (index_t r = 0; r < height; ++r) rows[static_cast<std::size_t>(x * tile_rows + r)] = from[x * a.column + r];
    } else {
      for (index_t r = 0; r < height; ++r)
        for (index_t x = 0; x < k; ++x)
          rows[static_cast<std::size_t>(x * tile_rows + r)] = from[r * a.row + x * a.column];
    }
    for (index_t p = 0; p < wide; ++p) {
      multiply_tile(k, rows.data(), panels.data() + p * tile_columns * k, tile);
      const index_t columns = least(tile_columns, n - p * tile_columns);
      for (index_t r = 0; r < height; ++r) store(i + r, p * tile_columns, tile + r * tile_columns, columns);
    }
  }
}

/// How sums are made that parallelism divides. A leaf is a piece of a sum that no layout divides, computed in one
/// order.
///   exact:  sum of round(leaf, 2^-32), as doubles
/// Multiples of 2^-32 below 2^20 have at most 52 binary digits, so no addition of them rounds, and neither order nor
/// grouping, nor how many ranks there are, can be seen in the sum. A tree over ranks, or Kahan's sum, depends on it.
///   free:   sums in Real, in the order that comes
class summing {
 public:
  explicit summing(bool exact) : exact_(exact) {}
  bool exact() const { return exact_; }

  /// sum[i] += leaf[i], of a sum with at most `leaves` leaves. A leaf of 2^20 / leaves and more, or none, is told.
  template <typename Real>
  void add(double* sum, const Real* leaf, index_t count, index_t leaves, const char* of) {
    if (!exact_ || !std::is_same_v<Real, float>) {
      for (index_t i = 0; i < count; ++i) sum[i] = static_cast<Real>(sum[i] + leaf[i]);
      return;
    }
    const Real limit = static_cast<Real>(least(range, 2 * range / leaves));
    int beyond = 0;
    for (index_t i = 0; i < count; ++i) {
      beyond |= std::abs(leaf[i]) < limit ? 0 : 1;  // no number is below none
      sum[i] += (leaf[i] + grid) - grid;
    }
    if (beyond != 0) leaves_range(of);
  }
  /// The first sum that left its range, or nullptr.
  const char* beyond() const { return beyond_; }
  void leaves_range(const char* of) { beyond_ = beyond_ == nullptr ? of : beyond_; }
  void forget() { beyond_ = nullptr; }

 private:
  // A leaf below 2^19 leaves grid + leaf in [2^20, 2^21), whose doubles are the multiples of 2^-32.
  static constexpr index_t range = index_t{1} << 19;
  static constexpr double grid = 1.5 * (1 << 20);
  bool exact_;
  const char* beyond_ = nullptr;
};

/// A sum of squares, each rounded to a multiple of 2^-44 and parted into a multiple of 2^-18 and the rest, below 2^-19:
/// neither sum rounds below 2^33, with fewer than 2^26 elements. A double alone would leave its range at a norm of 16.
struct sum_of_squares {
  double whole = 0, rest = 0;

  void add(float g) {
    constexpr double fine = 1.5 * (1 << 8), coarse = 1.5 * (std::int64_t{1} << 34);
    const double square = double{g} * double{g}, leaf = square < 64 ? (square + fine) - fine : square;
    const double part = (leaf + coarse) - coarse;
    whole += part, rest += leaf - part;
  }
  bool in_range() const { return whole < 8589934592.0; }  // nor is what is no number
  double total() const { return whole + rest; }
};

}  // namespace trainer
