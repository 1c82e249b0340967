// SPDX-License-Identifier: Apache-2.0
// The elements of a box one by one, as names that can be kept in a set: what brute-force bookkeeping counts.
#pragma once

#include <cstdint>
#include <stdexcept>

#include <reshard/model/family.hpp>
#include <reshard/model/pieces.hpp>
#include <reshard/model/state.hpp>

namespace testing {

/// state, family, member, expert and flat number in one word, 4, 8, 12, 12 and 28 bits of it: sets of words are looked
/// through in a third of the time that tuples take.
using element = std::uint64_t;

inline element element_of(int state, const reshard::tensor_id& t, reshard::index_t flat) {
  element word = 0;
  const auto put = [&](reshard::index_t value, int bits) {
    if (value < 0 || value >= (reshard::index_t{1} << bits)) throw std::logic_error("an element beyond its word");
    word = word << bits | static_cast<element>(value);
  };
  put(state, 4), put(t.family, 8), put(t.member, 12), put(t.expert, 12), put(flat, 28);
  return word;
}

constexpr int state_of(element word) { return static_cast<int>(word >> 60); }

/// Calls visit(element) for every element and state of a box.
template <typename Visit>
void each_element(const reshard::family& of, reshard::state_set states, const reshard::tensor_id& t,
                  const reshard::box<3>& b, Visit&& visit) {
  for (const int s : states)
    for (reshard::index_t part = b.dim[0].begin; part < b.dim[0].end; ++part)
      for (reshard::index_t row = b.dim[1].begin; row < b.dim[1].end; ++row)
        for (reshard::index_t column = b.dim[2].begin; column < b.dim[2].end; ++column)
          visit(element_of(s, t, (part * of.extent[3] + row) * of.extent[4] + column));
}

}  // namespace testing
