// SPDX-License-Identifier: Apache-2.0
// A mesh: four axes in the order of a layout, the first fastest, and the mixed-radix map between ranks and coordinates.
// The dense mesh (tp, cp, dp, pp) and the expert mesh (etp, ep, edp, pp) are two readings of the same ranks: the
// layout's order without ep, and without cp with etp and edp for tp and dp. Source: Megatron-core parallel_state,
// RankGenerator.
// Builds on: parallelism/degrees.hpp, model/family.hpp (which mesh a family uses).
#pragma once

#include <vector>

#include <reshard/model/family.hpp>
#include <reshard/parallelism/degrees.hpp>

namespace reshard {

/// Axes of a mesh: tensor, middle, data, pipeline.
inline constexpr int mesh_ndim = 4;

/// The axes of both meshes, by what they do: cut tensors, cut sequence or experts, replicate, cut layers.
namespace mesh_axis {
/// The number of each axis: tp or etp, cp or ep, dp or edp, pp. Where it stands in the order of ranks, the mesh says.
inline constexpr int tensor = 0, middle = 1, data = 2, pipeline = 3;
}  // namespace mesh_axis

/// The ranks as an array of extent[0] x extent[1] x extent[2] x extent[3], the first place fastest; at[axis] is the
/// place of an axis.
struct mesh {
  index_t extent[mesh_ndim] = {1, 1, 1, 1};
  int at[mesh_ndim] = {0, 1, 2, 3};

  /// product of the extents
  constexpr rank_t ranks() const { return extent[0] * extent[1] * extent[2] * extent[3]; }

  /// How many coordinates an axis has.
  constexpr index_t along(int axis) const { return extent[at[axis]]; }

  /// Ranks from one coordinate of an axis to the next: the product of the extents before its place.
  constexpr index_t pitch(int axis) const {
    index_t ranks = 1;
    for (int i = 0; i < at[axis]; ++i) ranks *= extent[i];
    return ranks;
  }

  /// A rank's coordinate on an axis.
  constexpr index_t coordinate(int axis, rank_t rank) const {
    const int place = at[axis];
    if (place == 0) return rank % extent[0];
    for (int i = 0; i < place; ++i) rank /= extent[i];
    return place == mesh_ndim - 1 ? rank : rank % extent[place];
  }

  /// c0 + e0 (c1 + e1 (c2 + e2 c3)), c by place
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

/// (tp, cp, dp, pp) for the dense mesh, (etp, ep, edp, pp) for the experts', in the layout's order; axes that the order
/// does not name come last.
constexpr mesh mesh_of(const degrees& d, mesh_kind kind) {
  const bool dense = kind == mesh_kind::dense;
  const index_t size[mesh_ndim] = {dense ? d.tp : d.expert_tp(), dense ? d.cp : d.ep, dense ? d.dp : d.expert_dp(),
                                   d.pp};
  mesh result;
  bool placed[mesh_ndim] = {};
  int place = 0;
  const auto put = [&](int axis) {
    placed[axis] = true;
    result.at[axis] = place;
    result.extent[place++] = size[axis];
  };
  for (int i = 0; i < d.order.axes; ++i) {
    switch (d.order.axis[i]) {
      case order_axis::tp: put(mesh_axis::tensor); break;
      case order_axis::cp:
        if (dense) put(mesh_axis::middle);
        break;
      case order_axis::ep:
        if (!dense) put(mesh_axis::middle);
        break;
      case order_axis::dp: put(mesh_axis::data); break;
      case order_axis::pp: put(mesh_axis::pipeline); break;
    }
  }
  for (int axis = 0; axis < mesh_ndim; ++axis)
    if (!placed[axis]) put(axis);
  return result;
}

/// The ranks that differ from one in its coordinate on an axis alone, itself among them, ascending by it: its tensor-,
/// data-, expert-data- or pipeline-parallel group.
///   { r : coordinate(a, r) = coordinate(a, rank) for every a != axis }
constexpr std::vector<rank_t> ranks_with(const mesh& m, int axis, rank_t rank) {
  if (rank < 0 || rank >= m.ranks()) refuse("mesh: there is no rank ", rank, " among ", m.ranks());
  if (axis < 0 || axis >= mesh_ndim) refuse("mesh: there is no axis ", axis, "; axes are 0 to ", mesh_ndim - 1);
  std::vector<rank_t> ranks;
  const rank_t first = rank - m.coordinate(axis, rank) * m.pitch(axis);
  for (index_t c = 0; c < m.along(axis); ++c) ranks.push_back(first + c * m.pitch(axis));
  return ranks;
}

}  // namespace reshard
