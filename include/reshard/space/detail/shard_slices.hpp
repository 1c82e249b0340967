// SPDX-License-Identifier: Apache-2.0
// What ZeRO cuts: the slices of a space's shards, of optimizer buffers or by rows, and who has each.
// Builds on: space/detail/holder_ranks.hpp, space/detail/shards_meeting.hpp, space/detail/buffer_boxes.hpp,
// space/detail/row_slices.hpp.
#pragma once

#include <vector>

#include <reshard/base/sink.hpp>
#include <reshard/space/detail/buffer_boxes.hpp>
#include <reshard/space/detail/holder_ranks.hpp>
#include <reshard/space/detail/row_slices.hpp>
#include <reshard/space/detail/shards_meeting.hpp>

namespace reshard::detail {

using held_sink = sink<const family_box&>;
using shared_sink = sink<const family_box&, const rank_product&>;

/// Slice i of a bucket, whose padding makes n equal parts of it: [begin + i length / n, begin + (i + 1) length / n).
constexpr interval bucket_slice(const space& s, const optimizer_buffers& buffers, index_t k, mesh_kind kind,
                                index_t bucket, index_t i) {
  const interval all = buffers.bucket(k, kind, bucket);
  return translate(equal_part(all.end - all.begin, i, s.shards(kind)), all.begin);
}

/// The slices of a space's shards: by rows, or of buffers. Refers to what it is given.
class shard_slices {
 public:
  constexpr shard_slices(const space& s, const holder_ranks& holders, const optimizer_buffers& buffers, bool rows)
      : space_(&s), holders_(&holders), buffers_(&buffers), rows_(rows) {}

  /// Calls give(box) with the boxes of slice i of a shard, in order.
  constexpr void boxes(int f, index_t k, const family_box& shard, index_t i, const held_sink& give) const {
    if (rows_) return rows_of(f, shard).boxes(i, give);
    const mesh_kind kind = space_->shard_kind(f);
    for (const buffer_entry& entry : buffers_->entries(k, kind, f))
      boxes_in(entry, shard, bucket_slice(*space_, *buffers_, k, kind, entry.bucket, i), give);
  }

  /// Calls sink with the boxes of all slices of a family that meet `within`, and their holders.
  constexpr void owners(int f, const family_box& within, const shared_sink& sink) const {
    // slices cut every part (e, t) of a piece alike: those of (0, 0) do for all, where whole parts are asked for
    const family_box whole = space_->family_at(f).whole();
    bool every_part = !holders_->lists_slices(*space_, f) && space_->family_at(f).place != home::embedding;
    for (int axis = axis_of::expert; axis < family_ndim; ++axis)
      every_part = every_part && within.dim[axis].contains(whole.dim[axis]);
    std::vector<owned_box> first;
    family_box of_first;
    const int cut_axis = space_->cut_of(f).axis;
    const bool by_expert = space_->shard_kind(f) == mesh_kind::expert;
    const bool by_tensor = space_->family_at(f).tensor_axis != axis_of::none;
    each_shard(*space_, f, within, [&](const shard_at& at, const family_box& shard) {
      if (!every_part) return meeting_shard(f, at, shard, intersect(within, shard), sink);
      if (at.e == 0 && at.t == 0) {
        first.clear();
        of_first = shard;
        meeting_shard(f, at, shard, intersect(within, shard),
                      shared_sink::of([&first](const family_box& b, const rank_product& sharing) {
                        first.push_back({b, sharing});
                      }));
      }
      const index_t experts = shard.dim[axis_of::expert].begin - of_first.dim[axis_of::expert].begin;
      const index_t parts = shard.dim[axis_of::part].begin - of_first.dim[axis_of::part].begin;
      const index_t along = cut_axis == axis_of::part ? 0 : shard.dim[cut_axis].begin - of_first.dim[cut_axis].begin;
      for (std::size_t i = 0; i < first.size(); ++i) {
        owned_box owned = first[i];
        if (experts != 0) owned.where.dim[axis_of::expert] = translate(owned.where.dim[axis_of::expert], experts);
        if (parts != 0) owned.where.dim[axis_of::part] = translate(owned.where.dim[axis_of::part], parts);
        if (along != 0) owned.where.dim[cut_axis] = translate(owned.where.dim[cut_axis], along);
        if (by_expert) owned.holders.axis(mesh_axis::middle).first += at.e;
        if (by_tensor) owned.holders.axis(mesh_axis::tensor).first += at.t;
        sink(owned.where, owned.holders);
      }
    });
  }

 private:
  /// The slices of a shard by rows.
  constexpr row_slices rows_of(int f, const family_box& shard) const {
    return {space_->family_at(f), shard, space_->shards(space_->shard_kind(f)),
            space_->degrees().experts == experts_as::grouped && space_->deals_experts(f)};
  }

  /// Calls sink with the boxes, and their holders, of the slices of one shard that meet `within`.
  constexpr void meeting_shard(int f, const shard_at& at, const family_box& shard, const family_box& within,
                               const shared_sink& sink) const {
    std::vector<rank_t> list;
    const auto shared = [&](index_t i, const auto& each) {
      const rank_product holders = holders_->sharers(*space_, f, at.k, at.e, at.t, i, list);
      if (holders.listed != nullptr && list.empty()) return;  // an order that leaves a slice to nobody
      each(held_sink::of([&](const family_box& b) {
        if (intersects(b, within)) sink(b, holders);
      }));
    };
    if (rows_) {
      const row_slices rows = rows_of(f, shard);
      rows.meeting(within, [&](index_t i) { shared(i, [&](const held_sink& give) { rows.boxes(i, give); }); });
      return;
    }
    const mesh_kind kind = space_->shard_kind(f);
    meeting(*buffers_, at.k, kind, space_->shards(kind), f, shard, within,
            [&](const buffer_entry& entry, interval stretch, index_t i) {
              shared(i, [&](const held_sink& give) { boxes_in(entry, shard, stretch, give); });
            });
  }

  struct owned_box {
    family_box where;
    rank_product holders;
  };

  const space* space_;
  const holder_ranks* holders_;
  const optimizer_buffers* buffers_;
  bool rows_;
};

}  // namespace reshard::detail
