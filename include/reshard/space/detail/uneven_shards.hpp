// SPDX-License-Identifier: Apache-2.0
// Shards of a checkpoint's tensors that tensor or expert parallelism does not divide, or cuts elsewhere than Megatron,
// cut as DTensor cuts them: part t of d has
//   [min(t c, N), min((t + 1) c, N)), c = ceil(N / d)
// of the N rows of a tensor, or of its columns; some parts may have none. Rows are counted over the parts of a family,
// so a shard is at most three boxes, and what FSDP2 cuts of it once more are chunks of those rows. A tensor that stacks
// its parts is cut along one axis.
// Builds on: space/detail/rank_seat.hpp, space/detail/row_slices.hpp, space/detail/shards_meeting.hpp.
#pragma once

#include <reshard/space/detail/rank_seat.hpp>
#include <reshard/space/detail/row_slices.hpp>
#include <reshard/space/detail/shards_meeting.hpp>

namespace reshard::detail {

/// The shards of the families of a space of which space::cut_unevenly says so. Refers to the space.
class uneven_shards {
 public:
  constexpr explicit uneven_shards(const space& s) : space_(&s) {}

  /// Calls give(k, box) with the boxes of a family that lie at a seat, in order: of its shards, or where they are
  /// sliced of slice `i` of each.
  template <typename Give>
  constexpr void held(int f, const rank_seat& at, bool sliced, index_t i, Give&& give) const {
    const int kind = static_cast<int>(tensors(f).mesh);
    members_at(*space_, f, at, [&](index_t k, interval members) {
      for (int p = 0; p < space_->pieces(f); ++p) {
        const family_box piece = piece_of(f, p, members, at.expert[kind]);
        if (!piece.empty())
          slices_of(f, piece, at.tensor[kind], sliced).boxes(sliced ? i : 0, [&](const family_box& b) { give(k, b); });
      }
    });
  }

  /// Calls sink(shard_at, i, box) with every box of a shard, or where they are sliced of its slice i, that meets
  /// `within`.
  template <typename Sink>
  constexpr void owners(int f, const family_box& within, bool sliced, Sink&& sink) const {
    const interval chunks = space_->chunks_of_members(f, within.dim[axis_of::layer]);
    for (index_t k = chunks.begin; k < chunks.end; ++k) {
      const interval members = space_->chunk_members(f, k);
      for (int p = 0; p < space_->pieces(f); ++p)
        each_part(tensors(f).extent[axis_of::expert], space_->expert_parts(f), within.dim[axis_of::expert],
                  [&](index_t e) {
                    const family_box piece = piece_of(f, p, members, e), asked = intersect(piece, within);
                    if (asked.empty()) return;
                    each_part_of(f, piece, asked, [&](index_t t) {
                      const row_slices rows = slices_of(f, piece, t, sliced);
                      const auto give = [&](index_t i) {
                        rows.boxes(i, [&](const family_box& b) {
                          if (intersects(b, within)) sink(shard_at{k, p, e, t}, i, b);
                        });
                      };
                      if (sliced) rows.meeting(asked, give);
                      else give(0);
                    });
                  });
    }
  }

 private:
  constexpr const family& tensors(int f) const { return space_->family_at(f); }

  /// Calls each(i) with the parts of [0, extent), cut by chunk(), that meet a range inside of it.
  template <typename Each>
  static constexpr void each_part(index_t extent, index_t parts, interval range, Each&& each) {
    const index_t per_part = ceil_divide(extent, parts);
    for (index_t i = range.begin / per_part; i * per_part < least(range.end, extent); ++i) each(i);
  }

  /// Piece p of the family, of given members, and of its experts those of part e.
  constexpr family_box piece_of(int f, int p, interval members, index_t e) const {
    const box<3> stored = space_->piece_box(f, p);
    const interval all{0, tensors(f).extent[axis_of::expert]};
    const interval experts = space_->deals_experts(f) ? chunk_part(all, e, space_->expert_parts(f)) : all;
    return {{members, experts, stored.dim[0], stored.dim[1], stored.dim[2]}};
  }

  /// Whether tensor parallelism cuts rows that are counted over several parts; else it cuts along one axis.
  constexpr bool cuts_folded_rows(int f, const family_box& piece) const {
    return piece.dim[axis_of::part].size() > 1 && tensors(f).cuts_over_parts();
  }

  /// Calls each(t) with the tensor parts of a piece that meet a box inside of it.
  template <typename Each>
  constexpr void each_part_of(int f, const family_box& piece, const family_box& asked, Each&& each) const {
    const index_t parts = space_->tensor_parts(f);
    if (parts == 1) return each(index_t{0});
    if (cuts_folded_rows(f, piece)) return row_slices(tensors(f), piece, parts, false).meeting(asked, each);
    const int axis = tensors(f).cut_axis();
    const interval along = piece.dim[axis];
    each_part(along.size(), parts, translate(asked.dim[axis], -along.begin), each);
  }

  /// The rows of tensor part t of a piece, in the chunks of its sharding group; in one where they are not sliced.
  constexpr row_slices slices_of(int f, family_box piece, index_t t, bool sliced) const {
    const index_t parts = space_->tensor_parts(f), chunks = sliced ? space_->shards(space_->shard_kind(f)) : 1;
    const bool together = sliced && space_->degrees().experts == experts_as::grouped && space_->deals_experts(f);
    if (parts > 1 && cuts_folded_rows(f, piece))
      return {tensors(f), piece, row_slices(tensors(f), piece, parts, false).chunk(t), chunks, together};
    if (const int axis = tensors(f).cut_axis(); parts > 1) piece.dim[axis] = chunk_part(piece.dim[axis], t, parts);
    if (piece.empty()) return {tensors(f), family_box{}, chunks, together};
    return {tensors(f), piece, chunks, together};
  }

  const space* space_;
};

}  // namespace reshard::detail
