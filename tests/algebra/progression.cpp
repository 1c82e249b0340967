// SPDX-License-Identifier: Apache-2.0
// Progressions and rows of items, each closed formula against a loop.
#include <doctest/doctest.h>

#include <vector>

#include <reshard/algebra/progression.hpp>

#include "../support/dice.hpp"

using namespace reshard;
using testing::dice;

namespace {
/// What `meet` reports, one element of an item at a time: (item, element) in order, and how it was reported.
struct met {
  std::vector<interval> elements;  // {item, element}
  int stretches = 0, cuts = 0;
};

void check_meet(const item_row& row, interval range) {
  std::vector<interval> wanted;
  for (index_t i = 0; i < row.count; ++i)
    for (index_t x = 0; x < row.span; ++x)
      if (range.contains(row.begin + i * row.pitch + x)) wanted.push_back({i, x});
  met found;
  row.meet(
      range,
      [&](interval items) {
        ++found.stretches;
        CHECK_FALSE(items.empty());
        for (index_t i = items.begin; i < items.end; ++i)
          for (index_t x = 0; x < row.span; ++x) found.elements.push_back({i, x});
      },
      [&](index_t i, interval part) {
        ++found.cuts;
        CHECK_FALSE(part.empty());
        CHECK(part.size() < row.span);
        for (index_t x = part.begin; x < part.end; ++x) found.elements.push_back({i, x});
      });
  CHECK(found.elements == wanted);
  CHECK(found.stretches <= 1);
  CHECK(found.cuts <= 2);
}
}  // namespace

TEST_CASE("progression: [i], index_of and count_below") {
  for (index_t first : {-2, 0, 3})
    for (index_t count = 0; count <= 4; ++count)
      for (index_t step = 1; step <= 4; ++step) {
        const progression p{first, count, step};
        for (index_t x = first - 3; x <= first + 18; ++x) {
          index_t index = -1, below = 0;
          for (index_t i = 0; i < count; ++i) {
            CHECK(p[i] == first + i * step);
            if (first + i * step == x) index = i;
            below += first + i * step < x ? 1 : 0;
          }
          CHECK(p.index_of(x) == index);
          CHECK(p.count_below(x) == below);
        }
      }
}

TEST_CASE("item_row: the items before and after a point, and those that meet a range") {
  dice random;
  for (int n = 0; n < 60; ++n) {
    const index_t span = random.within(1, 4);
    const item_row row{random.within(0, 5), random.within(1, 5), span + random.below(3), span};
    const index_t past = row.item(row.count - 1).end + 2;
    for (index_t x = 0; x <= past; ++x) {
      index_t ending_after = row.count, beginning_before = 0;
      for (index_t i = row.count - 1; i >= 0; --i) {
        CHECK(row.item(i) == interval{row.begin + i * row.pitch, row.begin + i * row.pitch + span});
        if (row.item(i).end > x) ending_after = i;
        beginning_before += row.item(i).begin < x ? 1 : 0;
      }
      CHECK(row.first_ending_after(x) == ending_after);
      CHECK(row.count_beginning_before(x) == beginning_before);
      for (index_t end = 0; end <= past; ++end) check_meet(row, {x, end});
    }
  }
}
