// SPDX-License-Identifier: Apache-2.0
// Foreign layouts: a framework that knows its own shards hands over a list of (rank, tensor, offset, shape); with the
// table of the tensors they belong to they are a Holding like any computed one, and can be planned from and to.
// Builds on: space/shard_boxes.hpp, space/shard.hpp, space/holding.hpp, algebra/find_overlap.hpp.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <reshard/algebra/find_overlap.hpp>
#include <reshard/space/holding.hpp>
#include <reshard/space/shard.hpp>
#include <reshard/space/shard_boxes.hpp>

namespace reshard {

/// The holders of a listed box: ranks, ascending.
struct listed_ranks {
  const std::vector<rank_t>* ranks;

  index_t count() const { return static_cast<index_t>(ranks->size()); }
  rank_t operator[](index_t i) const { return (*ranks)[static_cast<std::size_t>(i)]; }
  index_t count_below(rank_t rank) const {
    return std::lower_bound(ranks->begin(), ranks->end(), rank) - ranks->begin();
  }
  index_t index_of(rank_t rank) const {
    const index_t at = count_below(rank);
    return at < count() && (*this)[at] == rank ? at : -1;
  }
  bool contains(rank_t rank) const { return index_of(rank) >= 0; }
};

static_assert(Holders<listed_ranks>);

/// A list of shards as a Holding. Refuses what no tensor table admits: an unknown name, a shape that is not the
/// tensor's, a shard that reaches outside, shards of two ranks that overlap without being equal, states of one role
/// that lie differently.
class listed_holding {
 public:
  listed_holding(tensor_table table, const std::vector<shard>& shards, rank_t ranks, const state_list& states = adam)
      : table_(std::move(table)), ranks_(ranks) {
    std::vector<entry> entries;
    for (const shard& s : shards) expand(s, states, entries);
    for (std::size_t r = 0; r < std::size(roles); ++r) collect(entries, roles[r], boxes_[r]);
  }
  listed_holding(tensor_table table, const shard_list& list, const state_list& states = adam)
      : listed_holding(std::move(table), list.shards(), list.ranks(), states) {}
  /// A list by itself, without a model.
  explicit listed_holding(const shard_list& list, const state_list& states = adam)
      : listed_holding(tensor_table{&list.shards()}, list, states) {}

  rank_t ranks() const { return ranks_; }
  int families() const { return table_.families(); }
  const family& family_at(int f) const { return table_.family_at(f); }
  const tensor_table& table() const { return table_; }

  /// The states that are listed.
  state_set states() const { return listed_; }

  template <typename Sink>
  void held(int f, rank_t rank, role r, Sink&& sink) const {
    shared(f, rank, r, [&](int, const family_box& b, const listed_ranks&) { sink(f, b); });
  }
  template <typename Sink>
  void shared(int f, rank_t rank, role r, Sink&& sink) const {
    const per_role& boxes = boxes_[static_cast<std::size_t>(r)];
    const std::vector<held_box>& by_rank = boxes.by_rank;
    const held_box key{rank, f, 0};
    for (auto at = std::lower_bound(by_rank.begin(), by_rank.end(), key);
         at != by_rank.end() && at->rank == rank && at->family == f; ++at) {
      const listed_box& b = boxes.distinct[at->box];
      sink(f, b.where, listed_ranks{&b.ranks});
    }
  }
  template <typename Sink>
  void owners(int f, role r, const family_box& within, Sink&& sink) const {
    const per_role& boxes = boxes_[static_cast<std::size_t>(r)];
    const auto first = boxes.distinct.begin() + boxes.first[static_cast<std::size_t>(f)];
    const auto last = boxes.distinct.begin() + boxes.first[static_cast<std::size_t>(f) + 1];
    // no box of the family is longer along its first axis
    const index_t reach = boxes.longest[static_cast<std::size_t>(f)];
    auto at = std::partition_point(
        first, last, [&](const listed_box& b) { return b.where.dim[0].begin <= within.dim[0].begin - reach; });
    for (; at != last && at->where.dim[0].begin < within.dim[0].end; ++at)
      if (intersects(at->where, within)) sink(at->where, listed_ranks{&at->ranks});
  }

  /// Lists say nothing of memory: tensors in the table's order.
  storage_order order_of(const tensor_id& t, rank_t, role) const { return {0, t.member, t.family, t.expert}; }

 private:
  struct entry {
    int family;
    family_box where;
    int state;
    rank_t rank;
  };
  struct listed_box {
    int family;
    family_box where;
    std::vector<rank_t> ranks;
  };
  struct held_box {
    rank_t rank;
    int family;
    std::size_t box;
    friend auto operator<=>(const held_box&, const held_box&) = default;
    friend bool operator==(const held_box&, const held_box&) = default;
  };
  struct per_role {
    std::vector<listed_box> distinct;   // by family, then box
    std::vector<std::ptrdiff_t> first;  // per family
    std::vector<index_t> longest;       // per family
    std::vector<held_box> by_rank;
  };

  void expand(const shard& s, const state_list& states, std::vector<entry>& entries) {
    if (s.rank < 0 || s.rank >= ranks_)
      refuse("shard of '", s.tensor, "': rank ", s.rank, " of a world of ", ranks_, " ranks");
    const shard_place at = locate(table_, s, "", states);
    listed_ = listed_ | states.only(at.state);
    shard_boxes(table_, s, at, [&](const family_box& b, index_t) {
      entries.push_back({at.tensor.family, b, at.state, s.rank});
    });
  }

  void collect(std::vector<entry>& entries, role r, per_role& out) {
    const state_set wanted = listed_.of(r);
    const auto before = [](const entry& a, const entry& b) {
      if (a.family != b.family) return a.family < b.family;
      if (a.where != b.where) return precedes(a.where, b.where);
      if (a.rank != b.rank) return a.rank < b.rank;
      return a.state < b.state;
    };
    std::sort(entries.begin(), entries.end(), before);
    out.longest.assign(static_cast<std::size_t>(families()), 0);
    for (std::size_t i = 0; i < entries.size();) {
      const entry& head = entries[i];
      listed_box b{head.family, head.where, {}};
      for (; i < entries.size() && entries[i].family == head.family && entries[i].where == head.where;) {
        const rank_t rank = entries[i].rank;
        std::uint32_t states = 0;
        for (; i < entries.size() && entries[i].family == head.family && entries[i].where == head.where &&
               entries[i].rank == rank;
             ++i)
          states |= 1u << entries[i].state;
        states &= wanted.bits();
        if (states == 0) continue;
        if (states != wanted.bits())
          refuse("rank ", rank, " lists some states of a box of '", family_at(head.family).name,
                 "' and not others; states of one level, such as those of the optimizer, lie alike");
        b.ranks.push_back(rank);
      }
      if (b.ranks.empty()) continue;
      for (const rank_t rank : b.ranks) out.by_rank.push_back({rank, b.family, out.distinct.size()});
      index_t& longest = out.longest[static_cast<std::size_t>(b.family)];
      longest = greatest(longest, b.where.dim[0].size());
      out.distinct.push_back(static_cast<listed_box&&>(b));
    }
    std::sort(out.by_rank.begin(), out.by_rank.end());
    for (int f = 0; f <= families(); ++f)
      out.first.push_back(std::partition_point(out.distinct.begin(), out.distinct.end(),
                                               [f](const listed_box& b) { return b.family < f; }) -
                          out.distinct.begin());
    require_disjoint(out);
  }

  /// Any two distinct boxes of a family are disjoint.
  void require_disjoint(const per_role& listed) const {
    for (int f = 0; f < families(); ++f) {
      std::vector<family_box> boxes;
      const auto first = static_cast<std::size_t>(listed.first[static_cast<std::size_t>(f)]);
      const auto past = static_cast<std::size_t>(listed.first[static_cast<std::size_t>(f) + 1]);
      for (std::size_t i = first; i < past; ++i) boxes.push_back(listed.distinct[i].where);
      const box_pair found = find_overlap(boxes);
      if (found.first == found.second) continue;
      refuse("shards of '", family_at(f).name, "' on ranks ", listed.distinct[first + found.first].ranks[0], " and ",
             listed.distinct[first + found.second].ranks[0],
             " overlap without being equal; cut them so that any two are equal or disjoint");
    }
  }

  tensor_table table_;
  rank_t ranks_;
  state_set listed_;
  per_role boxes_[std::size(roles)];
};

static_assert(Holding<listed_holding>);

}  // namespace reshard
