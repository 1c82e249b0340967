// SPDX-License-Identifier: Apache-2.0
// A rank's sub-space: every tensor family of the model with what the rank holds of it, absent families included and
// marked, so that "this rank has no embedding" is an answer and not a gap.
// Builds on: space/holding.hpp.
#pragma once

#include <vector>

#include <reshard/space/holding.hpp>

namespace reshard {

/// How much of a family a rank holds.
enum class presence {
  absent,  // nothing of the family
  part,    // some of it
  whole,   // every element
};

/// What a rank holds of one family: how much, and in which boxes.
struct held_family {
  int family = 0;
  presence held = presence::absent;
  std::vector<family_box> boxes;  // disjoint; empty iff absent
};

/// One entry per family, in the families' order: held == absent iff no box, whole iff the boxes' volumes add up to the
/// family's.
template <Holding H>
[[nodiscard]] constexpr std::vector<held_family> sub_space(const H& h, rank_t rank, role r) {
  std::vector<held_family> result;
  for (int f = 0; f < h.families(); ++f) {
    held_family entry{f, presence::absent, {}};
    index_t elements = 0;
    h.held(f, rank, r, [&](int, const family_box& b) {
      entry.boxes.push_back(b);
      elements += b.volume();
    });
    if (elements > 0) entry.held = elements == h.family_at(f).whole().volume() ? presence::whole : presence::part;
    result.push_back(static_cast<held_family&&>(entry));
  }
  return result;
}

}  // namespace reshard
