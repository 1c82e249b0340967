// SPDX-License-Identifier: Apache-2.0
// Tensors whose rows take a page of memory each, so that stages, pages and bytes are counted by hand.
#pragma once

#include <reshard/space/listed_holding.hpp>

namespace testing {

inline constexpr reshard::bytes_t bytes_of_row = 4096;

/// Rows [begin, end) of a tensor of `all`, a page each.
inline reshard::shard rows(reshard::rank_t rank, const char* name, reshard::index_t begin, reshard::index_t end,
                           reshard::index_t all) {
  return {rank, name, reshard::bf16, {all, bytes_of_row / 2}, {begin, 0}, {end - begin, bytes_of_row / 2}};
}

}  // namespace testing
