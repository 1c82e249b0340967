// SPDX-License-Identifier: Apache-2.0
// A distribution: how one axis is cut into parts, which part owns which intervals, and the inverse. Both directions are
// arithmetic, so nothing ever scans the parts. What a later distribution needs is in the concept: a part may own
// several intervals (block-cyclic, interleaved pipelines) or none, and an interval may have several owners (replicas).
// Builds on: algebra/interval.hpp.
#pragma once

#include <concepts>

#include <reshard/algebra/interval.hpp>

namespace reshard {

namespace detail {
struct interval_sink {
  constexpr void operator()(interval) const {}
};
struct owner_sink {
  constexpr void operator()(index_t, interval) const {}
};
}  // namespace detail

/// For a distribution d of [0, d.extent()) over parts 0 .. d.parts() - 1:
///   d.intervals(part, sink)  calls sink(interval) with the disjoint, non-empty intervals of a part, ascending;
///   d.owners(range, sink)    calls sink(part, interval) once for every interval of every part that meets `range`.
/// Law: owners([0, extent)) == { (p, i) : i in intervals(p) }, and any two intervals are equal or disjoint.
template <typename D>
concept Distribution = requires(const D& d, index_t part, interval range) {
  { d.extent() } -> std::same_as<index_t>;
  { d.parts() } -> std::same_as<index_t>;
  d.intervals(part, detail::interval_sink{});
  d.owners(range, detail::owner_sink{});
};

/// Part p owns [floor(p E / P), floor((p + 1) E / P)).
class block {
 public:
  constexpr block(index_t extent, index_t parts) : extent_(extent), parts_(parts) {
    if (extent < 0 || parts < 1) refuse("block: an extent of ", extent, " cannot be cut into ", parts, " parts");
    if (parts > 1) size_ = extent / parts;
    even_ = size_ * parts == extent;
  }
  constexpr index_t extent() const { return extent_; }
  constexpr index_t parts() const { return parts_; }
  constexpr interval part(index_t p) const {
    return even_ ? interval{p * size_, (p + 1) * size_} : even_part({0, extent_}, p, parts_);
  }

  /// The part p that owns x: the only one with floor(p E / P) <= x < floor((p + 1) E / P), for 0 <= x < E.
  constexpr index_t owner(index_t x) const {
    if (even_) return x / size_;
    return (checked_multiply(x + 1, parts_) - 1) / extent_;
  }

  template <typename Sink>
  constexpr void intervals(index_t p, Sink&& sink) const {
    if (const interval owned = part(p); !owned.empty()) sink(owned);
  }
  template <typename Sink>
  constexpr void owners(interval range, Sink&& sink) const {
    range = intersect(range, {0, extent_});
    if (range.empty()) return;
    index_t p = even_ && range.begin == 0 ? 0 : owner(range.begin);
    for (index_t begin = part(p).begin; begin < range.end; ++p) {  // the last part ends at E, no sooner than the range
      const interval owned{begin, even_ ? begin + size_ : part(p).end};
      if (!owned.empty()) sink(p, owned);
      begin = owned.end;
    }
  }

 private:
  index_t extent_;
  index_t parts_;
  index_t size_ = extent_;  // floor(E / P), that of every part where P divides E
  bool even_ = true;
};

/// Part p owns [point[p], point[p + 1]); points ascend from 0, equal neighbours are an empty part. At most Capacity
/// parts.
template <int Capacity>
class explicit_cuts {
 public:
  template <std::size_t Points>
  constexpr explicit explicit_cuts(const index_t (&points)[Points]) : parts_(static_cast<index_t>(Points) - 1) {
    static_assert(Points >= 2 && Points <= Capacity + 1, "reshard: explicit cuts need one point more than parts");
    for (std::size_t i = 0; i < Points; ++i) {
      const index_t before = i == 0 ? 0 : points[i - 1];
      if (points[i] < before || (i == 0 && points[i] != 0))
        refuse("explicit cuts: point ", static_cast<index_t>(i), " is ", points[i],
               ", but points ascend from 0 and the one before is ", before);
      points_[i] = points[i];
    }
  }
  constexpr index_t extent() const { return points_[parts_]; }
  constexpr index_t parts() const { return parts_; }

  template <typename Sink>
  constexpr void intervals(index_t p, Sink&& sink) const {
    if (points_[p] < points_[p + 1]) sink(interval{points_[p], points_[p + 1]});
  }
  template <typename Sink>
  constexpr void owners(interval range, Sink&& sink) const {
    range = intersect(range, {0, extent()});
    if (range.empty()) return;
    index_t p = 0, past = parts_;  // the last part that begins at or before range.begin
    while (past - p > 1) {
      const index_t middle = p + (past - p) / 2;
      (points_[middle] <= range.begin ? p : past) = middle;
    }
    for (; p < parts_ && points_[p] < range.end; ++p)
      if (points_[p] < points_[p + 1]) sink(p, interval{points_[p], points_[p + 1]});
  }

 private:
  index_t points_[Capacity + 1] = {};
  index_t parts_;
};

/// Every part owns [0, E).
class replicated {
 public:
  constexpr replicated(index_t extent, index_t parts) : extent_(extent), parts_(parts) {
    if (extent < 0 || parts < 1) refuse("replicated: an extent of ", extent, " cannot be given to ", parts, " parts");
  }
  constexpr index_t extent() const { return extent_; }
  constexpr index_t parts() const { return parts_; }

  template <typename Sink>
  constexpr void intervals(index_t, Sink&& sink) const {
    if (extent_ > 0) sink(interval{0, extent_});
  }
  template <typename Sink>
  constexpr void owners(interval range, Sink&& sink) const {
    if (!intersects(range, {0, extent_})) return;
    for (index_t p = 0; p < parts_; ++p) sink(p, interval{0, extent_});
  }

 private:
  index_t extent_;
  index_t parts_;
};

}  // namespace reshard
