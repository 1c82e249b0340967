// SPDX-License-Identifier: Apache-2.0
// The law of the Distribution concept, by brute force.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <reshard/algebra/distribution.hpp>

namespace testing {

/// Parts own ascending, disjoint, non-empty intervals; any two intervals are equal or disjoint; together they are [0,
/// extent); and owners(range) is exactly, and once each, the (part, interval) pairs that meet the range, for every
/// range.
template <reshard::Distribution D>
void check_distribution_law(const D& d) {
  using reshard::index_t, reshard::interval;
  using owned = std::pair<index_t, std::pair<index_t, index_t>>;  // (part, [begin, end)), which has an order
  std::vector<owned> all;
  for (index_t p = 0; p < d.parts(); ++p) {
    index_t reached = 0;
    d.intervals(p, [&](interval i) {
      CHECK_FALSE(i.empty());
      CHECK(i.begin >= reached);
      CHECK(i.end <= d.extent());
      reached = i.end;
      all.push_back({p, {i.begin, i.end}});
    });
  }
  std::vector<int> covered(static_cast<std::size_t>(d.extent()), 0);
  for (const auto& [p, a] : all) {
    for (index_t x = a.first; x < a.second; ++x) covered[static_cast<std::size_t>(x)] = 1;
    for (const auto& [q, b] : all) CHECK((a == b || a.second <= b.first || b.second <= a.first));
  }
  CHECK(std::count(covered.begin(), covered.end(), 1) == d.extent());

  for (index_t begin = -1; begin <= d.extent() + 1; ++begin)
    for (index_t end = -1; end <= d.extent() + 1; ++end) {
      std::vector<owned> wanted, found;
      for (const owned& o : all)
        if (intersects(interval{o.second.first, o.second.second}, interval{begin, end})) wanted.push_back(o);
      d.owners({begin, end}, [&](index_t p, interval i) { found.push_back({p, {i.begin, i.end}}); });
      std::sort(wanted.begin(), wanted.end());
      std::sort(found.begin(), found.end());
      CHECK(found == wanted);
    }
}

}  // namespace testing
