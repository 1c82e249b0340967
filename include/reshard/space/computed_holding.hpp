// SPDX-License-Identifier: Apache-2.0
// The holding of a space: the boxes of a rank, and the owners of a box, by arithmetic; where ZeRO shards a state, by
// the slices of its optimizer buffers or by rows.
// Builds on: base/sink.hpp, space/holding.hpp, space/detail/rank_seat.hpp, space/detail/shard_slices.hpp,
// space/detail/uneven_shards.hpp.
#pragma once

#include <iterator>
#include <vector>

#include <reshard/base/sink.hpp>
#include <reshard/space/detail/rank_seat.hpp>
#include <reshard/space/detail/shard_slices.hpp>
#include <reshard/space/detail/uneven_shards.hpp>
#include <reshard/space/holding.hpp>

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
      boxes_of(f, seat(space_, rank, f, cut_of(r) != cut::whole), cut_of(r),
               held_sink::of([&](const family_box& b) { sink(f, b); }));
  }
  template <typename Sink>
  constexpr void shared(int f, rank_t rank, role r, Sink&& sink) const {
    if (has(f, r))
      shared_boxes_of(f, seat(space_, rank, f, cut_of(r) != cut::whole), cut_of(r),
                      shared_sink::of([&](const family_box& b, const rank_product& holders) { sink(f, b, holders); }));
  }
  /// held() of every family; where the rank sits is found out once.
  template <typename Sink>
  friend constexpr void each_held(const computed_holding& h, rank_t rank, role r, Sink&& sink) {
    const seat at(h.space_, rank);
    int f = 0;
    const auto give = held_sink::of([&](const family_box& b) { sink(f, b); });
    for (; f < h.families(); ++f)
      if (h.has(f, r)) h.boxes_of(f, at, h.cut_of(r), give);
  }
  template <typename Sink>
  friend constexpr void each_shared(const computed_holding& h, rank_t rank, role r, Sink&& sink) {
    h.all_shared(rank, r, detail::sink<int, const family_box&, const rank_product&>::of(sink));
  }

  template <typename Sink>
  constexpr void owners(int f, role r, const family_box& within, Sink&& sink) const {
    if (within.empty() || within.dim[axis_of::row].begin >= family_at(f).extent[axis_of::row] || !has(f, r)) return;
    owners_of(f, within, cut_of(r), shared_sink::of(sink));
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

  /// Slice i of a bucket (space/detail/shard_slices.hpp).
  constexpr interval slice(index_t k, mesh_kind kind, index_t bucket, index_t i) const {
    return detail::bucket_slice(space_, buffers_, k, kind, bucket, i);
  }

  /// The slice that a rank has in its sharding group.
  constexpr index_t shard_index(mesh_kind kind, rank_t rank) const { return space_.shard_index(kind, rank); }

  /// Whether ranks of a sharding group have parts of a role's states, and not all of them.
  constexpr bool sharded(role r) const { return cuts_[static_cast<int>(r)] != cut::whole; }
  /// Whether optimizer buffers say where a role lies. Refuses a role that needs them where they were not tabulated.
  constexpr bool buffered(role r) const { return cut_of(r) == cut::buffers; }

  /// Whether a lower rank holds at least as many bytes. Where no buffers are cut the first rank of a stage does: it has
  /// part 0 of each cut and chunk 0 of the rows in it, and no part of chunk(N, n) is longer than part 0, nor is part 0
  /// than that of more rows. (Other parts may be: chunk 2 of 3 has 0 of 4 rows and 1 of 3.) Slices of buffers have
  /// gaps, and depend on the stage and the indices into the sharding groups: there only of ranks that are ordered from
  /// tensor parallelism on is more said than of ranks that share nothing.
  constexpr bool as_much_as_a_lower_rank(rank_t rank) const {
    if (space_.degrees().zero == 0 || space_.degrees().shard == shard_by::rows)
      return rank != space_.first_rank(space_.stage_of(rank));
    return rank % alike_[0] != 0 && rank % alike_[1] != 0;
  }

 private:
  using held_sink = detail::held_sink;
  using shared_sink = detail::shared_sink;
  using seat = detail::rank_seat;
  using reader = detail::holder_ranks::reader;

  /// Neighbouring ranks that have the same index in the dense and in the expert sharding groups: those that differ in
  /// tensor and expert parallelism alone, where these come first in the order; else each by itself.
  constexpr void find_alike() {
    const mesh& dense = space_.mesh_for(mesh_kind::dense);
    const mesh& expert = space_.mesh_for(mesh_kind::expert);
    if (dense.at[mesh_axis::tensor] != 0 || expert.at[mesh_axis::middle] != 1) return;
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

  /// What is not whole.
  constexpr detail::shard_slices sliced(cut by) const { return {space_, holders_, buffers_, by == cut::rows}; }

  constexpr detail::uneven_shards uneven() const { return detail::uneven_shards(space_); }

  /// The boxes that a rank has of a family: shards, or the boxes of its slices.
  constexpr void boxes_of(int f, const seat& at, cut by, const held_sink& sink) const {
    const index_t i = at.slice[static_cast<int>(space_.shard_kind(f))];
    if (space_.cut_unevenly(f))
      return uneven().held(f, at, by != cut::whole, i, [&](index_t, const family_box& b) { sink(b); });
    if (by == cut::whole)
      return detail::shards_at(space_, f, at, [&](index_t, const family_box& shard) { sink(shard); });
    detail::shards_at(space_, f, at,
                      [&](index_t k, const family_box& shard) { sliced(by).boxes(f, k, shard, i, sink); });
  }

  constexpr int kind_of(int f) const { return static_cast<int>(family_at(f).mesh); }
  constexpr bool by_tensor(int f) const { return family_at(f).tensor_axis != axis_of::none; }

  /// The holders of whole shards at a seat that are not shared between stages, by reader_of and by_tensor.
  constexpr rank_product replicas_at(const seat& at, reader by, bool by_tensor) const {
    const int kind = by == reader::dense_ranks ? 0 : 1;
    return holders_.replicas(by, by_tensor, at.stage, at.expert[kind], at.tensor[kind]);
  }

  /// shared() of every family, compiled once.
  constexpr void all_shared(rank_t rank, role r,
                            const detail::sink<int, const family_box&, const rank_product&>& sink) const {
    const seat at(space_, rank);
    const bool whole = cut_of(r) == cut::whole;
    const rank_product replicas[3][2] = {
        {replicas_at(at, reader::dense_ranks, false), replicas_at(at, reader::dense_ranks, true)},
        {replicas_at(at, reader::experts, false), replicas_at(at, reader::experts, true)},
        {replicas_at(at, reader::expert_ranks, false), replicas_at(at, reader::expert_ranks, true)}};
    int f = 0;
    const auto give = shared_sink::of([&](const family_box& b, const rank_product& holders) { sink(f, b, holders); });
    for (; f < families(); ++f) {
      if (!has(f, r)) continue;
      if (!whole || space_.shared_between_stages(f) || space_.cut_unevenly(f)) shared_boxes_of(f, at, cut_of(r), give);
      else
        detail::shards_at(space_, f, at,
                          [&, &holders = replicas[holders_.reader_of(space_, f)][by_tensor(f)]](
                              index_t, const family_box& shard) { sink(f, shard, holders); });
    }
  }

  /// The boxes of boxes_of with their holders, which costs more.
  constexpr void shared_boxes_of(int f, const seat& at, cut by, const shared_sink& sink) const {
    const index_t e = at.expert[kind_of(f)], t = at.tensor[kind_of(f)];
    const index_t i = at.slice[static_cast<int>(space_.shard_kind(f))];
    std::vector<rank_t> list;
    if (space_.cut_unevenly(f))
      return uneven().held(f, at, by != cut::whole, i, [&](index_t k, const family_box& b) {
        sink(b, holders_of(f, {k, 0, e, t}, by, i, list));
      });
    detail::shards_at(space_, f, at, [&](index_t k, const family_box& shard) {
      if (by == cut::whole) return sink(shard, holders_.replicas(space_, f, k, e, t, list));
      const rank_product holders = holders_.sharers(space_, f, k, e, t, i, list);
      sliced(by).boxes(f, k, shard, i, held_sink::of([&](const family_box& b) { sink(b, holders); }));
    });
  }

  /// The shards of a family that meet `within`, with their holders: holder_ranks::replicas, its axes moved in place.
  constexpr void owners_of_shards(int f, const family_box& within, const shared_sink& sink) const {
    if (space_.shared_between_stages(f)) {
      std::vector<rank_t> list;
      return detail::each_shard(space_, f, within, [&](const detail::shard_at& at, const family_box& shard) {
        sink(shard, holders_.replicas(space_, f, at.k, at.e, at.t, list));
      });
    }
    rank_product holders = holders_.replicas(space_, f);
    index_t &stage = holders.axis(mesh_axis::pipeline).first, &e = holders.axis(mesh_axis::middle).first,
            &t = holders.axis(mesh_axis::tensor).first;
    const bool by_expert = space_.deals_experts(f), by_tensor = this->by_tensor(f);
    detail::each_shard(space_, f, within, [&](const detail::shard_at& at, const family_box& shard) {
      stage = space_.pipeline().stage_of_chunk(at.k);
      if (by_expert) e = at.e;
      if (by_tensor) t = at.t;
      sink(shard, holders);
    });
  }

  /// The holders of a shard, or of its slice i.
  constexpr rank_product holders_of(int f, const detail::shard_at& at, cut by, index_t i,
                                    std::vector<rank_t>& list) const {
    if (by == cut::whole) return holders_.replicas(space_, f, at.k, at.e, at.t, list);
    return holders_.sharers(space_, f, at.k, at.e, at.t, i, list);
  }

  /// The shards of a family that meet `within`, with their holders; or the boxes of their slices.
  constexpr void owners_of(int f, const family_box& within, cut by, const shared_sink& sink) const {
    if (space_.cut_unevenly(f)) {
      std::vector<rank_t> list;
      return uneven().owners(f, within, by != cut::whole,
                             [&](const detail::shard_at& at, index_t i, const family_box& b) {
                               const rank_product holders = holders_of(f, at, by, i, list);
                               if (holders.listed == nullptr || !list.empty()) sink(b, holders);
                             });
    }
    if (by == cut::whole) return owners_of_shards(f, within, sink);
    sliced(by).owners(f, within, sink);
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
