// SPDX-License-Identifier: Apache-2.0
// What one rank keeps of optimizer buffers: its slice of every bucket, one slice after the other with their padding,
// and which parameters lie where in them. Only a computed layout knows it.
// Builds on: space/computed_holding.hpp.
#pragma once

#include <reshard/space/computed_holding.hpp>

namespace reshard {

/// A rank's slices of one buffer, end to end: one array.
struct buffer_slices {
  index_t chunk = 0;  // pipeline chunk
  mesh_kind mesh = mesh_kind::dense;
  index_t elements = 0;  // padding included
};

/// A stretch of such an array: elements `range` of a rank's local tensor, whose box is `local`, from element `begin`
/// on.
struct slice_part {
  tensor_id tensor;
  box<3> local;
  interval range;
  index_t begin = 0;
};

/// A holding that lays some states in buffers: h.buffered(role) says which.
template <typename H>
concept BufferedHolding = Holding<H> && requires(const H& h, rank_t rank, index_t i) {
  { h.space() } -> std::convertible_to<const space&>;
  { h.buffers() } -> std::convertible_to<const optimizer_buffers&>;
  { h.buffered(role::optimizer) } -> std::same_as<bool>;
  { h.slice(i, mesh_kind::dense, i, i) } -> std::same_as<interval>;
  { h.shard_index(mesh_kind::dense, rank) } -> std::same_as<index_t>;
};
static_assert(BufferedHolding<computed_holding>);

/// Calls sink(buffer_slices) with every buffer of which a rank keeps elements.
template <BufferedHolding H, typename Sink>
constexpr void each_buffer(const H& h, rank_t rank, Sink&& sink) {
  const pipeline_placement& pipeline = h.space().pipeline();
  for (index_t k = h.space().stage_of(rank); k < pipeline.chunks(); k += pipeline.parts())
    for (const mesh_kind kind : {mesh_kind::dense, mesh_kind::expert}) {
      buffer_slices all{k, kind, 0};
      for (index_t b = 0; b < h.buffers().bucket_count(k, kind); ++b)
        all.elements += h.slice(k, kind, b, h.shard_index(kind, rank)).size();
      if (all.elements > 0) sink(static_cast<const buffer_slices&>(all));
    }
}

/// Calls sink(slice_part) with the parameters, and parts of parameters, that a rank's slices of a buffer hold, bucket
/// by bucket.
template <BufferedHolding H, typename Sink>
constexpr void each_slice_part(const H& h, rank_t rank, const buffer_slices& of, Sink&& sink) {
  const space& s = h.space();
  index_t begin = 0;  // of the bucket's slice, in the array
  for (index_t bucket = 0; bucket < h.buffers().bucket_count(of.chunk, of.mesh); ++bucket) {
    const interval slice = h.slice(of.chunk, of.mesh, bucket, h.shard_index(of.mesh, rank));
    for (int f = 0; f < s.families(); ++f) {
      if (s.shard_kind(f) != of.mesh) continue;
      const family_box shard = s.shard_box(f, of.chunk, s.expert_index(f, rank), s.tensor_index(f, rank));
      const box<3> local{{shard.dim[axis_of::part], shard.dim[axis_of::row], shard.dim[axis_of::column]}};
      for (const buffer_entry& entry : h.buffers().entries(of.chunk, of.mesh, f)) {
        if (entry.bucket != bucket) continue;
        for (index_t i = entry.outer.first_ending_after(slice.begin); i < entry.outer.count_beginning_before(slice.end);
             ++i) {
          const item_row parameters = entry.inner(i);
          for (index_t j = parameters.first_ending_after(slice.begin); j < parameters.count_beginning_before(slice.end);
               ++j) {
            const interval parameter = parameters.item(j), kept = intersect(parameter, slice);
            sink(slice_part{{f, entry.member_last - i, entry.expert_last - j + shard.dim[axis_of::expert].begin},
                            local,
                            translate(kept, -parameter.begin),
                            begin + kept.begin - slice.begin});
          }
        }
      }
    }
    begin += slice.size();
  }
}

}  // namespace reshard
