// SPDX-License-Identifier: Apache-2.0
// What of a job's state nobody holds any more, in a sentence.
// Builds on: elastic/run/torn_state.hpp, memory/tensor_names.hpp, plan/lost.hpp, space/space.hpp.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <reshard/elastic/run/torn_state.hpp>
#include <reshard/memory/tensor_names.hpp>
#include <reshard/plan/lost.hpp>
#include <reshard/space/space.hpp>

namespace reshard::detail {

/// "of version 47 nobody holds 1234 bytes any more; the first are param of decoder.layers.0.mlp.linear_fc1.weight; b
/// held them". Of a record that is lost.
inline std::string missing_of(const job_record& r, const model& m, const state_list& list) {
  const state_source s = source_of(r, r.gone);
  if (s.from == nullptr) return text_of("nobody who is left holds any of the state; gone are ", members_text(r.gone));
  if (!s.target.refused.empty()) return s.target.refused;
  if (s.into != nullptr) {
    const torn_state lies(m, list, s);
    return text_of("of version ", s.target.version, " nobody holds ", lies.unheld(),
                   " bytes any more, since the change to epoch ", s.into->epoch, " was torn: ", lies.lost_text());
  }
  std::vector<rank_t> lost, elsewhere;
  member_list without = s.dead;
  add_members(without, s.empty);
  for (rank_t rank = 0; rank < std::ssize(s.from->members); ++rank) {
    if (has_member(without, s.from->members[static_cast<std::size_t>(rank)])) lost.push_back(rank);
    elsewhere.push_back(std::ssize(s.from->members) + rank);
  }
  const space from(m, s.from->layout);
  const layout_switch change(
      from, from, {.to = device_map(elsewhere), .list = list, .lost = lost, .lost_elements = when_lost::leave_out});
  std::string first;
  each_lost(change, [&](const lost_box& b) {
    for (const int state : b.states)
      each_tensor(b.family, b.where, [&](const tensor_id& t, const box<3>&) {
        if (first.empty()) first = text_of("; the first are ", list[state].name, " of ", m.tensor(t));
      });
  });
  return text_of("of version ", s.target.version, " nobody holds ", lost_bytes(change), " bytes any more", first, "; ",
                 members_text(without), " held them");
}

}  // namespace reshard::detail
