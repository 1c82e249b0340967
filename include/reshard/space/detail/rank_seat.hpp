// SPDX-License-Identifier: Apache-2.0
// Where a rank sits in a space, found out once for all families; and the whole shards that lie there.
// Builds on: space/space.hpp.
#pragma once

#include <reshard/space/space.hpp>

namespace reshard::detail {

/// A rank's stage; by mesh kind its part of tensor and of expert parallelism, and its slice of what ZeRO shards. Made
/// for one family it knows what that one needs alone.
struct rank_seat {
  constexpr rank_seat(const space& s, rank_t rank) : stage(s.stage_of(rank)) {
    const mesh &dense = s.mesh_for(mesh_kind::dense), &experts = s.mesh_for(mesh_kind::expert);
    tensor[0] = dense.coordinate(mesh_axis::tensor, rank), tensor[1] = experts.coordinate(mesh_axis::tensor, rank);
    expert[1] = experts.coordinate(mesh_axis::middle, rank);
    if (s.degrees().zero > 0)
      for (const mesh_kind kind : {mesh_kind::dense, mesh_kind::expert})
        if (s.shards(kind) > 0)  // no: more instances than ranks, of a group that shards nothing
          slice[static_cast<int>(kind)] = s.shard_index(kind, rank);
  }
  constexpr rank_seat(const space& s, rank_t rank, int f, bool sharded) : stage(s.stage_of(rank)) {
    const int kind = static_cast<int>(s.family_at(f).mesh);
    tensor[kind] = s.tensor_index(f, rank);
    if (kind != 0) expert[1] = s.expert_index(f, rank);  // a literal: g++ takes the kind for any number
    if (sharded) slice[static_cast<int>(s.shard_kind(f))] = s.shard_index(s.shard_kind(f), rank);
  }

  index_t stage;
  index_t tensor[2] = {};
  index_t expert[2] = {};
  index_t slice[2] = {};
};

/// Calls each(k, members) with the chunks at a seat that have a family, and its members there.
template <typename Each>
constexpr void members_at(const space& s, int f, const rank_seat& at, Each&& each) {
  const pipeline_placement& pipeline = s.pipeline();
  for (index_t k = at.stage; k < pipeline.chunks(); k += pipeline.parts()) {
    const interval members = s.chunk_members(f, k);
    if (members.empty()) continue;
    each(k, members);
    if (s.family_at(f).place == home::embedding) return;  // a second copy on the same stage is the same tensor
  }
}

/// Calls each(k, shard) with the shards of a family that lie at a seat, chunk by chunk.
template <typename Each>
constexpr void shards_at(const space& s, int f, const rank_seat& at, Each&& each) {
  const int pieces = s.pieces(f), kind = static_cast<int>(s.family_at(f).mesh);
  const index_t e = at.expert[kind], t = at.tensor[kind];
  members_at(s, f, at, [&](index_t k, interval members) {
    for (int p = 0; p < pieces; ++p) each(k, s.shard_box(f, p, members, e, t));
  });
}

}  // namespace reshard::detail
