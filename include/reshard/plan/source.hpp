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
    family_box result = piece;
    result.dim[along] = even_part(piece.dim[along], q, parts);
    return result;
  }
};

/// The axis: layers where their extent >= 4 m, else the longest but the last; a vector's only one is its last.
constexpr piece_cut cut_piece(const family_box& piece, const family& tensors, index_t holders, index_t destinations) {
  const index_t b = holders / gcd(holders, destinations);
  piece_cut cut{checked_multiply(b, ceil_divide(least(holders, 4), b)), axis_of::layer};
  if (piece.dim[axis_of::layer].size() < checked_multiply(4, cut.parts)) {
    cut.along = tensors.vector() ? axis_of::column : axis_of::layer;
    for (int i = 0; !tensors.vector() && i < family_ndim - 1; ++i)
      if (piece.dim[i].size() > piece.dim[cut.along].size()) cut.along = i;
  }
  cut.parts = least(cut.parts, piece.dim[cut.along].size());
  return cut;
}

/// The holder that sends part q to destination k.
constexpr index_t holder_of_part(index_t k, index_t q, index_t parts, index_t holders) {
  return (k * parts + q) % holders;
}

/// The destinations of one holder: calls sink(k, q) for all k < destinations, q < parts with
/// (k parts + q) mod holders == holder, by solving the congruence: the cost is that of its solutions and `parts`.
template <typename Sink>
constexpr void destinations_of_holder(index_t holder, index_t holders, index_t destinations, index_t parts,
                                      Sink&& sink) {
  const index_t stride = parts % holders;
  const index_t g = gcd(stride, holders);  // gcd(0, n) == n: every k has the same part
  const index_t period = holders / g;
  index_t inverse = 1;  // (stride / g) inverse == 1 (mod period), by Euclid's algorithm
  {
    index_t a = stride / g % period, b = period, x = 1, y = 0;
    while (a > 1) {
      const index_t quotient = a / b, rest = a % b, next = x - quotient * y;
      a = b, b = rest, x = y, y = next;
    }
    inverse = period == 1 ? 0 : (x % period + period) % period;
  }
  for (index_t q = 0; q < parts; ++q) {
    const index_t residue = ((holder - q) % holders + holders) % holders;
    if (residue % g != 0) continue;
    for (index_t k = residue / g % period * inverse % period; k < destinations; k += period) sink(k, q);
  }
}

}  // namespace reshard
