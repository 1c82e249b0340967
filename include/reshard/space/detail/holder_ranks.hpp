// SPDX-License-Identifier: Apache-2.0
// Which ranks of a space hold the same: replicas of a shard, and the holders of one of its slices. A product of
// coordinates; where the order of the ranks makes it none, a list.
// Builds on: space/space.hpp, parallelism/rank_product.hpp.
#pragma once

#include <vector>

#include <reshard/parallelism/rank_product.hpp>
#include <reshard/space/space.hpp>

namespace reshard::detail {

/// Answers for one space; lists are written to the memory that the caller lends.
class holder_ranks {
 public:
  constexpr explicit holder_ranks(const space& s) {
    const mesh& dense = s.mesh_for(mesh_kind::dense);
    const mesh& expert = s.mesh_for(mesh_kind::expert);
    // experts whose states are cut among dense ranks: their tensor parts are those of the dense reading, or a list
    readings_differ_ =
        dense.along(mesh_axis::tensor) > 1 && dense.pitch(mesh_axis::tensor) != expert.pitch(mesh_axis::tensor);
    middle_first_ = dense.at[mesh_axis::middle] < dense.at[mesh_axis::data];
    fast_ = middle_first_ ? mesh_axis::middle : mesh_axis::data;
    slow_ = middle_first_ ? mesh_axis::data : mesh_axis::middle;
    const index_t fast = dense.along(fast_), shards = s.shards(mesh_kind::dense);
    if (shards % fast == 0) dense_ = group::fast_alone;
    else if (fast % shards == 0) dense_ = group::slow_whole;
    else dense_ = dense.at[slow_] == dense.at[fast_] + 1 ? group::merged : group::listed;
    for (const reader by : {reader::dense_ranks, reader::experts, reader::expert_ranks})
      for (const bool by_tensor : {false, true}) {
        const mesh& m = by == reader::dense_ranks ? dense : expert;
        rank_product& all = replicas_[by][by_tensor];
        all.on = m;
        all.axis(mesh_axis::tensor).count = by_tensor ? 1 : m.along(mesh_axis::tensor);
        all.axis(mesh_axis::middle).count = by == reader::experts ? 1 : m.along(mesh_axis::middle);
        all.axis(mesh_axis::data).count = m.along(mesh_axis::data);
      }
  }

  /// What tells a family's whole shards apart beside stage and tensor part: nothing, on the dense mesh or on that of
  /// the experts, or its part of the experts.
  enum reader : int { dense_ranks, experts, expert_ranks };
  static constexpr reader reader_of(const space& s, int f) {
    if (s.family_at(f).mesh == mesh_kind::dense) return reader::dense_ranks;
    return s.deals_experts(f) ? reader::experts : reader::expert_ranks;
  }

  /// Whether holders of a family's slices are a list.
  constexpr bool lists_slices(const space& s, int f) const {
    return s.shard_kind(f) == mesh_kind::dense &&
           (dense_ == group::listed || (s.family_at(f).mesh == mesh_kind::expert && readings_differ_));
  }

  /// All ranks with a shard of a family, but for what tells shards apart: stage 0, expert part 0, tensor part 0.
  constexpr const rank_product& replicas(const space& s, int f) const {
    return replicas_[reader_of(s, f)][s.family_at(f).tensor_axis != axis_of::none];
  }

  /// All ranks with the same whole shard, of a family that one stage has: every coordinate that does not cut it.
  constexpr rank_product replicas(reader by, bool by_tensor, index_t stage, index_t e, index_t t) const {
    rank_product all = replicas_[by][by_tensor];
    all.axis(mesh_axis::pipeline).first = stage;
    if (by == reader::experts) all.axis(mesh_axis::middle).first = e;
    if (by_tensor) all.axis(mesh_axis::tensor).first = t;
    return all;
  }
  /// All ranks with the same whole shard, of any family.
  constexpr rank_product replicas(const space& s, int f, index_t k, index_t e, index_t t,
                                  std::vector<rank_t>& list) const {
    const bool shared = s.shared_between_stages(f);
    rank_product all = replicas(reader_of(s, f), s.family_at(f).tensor_axis != axis_of::none,
                                shared ? 0 : s.pipeline().stage_of_chunk(k), e, t);
    if (shared) put_at_stages(s, f, k, all, list);
    return all;
  }

  /// The ranks with slice i of what (e, t) has: tensor-parallel ranks too where the family is not cut by them.
  constexpr rank_product sharers(const space& s, int f, index_t k, index_t e, index_t t, index_t i,
                                 std::vector<rank_t>& list) const {
    const mesh_kind kind = s.shard_kind(f);
    if (lists_slices(s, f)) return listed_sharers(s, f, k, e, t, i, list);
    const mesh& m = s.mesh_for(kind);
    const index_t instances = s.degrees().instances, shards = s.shards(kind);
    rank_product all{m, {}};
    all.axis(mesh_axis::tensor) =
        s.family_at(f).tensor_axis != axis_of::none ? progression{t} : progression{0, m.along(mesh_axis::tensor)};
    if (kind == mesh_kind::expert) {
      all.axis(mesh_axis::middle) = s.deals_experts(f) ? progression{e} : progression{0, m.along(mesh_axis::middle)};
      all.axis(mesh_axis::data) = {i, instances, shards};
    } else if (const index_t fast = m.along(fast_); dense_ == group::fast_alone) {
      const index_t row = fast == 1 ? i : i / fast;
      all.axis(fast_) = {i - row * fast};
      all.axis(slow_) = {row, instances, fast == 1 ? shards : shards / fast};
    } else if (dense_ == group::slow_whole) {
      all.axis(fast_) = {i, fast / shards, shards};
      all.axis(slow_) = {0, m.along(slow_)};
    } else {  // the two axes, side by side, as one
      all.on.extent[m.at[fast_]] = fast * m.along(slow_);
      all.on.extent[m.at[slow_]] = 1;
      all.axis(fast_) = {i, instances, shards};
      all.axis(slow_) = {0};
    }
    if (!s.shared_between_stages(f)) all.axis(mesh_axis::pipeline) = {s.pipeline().stage_of_chunk(k)};
    else put_at_stages(s, f, k, all, list);
    return all;
  }

 private:
  /// How the members { j : j mod shards == i } of the dense group lie on its two axes.
  enum class group {
    fast_alone,  // one coordinate of the faster axis, a progression of the slower
    slow_whole,  // a progression of the faster axis, all of the slower
    merged,      // a progression of both read as one
    listed,      // no product
  };

  /// The product at the stages that hold chunk k's part of the family: one, or several in a progression; else a list.
  static constexpr void put_at_stages(const space& s, int f, index_t k, rank_product& all, std::vector<rank_t>& list) {
    index_t stages[3] = {}, count = 0;
    s.each_stage_holding(f, k, [&](index_t stage) { stages[count++] = stage; });
    progression& along = all.axis(mesh_axis::pipeline);
    along = {stages[0], count, count > 1 ? stages[1] - stages[0] : 1};
    if (count < 3 || stages[2] - stages[1] == along.step) return;
    list.clear();
    const auto held = [&](index_t stage) { return stage == stages[0] || stage == stages[1] || stage == stages[2]; };
    along = {0, s.degrees().pp};
    for (index_t i = 0; i < all.count(); ++i)
      if (held(s.stage_of(all[i]))) list.push_back(all[i]);
    all.listed = &list;
  }

  constexpr rank_product listed_sharers(const space& s, int f, index_t k, index_t e, index_t t, index_t i,
                                        std::vector<rank_t>& list) const {
    rank_product all = replicas(s, f, k, e, t, list);
    std::vector<rank_t> sharing;
    for (index_t r = 0; r < all.count(); ++r)
      if (s.shard_index(mesh_kind::dense, all[r]) == i) sharing.push_back(all[r]);
    list = static_cast<std::vector<rank_t>&&>(sharing);
    all.listed = &list;
    return all;
  }

  bool readings_differ_ = false;
  bool middle_first_ = true;
  int fast_ = mesh_axis::middle;
  int slow_ = mesh_axis::data;
  group dense_ = group::fast_alone;
  rank_product replicas_[3][2];  // by reader, and whether tensor parallelism cuts the family
};

}  // namespace reshard::detail
