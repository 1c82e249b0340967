// SPDX-License-Identifier: Apache-2.0
// A mesh: four axes, the first fastest, and the mixed-radix map between ranks and coordinates. The dense mesh (tp, cp,
// dp, pp) and the expert mesh (etp, ep, edp, pp) are two readings of the same ranks, in Megatron's order. Source of the
// order: Megatron-core parallel_state, "tp-cp-ep-dp-pp".
// Builds on: parallelism/degrees.hpp, algebra/progression.hpp, model/family.hpp (which mesh a family uses).
#pragma once

#include <reshard/algebra/progression.hpp>
#include <reshard/model/family.hpp>
#include <reshard/parallelism/degrees.hpp>

namespace reshard {

/// Axes of a mesh: tensor, middle, data, pipeline.
inline constexpr int mesh_ndim = 4;

/// The axes of both meshes, by what they do: cut tensors, cut sequence or experts, replicate, cut layers.
namespace mesh_axis {
/// The index of each axis, the fastest first: tp or etp, cp or ep, dp or edp, pp.
inline constexpr int tensor = 0, middle = 1, data = 2, pipeline = 3;
}  // namespace mesh_axis

/// The ranks as an array of extent[0] x extent[1] x extent[2] x extent[3], the first axis fastest.
struct mesh {
  index_t extent[mesh_ndim] = {1, 1, 1, 1};

  /// product of the extents
  constexpr rank_t ranks() const { return extent[0] * extent[1] * extent[2] * extent[3]; }

  /// c0 + e0 (c1 + e1 (c2 + e2 c3))
  constexpr rank_t rank_of(const index_t (&c)[mesh_ndim]) const {
    return c[0] + extent[0] * (c[1] + extent[1] * (c[2] + extent[2] * c[3]));
  }

  /// The inverse: rank_of(coordinates) == rank.
  constexpr void coordinates(rank_t rank, index_t (&c)[mesh_ndim]) const {
    for (int i = 0; i < mesh_ndim - 1; ++i) {
      c[i] = rank % extent[i];
      rank /= extent[i];
    }
    c[mesh_ndim - 1] = rank;
  }
};

/// (tp, cp, dp, pp) for the dense mesh, (etp, ep, edp, pp) for the experts'.
constexpr mesh mesh_of(const degrees& d, mesh_kind kind) {
  if (kind == mesh_kind::dense) return {{d.tp, d.cp, d.dp, d.pp}};
  return {{d.expert_tp(), d.ep, d.expert_dp(), d.pp}};
}

/// A set of ranks that is a product of coordinate progressions: the holders of a box. Never a list.
/// Rank order: the last axis slowest, so the i-th holder is the i-th smallest rank.
struct rank_product {
  mesh on;
  progression along[mesh_ndim];

  constexpr index_t count() const { return along[0].count * along[1].count * along[2].count * along[3].count; }

  /// The i-th smallest rank, 0 <= i < count().
  constexpr rank_t operator[](index_t i) const {
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
    const index_t row = on.extent[0] * on.extent[1];
    const index_t pitch[mesh_ndim] = {1, on.extent[0], row, row * on.extent[2]};
    index_t index = 0;
    for (int a = mesh_ndim - 1; a >= 0; --a) {
      if (along[a].count == 1) {  // of one coordinate it is known where its ranks begin
        rank -= along[a].first * pitch[a];
        if (rank < 0 || rank >= pitch[a]) return -1;
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
};

}  // namespace reshard
