// SPDX-License-Identifier: Apache-2.0
// Rows of a shard cut among a sharding group, as FSDP2 places them: what a rank would hold of a tensor is cut along its
// first dimension by torch's chunk().
//   chunk i of n of N rows = [min(i c, N), min((i + 1) c, N)), c = ceil(N / n)
// The first dimension of a tensor is its parts and the rows in each (of a vector: columns), so a chunk is at most three
// boxes; of a tensor that stacks its parts it is the parts. Experts that are one tensor are cut along their own axis,
// each with all the rows that the shard has of it.
// Builds on: algebra/flat.hpp, algebra/distribution.hpp, model/family.hpp.
#pragma once

#include <reshard/algebra/distribution.hpp>
#include <reshard/algebra/flat.hpp>
#include <reshard/model/family.hpp>

namespace reshard::detail {

/// A shard's rows in n chunks.
class row_slices {
 public:
  constexpr row_slices(const family& tensors, const family_box& shard, index_t chunks, bool experts_together)
      : row_slices(tensors, shard, all_rows(tensors, shard), chunks, experts_together) {}
  /// Slices of a shard that has `rows` of a box alone, counted over its parts.
  constexpr row_slices(const family& tensors, const family_box& shard, interval rows, index_t chunks,
                       bool experts_together)
      : shard_(shard), inner_(tensors.inner_axis()), stacked_(tensors.stacked()),
        together_(experts_together && tensors.mesh == mesh_kind::expert), rows_(rows),
        cut_(together_ ? interval{0, shard.dim[axis_of::expert].size()} : rows), chunks_(chunks),
        per_chunk_(ceil_divide(cut_.size(), chunks)) {}

  /// [0, parts x rows in each), or [0, parts) where they are stacked
  static constexpr interval all_rows(const family& tensors, const family_box& shard) {
    return {0, shard.dim[axis_of::part].size() * (tensors.stacked() ? 1 : shard.dim[tensors.inner_axis()].size())};
  }
  /// Chunk i, in rows, or in experts of the shard.
  constexpr interval chunk(index_t i) const { return chunk_part(cut_, i, chunks_); }

  /// Calls sink(box) with the boxes of chunk i, in order; none where it is empty.
  template <typename Sink>
  constexpr void boxes(index_t i, Sink&& sink) const {
    const interval mine = chunk(i), rows = together_ ? rows_ : mine;
    if (mine.empty() || rows.empty()) return;
    family_box b = shard_;
    if (together_) b.dim[axis_of::expert] = translate(mine, shard_.dim[axis_of::expert].begin);
    if (stacked_) {
      b.dim[axis_of::part] = translate(rows, shard_.dim[axis_of::part].begin);
      return sink(static_cast<const family_box&>(b));
    }
    const index_t extent[2] = {shard_.dim[axis_of::part].size(), shard_.dim[inner_].size()};
    invert_flat(extent, rows, [&](const box<2>& part) {
      b.dim[axis_of::part] = translate(part.dim[0], shard_.dim[axis_of::part].begin);
      b.dim[inner_] = translate(part.dim[1], shard_.dim[inner_].begin);
      sink(static_cast<const family_box&>(b));
    });
  }

  /// Calls sink(i) once for every chunk that meets `within`, a box inside the shard, ascending.
  template <typename Sink>
  constexpr void meeting(const family_box& within, Sink&& sink) const {
    if (within.empty()) return;
    index_t next = 0;
    if (!together_) return each_run(within, [&](interval rows) { next = meet(rows, next, sink); });
    bool any = false;
    each_run(within, [&](interval rows) { any = any || intersects(rows, rows_); });
    if (any) meet(translate(within.dim[axis_of::expert], -shard_.dim[axis_of::expert].begin), 0, sink);
  }

 private:
  /// Calls sink(rows) with the runs of rows that a box has, ascending.
  template <typename Sink>
  constexpr void each_run(const family_box& within, Sink&& sink) const {
    const interval parts = translate(within.dim[axis_of::part], -shard_.dim[axis_of::part].begin);
    if (stacked_) return sink(parts);
    const index_t inner = shard_.dim[inner_].size();
    const interval rows = translate(within.dim[inner_], -shard_.dim[inner_].begin);
    if (rows.size() == inner) return sink(interval{parts.begin * inner, parts.end * inner});
    for (index_t p = parts.begin; p < parts.end; ++p) sink(translate(rows, p * inner));
  }

  /// From chunk `next` on, those that meet `run`; what comes after the last of them.
  template <typename Sink>
  constexpr index_t meet(interval run, index_t next, Sink& sink) const {
    run = translate(intersect(run, cut_), -cut_.begin);
    if (run.empty()) return next;
    const index_t last = (run.end - 1) / per_chunk_;
    for (index_t i = greatest(next, run.begin / per_chunk_); i <= last; ++i) sink(i);
    return greatest(next, last + 1);
  }

  family_box shard_;
  int inner_;
  bool stacked_;
  bool together_;
  interval rows_;  // those of the shard
  interval cut_;   // what the chunks are of: these, or its experts
  index_t chunks_;
  index_t per_chunk_;
};

}  // namespace reshard::detail
