// SPDX-License-Identifier: Apache-2.0
// What a framework that does not fuse stores apart: q, k and v of fused attention rows, gate and up of fc1. With Q =
// heads / groups queries of d rows a group, piece i of a part of (Q + 2) d rows is
//   q: [0, Q d)    k: [Q d, (Q + 1) d)    v: [(Q + 1) d, (Q + 2) d)
// of every part; gate is part 0, up part 1.
// Builds on: model/model.hpp.
#pragma once

#include <reshard/model/model.hpp>

namespace reshard {

/// Into how many tensors an unfused checkpoint splits one of the family.
constexpr int pieces(const family& f) { return f.fused == fused_as::qkv ? 3 : f.fused == fused_as::gate_up ? 2 : 1; }

/// The parts, rows and columns of a family's tensors that are piece `piece`: q, k, v; gate, up; or all. The boxes of
/// all pieces are disjoint, and their union is the tensor.
constexpr box<3> piece_box(const model& m, int family, int piece) {
  const struct family& f = m[family];
  box<3> all{{{0, f.extent[axis_of::part]}, {0, f.extent[axis_of::row]}, {0, f.extent[axis_of::column]}}};
  if (f.fused == fused_as::gate_up) all.dim[0] = {piece, piece + 1};
  if (f.fused == fused_as::qkv) {
    const index_t queries = m.shape.heads / m.shape.groups, d = f.extent[f.inner_axis()] / (queries + 2);
    const index_t begin = piece == 0 ? 0 : queries + piece - 1;
    all.dim[f.vector() ? 2 : 1] = {begin * d, (queries + piece) * d};
  }
  return all;
}

}  // namespace reshard
