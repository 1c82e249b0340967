// SPDX-License-Identifier: Apache-2.0
// Arithmetic progressions: coordinates along a mesh axis, and equal items laid out at a pitch in a buffer.
// Builds on: algebra/interval.hpp.
#pragma once

#include <reshard/algebra/interval.hpp>

namespace reshard {

/// { first + i step : 0 <= i < count }, step >= 1. {0, P} all of an axis, {c, 1} one coordinate, {0, 2, P - 1} both
/// ends.
struct progression {
  index_t first = 0;
  index_t count = 1;
  index_t step = 1;

  constexpr index_t operator[](index_t i) const { return first + i * step; }

  /// i with first + i step == x, or -1 where x is no member.
  constexpr index_t index_of(index_t x) const {
    const index_t distance = x - first;
    if (distance < 0 || (step != 1 && distance % step != 0)) return -1;
    const index_t i = step == 1 ? distance : distance / step;
    return i < count ? i : -1;
  }

  /// | { members < x } |
  constexpr index_t count_below(index_t x) const {
    if (x <= first) return 0;
    return least(count, ceil_divide(x - first, step));
  }

  friend constexpr bool operator==(const progression&, const progression&) = default;
};

/// Items i = 0 .. count - 1, each the interval [begin + i pitch, begin + i pitch + span), span <= pitch.
struct item_row {
  index_t begin = 0;
  index_t count = 1;
  index_t pitch = 1;
  index_t span = 1;

  constexpr interval item(index_t i) const { return {begin + i * pitch, begin + i * pitch + span}; }

  /// The first i with item(i).end > x; `count` where there is none.
  constexpr index_t first_ending_after(index_t x) const {
    const index_t past = x - begin - span + 1;  // i pitch >= past
    return past <= 0 ? 0 : least(count, ceil_divide(past, pitch));
  }

  /// | { i : item(i).begin < x } |
  constexpr index_t count_beginning_before(index_t x) const {
    return x <= begin ? 0 : least(count, ceil_divide(x - begin, pitch));
  }

  /// The items that meet `range`, in order: partial(i, interval) for one that is cut, the interval relative to the
  /// item; whole(interval of i) for a stretch of items that lie inside. At most one stretch and two cut items.
  template <typename Whole, typename Partial>
  constexpr void meet(interval range, Whole&& whole, Partial&& partial) const {
    interval items{first_ending_after(range.begin), count_beginning_before(range.end)};
    if (range.end <= range.begin || items.end <= items.begin) return;
    const auto cut = [&](index_t i) {
      const index_t at = begin + i * pitch;
      const interval part = intersect({0, span}, translate(range, -at));
      return part.size() == span ? false : (partial(i, part), true);
    };
    if (cut(items.begin) && ++items.begin == items.end) return;
    if (range.contains(item(items.end - 1))) {
      whole(items);
      return;
    }
    if (items.size() > 1) whole(interval{items.begin, items.end - 1});
    cut(items.end - 1);
  }
};

}  // namespace reshard
