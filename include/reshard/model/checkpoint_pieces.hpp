// SPDX-License-Identifier: Apache-2.0
// What a Hugging Face checkpoint keeps apart where Megatron-core fuses: q, k and v among their query groups, gate and
// up; each is a box of its family.
// Builds on: model/model.hpp.
#pragma once

#include <string>

#include <reshard/model/model.hpp>

namespace reshard {

/// How many tensors of a checkpoint one of the family is: 3 of q, k and v, 2 of gate and up, else 1.
constexpr int pieces_in_checkpoint(const family& f) {
  return f.fused == fused_as::qkv ? 3 : f.fused == fused_as::gate_up ? 2 : 1;
}

/// Parts, rows and columns of piece p. Of a query group's rows (a bias: columns) with Q = heads / groups and head
/// dimension d: q [0, Q d), k [Q d, (Q + 1) d), v [(Q + 1) d, (Q + 2) d); of fc1's parts: gate 0, up 1.
constexpr box<3> checkpoint_piece(const model& m, int f, int p) {
  const family& tensors = m[f];
  box<3> piece{{{0, tensors.extent[2]}, {0, tensors.extent[3]}, {0, tensors.extent[4]}}};
  if (tensors.fused == fused_as::gate_up) piece.dim[0] = {p, p + 1};
  if (tensors.fused == fused_as::qkv) {
    const index_t head = m.shape.head_dim, queries = m.shape.heads / m.shape.groups * head;
    piece.dim[tensors.inner_axis() - axis_of::part] =
        p == 0 ? interval{0, queries} : interval{queries + (p - 1) * head, queries + p * head};
  }
  return piece;
}

/// TEMPORARY-NAMES: replaced by the table of Hugging Face's names.
inline std::string checkpoint_names(const model& m, int f, int, bool tied_copy) {
  return std::string(tied_copy ? m[f].tied_name : m[f].name);
}

/// Whether the model's tensors are those of a Hugging Face checkpoint under other names.
constexpr bool names_in_checkpoint(const model& m) { return m.shape.groups > 0; }

}  // namespace reshard
