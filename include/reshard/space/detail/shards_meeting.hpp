// SPDX-License-Identifier: Apache-2.0
// The whole shards of a space that meet a box: chunks, expert parts and tensor parts, each by arithmetic. The cost is
// that of the shards that meet it.
// Builds on: space/space.hpp, algebra/distribution.hpp.
#pragma once

#include <reshard/algebra/distribution.hpp>
#include <reshard/space/space.hpp>

namespace reshard::detail {

/// One shard: piece p of a family in chunk k, expert part e, tensor part t.
struct shard_at {
  index_t k;
  int p;
  index_t e;
  index_t t;
};

/// Calls sink for every piece of the axis, in parts that tensor parallelism cuts once more.
template <typename Sink>
constexpr void pieces_of_part(shard_at at, const tensor_cut& cuts, family_box shard, const family_box& within,
                              Sink& sink) {
  const interval along = shard.dim[cuts.axis];
  const index_t first = at.t;
  block(along.size(), cuts.inner).owners(translate(within.dim[cuts.axis], -along.begin), [&](index_t i, interval part) {
    shard.dim[cuts.axis] = translate(part, along.begin);
    at.t = first + i;
    sink(at, shard);
  });
}

/// Calls sink(shard_at, box) for every shard of one piece of a family, which lies in `chunks`, that meets `within`.
template <typename Sink>
constexpr void shards_of_piece(const space& s, int f, int p, family_box shard, interval chunks,
                               const family_box& within, Sink& sink) {
  const tensor_cut& cuts = s.cut_of(f);
  const bool by_parts = cuts.outer > 1;  // else along the axis alone
  const int axis = by_parts ? axis_of::part : cuts.axis;
  if (cuts.outer * cuts.inner * s.expert_parts(f) == 1) {  // stages alone cut it
    for (index_t k = chunks.begin; k < chunks.end; ++k) {
      shard.dim[axis_of::layer] = s.chunk_members(f, k);
      if (intersects(shard.dim[axis_of::layer], within.dim[axis_of::layer])) sink(shard_at{k, p, 0, 0}, shard);
    }
    return;
  }
  const index_t begin = shard.dim[axis].begin, inner = by_parts ? cuts.inner : 1;
  const block experts(shard.dim[axis_of::expert].size(), s.expert_parts(f));
  const block pieces(shard.dim[axis].size(), by_parts ? cuts.outer : cuts.inner);
  const interval asked = translate(within.dim[axis], -begin);
  const auto of_expert_part = [&](index_t k, index_t e) {
    pieces.owners(asked, [&](index_t i, interval part) {
      shard.dim[axis] = {part.begin + begin, part.end + begin};
      if (inner == 1) sink(shard_at{k, p, e, i}, shard);
      else pieces_of_part(shard_at{k, p, e, i * inner}, cuts, shard, within, sink);
    });
  };
  for (index_t k = chunks.begin; k < chunks.end; ++k) {
    shard.dim[axis_of::layer] = s.chunk_members(f, k);
    if (!intersects(shard.dim[axis_of::layer], within.dim[axis_of::layer])) continue;
    if (experts.parts() == 1) {
      of_expert_part(k, 0);
      continue;
    }
    experts.owners(within.dim[axis_of::expert], [&](index_t e, interval part) {
      shard.dim[axis_of::expert] = part;
      of_expert_part(k, e);
    });
  }
}

/// Calls sink(shard_at, box) for every shard of a family that meets `within`.
template <typename Sink>
constexpr void each_shard(const space& s, int f, const family_box& within, Sink&& sink) {
  const interval chunks = s.chunks_of_members(f, within.dim[axis_of::layer]);
  if (s.pieces(f) == 1) return shards_of_piece(s, f, 0, s.family_at(f).whole(), chunks, within, sink);
  for (int p = 0; p < s.pieces(f); ++p) {
    family_box piece = s.family_at(f).whole();
    const box<3> part = s.piece_box(f, p);
    for (int i = 0; i < 3; ++i) piece.dim[axis_of::part + i] = part.dim[i];
    if (intersects(piece, within)) shards_of_piece(s, f, p, piece, chunks, within, sink);
  }
}

}  // namespace reshard::detail
