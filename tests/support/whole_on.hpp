// SPDX-License-Identifier: Apache-2.0
// A list of shards in which a tensor is whole on every rank: the simplest side of a switch.
#pragma once

#include <string>
#include <vector>

#include <reshard/space/shard.hpp>

namespace testing {

/// A tensor of that shape, whole on each of the ranks 0 .. ranks - 1.
inline std::vector<reshard::shard> whole_on(reshard::rank_t ranks, const std::string& name, reshard::extents shape,
                                            const std::vector<std::string>& states = {"param"}) {
  using namespace reshard;
  extents zero = shape;
  for (index_t& at : zero.at) at = 0;
  std::vector<shard> list;
  for (rank_t r = 0; r < ranks; ++r)
    for (const std::string& state : states) list.push_back({r, name, bf16, shape, zero, shape, state});
  return list;
}

}  // namespace testing
