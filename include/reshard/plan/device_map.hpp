// SPDX-License-Identifier: Apache-2.0
// Which device each rank of one side sits on: an injective map, as runs of consecutive ranks on consecutive devices, so
// that its inverse is arithmetic over ranges. Worlds may grow, shrink from the middle, overlap or lie apart.
// Builds on: algebra/interval.hpp, base/sort.hpp.
#pragma once

#include <algorithm>
#include <vector>

#include <reshard/algebra/interval.hpp>
#include <reshard/base/sort.hpp>

namespace reshard {

/// Which device each rank of one side sits on, at most one rank to a device.
class device_map {
 public:
  /// Rank r sits on device r, of as many ranks as there are.
  constexpr device_map() = default;
  constexpr explicit device_map(rank_t ranks) : ranks_(ranks) {}

  /// Rank r sits on device devices[r]; refused where a device is negative or named twice.
  constexpr explicit device_map(const std::vector<rank_t>& devices) : ranks_(static_cast<rank_t>(devices.size())) {
    for (rank_t r = 0; r < ranks_; ++r) {
      const rank_t device = devices[static_cast<std::size_t>(r)];
      if (device < 0) refuse("device map: rank ", r, " is on device ", device, ", but devices count from 0");
      checked_add(device, 1);
      if (!by_rank_.empty() && device == by_rank_.back().device + by_rank_.back().count) ++by_rank_.back().count;
      else by_rank_.push_back({r, device, 1});
    }
    by_device_ = by_rank_;
    detail::sort_items(by_device_, [](const run& a, const run& b) { return a.device < b.device; });
    for (std::size_t i = 1; i < by_device_.size(); ++i) {
      const run& before = by_device_[i - 1];
      if (before.device + before.count > by_device_[i].device)
        refuse("device map: device ", by_device_[i].device, " is given to two ranks");
    }
    if (by_rank_.size() == 1 && by_rank_[0].device == 0) by_rank_.clear(), by_device_.clear();
  }

  /// Itself; or, where it was made without ranks, that of a world of so many.
  constexpr device_map of_world(rank_t ranks) const { return ranks_ < 0 ? device_map(ranks) : *this; }

  constexpr rank_t ranks() const { return ranks_; }
  constexpr bool identity() const { return by_rank_.empty(); }

  /// Calls sink(rank, device, count) for every run of consecutive ranks on consecutive devices, lost or not.
  template <typename Sink>
  constexpr void each_seat_run(Sink&& sink) const {
    if (identity() && ranks_ > 0) sink(rank_t{0}, rank_t{0}, ranks_);
    for (const run& piece : by_rank_) sink(piece.rank, piece.device, piece.count);
  }

  /// One past the highest device in use, lost or not.
  constexpr rank_t devices() const {
    rank_t past = identity() ? ranks_ : 0;
    for (const run& piece : by_rank_) past = greatest(past, piece.device + piece.count);
    return past;
  }

  /// This map without the devices of some ascending, disjoint intervals, which are lost: no rank is on them.
  constexpr device_map without(const std::vector<interval>& lost) const {
    device_map living = *this;
    if (identity() && ranks_ > 0) living.by_rank_.assign(1, run{0, 0, ranks_}), living.by_device_ = living.by_rank_;
    for (const interval& gone : lost) {
      std::vector<run> left;
      for (const run& piece : living.by_device_) {
        const interval all{piece.device, piece.device + piece.count};
        for (const interval& part :
             {interval{all.begin, least(all.end, gone.begin)}, interval{greatest(all.begin, gone.end), all.end}})
          if (!part.empty()) left.push_back({piece.rank + part.begin - piece.device, part.begin, part.size()});
      }
      living.by_device_ = left;
    }
    return living;
  }

  /// The device of a rank, 0 <= rank < ranks().
  constexpr rank_t device_of(rank_t rank) const {
    if (identity()) return rank;
    const auto after = std::upper_bound(by_rank_.begin(), by_rank_.end(), rank,
                                        [](rank_t r, const run& piece) { return r < piece.rank; });
    const run& piece = *(after - 1);
    return piece.device + (rank - piece.rank);
  }

  /// The rank on a device, or -1: the inverse.
  constexpr rank_t rank_of(rank_t device) const {
    if (identity()) return device >= 0 && device < ranks_ ? device : -1;
    const auto after = std::upper_bound(by_device_.begin(), by_device_.end(), device,
                                        [](rank_t d, const run& piece) { return d < piece.device; });
    if (after == by_device_.begin()) return -1;
    const run& piece = *(after - 1);
    return device < piece.device + piece.count ? piece.rank + (device - piece.device) : -1;
  }

  /// Whether ranks sit on consecutive devices in their order.
  constexpr bool one_run() const { return identity() || by_rank_.size() == 1; }
  /// Whether higher ranks sit on higher devices.
  constexpr bool ascending() const {
    for (std::size_t i = 1; i < by_rank_.size(); ++i)
      if (by_rank_[i].device < by_rank_[i - 1].device) return false;
    return true;
  }
  /// The first rank on no lower device, in a map that ascends.
  constexpr rank_t first_rank_from(rank_t device) const {
    if (identity()) return least(greatest(device, 0), ranks_);
    const auto at = std::partition_point(by_device_.begin(), by_device_.end(),
                                         [&](const run& piece) { return piece.device + piece.count <= device; });
    if (at == by_device_.end()) return ranks_;
    return at->rank + greatest(0, device - at->device);
  }
  /// Calls sink(interval) with the devices in use, ascending.
  template <typename Sink>
  constexpr void each_run(Sink&& sink) const {
    if (identity() && ranks_ > 0) sink(interval{0, ranks_});
    for (const run& piece : by_device_) sink(interval{piece.device, piece.device + piece.count});
  }

  /// The ranks on the given devices as ascending, disjoint intervals, appended to `ranks`.
  constexpr void ranks_on(interval devices, std::vector<interval>& ranks) const {
    if (identity()) {
      if (const interval common = intersect(devices, {0, ranks_}); !common.empty()) ranks.push_back(common);
      return;
    }
    auto at = std::upper_bound(by_device_.begin(), by_device_.end(), devices.begin,
                               [](rank_t d, const run& piece) { return d < piece.device; });
    if (at != by_device_.begin()) --at;
    std::vector<interval> found;
    for (; at != by_device_.end() && at->device < devices.end; ++at) {
      const interval common = intersect(devices, {at->device, at->device + at->count});
      if (!common.empty()) found.push_back(translate(common, at->rank - at->device));
    }
    detail::sort_items(found, [](interval a, interval b) { return a.begin < b.begin; });
    for (const interval& r : found) ranks.push_back(r);
  }

 private:
  struct run {
    rank_t rank;
    rank_t device;
    index_t count;
  };
  rank_t ranks_ = -1;         // -1: as many as there are
  std::vector<run> by_rank_;  // empty: the identity
  std::vector<run> by_device_;
};

}  // namespace reshard
