// SPDX-License-Identifier: Apache-2.0
// A holding without some of its ranks: what is left when devices are lost. Its holders are another's without the lost,
// by subtraction, so that they cost what the lost ranks are, not what the world is.
// Builds on: space/holding.hpp.
#pragma once

#include <utility>
#include <vector>

#include <reshard/algebra/interval.hpp>
#include <reshard/space/holding.hpp>

namespace reshard {

/// { h : h in all, h in none of the intervals of lost ranks }, which are ascending and disjoint; `all` outlives it.
///   count = | all | - | lost holders |, (*this)[i] = all[i + | lost holders before it |]
template <Holders All>
class living_holders {
 public:
  constexpr living_holders(const All& all, const std::vector<interval>& lost) : all_(&all), count_(all.count()) {
    for (const interval& ranks : lost) {
      const index_t first = ranks.size() == 1 ? all.index_of(ranks.begin) : all.count_below(ranks.begin);
      const index_t holding = ranks.size() == 1 ? (first < 0 ? 0 : 1) : all.count_below(ranks.end) - first;
      if (holding == 0) continue;
      count_ -= holding;
      if (!gone_.empty() && gone_.back().end == first) gone_.back().end += holding;
      else gone_.push_back({first, first + holding});
    }
  }
  living_holders(const All&&, const std::vector<interval>&) = delete;  // a temporary would not outlive it
  /// All holders, also those that are lost.
  constexpr const All& all() const { return *all_; }
  constexpr index_t count() const { return count_; }
  constexpr rank_t operator[](index_t i) const {
    for (const interval& gone : gone_) {
      if (i < gone.begin) break;
      i += gone.size();
    }
    return (*all_)[i];
  }
  constexpr index_t index_of(rank_t rank) const {
    const index_t index = all_->index_of(rank);
    index_t before = 0;
    for (const interval& gone : gone_) {
      if (index < gone.begin) break;
      if (index < gone.end) return -1;
      before += gone.size();
    }
    return index - before;
  }
  constexpr index_t count_below(rank_t rank) const {
    index_t below = all_->count_below(rank);
    const index_t all = below;
    for (const interval& gone : gone_) below -= gone.begin < all ? least(gone.end, all) - gone.begin : 0;
    return below;
  }
  constexpr bool contains(rank_t rank) const { return index_of(rank) >= 0; }

 private:
  const All* all_;
  index_t count_;
  std::vector<interval> gone_;  // places in all
};

/// A holding of which the ranks of some intervals hold nothing; the other one outlives it. Refuses intervals that are
/// not ascending and disjoint, of ranks that there are. What they alone held is in no box of it:
///   owners(f, role, b) = { (x, living) : (x, holders) in other.owners(f, role, b), living = holders - lost, not 0 }
///   lost(f, role, b)   = { x : (x, holders) in other.owners(f, role, b), holders - lost empty }
template <Holding H>
class living_holding {
 public:
  constexpr living_holding(const H& of, std::vector<interval> lost) : of_(&of), lost_(std::move(lost)) {
    interval before;
    for (const interval& ranks : lost_) {
      if (ranks.begin < 0 || ranks.end < ranks.begin || ranks.end > of.ranks())
        refuse("living: ranks [", ranks.begin, ", ", ranks.end, ") are called lost, but ranks are 0 to ",
               of.ranks() - 1);
      if (ranks.begin < before.end)
        refuse("living: ranks [", ranks.begin, ", ", ranks.end, ") are called lost after [", before.begin, ", ",
               before.end, "); lost ranks are told in ascending order, each once");
      before = ranks;
    }
  }
  living_holding(const H&&, std::vector<interval>) = delete;  // a temporary would not outlive it

  /// The holding with all its ranks, and those that are lost.
  constexpr const H& all() const { return *of_; }
  constexpr const std::vector<interval>& lost_ranks() const { return lost_; }

  constexpr rank_t ranks() const { return of_->ranks(); }
  constexpr state_set states() const { return of_->states(); }
  constexpr int families() const { return of_->families(); }
  constexpr const family& family_at(int f) const { return of_->family_at(f); }
  constexpr storage_order order_of(const tensor_id& t, rank_t rank, role r) const { return of_->order_of(t, rank, r); }

  template <typename Sink>
  constexpr void held(int f, rank_t rank, role r, Sink&& sink) const {
    if (lives(rank)) of_->held(f, rank, r, sink);
  }
  template <typename Sink>
  constexpr void shared(int f, rank_t rank, role r, Sink&& sink) const {
    if (!lives(rank)) return;
    of_->shared(f, rank, r, [&](int, const family_box& b, const Holders auto& holders) {
      sink(f, b, living_holders(holders, lost_));
    });
  }
  template <typename Sink>
  constexpr void owners(int f, role r, const family_box& within, Sink&& sink) const {
    of_->owners(f, r, within, [&](const family_box& b, const Holders auto& holders) {
      if (const living_holders living(holders, lost_); living.count() > 0) sink(b, living);
    });
  }
  /// Calls sink(box) for every distinct box that meets `within` and that lost ranks alone held.
  template <typename Sink>
  constexpr void lost(int f, role r, const family_box& within, Sink&& sink) const {
    of_->owners(f, r, within, [&](const family_box& b, const Holders auto& holders) {
      if (living_holders(holders, lost_).count() == 0) sink(b);
    });
  }

  constexpr bool lives(rank_t rank) const {
    for (const interval& ranks : lost_)
      if (ranks.contains(rank)) return false;
    return true;
  }

 private:
  const H* of_;
  std::vector<interval> lost_;
};

}  // namespace reshard
