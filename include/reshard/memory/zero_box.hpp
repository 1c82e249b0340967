// SPDX-License-Identifier: Apache-2.0
// Writes zeros to a bound box: how a switch makes rows of the vocabulary that only TO's padding has.
// Builds on: memory/binding.hpp.
#pragma once

#include <cstring>

#include <reshard/memory/binding.hpp>

namespace reshard {

/// Every element of the box becomes zero, whose bytes are zero in every dtype; bytes between elements stay.
inline void fill_with_zeros(const bound_box& b) {
  const bool dense = b.stride[2] == 1;
  const index_t columns = b.where.dim[2].size(), steps = dense ? 1 : columns;
  const bytes_t run = (dense ? columns : 1) * b.element_bytes;
  for (index_t i = 0; i < b.where.dim[0].size(); ++i)
    for (index_t j = 0; j < b.where.dim[1].size(); ++j)
      for (index_t k = 0; k < steps; ++k)
        std::memset(b.data + (i * b.stride[0] + j * b.stride[1] + k * b.stride[2]) * b.element_bytes, 0,
                    static_cast<std::size_t>(run));
}

}  // namespace reshard
