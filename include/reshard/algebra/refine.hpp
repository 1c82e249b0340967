// SPDX-License-Identifier: Apache-2.0
// Refinement: boxes cut until any two of them are equal or disjoint, each with a label that says which were there.
// Builds on: algebra/region.hpp.
#pragma once

#include <cstddef>
#include <vector>

#include <reshard/algebra/region.hpp>

namespace reshard {

/// A box, and what holds of all its coordinates.
template <int N, typename Label>
struct labelled_box {
  box<N> where;
  Label label;
};

/// parts becomes { p n b : tag(label of p) } u { p - b : label of p } u { b - all p : tag(Label{}) }, as boxes apart.
/// Begun with none, and whatever was added: the parts are disjoint, they cover what was added and nothing beside, and
/// the label of each has the tags of exactly those boxes that hold it, in the order of adding.
template <int N, typename Label, typename Tag>
constexpr void refine(std::vector<labelled_box<N, Label>>& parts, const box<N>& b, Tag&& tag) {
  region<N> rest(b);
  const std::size_t before = parts.size();
  for (std::size_t i = 0; i < before && !rest.empty(); ++i) {
    const box<N> whole = parts[i].where, common = intersect(whole, b);
    if (common.empty()) continue;
    rest.remove(common);
    subtract(whole, common, [&](const box<N>& beside) { parts.push_back({beside, Label(parts[i].label)}); });
    parts[i].where = common;
    tag(parts[i].label);
  }
  for (const box<N>& part : rest.boxes()) {
    parts.push_back({part, {}});
    tag(parts.back().label);
  }
}

}  // namespace reshard
