// SPDX-License-Identifier: Apache-2.0
// Who has a copy of each element, by sets of ranks, one element at a time: what copied_holding says in boxes. And
// copies thrown by dice.
#pragma once

#include <cstdint>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/space/copied_holding.hpp>

#include "dice.hpp"
#include "points.hpp"

namespace testing {

/// A model of a few hundred elements.
inline reshard::model copied_model(bool experts, bool tied) {
  return reshard::make_transformer({.name = "small",
                                    .layers = 4,
                                    .hidden = 4,
                                    .heads = 2,
                                    .groups = 2,
                                    .head_dim = 2,
                                    .ffn = 4,
                                    .vocabulary = 8,
                                    .tied = tied,
                                    .experts = experts ? 2 : 0,
                                    .expert_ffn = 4,
                                    .expert_bias = experts});
}

/// Sets of ranks, bit r for rank r, of every element by role, family and its row-major number in the family.
struct element_sets {
  std::vector<std::vector<std::vector<std::uint64_t>>> of;

  std::uint64_t& at(reshard::role r, int f, std::size_t i) {
    return of[static_cast<std::size_t>(r)][static_cast<std::size_t>(f)][i];
  }
  std::uint64_t at(reshard::role r, int f, std::size_t i) const {
    return of[static_cast<std::size_t>(r)][static_cast<std::size_t>(f)][i];
  }
};

/// Calls visit(row-major number in the whole family) for every element of a box.
template <typename Visit>
void each_number(const reshard::family& whole, const reshard::family_box& b, Visit&& visit) {
  each_point(b, [&](const reshard::index_t(&x)[reshard::family_ndim]) {
    reshard::index_t at = 0;
    for (int i = 0; i < reshard::family_ndim; ++i) at = at * whole.extent[i] + x[i];
    visit(static_cast<std::size_t>(at));
  });
}

/// Who holds what, as held() says of one rank after the other.
template <typename H>
element_sets sets_of(const H& h) {
  element_sets all;
  for (const reshard::role r : reshard::roles) {
    all.of.emplace_back();
    for (int f = 0; f < h.families(); ++f) {
      all.of.back().emplace_back(static_cast<std::size_t>(h.family_at(f).whole().volume()));
      if (h.states().of(r).empty()) continue;
      for (reshard::rank_t rank = 0; rank < h.ranks(); ++rank)
        h.held(f, rank, r, [&](int, const reshard::family_box& b) {
          each_number(h.family_at(f), b, [&](std::size_t i) { all.at(r, f, i) |= std::uint64_t{1} << rank; });
        });
    }
  }
  return all;
}

/// { r in R : own[r] } with, where R = {r} and r has a keeper, that.
inline std::uint64_t with_copies(std::uint64_t holders, const reshard::rank_copies& c) {
  std::uint64_t have = 0;
  for (std::size_t r = 0; r < c.own.size(); ++r) {
    if ((holders >> r & 1) != 0 && c.own[r]) have |= std::uint64_t{1} << r;
    if (holders == std::uint64_t{1} << r && c.keeper[r] >= 0) have |= std::uint64_t{1} << c.keeper[r];
  }
  return have;
}
inline element_sets with_copies(element_sets of, const reshard::rank_copies& c) {
  for (auto& families : of.of)
    for (auto& elements : families)
      for (std::uint64_t& holders : elements) holders = with_copies(holders, c);
  return of;
}

enum class copies_are { of_all, shifted, none, of_some, left_by_deaths, kinds };

/// Copies by ranks, of one kind.
inline reshard::rank_copies drawn_copies(dice& random, reshard::rank_t ranks, copies_are kind) {
  using reshard::rank_t;
  if (kind == copies_are::shifted) return reshard::rank_copies::shifted(ranks, random.within(-2 * ranks, 2 * ranks));
  reshard::rank_copies c = reshard::rank_copies::none(ranks);
  if (kind == copies_are::none) return c;
  const std::int64_t few = random.within(2, 6);
  for (rank_t r = 0; r < ranks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (kind == copies_are::of_all) c.own[i] = true;
    if (kind == copies_are::of_some) c.own[i] = random.coin(), c.keeper[i] = random.below(ranks + 1) - 1;
    if (kind == copies_are::left_by_deaths) c.own[i] = random.below(few) != 0;
  }
  if (kind != copies_are::left_by_deaths) return c;
  for (rank_t r = 0; r < ranks; ++r)
    if (const rank_t next = (r + 1) % ranks; c.own[static_cast<std::size_t>(next)])
      c.keeper[static_cast<std::size_t>(r)] = next;
  return c;
}

}  // namespace testing
