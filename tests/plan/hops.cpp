// SPDX-License-Identifier: Apache-2.0
// Along which axis a box is cut for the chains that pass it on, against the rule by hand.
#include <doctest/doctest.h>

#include <cstdio>
#include <utility>
#include <vector>

#include <reshard/plan/relay/hops.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;

namespace {
constexpr family_box box_of(index_t layers, index_t experts, index_t parts, index_t rows, index_t columns) {
  return {{{1, 1 + layers}, {0, experts}, {2, 2 + parts}, {0, rows}, {5, 5 + columns}}};
}
}  // namespace

static_assert(detail::even_axis(box_of(4, 1, 1, 99, 99), 4) == axis_of::layer);
static_assert(detail::even_axis(box_of(1, 8, 1, 8, 8), 4) == axis_of::expert);
static_assert(detail::even_axis(box_of(1, 1, 1, 4096, 8), 8) == axis_of::row);
static_assert(detail::even_axis(box_of(1, 1, 1, 3, 8), 8) == axis_of::column);
static_assert(detail::even_axis(box_of(1, 1, 1, 127, 5), 2) == axis_of::row);   // 1 in 127 is below 1/64
static_assert(detail::even_axis(box_of(1, 1, 1, 5, 7), 2) == axis_of::column);  // 1 in 5, 1 in 7
static_assert(detail::even_axis(box_of(1, 1, 1, 7, 5), 2) == axis_of::row);     // the least, not the last
static_assert(detail::even_axis(box_of(5, 3, 1, 5, 5), 2) == axis_of::layer);   // of equal ones the first
static_assert(detail::even_axis(box_of(1, 1, 1, 1, 1), 2) == axis_of::layer);

namespace {
/// The hops that are given.
struct noted_hops : detail::hop_sink {
  mutable std::vector<transfer> hops;
  void operator()(const transfer& t) const override { hops.push_back(t); }
};
/// A node with devices 10 to 29, of which some hold a row of so many elements and others lack it.
struct one_node : noted_hops, detail::node_hops {
  explicit one_node(index_t elements) : node_hops(static_cast<const noted_hops&>(*this)) {
    enter({}, {10, 30});
    take_up(3, family{.name = "w", .extent = {1, 1, 1, 1, elements}, .shape_ndim = 1}, box_of(1, 1, 1, 1, elements));
  }
  void passes(std::vector<rank_t> having, std::vector<rank_t> lacking) {
    holding_ = std::move(having), lacking_ = std::move(lacking);
    within_node(piece_, 7);
  }
  void passes_in_phase(index_t phase) { hop(10, 11, phase, purpose::delivered, 1, piece_); }
};
}  // namespace

TEST_CASE("of as many holders as lack it, or more, each part comes from holder (k m + q) mod n, in phase 0") {
  one_node eight(8);
  eight.passes({10, 11, 12, 13, 14, 15, 16, 17}, {20, 21, 22, 23});  // m is 4: two holders' turns
  REQUIRE(eight.hops.size() == 16);
  for (const transfer& t : eight.hops) {
    const index_t k = t.dst - 20, q = t.where.dim[axis_of::column].begin - 5;
    CHECK(t.where.dim[axis_of::column].size() == 2);
    CHECK(t.src == 10 + (4 * k + q / 2) % 8);
    CHECK(t.phase == 0);
    CHECK(t.family == 3);
  }
}

TEST_CASE("a row of fewer elements than devices that lack it is scattered to as many as it has, without empty hops") {
  one_node two(2);
  two.passes({10}, {20, 21, 22});
  CHECK(two.hops.size() == 2 + 2 * 2);
  for (const transfer& t : two.hops) CHECK(t.where.volume() == 1);
}

TEST_CASE("the highest phase is that which a transfer can say") {
  one_node node(4);
  node.passes_in_phase(most_phases);
  REQUIRE(node.hops.size() == 1);
  CHECK(node.hops[0].phase == 32767);
  CHECK(testing::refused([&] { node.passes_in_phase(most_phases + 1); }) ==
        "reshard: relay: a byte would pass 32768 devices one after the other; at most 32767, so that more chains are "
        "needed");
  CHECK(node.hops.size() == 1);
}

TEST_CASE("the first axis with parts of at most 1/64 above the mean, else that with the least") {
  testing::dice random(5);
  int even = 0, uneven = 0;
  for (int n = 0; n < 2000; ++n) {
    const index_t parts = random.within(1, 9), most = random.coin() ? 12 : 2000;
    index_t extent[family_ndim];
    for (index_t& e : extent) e = random.within(1, most);
    double above[family_ndim];  // of the largest part, the mean being 1
    int wanted = 0;
    for (int axis = family_ndim; axis-- > 0;) {
      const auto mean = static_cast<double>(extent[axis]) / static_cast<double>(parts);
      index_t largest = extent[axis] / parts;
      if (largest * parts < extent[axis]) ++largest;
      above[axis] = static_cast<double>(static_cast<index_t>(1024 * (static_cast<double>(largest) / mean - 1) + 1e-9));
    }
    bool found = false;
    for (int axis = 0; axis < family_ndim && !found; ++axis)
      if (above[axis] <= 16) wanted = axis, found = true;
    for (int axis = 0; axis < family_ndim && !found; ++axis)
      if (above[axis] < above[wanted]) wanted = axis;
    found ? ++even : ++uneven;
    CHECK(detail::even_axis(box_of(extent[0], extent[1], extent[2], extent[3], extent[4]), parts) == wanted);
  }
  std::printf("%d with an even axis, %d without\n", even, uneven);
  CHECK_DRAWN(even > 100);
  CHECK_DRAWN(uneven > 100);
}
