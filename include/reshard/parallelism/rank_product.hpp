// SPDX-License-Identifier: Apache-2.0
// The holders of a box: a set of ranks that is a product over the axes of a mesh, counted and indexed without a list.
// Builds on: parallelism/mesh.hpp, algebra/progression.hpp.
#pragma once

#include <vector>

#include <reshard/algebra/progression.hpp>
#include <reshard/parallelism/mesh.hpp>

namespace reshard {

/// A set of ranks: a product of coordinate progressions, one for each place of a mesh; the holders of a box. Where a
/// layout's order makes them no product, they are listed, ascending, in memory that lives as long as the call that
/// gave the set.
/// Rank order: the last place slowest, so the i-th holder is the i-th smallest rank.
struct rank_product {
  mesh on;
  progression along[mesh_ndim];
  const std::vector<rank_t>* listed = nullptr;

  /// The progression of an axis, wherever its place is.
  constexpr progression& axis(int a) { return along[on.at[a]]; }
  constexpr const progression& axis(int a) const { return along[on.at[a]]; }

  constexpr index_t count() const {
    if (listed != nullptr) return static_cast<index_t>(listed->size());
    return along[0].count * along[1].count * along[2].count * along[3].count;
  }

  /// The i-th smallest rank, 0 <= i < count().
  constexpr rank_t operator[](index_t i) const {
    if (listed != nullptr) return (*listed)[static_cast<std::size_t>(i)];
    rank_t rank = 0, pitch = 1;
    for (int a = 0; a < mesh_ndim; ++a) {
      index_t c = along[a].first;
      if (along[a].count > 1 && i > 0) {
        const index_t rest = i < along[a].count ? 0 : i / along[a].count;  // divisions are what planning costs
        c = along[a][i - rest * along[a].count];
        i = rest;
      }
      rank += c * pitch;
      pitch *= on.extent[a];
    }
    return rank;
  }

  /// i with (*this)[i] == rank, or -1.
  constexpr index_t index_of(rank_t rank) const {
    if (listed != nullptr) {
      const index_t below = listed_below(rank);
      return below < count() && (*this)[below] == rank ? below : -1;
    }
    const index_t row = on.extent[0] * on.extent[1];
    const index_t pitch[mesh_ndim] = {1, on.extent[0], row, row * on.extent[2]};
    index_t index = 0;
    for (int a = mesh_ndim - 1; a >= 0; --a) {
      if (along[a].count == 1) {  // of one coordinate it is known where its ranks begin
        rank -= along[a].first * pitch[a];
        if (static_cast<std::uint64_t>(rank) >= static_cast<std::uint64_t>(pitch[a])) return -1;  // below 0 or beyond
        continue;
      }
      const index_t c = pitch[a] == 1 ? rank : rank / pitch[a], at = along[a].index_of(c);
      if (at < 0) return -1;
      index = index * along[a].count + at;
      rank -= c * pitch[a];
    }
    return index;
  }
  constexpr bool contains(rank_t rank) const { return index_of(rank) >= 0; }

  /// | { holders < rank } |
  constexpr index_t count_below(rank_t rank) const {
    if (rank <= 0) return 0;
    if (rank >= on.ranks()) return count();
    if (listed != nullptr) return listed_below(rank);
    index_t c[mesh_ndim] = {};
    on.coordinates(rank, c);
    index_t below = 0, rest = count();
    for (int a = mesh_ndim - 1; a >= 0; --a) {
      rest /= along[a].count;
      below += along[a].count_below(c[a]) * rest;
      if (along[a].index_of(c[a]) < 0) break;
    }
    return below;
  }

 private:
  constexpr index_t listed_below(rank_t rank) const {
    index_t first = 0, past = static_cast<index_t>(listed->size());
    while (first < past) {
      const index_t middle = first + (past - first) / 2;
      if ((*listed)[static_cast<std::size_t>(middle)] < rank) first = middle + 1;
      else past = middle;
    }
    return first;
  }
};

}  // namespace reshard
