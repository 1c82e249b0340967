// SPDX-License-Identifier: Apache-2.0
// Pieces: q, k and v of fused rows against the rule of the rows, one row at a time.
#include <doctest/doctest.h>

#include <reshard/model/pieces.hpp>
#include <reshard/model/transformer.hpp>

using namespace reshard;

TEST_CASE("row (g (Q + 2) + j) d + x of a group's rows is q for j < Q, k for j = Q, v for j = Q + 1; biases alike") {
  for (const index_t groups : {1, 2, 3, 6}) {
    const index_t heads = 6, d = 5, queries = heads / groups;
    const model m = make_transformer({.name = "m",
                                      .layers = 2,
                                      .hidden = 8,
                                      .heads = heads,
                                      .groups = groups,
                                      .head_dim = d,
                                      .ffn = 7,
                                      .vocabulary = 9,
                                      .qkv_bias = true});
    int fused = 0;
    for (int f = 0; f < m.families; ++f) {
      if (m[f].fused != fused_as::qkv) continue;
      ++fused;
      REQUIRE(pieces(m[f]) == 3);
      const int along = m[f].vector() ? 2 : 1;
      index_t elements = 0;
      for (int piece = 0; piece < 3; ++piece) {
        const box<3> b = piece_box(m, f, piece);
        elements += b.volume();
        CHECK(b.dim[0] == interval{0, groups});
        CHECK(b.dim[3 - along] == interval{0, m[f].extent[3 - along + 2]});
        for (index_t row = 0; row < (queries + 2) * d; ++row) {
          const index_t j = row / d;
          const int expected = j < queries ? 0 : j == queries ? 1 : 2;
          CHECK(b.dim[along].contains(row) == (piece == expected));
        }
      }
      CHECK(elements == m[f].tensor_elements());
    }
    CHECK(fused == 2);
  }
}

TEST_CASE("gate is part 0 of fc1, up part 1; what is not fused is one piece") {
  const model m = make_transformer(
      {.name = "m", .layers = 2, .hidden = 8, .heads = 2, .groups = 1, .head_dim = 4, .ffn = 7, .vocabulary = 9});
  for (int f = 0; f < m.families; ++f) {
    if (m[f].fused == fused_as::gate_up) {
      CHECK(pieces(m[f]) == 2);
      CHECK(piece_box(m, f, 0) == box<3>{{{0, 1}, {0, 7}, {0, 8}}});
      CHECK(piece_box(m, f, 1) == box<3>{{{1, 2}, {0, 7}, {0, 8}}});
    } else if (m[f].fused == fused_as::nothing) {
      CHECK(pieces(m[f]) == 1);
      CHECK(piece_box(m, f, 0).volume() == m[f].tensor_elements());
    }
  }
}
