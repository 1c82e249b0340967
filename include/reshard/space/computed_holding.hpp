// SPDX-License-Identifier: Apache-2.0
// The holding of a space: the boxes of a rank, and the owners of a box, by arithmetic; where ZeRO shards a state, by
// the slices of its optimizer buffers or by rows.
// Builds on: space/holding.hpp, space/holder_ranks.hpp, space/buffer_boxes.hpp, space/row_slices.hpp.
#pragma once

#include <iterator>
#include <vector>

#include <reshard/base/sink.hpp>
#include <reshard/space/buffer_boxes.hpp>
#include <reshard/space/holder_ranks.hpp>
#include <reshard/space/holding.hpp>
#include <reshard/space/row_slices.hpp>

namespace reshard {

/// The holding of a space, which it keeps. Optimizer buffers are tabulated only where `wanted` needs them.
class computed_holding {
 public:
  constexpr explicit computed_holding(const reshard::space& s, state_set wanted = all_states)
      : space_(s), states_(wanted), holders_(s),
        tabulated_(s.degrees().zero >= 1 && s.degrees().shard == shard_by::buffers &&
                   wanted.sharded_at(s.degrees().zero)) {
    if (tabulated_) buffers_ = optimizer_buffers(s);
    for (const role r : roles) cuts_[static_cast<int>(r)] = find_cut(r);
    find_alike();
  }

  constexpr const reshard::space& space() const { return space_; }
  constexpr state_set states() const { return states_; }
  constexpr const optimizer_buffers& buffers() const { return buffers_; }
  constexpr rank_t ranks() const { return space_.ranks(); }
  constexpr int families() const { return space_.families(); }
  constexpr const family& family_at(int f) const { return space_.family_at(f); }

  template <typename Sink>
  constexpr void held(int f, rank_t rank, role r, Sink&& sink) const {
    if (has(f, r))
      boxes_of(f, seat(*this, rank, f, r), cut_of(r), box_sink::of([&](const family_box& b) { sink(f, b); }));
  }
  template <typename Sink>
  constexpr void shared(int f, rank_t rank, role r, Sink&& sink) const {
    if (has(f, r))
      shared_boxes_of(f, seat(*this, rank, f, r), cut_of(r),
                      owner_sink::of([&](const family_box& b, const rank_product& holders) { sink(f, b, holders); }));
  }
  /// Of all families, where a rank sits is found out once.
  template <typename Sink>
  friend constexpr void each_held(const computed_holding& h, rank_t rank, role r, Sink&& sink) {
    const seat at(h, rank);
    int f = 0;
    const auto give = box_sink::of([&](const family_box& b) { sink(f, b); });
    for (; f < h.families(); ++f)
      if (h.has(f, r)) h.boxes_of(f, at, h.cut_of(r), give);
  }
  template <typename Sink>
  friend constexpr void each_shared(const computed_holding& h, rank_t rank, role r, Sink&& sink) {
    const seat at(h, rank);
    const bool whole = h.cut_of(r) == cut::whole;
    const rank_product replicas[2][2] = {{h.replicas_at(at, 0, false), h.replicas_at(at, 0, true)},
                                         {h.replicas_at(at, 1, false), h.replicas_at(at, 1, true)}};
    int f = 0;
    const auto give = owner_sink::of([&](const family_box& b, const rank_product& holders) { sink(f, b, holders); });
    for (; f < h.families(); ++f) {
      if (!h.has(f, r)) continue;
      if (!whole || h.space_.shared_between_stages(f)) h.shared_boxes_of(f, at, h.cut_of(r), give);
      else
        h.shards_on(f, at, [&, &holders = replicas[h.kind_of(f)][h.by_tensor(f)]](index_t, const family_box& shard) {
          give(shard, holders);
        });
    }
  }

  template <typename Sink>
  constexpr void owners(int f, role r, const family_box& within, Sink&& sink) const {
    if (within.empty() || within.dim[axis_of::row].begin >= family_at(f).extent[axis_of::row] || !has(f, r)) return;
    owners_of(f, within, cut_of(r), owner_sink::of(sink));
  }

  /// Parameters lie in the model's order; optimizer buffers in reverse of it.
  constexpr storage_order order_of(const tensor_id& t, rank_t rank, role r) const {
    const home place = family_at(t.family).place;
    storage_order order{0, 0, t.family, t.expert};
    if (place == home::layers) order.section = 1, order.layer = space_.model().layers_of(t.family).layer_of(t.member);
    else if (space_.holds_tied_copy(t.family, rank)) order.section = 3;
    else if (place != home::first_stage && place != home::embedding) order.section = 2;
    return buffered(r) ? order.reversed() : order;
  }

  /// Slice i of a bucket, whose padding makes n equal parts of it: [begin + i length / n, begin + (i + 1) length / n).
  constexpr interval slice(index_t k, mesh_kind kind, index_t bucket, index_t i) const {
    const interval all = buffers_.bucket(k, kind, bucket);
    return translate(equal_part(all.end - all.begin, i, space_.shards(kind)), all.begin);
  }

  /// The slice that a rank has in its sharding group.
  constexpr index_t shard_index(mesh_kind kind, rank_t rank) const { return space_.shard_index(kind, rank); }

  /// Whether ranks of a sharding group have parts of a role's states, and not all of them.
  constexpr bool sharded(role r) const { return cuts_[static_cast<int>(r)] != cut::whole; }
  /// Whether optimizer buffers say where a role lies. Refuses a role that needs them where they were not tabulated.
  constexpr bool buffered(role r) const { return cut_of(r) == cut::buffers; }

  /// Whether a lower rank holds as many bytes: what a rank holds depends on its stage and its indices into the sharding
  /// groups. Only of ranks that are ordered from tensor parallelism on is more said than of ranks that share nothing.
  constexpr bool as_much_as_a_lower_rank(rank_t rank) const {
    if (space_.degrees().zero == 0) return rank != space_.first_rank(space_.stage_of(rank));
    return rank % space_.stage_ranks() % alike_[0] != 0 && rank % space_.stage_ranks() % alike_[1] != 0;
  }

 private:
  using box_sink = detail::sink<const family_box&>;
  using owner_sink = detail::sink<const family_box&, const rank_product&>;

  /// Where a rank sits: its stage; by mesh kind its part of tensor and of expert parallelism, and its slice. Of one
  /// family and role, what these need alone.
  struct seat {
    constexpr seat(const computed_holding& h, rank_t rank) : stage(h.space_.stage_of(rank)) {
      const mesh &dense = h.space_.mesh_for(mesh_kind::dense), &experts = h.space_.mesh_for(mesh_kind::expert);
      tensor[0] = dense.coordinate(mesh_axis::tensor, rank), tensor[1] = experts.coordinate(mesh_axis::tensor, rank);
      expert[1] = experts.coordinate(mesh_axis::middle, rank);
      if (h.space_.degrees().zero > 0)
        for (const mesh_kind kind : {mesh_kind::dense, mesh_kind::expert})
          if (h.space_.shards(kind) > 0)  // no: more instances than ranks, of a group that shards nothing
            slice[static_cast<int>(kind)] = h.shard_index(kind, rank);
    }
    constexpr seat(const computed_holding& h, rank_t rank, int f, role r) : stage(h.space_.stage_of(rank)) {
      const int on = h.kind_of(f);
      tensor[on] = h.space_.tensor_index(f, rank);
      if (on != 0) expert[on] = h.space_.expert_index(f, rank);
      if (h.cut_of(r) == cut::whole) return;
      const mesh_kind kind = h.space_.shard_kind(f);
      slice[static_cast<int>(kind)] = h.shard_index(kind, rank);
    }
    index_t stage;
    index_t tensor[2] = {};
    index_t expert[2] = {};
    index_t slice[2] = {};
  };

  /// Neighbouring ranks that have the same index in the dense and in the expert sharding groups: those that differ in
  /// tensor and expert parallelism alone, where these come first in the order; else each by itself.
  constexpr void find_alike() {
    const mesh& dense = space_.mesh_for(mesh_kind::dense);
    const mesh& expert = space_.mesh_for(mesh_kind::expert);
    if (dense.at[mesh_axis::tensor] != 0 || expert.at[mesh_axis::tensor] != 0 || expert.at[mesh_axis::middle] != 1 ||
        dense.at[mesh_axis::pipeline] != mesh_ndim - 1)
      return;
    alike_[0] = dense.extent[0];
    alike_[1] = expert.extent[0] * expert.extent[1];
  }

  /// How a role's states are cut among a sharding group.
  enum class cut { whole, buffers, rows, unknown };  // unknown: buffers that were not tabulated

  constexpr cut find_cut(role r) const {
    const degrees& d = space_.degrees();
    if (d.zero < sharding_level(r)) return cut::whole;
    if (d.shard == shard_by::rows) return cut::rows;
    return tabulated_ ? cut::buffers : cut::unknown;
  }
  constexpr cut cut_of(role r) const {
    if (cuts_[static_cast<int>(r)] == cut::unknown)
      refuse("this holding was made without states that zero=", space_.degrees().zero,
             " shards, and is asked for them; name them where it is made");
    return cuts_[static_cast<int>(r)];
  }

  constexpr bool has(int f, role r) const {
    return (family_at(f).kind == tensor_kind::statistic) == (r == role::statistic);
  }

  /// The slices of a shard by rows.
  constexpr detail::row_slices rows_of(int f, const family_box& shard) const {
    return {family_at(f), shard, space_.shards(space_.shard_kind(f)), space_.degrees().experts == experts_as::grouped};
  }

  /// Calls each(k, shard) with the shards of a family that lie where a rank sits, chunk by chunk.
  template <typename Each>
  constexpr void shards_on(int f, const seat& at, Each&& each) const {
    const pipeline_placement& pipeline = space_.pipeline();
    const int pieces = space_.pieces(f), kind = kind_of(f);
    const index_t e = at.expert[kind], t = at.tensor[kind];
    for (index_t k = at.stage; k < pipeline.chunks(); k += pipeline.parts()) {
      const interval members = space_.chunk_members(f, k);
      if (members.empty()) continue;
      for (int p = 0; p < pieces; ++p) each(k, space_.shard_box(f, p, members, e, t));
      if (family_at(f).place == home::embedding) return;  // a second copy on the same stage is the same tensor
    }
  }

  /// Calls give(box) with the boxes of slice i of a shard, in order.
  constexpr void slice_of(int f, index_t k, const family_box& shard, cut by, index_t i, const box_sink& give) const {
    if (by == cut::rows) return rows_of(f, shard).boxes(i, give);
    const mesh_kind kind = space_.shard_kind(f);
    for (const buffer_entry& entry : buffers_.entries(k, kind, f))
      detail::boxes_in(entry, shard, slice(k, kind, entry.bucket, i), give);
  }

  /// The boxes that a rank has of a family: shards, or the boxes of its slices.
  constexpr void boxes_of(int f, const seat& at, cut by, const box_sink& sink) const {
    if (by == cut::whole) return shards_on(f, at, [&](index_t, const family_box& shard) { sink(shard); });
    const index_t i = at.slice[static_cast<int>(space_.shard_kind(f))];
    shards_on(f, at, [&](index_t k, const family_box& shard) { slice_of(f, k, shard, by, i, sink); });
  }

  constexpr int kind_of(int f) const { return static_cast<int>(family_at(f).mesh); }
  constexpr bool by_tensor(int f) const { return family_at(f).tensor_axis != axis_of::none; }

  /// The holders of whole shards at a seat that are not shared between stages, by kind_of and by_tensor.
  constexpr rank_product replicas_at(const seat& at, int kind, bool by_tensor) const {
    rank_product holders = holders_.replicas(kind, by_tensor);
    holders.axis(mesh_axis::pipeline).first = at.stage;
    holders.axis(mesh_axis::middle).first = at.expert[kind];
    if (by_tensor) holders.axis(mesh_axis::tensor).first = at.tensor[kind];
    return holders;
  }

  /// The same with their holders, which costs more.
  constexpr void shared_boxes_of(int f, const seat& at, cut by, const owner_sink& sink) const {
    const index_t e = at.expert[kind_of(f)], t = at.tensor[kind_of(f)];
    const index_t i = at.slice[static_cast<int>(space_.shard_kind(f))];
    std::vector<rank_t> list;
    shards_on(f, at, [&](index_t k, const family_box& shard) {
      if (by == cut::whole) return sink(shard, holders_.replicas(space_, f, k, e, t, list));
      const rank_product holders = holders_.sharers(space_, f, k, e, t, i, list);
      slice_of(f, k, shard, by, i, box_sink::of([&](const family_box& b) { sink(b, holders); }));
    });
  }

  /// One shard: piece p of a family in chunk k, expert part e, tensor part t.
  struct shard_at {
    index_t k;
    int p;
    index_t e;
    index_t t;
  };

  /// Calls sink(shard_at, box) for every shard of a family that meets `within`.
  template <typename Sink>
  constexpr void each_shard(int f, const family_box& within, Sink&& sink) const {
    const interval chunks = space_.chunks_of_members(f, within.dim[axis_of::layer]);
    if (space_.pieces(f) == 1) return shards_of_piece(f, 0, family_at(f).whole(), chunks, within, sink);
    for (int p = 0; p < space_.pieces(f); ++p) {
      family_box piece = family_at(f).whole();
      const box<3> part = space_.piece_box(f, p);
      for (int i = 0; i < 3; ++i) piece.dim[axis_of::part + i] = part.dim[i];
      if (intersects(piece, within)) shards_of_piece(f, p, piece, chunks, within, sink);
    }
  }
  template <typename Sink>
  constexpr void shards_of_piece(int f, int p, family_box shard, interval chunks, const family_box& within,
                                 Sink& sink) const {
    const tensor_cut& cuts = space_.cut_of(f);
    const bool by_parts = cuts.outer > 1;  // else along the axis alone
    const int axis = by_parts ? axis_of::part : cuts.axis;
    if (cuts.outer * cuts.inner * space_.expert_parts(f) == 1) {  // stages alone cut it
      for (index_t k = chunks.begin; k < chunks.end; ++k) {
        shard.dim[axis_of::layer] = space_.chunk_members(f, k);
        if (intersects(shard.dim[axis_of::layer], within.dim[axis_of::layer])) sink(shard_at{k, p, 0, 0}, shard);
      }
      return;
    }
    const index_t begin = shard.dim[axis].begin, inner = by_parts ? cuts.inner : 1;
    const block experts(shard.dim[axis_of::expert].size(), space_.expert_parts(f));
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
      shard.dim[axis_of::layer] = space_.chunk_members(f, k);
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
  /// Of parts that tensor parallelism cuts once more: calls sink for every piece of the axis.
  template <typename Sink>
  static constexpr void pieces_of_part(shard_at at, const tensor_cut& cuts, family_box shard, const family_box& within,
                                       Sink& sink) {
    const interval along = shard.dim[cuts.axis];
    const index_t first = at.t;
    block(along.size(), cuts.inner)
        .owners(translate(within.dim[cuts.axis], -along.begin), [&](index_t i, interval part) {
          shard.dim[cuts.axis] = translate(part, along.begin);
          at.t = first + i;
          sink(at, shard);
        });
  }

  /// Calls sink with the boxes, and their holders, of the slices of one shard that meet `within`.
  constexpr void slices_of(int f, const shard_at& at, const family_box& shard, const family_box& within, cut by,
                           const owner_sink& sink) const {
    std::vector<rank_t> list;
    const auto boxes = [&](index_t i, const auto& each) {
      const rank_product holders = holders_.sharers(space_, f, at.k, at.e, at.t, i, list);
      if (holders.listed != nullptr && list.empty()) return;  // an order that leaves a slice to nobody
      each(box_sink::of([&](const family_box& b) {
        if (intersects(b, within)) sink(b, holders);
      }));
    };
    if (by == cut::rows) {
      const detail::row_slices rows = rows_of(f, shard);
      rows.meeting(within, [&](index_t i) { boxes(i, [&](const box_sink& give) { rows.boxes(i, give); }); });
      return;
    }
    const mesh_kind kind = space_.shard_kind(f);
    detail::meeting(buffers_, at.k, kind, space_.shards(kind), f, shard, within,
                    [&](const buffer_entry& entry, interval stretch, index_t i) {
                      boxes(i, [&](const box_sink& give) { detail::boxes_in(entry, shard, stretch, give); });
                    });
  }

  struct owned_box {
    family_box where;
    rank_product holders;
  };

  /// The shards of a family that meet `within`, with their holders.
  constexpr void owners_of_shards(int f, const family_box& within, const owner_sink& sink) const {
    if (space_.shared_between_stages(f)) {
      std::vector<rank_t> list;
      return each_shard(f, within, [&](const shard_at& at, const family_box& shard) {
        sink(shard, holders_.replicas(space_, f, at.k, at.e, at.t, list));
      });
    }
    rank_product holders = holders_.replicas(space_, f);
    index_t &stage = holders.axis(mesh_axis::pipeline).first, &e = holders.axis(mesh_axis::middle).first,
            &t = holders.axis(mesh_axis::tensor).first;
    const bool by_expert = family_at(f).mesh == mesh_kind::expert,
               by_tensor = family_at(f).tensor_axis != axis_of::none;
    each_shard(f, within, [&](const shard_at& at, const family_box& shard) {
      stage = space_.pipeline().stage_of_chunk(at.k);
      if (by_expert) e = at.e;
      if (by_tensor) t = at.t;
      sink(shard, holders);
    });
  }

  /// The shards of a family that meet `within`, with their holders; or the boxes of their slices.
  constexpr void owners_of(int f, const family_box& within, cut by, const owner_sink& sink) const {
    if (by == cut::whole) return owners_of_shards(f, within, sink);
    // slices cut every part (e, t) of a piece alike: those of (0, 0) do for all, where whole parts are asked for
    const family_box whole = family_at(f).whole();
    bool every_part = !holders_.lists_slices(space_, f) && family_at(f).place != home::embedding;
    for (int axis = axis_of::expert; axis < family_ndim; ++axis)
      every_part = every_part && within.dim[axis].contains(whole.dim[axis]);
    std::vector<owned_box> first;
    family_box of_first;
    const int cut_axis = space_.cut_of(f).axis;
    const bool by_expert = space_.shard_kind(f) == mesh_kind::expert;
    const bool by_tensor = family_at(f).tensor_axis != axis_of::none;
    each_shard(f, within, [&](const shard_at& at, const family_box& shard) {
      if (!every_part) return slices_of(f, at, shard, intersect(within, shard), by, sink);
      if (at.e == 0 && at.t == 0) {
        first.clear();
        of_first = shard;
        slices_of(f, at, shard, intersect(within, shard), by,
                  owner_sink::of([&first](const family_box& b, const rank_product& sharing) {
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

  reshard::space space_;
  state_set states_;
  detail::holder_ranks holders_;
  bool tabulated_;
  index_t alike_[2] = {1, 1};
  cut cuts_[std::size(roles)] = {};
  optimizer_buffers buffers_;
};

static_assert(Holding<computed_holding>);

}  // namespace reshard
