// SPDX-License-Identifier: Apache-2.0
// Pipeline placement: the distribution law, the formulas, and the oracle's slot by slot dealing.
#include <doctest/doctest.h>

#include <reshard/parallelism/pipeline.hpp>

#include "../algebra/distribution_law.hpp"
#include "../oracle/layouts.hpp"

using namespace reshard;
using testing::check_distribution_law;

namespace {
constexpr pipeline_split splits[] = {pipeline_split::even, pipeline_split::account, pipeline_split::spread};
constexpr const char* split_names[] = {"even", "account", "spread"};

bool divides(index_t layers, const degrees& d) {
  switch (d.split) {
    case pipeline_split::even: return layers % d.chunks() == 0;
    case pipeline_split::account: return (layers + 2) % d.chunks() == 0;
    case pipeline_split::spread: return d.vpp == 1;
  }
  return false;
}

void check_placement(index_t layers, const degrees& d) {
  const pipeline_placement placed(layers, d);
  CHECK(placed.extent() == layers);
  CHECK(placed.parts() == d.pp);
  CHECK(placed.chunks() == d.pp * d.vpp);
  oracle::layout l;
  l.pp = d.pp;
  l.vpp = d.vpp;
  l.split = split_names[static_cast<int>(d.split)];
  CHECK(placed.point(0) == 0);
  CHECK(placed.point(d.chunks()) == layers);
  for (index_t k = 0; k < d.chunks(); ++k) {
    const auto [first, past] = oracle::layers_of_chunk(layers, l, k % d.pp, k / d.pp);
    const interval chunk = placed.chunk(k);
    CHECK(placed.stage_of_chunk(k) == k % d.pp);
    CHECK(chunk.size() == past - first);
    if (!chunk.empty()) CHECK(chunk == interval{first, past});
    for (index_t layer = chunk.begin; layer < chunk.end; ++layer) CHECK(placed.chunk_of(layer) == k);
  }
  check_distribution_law(placed);
}
}  // namespace

static_assert(Distribution<pipeline_placement>);

TEST_CASE("every split, depth and number of chunks: the cut points, their inverse, and the distribution law") {
  int placed = 0, empty = 0;
  for (const pipeline_split split : splits)
    for (index_t layers = 1; layers <= 12; ++layers)
      for (index_t pp = 1; pp <= 7; ++pp)
        for (index_t vpp = 1; vpp <= (pp > 1 ? 4 : 1); ++vpp) {
          const degrees d{.pp = pp, .vpp = vpp, .split = split};
          if (!divides(layers, d)) continue;
          CAPTURE(layers);
          CAPTURE(pp);
          CAPTURE(vpp);
          CAPTURE(static_cast<int>(split));
          check_placement(layers, d);
          ++placed;
          for (index_t k = 0; k < d.chunks(); ++k) empty += pipeline_placement(layers, d).chunk(k).empty() ? 1 : 0;
        }
  CHECK(placed > 100);
  CHECK(empty > 50);  // stages without layers are legal, and met here
}
