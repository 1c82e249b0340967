// SPDX-License-Identifier: Apache-2.0
// Which ranks of one layout can have elements that given ranks of another have: a bound that asks for no boxes.
// Builds on: space/any_holding.hpp.
#pragma once

#include <reshard/space/any_holding.hpp>

namespace reshard::detail {

/// No rank outside `with`, of one side, has an element that a rank of `of`, of the other side, has.
struct meeting_ranks {
  interval of;
  interval with;

  friend constexpr bool operator==(const meeting_ranks&, const meeting_ranks&) = default;
};

/// The rank's stage, and from the first to the last of the stages that have a chunk, or a copy, of what is on it, where
/// the ranks of a pipeline stage lie side by side in both spaces; else all ranks. Costs the stage's families and, of
/// each, the other side's chunks from its first to its last layer.
constexpr meeting_ranks meeting_ranks_of(const computed_holding& a, rank_t rank, const computed_holding& b) {
  const space &from = a.space(), &to = b.space();
  const auto side_by_side = [](const space& s) { return s.first_rank(1) == s.stage_ranks(); };
  if (!side_by_side(from) || !side_by_side(to)) return {{0, a.ranks()}, {0, b.ranks()}};
  const index_t stage = from.stage_of(rank);
  index_t first = to.degrees().pp, past = 0;
  for (index_t k = stage; k < from.pipeline().chunks(); k += from.pipeline().parts())
    for (int f = 0; f < from.families(); ++f) {
      const interval members = from.chunk_members(f, k);
      if (members.empty()) continue;
      const interval chunks = to.chunks_of_members(f, members);
      for (index_t other = chunks.begin; other < chunks.end; ++other)
        to.each_stage_holding(
            f, other, [&](index_t holding) { first = least(first, holding), past = greatest(past, holding + 1); });
    }
  if (first >= past) first = past = 0;
  return {{from.first_rank(stage), from.first_rank(stage) + from.stage_ranks()},
          {first * to.stage_ranks(), past * to.stage_ranks()}};
}
/// A rank of `a` is in `of`. Of holdings that are not both computed nothing is known: all ranks of both sides.
template <Holding A, Holding B>
constexpr meeting_ranks meeting_ranks_of(const A& a, rank_t rank, const B& b) {
  const computed_holding *from = known_as<computed_holding>(a), *to = known_as<computed_holding>(b);
  if (from != nullptr && to != nullptr) return meeting_ranks_of(*from, rank, *to);
  return {{0, a.ranks()}, {0, b.ranks()}};
}

}  // namespace reshard::detail
