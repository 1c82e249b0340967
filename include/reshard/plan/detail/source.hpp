// SPDX-License-Identifier: Apache-2.0
// Which holder sends a piece to which destination: a closed formula over the holders, evaluated alone by both ends.
// A piece is the intersection of a FROM box and a TO box. Let n be its holders (those on the destination's node, or all
// where that has none), D its destinations, k the index of one of them, E the extent of the axis that is cut:
//   b = n / gcd(n, D), m = min(b ceil(min(n, 4) / b), E), part q = [floor(q E / m), floor((q + 1) E / m)), 0 <= q < m,
//   part q of destination k comes from holder (k m + q) mod n.
// Builds on: model/family.hpp.
#pragma once

#include <reshard/model/family.hpp>

namespace reshard {

/// How a piece is cut into parts.
struct piece_cut {
  index_t parts = 1;  // m
  int along = axis_of::layer;

  constexpr family_box part(const family_box& piece, index_t q) const {
    if (parts == 1) return piece;
    family_box result = piece;
    result.dim[along] = even_part(piece.dim[along], q, parts);
    return result;
  }
};

/// The axis: layers where their extent >= 4 m, else the longest but the last; a vector's only one is its last.
constexpr piece_cut cut_piece(const family_box& piece, const family& tensors, index_t holders, index_t destinations) {
  piece_cut cut;
  if (holders == 1) return cut;
  const index_t b = cut.parts = destinations == 1 ? holders : holders / gcd(holders, destinations);
  while (cut.parts < least(holders, 4)) cut.parts += b;  // to b ceil(min(n, 4) / b): division costs more
  if (piece.dim[axis_of::layer].size() < checked_multiply(4, cut.parts)) {
    cut.along = tensors.vector() ? axis_of::column : axis_of::layer;
    index_t longest = piece.dim[axis_of::layer].size();
    for (int i = 1; !tensors.vector() && i < family_ndim - 1; ++i)
      if (const index_t extent = piece.dim[i].size(); extent > longest) longest = extent, cut.along = i;
  }
  cut.parts = least(cut.parts, piece.dim[cut.along].size());
  return cut;
}

/// The holder that sends part q to destination k.
constexpr index_t holder_of_part(index_t k, index_t q, index_t parts, index_t holders) {
  const index_t part = k * parts + q;
  return part < holders ? part : part % holders;
}

/// The destinations of one holder: calls sink(k, q) for all k < destinations, q < parts with
/// (k parts + q) mod holders == holder, which are those of holder, holder + holders, ... The cost is that of them.
template <typename Sink>
constexpr void destinations_of_holder(index_t holder, index_t holders, index_t destinations, index_t parts,
                                      Sink&& sink) {
  if (parts < 1) return;
  index_t k = holder < parts ? 0 : holder / parts, q = holder - k * parts;
  if (k >= destinations) return;
  if (destinations * parts <= holders) return sink(k, q);  // no other
  const index_t further = holders / parts, rest = holders - further * parts;
  while (k < destinations) {
    sink(k, q);
    k += further, q += rest;
    if (q >= parts) ++k, q -= parts;
  }
}

}  // namespace reshard
