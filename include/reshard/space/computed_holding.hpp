// SPDX-License-Identifier: Apache-2.0
// The holding of a space: the boxes of a rank, and the owners of a box, by arithmetic; where ZeRO shards a state, by
// the slices of its optimizer buffers.
// Builds on: space/holding.hpp, space/optimizer_buffers.hpp.
#pragma once

#include <algorithm>
#include <vector>

#include <reshard/algebra/flat.hpp>
#include <reshard/base/sink.hpp>
#include <reshard/space/holding.hpp>
#include <reshard/space/optimizer_buffers.hpp>

namespace reshard {

/// The holding of a space, which it keeps. Optimizer buffers are tabulated only where `wanted` needs them.
class computed_holding {
 public:
  constexpr explicit computed_holding(const reshard::space& s, state_set wanted = all_states)
      : space_(s), states_(wanted), sharded_(s.degrees().zero >= 1 && !(wanted & optimizer_states).empty()) {
    if (sharded_) buffers_ = optimizer_buffers(s);
  }

  constexpr const reshard::space& space() const { return space_; }
  constexpr state_set states() const { return states_; }
  constexpr const optimizer_buffers& buffers() const { return buffers_; }
  constexpr rank_t ranks() const { return space_.ranks(); }
  constexpr int families() const { return space_.families(); }
  constexpr const family& family_at(int f) const { return space_.family_at(f); }

  template <typename Sink>
  constexpr void held(int f, rank_t rank, role r, Sink&& sink) const {
    boxes_of(f, rank, sharded(r), false, owner_sink::of([&](const family_box& b, const rank_product&) { sink(f, b); }));
  }
  template <typename Sink>
  constexpr void shared(int f, rank_t rank, role r, Sink&& sink) const {
    boxes_of(f, rank, sharded(r), true,
             owner_sink::of([&](const family_box& b, const rank_product& holders) { sink(f, b, holders); }));
  }

  template <typename Sink>
  constexpr void owners(int f, role r, const family_box& within, Sink&& sink) const {
    if (within.empty()) return;
    owners_of(f, within, sharded(r), owner_sink::of(sink));
  }

  /// Parameters lie in the model's order; optimizer buffers in reverse of it.
  constexpr storage_order order_of(const tensor_id& t, rank_t rank, role r) const {
    const home place = family_at(t.family).place;
    storage_order order{0, 0, t.family, t.expert};
    if (place == home::layers) order.section = 1, order.layer = space_.model().layers_of(t.family).layer_of(t.member);
    else if (place == home::last_stage) order.section = 2;
    else if (space_.holds_tied_copy(t.family, rank)) order.section = 3;
    return sharded(r) ? order.reversed() : order;
  }

  /// Slice i of a bucket, whose padding makes n equal parts of it: [begin + i length / n, begin + (i + 1) length / n).
  constexpr interval slice(index_t k, mesh_kind kind, index_t bucket, index_t i) const {
    const interval all = buffers_.bucket(k, kind, bucket);
    return translate(equal_part(all.end - all.begin, i, space_.sharding_group(kind)), all.begin);
  }

  /// The index of a rank in its sharding group: cp + CP dp, or edp.
  constexpr index_t shard_index(mesh_kind kind, rank_t rank) const {
    const mesh& m = space_.mesh_for(kind);
    // experts: the ranks of all ep between two edp
    const index_t within = kind == mesh_kind::dense ? 1 : m.extent[mesh_axis::middle];
    return rank / (m.extent[mesh_axis::tensor] * within) % space_.sharding_group(kind);
  }

  /// Whether optimizer buffers say where a role lies. Refuses a role that needs them where they were not tabulated.
  constexpr bool sharded(role r) const {
    if (r != role::optimizer) return false;
    if (!sharded_ && space_.degrees().zero >= 1)
      refuse("this holding was made without optimizer states, and is asked for them; name them where it is made");
    return sharded_;
  }

  /// Whether a lower rank holds as many bytes: what a rank holds depends on its stage and its indices into the sharding
  /// groups.
  constexpr bool as_much_as_a_lower_rank(rank_t rank) const {
    const index_t inside = rank % space_.stage_ranks();
    if (!sharded_) return inside != 0;
    const degrees& d = space_.degrees();
    return inside % d.tp != 0 && inside % (d.expert_tp() * d.ep) != 0;
  }

 private:
  using box_sink = detail::sink<const family_box&>;
  using owner_sink = detail::sink<const family_box&, const rank_product&>;
  static constexpr rank_product nobody{};  // where holders are not asked for

  /// Calls sink(box) with the family's boxes that a stretch of a buffer holds of one entry, in buffer order, in the
  /// coordinates of `shard`, the box whose local arrays the buffer packs.
  static constexpr void boxes_in(const buffer_entry& entry, const family_box& shard, interval stretch,
                                 const box_sink& sink) {
    const index_t local[3] = {shard.dim[2].size(), shard.dim[3].size(), shard.dim[4].size()};
    const auto emit = [&](interval members, interval experts, const box<3>& part) {
      const index_t last = entry.expert_last + shard.dim[1].begin;
      sink(family_box{{{entry.member_last - members.end + 1, entry.member_last - members.begin + 1},
                       {last - experts.end + 1, last - experts.begin + 1},
                       translate(part.dim[0], shard.dim[2].begin),
                       translate(part.dim[1], shard.dim[3].begin),
                       translate(part.dim[2], shard.dim[4].begin)}});
    };
    const interval all_experts{0, entry.experts};
    entry.outer.meet(
        stretch, [&](interval members) { emit(members, all_experts, whole_box(local)); },
        [&](index_t member, interval of_member) {
          const auto cut = [&](index_t expert, interval of_parameter) {
            invert_flat(local, of_parameter, [&](const box<3>& part) {
              emit({member, member + 1}, {expert, expert + 1}, part);
            });
          };
          if (entry.experts == 1) return cut(0, of_member);
          item_row{0, entry.experts, entry.inner_pitch, entry.elements}.meet(
              of_member,
              [&](interval experts) {
                emit({member, member + 1}, experts, whole_box(local));
              },
              cut);
        });
  }

  /// The boxes that a rank has of a family: shards, or where `sliced` the boxes of its slices; with their holders where
  /// `shared`, which costs more.
  constexpr void boxes_of(int f, rank_t rank, bool sliced, bool shared, const owner_sink& sink) const {
    const family& tensors = family_at(f);
    const pipeline_placement& pipeline = space_.pipeline();
    for (index_t k = rank / space_.stage_ranks(); k < pipeline.chunks(); k += pipeline.parts()) {
      const interval members = space_.chunk_members(f, k);
      if (members.empty()) continue;
      const mesh& m = space_.mesh_for(tensors.mesh);
      const index_t t = rank % m.extent[mesh_axis::tensor];
      const index_t e =
          tensors.mesh == mesh_kind::dense ? 0 : rank / m.extent[mesh_axis::tensor] % m.extent[mesh_axis::middle];
      const family_box shard = space_.shard_box(f, members, e, t);
      if (!sliced) {
        if (shared) sink(shard, replicas(f, k, e, t));
        else sink(shard, nobody);
        continue;
      }
      const mesh_kind kind = space_.buffer_kind(f);
      const index_t i = shard_index(kind, rank);
      const auto give_slices = [&](const rank_product& holders) {
        const auto give = box_sink::of([&](const family_box& b) { sink(b, holders); });
        for (const buffer_entry& entry : buffers_.entries(k, kind, f))
          boxes_in(entry, shard, slice(k, kind, entry.bucket, i), give);
      };
      if (shared) give_slices(shard_holders(f, kind, k, e, t, i));
      else give_slices(nobody);
    }
  }

  struct owned_box {
    family_box where;
    rank_product holders;
  };

  /// The holders of part (e, t), from those of part (0, 0); an axis that does not cut the family has the part 0 alone.
  static constexpr rank_product of_part(rank_product holders, index_t e, index_t t) {
    holders.along[mesh_axis::middle].first += e;
    holders.along[mesh_axis::tensor].first += t;
    return holders;
  }

  /// The shards of a family that meet `within`, with their holders; or, where `sliced`, the boxes of their slices.
  constexpr void owners_of(int f, const family_box& within, bool sliced, const owner_sink& sink) const {
    const family& tensors = family_at(f);
    const block experts(tensors.extent[axis_of::expert], space_.expert_parts(f));
    const int cut = tensors.tensor_axis == axis_of::none ? axis_of::column : tensors.tensor_axis;
    const block tensor(tensors.extent[cut], space_.tensor_parts(f));
    const interval chunks = space_.chunks_of_members(f, within.dim[axis_of::layer]);
    family_box shard = tensors.whole();
    const bool every_part = sliced && within.dim[axis_of::expert].contains(shard.dim[axis_of::expert]) &&
                            within.dim[cut].contains(shard.dim[cut]);
    std::vector<owned_box> first;  // of part (0, 0): slices cut every part alike
    for (index_t k = chunks.begin; k < chunks.end; ++k) {
      shard.dim[axis_of::layer] = space_.chunk_members(f, k);
      if (!intersects(shard.dim[axis_of::layer], within.dim[axis_of::layer])) continue;
      rank_product holders = replicas(f, k, 0, 0);
      first.clear();
      experts.owners(within.dim[axis_of::expert], [&](index_t e, interval expert_part) {
        shard.dim[axis_of::expert] = expert_part;
        holders.along[mesh_axis::middle].first = e;
        tensor.owners(within.dim[cut], [&](index_t t, interval tensor_part) {
          shard.dim[cut] = tensor_part;
          holders.along[mesh_axis::tensor].first = t;
          if (!sliced) {
            sink(shard, holders);
          } else if (!every_part) {
            shard_owners(f, k, e, t, shard, intersect(within, shard), sink);
          } else {
            if (e == 0 && t == 0)
              shard_owners(f, k, e, t, shard, intersect(within, shard),
                           owner_sink::of([&first](const family_box& b, const rank_product& sharing) {
                             first.push_back({b, sharing});
                           }));
            for (std::size_t i = 0; i < first.size(); ++i) {
              family_box b = first[i].where;
              b.dim[axis_of::expert] = translate(b.dim[axis_of::expert], expert_part.begin);
              b.dim[cut] = translate(b.dim[cut], tensor_part.begin);
              sink(b, of_part(first[i].holders, e, t));
            }
          }
        });
      });
    }
  }

  /// All ranks with the same whole shard: every coordinate that does not cut the family.
  constexpr rank_product replicas(int f, index_t k, index_t e, index_t t) const {
    const mesh& m = space_.mesh_for(f);
    const bool by_expert = family_at(f).mesh == mesh_kind::expert;
    const bool by_tensor = family_at(f).tensor_axis != axis_of::none;
    return {m,
            {by_tensor ? progression{t} : progression{0, m.extent[mesh_axis::tensor]},
             by_expert ? progression{e} : progression{0, m.extent[mesh_axis::middle]},
             {0, m.extent[mesh_axis::data]},
             space_.stages_holding(f, k)}};
  }

  /// The ranks with slice i of the buffer: tensor-parallel ranks too where the family is not cut by them.
  constexpr rank_product shard_holders(int f, mesh_kind kind, index_t k, index_t e, index_t t, index_t i) const {
    const mesh& m = space_.mesh_for(kind);
    const bool by_tensor = family_at(f).tensor_axis != axis_of::none;
    const index_t middle = m.extent[mesh_axis::middle];
    return {m,
            {by_tensor ? progression{t} : progression{0, m.extent[mesh_axis::tensor]},
             kind == mesh_kind::expert ? progression{e} : progression{i % middle},
             {kind == mesh_kind::expert ? i : i / middle},
             space_.stages_holding(f, k)}};
  }

  /// Walks the slices that meet `within` and calls sink(box, holders) with each one's boxes that do. It jumps from
  /// slice to slice, so the cost is that of the slices met, not of the layers and experts between them.
  constexpr void shard_owners(int f, index_t k, index_t e, index_t t, const family_box& shard, const family_box& within,
                              const owner_sink& sink) const {
    if (within.empty()) return;
    const mesh_kind kind = space_.buffer_kind(f);
    const index_t local[3] = {shard.dim[2].size(), shard.dim[3].size(), shard.dim[4].size()};
    box<3> part;
    for (int i = 0; i < 3; ++i) part.dim[i] = translate(within.dim[2 + i], -shard.dim[2 + i].begin);
    const interval hull = flat_hull(local, part);
    // entries descend by member, then by expert: skip those above `within`, stop below it
    const interval in_members = within.dim[0], in_experts = translate(within.dim[1], -shard.dim[1].begin);
    const auto all = buffers_.entries(k, kind, f);
    const buffer_entry* first = std::partition_point(all.begin(), all.end(), [&](const buffer_entry& above) {
      const index_t lowest = above.member_last - above.outer.count + 1;
      if (lowest != in_members.end - 1 || above.outer.count > 1) return lowest >= in_members.end;
      return above.expert_last - above.experts + 1 >= in_experts.end;
    });
    for (const buffer_entry* at_entry = first; at_entry != all.end(); ++at_entry) {
      const buffer_entry& entry = *at_entry;
      if (entry.member_last < in_members.begin) break;
      if (entry.outer.count == 1 && entry.member_last == in_members.begin && entry.expert_last < in_experts.begin)
        break;
      // items of the entry that lie in `within`, counted from the entry's first (descending members and experts)
      const interval members =
          intersect(interval{entry.member_last - within.dim[0].end + 1, entry.member_last - within.dim[0].begin + 1},
                    interval{0, entry.outer.count});
      const index_t last = entry.expert_last + shard.dim[1].begin;
      const interval experts =
          intersect(interval{last - within.dim[1].end + 1, last - within.dim[1].begin + 1}, interval{0, entry.experts});
      if (members.empty() || experts.empty()) continue;
      const item_row inner{entry.outer.item(members.begin).begin + experts.begin * entry.inner_pitch + hull.begin,
                           experts.size(), entry.inner_pitch, hull.size()};
      const item_row outer{inner.begin, members.size(), entry.outer.pitch,
                           inner.item(inner.count - 1).end - inner.begin};
      const interval bucket = buffers_.bucket(k, kind, entry.bucket);
      const index_t length = bucket.size() / space_.sharding_group(kind);
      for (index_t at = outer.begin;;) {
        const index_t member = outer.first_ending_after(at);
        if (member == outer.count) break;
        item_row row = inner;
        row.begin = outer.item(member).begin;
        const index_t begin = greatest(at, row.item(row.first_ending_after(at)).begin);
        const index_t i = (begin - bucket.begin) / length;
        const interval stretch{bucket.begin + i * length, bucket.begin + (i + 1) * length};
        const rank_product holders = shard_holders(f, kind, k, e, t, i);
        boxes_in(entry, shard, stretch, box_sink::of([&](const family_box& b) {
                   if (intersects(b, within)) sink(b, holders);
                 }));
        at = stretch.end;
      }
    }
  }

  reshard::space space_;
  state_set states_;
  bool sharded_;
  optimizer_buffers buffers_;
};

static_assert(Holding<computed_holding>);

}  // namespace reshard
