// SPDX-License-Identifier: Apache-2.0
// Who holds copies of a layout's state: a rank may have one of all that is its own, and, beside it, one of what another
// rank alone holds. What state lies in after deaths, where neighbours keep copies; and what they are sent.
// Builds on: space/holding.hpp, space/listed_holding.hpp.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <reshard/space/holding.hpp>
#include <reshard/space/listed_holding.hpp>

namespace reshard {

/// Whose copies there are, by rank of a layout.
struct rank_copies {
  std::vector<bool> own = {};       // whether a rank has a copy of all that it holds
  std::vector<rank_t> keeper = {};  // who has a copy of what it holds alone; -1: nobody

  /// A ring of n ranks: no rank has a copy of its own, and rank r's is kept by rank (r + shift) mod n.
  static rank_copies shifted(rank_t ranks, rank_t shift) {
    rank_copies c{std::vector<bool>(static_cast<std::size_t>(ranks), false), {}};
    for (rank_t r = 0; r < ranks; ++r) c.keeper.push_back(((r + shift) % ranks + ranks) % ranks);
    return c;
  }
  static rank_copies none(rank_t ranks) {
    return {std::vector<bool>(static_cast<std::size_t>(ranks), false),
            std::vector<rank_t>(static_cast<std::size_t>(ranks), -1)};
  }
};

/// A holding by its copies. Of a box b with holders R in `of`, those who have a copy are
///   { r in R : own[r] } with, where R = {r} and keeper[r] >= 0, keeper[r]
/// and a box that nobody has a copy of is in none of its answers but uncovered(). It keeps what it is made of. Refused:
/// copies of another number of ranks, and keepers that are no ranks.
template <Holding H>
class copied_holding {
 public:
  copied_holding(H of, rank_copies copies) : of_(std::move(of)), copies_(std::move(copies)) {
    const auto n = static_cast<std::size_t>(of_.ranks());
    if (copies_.own.size() != n || copies_.keeper.size() != n)
      refuse("copies: ", copies_.own.size(), " of a rank's own and ", copies_.keeper.size(),
             " keepers, and the layout has ", n, " ranks");
    kept_.resize(n);
    for (rank_t r = 0; r < of_.ranks(); ++r) {
      const rank_t at = copies_.keeper[static_cast<std::size_t>(r)];
      if (at < -1 || at >= of_.ranks())
        refuse("copies: rank ", at, " keeps those of rank ", r, ", and ranks are 0 to ", of_.ranks() - 1);
      if (at >= 0) kept_[static_cast<std::size_t>(at)].push_back(r);
    }
  }

  /// The holding that the copies are of.
  const H& all() const { return of_; }
  rank_t ranks() const { return of_.ranks(); }
  state_set states() const { return of_.states(); }
  int families() const { return of_.families(); }
  const family& family_at(int f) const { return of_.family_at(f); }
  /// A rank's come as its own do; where it has no copy of its own, as on the first of the ranks that it keeps those of.
  storage_order order_of(const tensor_id& t, rank_t rank, role r) const {
    const std::vector<rank_t>& kept = kept_[static_cast<std::size_t>(rank)];
    return of_.order_of(t, has_own(rank) || kept.empty() ? rank : kept[0], r);
  }

  template <typename Sink>
  void held(int f, rank_t rank, role r, Sink&& sink) const {
    if (has_own(rank)) of_.held(f, rank, r, sink);
    each_kept(f, rank, r, [&](const family_box& b, rank_t) { sink(f, b); });
  }
  template <typename Sink>
  void shared(int f, rank_t rank, role r, Sink&& sink) const {
    if (has_own(rank))
      of_.shared(f, rank, r, [&](int, const family_box& b, const Holders auto& holders) {
        const std::vector<rank_t> here = with_copies(holders);
        sink(f, b, listed_ranks{&here});
      });
    each_kept(f, rank, r, [&](const family_box& b, rank_t of) {
      const std::vector<rank_t> here = with_copies_of(of);
      sink(f, b, listed_ranks{&here});
    });
  }
  template <typename Sink>
  void owners(int f, role r, const family_box& within, Sink&& sink) const {
    of_.owners(f, r, within, [&](const family_box& b, const Holders auto& holders) {
      if (const std::vector<rank_t> here = with_copies(holders); !here.empty()) sink(b, listed_ranks{&here});
    });
  }
  /// Calls sink(box) for every distinct box that meets `within` and that nobody has a copy of.
  template <typename Sink>
  void uncovered(int f, role r, const family_box& within, Sink&& sink) const {
    of_.owners(f, r, within, [&](const family_box& b, const Holders auto& holders) {
      if (with_copies(holders).empty()) sink(b);
    });
  }

 private:
  bool has_own(rank_t rank) const { return copies_.own[static_cast<std::size_t>(rank)]; }

  /// What a rank keeps of others: sink(box, whose).
  template <typename Sink>
  void each_kept(int f, rank_t rank, role r, Sink&& sink) const {
    for (const rank_t of : kept_[static_cast<std::size_t>(rank)]) {
      if (of == rank && has_own(rank)) continue;
      of_.shared(f, of, r, [&](int, const family_box& b, const Holders auto& holders) {
        if (holders.count() == 1) sink(b, of);
      });
    }
  }
  std::vector<rank_t> with_copies(const Holders auto& holders) const {
    if (holders.count() == 1) return with_copies_of(holders[0]);
    std::vector<rank_t> here;
    for (index_t i = 0; i < holders.count(); ++i)
      if (has_own(holders[i])) here.push_back(holders[i]);
    return here;
  }
  /// Who has a copy of what a rank holds alone.
  std::vector<rank_t> with_copies_of(rank_t alone) const {
    const rank_t keeper = copies_.keeper[static_cast<std::size_t>(alone)];
    std::vector<rank_t> here;
    if (has_own(alone)) here.push_back(alone);
    if (keeper >= 0 && !(keeper == alone && has_own(alone)))
      here.insert(std::upper_bound(here.begin(), here.end(), keeper), keeper);
    return here;
  }

  H of_;
  rank_copies copies_;
  std::vector<std::vector<rank_t>> kept_;  // by keeper: of whom
};

/// sum over the boxes of uncovered() of volume x the widths of the wanted states: 0 iff the copies hold every element.
template <Holding H>
[[nodiscard]] bytes_t uncovered_bytes(const copied_holding<H>& copies) {
  bytes_t bytes = 0;
  for (const role r : roles) {
    const bytes_t width = copies.states().of(r).bytes_per_element();
    if (width == 0) continue;
    for (int f = 0; f < copies.families(); ++f)
      copies.uncovered(f, r, copies.family_at(f).whole(),
                       [&](const family_box& b) { bytes = checked_add(bytes, checked_multiply(b.volume(), width)); });
  }
  return bytes;
}

}  // namespace reshard
