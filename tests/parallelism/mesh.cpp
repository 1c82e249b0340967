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

TEST_CASE("in every order an axis has its size, its pitch and each rank's coordinate; what is not named comes last") {
  const auto digit = [](rank_t rank, index_t pitch, index_t size) { return rank / pitch % size; };
  int orders = 0;
  for (const char* const text :
       {"tp-cp-ep-dp-pp", "pp-dp-ep-cp-tp", "dp-ep-tp-pp-cp", "cp-pp-tp-dp-ep", "ep-dp", "pp-tp", "cp-ep-pp", "dp"}) {
    const rank_order order = parse_rank_order(text);
    CAPTURE(text);
    degrees d{.order = order};  // an axis that is not named is 1
    if (order.has(order_axis::tp)) d.tp = 2;
    if (order.has(order_axis::cp)) d.cp = 3;
    if (order.has(order_axis::pp)) d.pp = 5;
    if (order.has(order_axis::dp)) d.dp = 4;
    if (order.has(order_axis::ep) && order.has(order_axis::dp)) d.ep = 2;
    d.etp = 1;
    for (const mesh_kind kind : {mesh_kind::dense, mesh_kind::expert}) {
      const bool dense = kind == mesh_kind::dense;
      const mesh m = mesh_of(d, kind);
      const index_t size[mesh_ndim] = {dense ? d.tp : 1, dense ? d.cp : d.ep, dense ? d.dp : d.expert_dp(), d.pp};
      bool seen[mesh_ndim] = {};
      index_t pitch = 1;
      int place = 0;
      const auto check = [&](int axis) {
        CHECK(m.at[axis] == place++);
        CHECK(m.along(axis) == size[axis]);
        CHECK(m.pitch(axis) == pitch);
        for (rank_t rank = 0; rank < m.ranks(); ++rank)
          CHECK(m.coordinate(axis, rank) == digit(rank, pitch, size[axis]));
        pitch *= size[axis], seen[axis] = true;
      };
      for (int i = 0; i < order.axes; ++i) {
        const order_axis axis = order.axis[i];
        if (axis == (dense ? order_axis::ep : order_axis::cp)) continue;
        check(axis == order_axis::tp   ? mesh_axis::tensor
              : axis == order_axis::dp ? mesh_axis::data
              : axis == order_axis::pp ? mesh_axis::pipeline
                                       : mesh_axis::middle);
      }
      for (int axis = 0; axis < mesh_ndim; ++axis)
        if (!seen[axis]) check(axis);
      CHECK(m.ranks() == pitch);
      ++orders;
    }
  }
  CHECK(orders == 16);
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
  CHECK(testing::refused([&] { static_cast<void>(ranks_with(m, 0, -1)); }) ==
        "reshard: mesh: there is no rank -1 among 6");
  CHECK(testing::refused([&] { static_cast<void>(ranks_with(m, -1, 0)); }) ==
        "reshard: mesh: there is no axis -1; axes are 0 to 3");
  CHECK(ranks_with(m, 3, 5) == std::vector<rank_t>{5});
}
