// SPDX-License-Identifier: Apache-2.0
// Meshes: the mixed-radix map between ranks and coordinates, and its inverse.
#include <doctest/doctest.h>

#include <range/v3/view/cartesian_product.hpp>
#include <range/v3/view/indices.hpp>

#include <reshard/parallelism/detail/layout_keys.hpp>
#include <reshard/parallelism/mesh.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using ranges::views::cartesian_product, ranges::views::indices;

TEST_CASE("rank = c0 + e0 (c1 + e1 (c2 + e2 c3)), and coordinates() is its inverse") {
  const mesh m{{2, 3, 4, 5}};
  rank_t rank = 0;
  for (const auto [c3, c2, c1, c0] :
       cartesian_product(indices(index_t{5}), indices(index_t{4}), indices(index_t{3}), indices(index_t{2}))) {
    const index_t c[mesh_ndim] = {c0, c1, c2, c3};
    CHECK(m.rank_of(c) == rank);
    index_t back[mesh_ndim];
    m.coordinates(rank, back);
    for (int a = 0; a < mesh_ndim; ++a) CHECK(back[a] == c[a]);
    ++rank;
  }
  CHECK(m.ranks() == rank);
}

TEST_CASE("dense and expert meshes are two readings of the same ranks, which agree in pp") {
  const degrees d{.tp = 4, .cp = 2, .pp = 2, .dp = 4, .ep = 8, .etp = 2};
  const mesh dense = mesh_of(d, mesh_kind::dense), expert = mesh_of(d, mesh_kind::expert);
  CHECK(dense.ranks() == d.world());
  CHECK(expert.ranks() == d.world());
  for (rank_t rank = 0; rank < d.world(); ++rank) {
    index_t a[mesh_ndim], b[mesh_ndim];
    dense.coordinates(rank, a);
    expert.coordinates(rank, b);
    CHECK(a[mesh_axis::pipeline] == b[mesh_axis::pipeline]);
    CHECK(a[mesh_axis::tensor] == rank % 4);
    CHECK(a[mesh_axis::middle] == rank / 4 % 2);
    CHECK(b[mesh_axis::tensor] == rank % 2);
    CHECK(b[mesh_axis::middle] == rank / 2 % 8);
  }
}

TEST_CASE("ranks_with: ranks that differ on one axis alone, ascending by it, and the same for each of them") {
  for (const char* const order : {"tp-cp-ep-dp-pp", "dp-tp-cp-ep-pp"}) {
    const degrees d{.tp = 2, .cp = 3, .pp = 2, .dp = 4, .ep = 4, .etp = 1, .order = parse_rank_order(order)};
    for (const mesh_kind kind : {mesh_kind::dense, mesh_kind::expert}) {
      const mesh m = mesh_of(d, kind);
      for (rank_t rank = 0; rank < m.ranks(); ++rank)
        for (int axis = 0; axis < mesh_ndim; ++axis) {
          std::vector<rank_t> wanted;  // by what it is defined as
          for (index_t c = 0; c < m.along(axis); ++c)
            for (rank_t r = 0; r < m.ranks(); ++r) {
              bool same = m.coordinate(axis, r) == c;
              for (int a = 0; a < mesh_ndim; ++a)
                same = same && (a == axis || m.coordinate(a, r) == m.coordinate(a, rank));
              if (same) wanted.push_back(r);
            }
          CHECK(ranks_with(m, axis, rank) == wanted);
        }
    }
  }
}

TEST_CASE("ranks_with refuses a rank and an axis that are not there") {
  const mesh m{{2, 1, 3, 1}};
  CHECK(testing::refused([&] { static_cast<void>(ranks_with(m, 0, 6)); }) ==
        "reshard: mesh: there is no rank 6 among 6");
  CHECK(testing::refused([&] { static_cast<void>(ranks_with(m, 4, 0)); }) ==
        "reshard: mesh: there is no axis 4; axes are 0 to 3");
}
