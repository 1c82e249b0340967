// SPDX-License-Identifier: Apache-2.0
// Contiguous runs: offsets of single coordinates against the loops, and the loops themselves. (That their number is the
// least is shown in algebra/flat.cpp.)
#include <doctest/doctest.h>

#include <cstdio>
#include <vector>

#include <reshard/algebra/runs.hpp>

#include "../support/points.hpp"

using namespace reshard;
using testing::dice;

namespace {
template <int N>
void check_offsets(int& with_loops, int& without) {
  dice random(static_cast<std::uint64_t>(10 + N));
  for (int n = 0; n < 400; ++n) {
    index_t extent[N];
    for (index_t& e : extent) e = random.within(1, 5);
    const box<N> b = testing::random_part(random, extent);
    std::vector<index_t> wanted, found;
    testing::each_point(b, [&](const index_t(&x)[N]) {
      index_t offset = 0;
      for (int i = 0; i < N; ++i) offset = offset * extent[i] + x[i];
      wanted.push_back(offset);
    });
    const strided_runs<N> runs = contiguous_runs(extent, b);
    index_t visited = 0, past = -1;
    runs.for_each([&](interval run) {
      ++visited;
      CHECK(run.begin > past);  // neighbours neither overlap nor touch
      past = run.end;
      for (index_t x = run.begin; x < run.end; ++x) found.push_back(x);
    });
    CHECK(found == wanted);
    CHECK(runs.runs() == visited);
    CHECK(runs.elements() == static_cast<index_t>(wanted.size()));
    ++(runs.ndim > 0 ? with_loops : without);
  }
}
}  // namespace

TEST_CASE("the runs of a box are the offsets of its coordinates, in row-major order, and no two runs touch") {
  int with_loops = 0, without = 0;
  check_offsets<1>(with_loops, without);
  check_offsets<2>(with_loops, without);
  check_offsets<3>(with_loops, without);
  check_offsets<5>(with_loops, without);
  std::printf("%d boxes with loops around their runs, %d of one run\n", with_loops, without);
  CHECK(with_loops > 100);
  CHECK(without > 100);
}

TEST_CASE("loops by hand: the outer one is the slowest, and a pattern without loops is one run") {
  strided_runs<2> by_hand{.offset = 7, .run = 2, .ndim = 2, .count = {2, 3}, .stride = {100, 10}};
  std::vector<index_t> begins;
  const auto note = [&](interval run) {
    CHECK(run.size() == by_hand.run);
    begins.push_back(run.begin);
  };
  by_hand.for_each(note);
  CHECK(begins == std::vector<index_t>{7, 17, 27, 107, 117, 127});
  CHECK(by_hand.runs() == 6);
  CHECK(by_hand.elements() == 12);
  by_hand.ndim = 0;
  begins.clear();
  by_hand.for_each(note);
  CHECK(begins == std::vector<index_t>{7});
  CHECK(by_hand.runs() == 1);
}

TEST_CASE("loops that continue each other are one; a whole array is one run; unit loops are not there") {
  const auto columns = contiguous_runs({2, 3, 4}, {{{0, 2}, {0, 3}, {1, 3}}});
  CHECK(columns.ndim == 1);
  CHECK(columns.offset == 1);
  CHECK(columns.run == 2);
  CHECK(columns.count[0] == 6);
  CHECK(columns.stride[0] == 4);
  const auto rows = contiguous_runs({2, 3, 4}, {{{0, 2}, {1, 2}, {0, 4}}});
  CHECK(rows.ndim == 1);
  CHECK(rows.run == 4);
  CHECK(rows.count[0] == 2);
  CHECK(rows.stride[0] == 12);
  const auto both = contiguous_runs({3, 4, 5}, {{{1, 3}, {1, 3}, {0, 3}}});
  CHECK(both.ndim == 2);
  CHECK(both.count[0] == 2);
  CHECK(both.stride[0] == 20);
  CHECK(both.stride[1] == 5);
  CHECK(contiguous_runs({2, 3, 4}, whole_box({2, 3, 4})).ndim == 0);
  CHECK(contiguous_runs({2, 3, 4}, whole_box({2, 3, 4})).run == 24);
}
