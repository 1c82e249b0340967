// SPDX-License-Identifier: Apache-2.0
// A list of shards in which a tensor is whole on every rank: the simplest side of a switch.
#pragma once

#include <string>
#include <vector>

#include <reshard/model/state_list.hpp>
#include <reshard/space/shard.hpp>

namespace testing {

/// A tensor of that shape, whole on each of the ranks 0 .. ranks - 1, in states of a list.
inline std::vector<reshard::shard> whole_on(reshard::rank_t ranks, const std::string& name, reshard::extents shape,
                                            const std::vector<std::string>& states = {"param"},
                                            const reshard::state_list& of = reshard::adam) {
  using namespace reshard;
  extents zero = shape;
  for (index_t& at : zero.at) at = 0;
  std::vector<shard> list;
  for (rank_t r = 0; r < ranks; ++r)
    for (const std::string& state : states) {
      const int found = of.find(state);
      list.push_back({r, name, found < 0 ? bf16 : of[found].type, shape, zero, shape, state});
    }
  return list;
}

}  // namespace testing
