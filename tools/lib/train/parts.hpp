// SPDX-License-Identifier: Apache-2.0
// What each rank has and no lower rank has, as one run of bytes: what a dump and a restart write.
#pragma once

#include "options.hpp"

namespace train {

/// Calls visit(state, tensor, part) with what rank q has and no lower rank has.
template <typename Visit>
void each_part(const computed_holding& h, rank_t q, Visit&& visit) {
  for (const int state : {param, master, exp_avg, exp_avg_sq})
    each_shared(h, q, state == param ? role::parameter : role::optimizer,
                [&](int f, const family_box& b, const auto& holders) {
                  if (holders[0] != q) return;
                  each_tensor(f, b, [&](const tensor_id& t, const box<3>& part) { visit(state, t, part); });
                });
}

/// Calls copy(in the packed part, in the piece's memory, bytes) for every row of a piece of a part, whose elements lie
/// row by row at `packed`.
template <typename Byte, typename Copy>
void each_row_of(const bound_box& piece, const box<3>& part, Byte* packed, Copy&& copy) {
  const index_t rows = part.dim[1].size(), columns = part.dim[2].size();
  for (index_t p = piece.where.dim[0].begin; p < piece.where.dim[0].end; ++p)
    for (index_t r = piece.where.dim[1].begin; r < piece.where.dim[1].end; ++r) {
      const index_t at = ((p - part.dim[0].begin) * rows + r - part.dim[1].begin) * columns + piece.where.dim[2].begin -
                         part.dim[2].begin,
                    from = (p - piece.where.dim[0].begin) * piece.stride[0] +
                           (r - piece.where.dim[1].begin) * piece.stride[1];
      copy(packed + at * piece.element_bytes, piece.data + from * piece.element_bytes,
           static_cast<std::size_t>(piece.where.dim[2].size() * piece.element_bytes));
    }
}

/// A rank's parts, one after the other.
std::vector<std::byte> packed(rank_state& of);

}  // namespace train
