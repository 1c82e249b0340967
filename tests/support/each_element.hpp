// SPDX-License-Identifier: Apache-2.0
// The elements of a box one by one, as names that can be kept in a set: what brute-force bookkeeping counts.
#pragma once

#include <tuple>

#include <reshard/model/family.hpp>
#include <reshard/model/pieces.hpp>
#include <reshard/model/state.hpp>

namespace testing {

using element = std::tuple<int, int, reshard::index_t, reshard::index_t,
                           reshard::index_t>;  // state, family, member, expert, flat

/// Calls visit(element) for every element and state of a box.
template <typename Visit>
void each_element(const reshard::family& of, reshard::state_set states, const reshard::tensor_id& t,
                  const reshard::box<3>& b, Visit&& visit) {
  for (const int s : states)
    for (reshard::index_t part = b.dim[0].begin; part < b.dim[0].end; ++part)
      for (reshard::index_t row = b.dim[1].begin; row < b.dim[1].end; ++row)
        for (reshard::index_t column = b.dim[2].begin; column < b.dim[2].end; ++column)
          visit(element{s, t.family, t.member, t.expert, (part * of.extent[3] + row) * of.extent[4] + column});
}

}  // namespace testing
