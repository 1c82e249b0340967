// SPDX-License-Identifier: Apache-2.0
// Pipeline placement: the distribution law, the formulas, and the oracle's slot by slot dealing.
#include <doctest/doctest.h>

#include <string>

#include <reshard/parallelism/detail/layout_keys.hpp>
#include <reshard/parallelism/detail/legal_pipeline.hpp>
#include <reshard/parallelism/pipeline.hpp>

#include "../algebra/distribution_law.hpp"
#include "../oracle/trainer_pipeline.hpp"

using namespace reshard;
using testing::check_distribution_law;

namespace {
constexpr pipeline_split splits[] = {pipeline_split::even, pipeline_split::account, pipeline_split::spread,
                                     pipeline_split::account_embedding, pipeline_split::account_loss};

bool divides(index_t layers, const degrees& d) {
  switch (d.split) {
    case pipeline_split::even: return layers % d.chunks() == 0;
    case pipeline_split::account: return (layers + 2) % d.chunks() == 0;
    case pipeline_split::spread: return d.vpp == 1;
    case pipeline_split::account_embedding:
    case pipeline_split::account_loss: return (layers + 1) % d.chunks() == 0;
  }
  return false;
}

/// The oracle's keys of the same pipeline.
oracle::trainer::pipeline_keys keys_of(const degrees& d) {
  oracle::trainer::pipeline_keys keys;
  keys.pp = d.pp;
  keys.vpp = d.vpp;
  if (d.first > 0) keys.first = d.first;
  if (d.last > 0) keys.last = d.last;
  if (d.first == 0 && d.last == 0 && !d.string.given()) keys.split = name(d.split);
  if (d.string.given()) keys.string = to_text(d.string);
  return keys;
}

void check_placement(index_t layers, const degrees& d, index_t predictions = 0) {
  const pipeline_placement placed(layers, d);
  CHECK(placed.extent() == layers);
  CHECK(placed.parts() == d.pp);
  CHECK(placed.chunks() == d.pp * d.vpp);
  const oracle::trainer::pipeline dealt = oracle::trainer::pipeline_of(keys_of(d), layers, predictions);
  CHECK(placed.point(0) == 0);
  CHECK(placed.point(d.chunks()) == layers);
  for (index_t k = 0; k < d.chunks(); ++k) {
    const auto [first, past] = dealt.layers.at(static_cast<std::size_t>(k));
    const interval chunk = placed.chunk(k);
    CHECK(placed.stage_of_chunk(k) == dealt.stage_of(k));
    CHECK(chunk.size() == past - first);
    CHECK(chunk == interval{placed.point(k), placed.point(k + 1)});
    if (!chunk.empty()) CHECK(chunk == interval{first, past});
    for (index_t layer = chunk.begin; layer < chunk.end; ++layer) CHECK(placed.chunk_of(layer) == k);
  }
  CHECK(placed.prediction_chunk() == (predictions > 0 ? dealt.prediction : d.chunks() - 1));
  CHECK(placed.chunk(placed.last_layer_chunk()).end == layers);
  CHECK_FALSE(placed.chunk(placed.last_layer_chunk()).empty());
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
          degrees d;
          d.pp = pp, d.vpp = vpp, d.split = split;
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

TEST_CASE("first and last: every number of layers at both ends that leaves the others as many each") {
  int placed = 0, one_end = 0, alone = 0;
  for (index_t pp = 1; pp <= 5; ++pp)
    for (index_t vpp = 1; vpp <= (pp > 1 ? 3 : 1); ++vpp)
      for (index_t first = 0; first <= 6; ++first)
        for (index_t last = 0; last <= 6; ++last)
          for (index_t layers = 1; layers <= 24; ++layers) {
            degrees d;
            d.pp = pp, d.vpp = vpp, d.first = first, d.last = last;
            if ((first == 0 && last == 0) || !rules::ends_leave_layers(d, layers) ||
                !rules::ends_divide_by_chunks(d, layers))
              continue;
            CAPTURE(layers);
            CAPTURE(pp);
            CAPTURE(vpp);
            CAPTURE(first);
            CAPTURE(last);
            check_placement(layers, d);
            ++placed;
            one_end += first == 0 || last == 0 ? 1 : 0;
            alone += pp == 1 ? 1 : 0;
          }
  CHECK(placed > 300);
  CHECK(one_end > 100);
  CHECK(alone == 12);  // one stage is the first or the last, of 1 to 6 layers
}

TEST_CASE("layout strings: the chunks that they write, empty ones among them, and the chunk of m") {
  const struct {
    const char* text;
    index_t pp;
  } cases[] = {{"EttL", 1},         {"Ett|L", 2},
               {"E|tt|tt|L", 4},    {"Et*3|(tt|)*5L", 7},
               {"E|t|||t|mL", 2},   {"Ettt|(tt|)*29m|L", 4},
               {"Et|t|tm|L", 2},    {"E|t|t|tttt|t|mmL", 3},
               {"E|||t|||t|||L", 2}};
  for (const auto& c : cases) {
    CAPTURE(std::string(c.text));
    degrees d;
    d.pp = c.pp;
    d.string = parse_pipeline_string(c.text);
    detail::settle_chunks(d, false);
    REQUIRE(d.chunks() == d.string.chunks);
    check_placement(d.string.layers, d, d.string.predictions);
  }
}

TEST_CASE("a model without layers has its last layer, and its prediction layers, in the last chunk") {
  CHECK(pipeline_placement().last_layer_chunk() == 0);
  for (const index_t vpp : {1, 2}) {
    degrees d;
    d.pp = 4, d.vpp = vpp;
    const pipeline_placement none(0, d);
    CHECK(none.last_layer_chunk() == 4 * vpp - 1);
    CHECK(none.prediction_chunk() == 4 * vpp - 1);
    for (index_t k = 0; k < 4 * vpp; ++k) CHECK(none.chunk(k).empty());
  }
}

TEST_CASE("a placement is a value at compile time too") {
  constexpr auto uneven = [] {
    degrees d;
    d.pp = 4, d.vpp = 2, d.first = 2, d.last = 6;
    return pipeline_placement(16, d);
  }();
  static_assert(uneven.chunk(0) == interval{0, 1} && uneven.chunk(3) == interval{5, 8});
  static_assert(uneven.chunk_of(8) == 4 && uneven.point(8) == 16);
  static_assert(uneven.last_layer_chunk() == 7 && uneven.prediction_chunk() == 7);
  constexpr auto written = [] {
    degrees d;
    d.pp = 2, d.vpp = 2;
    d.string = parse_pipeline_string("Ett|t||mL");
    return pipeline_placement(3, d);
  }();
  static_assert(written.last_layer_chunk() == 1 && written.prediction_chunk() == 3 && written.chunk_of(2) == 1);
}
