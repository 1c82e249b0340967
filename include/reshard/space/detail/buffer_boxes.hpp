// SPDX-License-Identifier: Apache-2.0
// The boxes of optimizer buffers: which boxes of a family a stretch of a buffer holds, and which slices meet a box.
// Builds on: algebra/flat.hpp, space/detail/optimizer_buffers.hpp.
#pragma once

#include <algorithm>

#include <reshard/algebra/flat.hpp>
#include <reshard/space/detail/optimizer_buffers.hpp>

namespace reshard::detail {

/// Calls sink(box) with the family's boxes that a stretch of a buffer holds of one entry, in buffer order, in the
/// coordinates of `shard`, the box whose local arrays the buffer packs.
template <typename Sink>
constexpr void boxes_in(const buffer_entry& entry, const family_box& shard, interval stretch, Sink&& sink) {
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

/// Calls sink(entry, stretch, i) with the slices, by index i and stretch of the buffer, that meet `within`, a box of
/// the shard, and the entry that they meet there. It jumps from slice to slice, so the cost is that of the slices met,
/// not of the layers and experts between them.
template <typename Sink>
constexpr void meeting(const optimizer_buffers& buffers, index_t k, mesh_kind kind, index_t shards, int f,
                       const family_box& shard, const family_box& within, Sink&& sink) {
  if (within.empty()) return;
  const index_t local[3] = {shard.dim[2].size(), shard.dim[3].size(), shard.dim[4].size()};
  box<3> part;
  for (int i = 0; i < 3; ++i) part.dim[i] = translate(within.dim[2 + i], -shard.dim[2 + i].begin);
  const interval hull = flat_hull(local, part);
  // entries descend by member, then by expert: skip those above `within`, stop below it
  const interval in_members = within.dim[0], in_experts = translate(within.dim[1], -shard.dim[1].begin);
  const auto all = buffers.entries(k, kind, f);
  const buffer_entry* first = std::partition_point(all.begin(), all.end(), [&](const buffer_entry& above) {
    const index_t lowest = above.member_last - above.outer.count + 1;
    if (lowest != in_members.end - 1 || above.outer.count > 1) return lowest >= in_members.end;
    return above.expert_last - above.experts + 1 >= in_experts.end;
  });
  for (const buffer_entry* at_entry = first; at_entry != all.end(); ++at_entry) {
    const buffer_entry& entry = *at_entry;
    if (entry.member_last < in_members.begin) break;
    if (entry.outer.count == 1 && entry.member_last == in_members.begin && entry.expert_last < in_experts.begin) break;
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
    const item_row outer{inner.begin, members.size(), entry.outer.pitch, inner.item(inner.count - 1).end - inner.begin};
    const interval bucket = buffers.bucket(k, kind, entry.bucket);
    const index_t length = bucket.size() / shards;
    for (index_t at = outer.begin;;) {
      const index_t member = outer.first_ending_after(at);
      if (member == outer.count) break;
      item_row row = inner;
      row.begin = outer.item(member).begin;
      const index_t begin = greatest(at, row.item(row.first_ending_after(at)).begin);
      const index_t i = (begin - bucket.begin) / length;
      const interval stretch{bucket.begin + i * length, bucket.begin + (i + 1) * length};
      sink(entry, stretch, i);
      at = stretch.end;
    }
  }
}

}  // namespace reshard::detail
