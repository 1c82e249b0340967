// SPDX-License-Identifier: Apache-2.0
// Every path of copy() against a copy of one byte at a time, all of the destination compared, and the laws of coalesce.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "reshard/copy/strided_copy.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../support/dice.hpp"
#include "../support/tries.hpp"

using reshard::coalesce;
using reshard::copy_path;
using reshard::copy_shape;
using std::int64_t;

namespace {

constexpr copy_path paths[] = {copy_path::automatic, copy_path::reference, copy_path::cached, copy_path::streaming};

/// visit(dst offset, src offset) for each byte, in the order of the runs.
template <class Visit>
void each_byte(const copy_shape& shape, Visit&& visit) {
  int64_t runs = 1;
  for (int d = 0; d < shape.ndim; ++d) runs *= shape.extent[d];
  for (int64_t r = 0; r < runs; ++r) {
    int64_t to = 0, from = 0, rest = r;
    for (int d = shape.ndim - 1; d >= 0; --d) {
      to += rest % shape.extent[d] * shape.dst_stride[d];
      from += rest % shape.extent[d] * shape.src_stride[d];
      rest /= shape.extent[d];
    }
    for (int64_t b = 0; b < shape.run_bytes; ++b) visit(to + b, from + b);
  }
}

/// [lowest, highest + 1) of the offsets that a side touches, at extents of at least 1.
std::pair<int64_t, int64_t> reach(const copy_shape& shape, const int64_t* stride) {
  int64_t low = 0, high = shape.run_bytes;
  for (int d = 0; d < shape.ndim; ++d)
    (stride[d] < 0 ? low : high) += std::max<int64_t>(shape.extent[d] - 1, 0) * stride[d];
  return {low, high};
}

/// Buffers that end where the copy ends, plus pad bytes before and after the destination.
void check_all_paths(const copy_shape& shape, int64_t dst_pad, int64_t src_pad, unsigned seed) {
  const auto dst_reach = reach(shape, shape.dst_stride);
  const auto src_reach = reach(shape, shape.src_stride);
  const int64_t dst_low = dst_reach.first, src_low = src_reach.first;
  std::minstd_rand random(seed);
  std::vector<std::byte> src(static_cast<std::size_t>(src_reach.second - src_low + src_pad));
  for (std::byte& b : src) b = static_cast<std::byte>(random() >> 7);
  std::vector<std::byte> before(static_cast<std::size_t>(dst_reach.second - dst_low + 2 * dst_pad));
  for (std::byte& b : before) b = static_cast<std::byte>(random() >> 7);

  std::vector<std::byte> expected = before;
  each_byte(shape, [&](int64_t to, int64_t from) {
    expected[static_cast<std::size_t>(to - dst_low + dst_pad)] =
        src[static_cast<std::size_t>(from - src_low + src_pad)];
  });
  for (const copy_path path : paths) {
    std::vector<std::byte> dst = before;
    reshard::copy(dst.data() + dst_pad - dst_low, src.data() + src_pad - src_low, shape, path);
    CAPTURE(static_cast<int>(path));
    CAPTURE(shape.run_bytes);
    CAPTURE(shape.ndim);
    REQUIRE((dst == expected));
  }
}

struct shape_maker {
  std::mt19937_64 random;

  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  }
  /// Destination strides that keep all runs apart, often exactly adjoining; source strides at will,
  /// often those of the destination, so that dimensions merge on one side or on both.
  copy_shape operator()(int64_t run, int max_dims, int64_t max_extent, bool aligned) {
    copy_shape shape;
    shape.run_bytes = run;
    shape.ndim = static_cast<int>(between(0, max_dims));
    std::vector<int> order;
    for (int d = shape.ndim - 1; d >= 0; --d) order.push_back(d);
    if (between(0, 2) == 0) std::shuffle(order.begin(), order.end(), random);
    const int64_t unit = aligned ? 64 : 1;
    const int64_t dense = between(0, 4);
    const auto gap = [&] { return between(0, 3) < dense ? 0 : unit * between(1, 70); };
    int64_t dst_span = run, src_span = run;
    for (const int d : order) {
      shape.extent[d] = between(0, 3) == 0 ? 1 : between(1, max_extent);
      shape.dst_stride[d] = dst_span + gap();
      dst_span = shape.extent[d] * shape.dst_stride[d];
      shape.src_stride[d] = src_span + gap();
      src_span = shape.extent[d] * shape.src_stride[d];
      const int64_t kind = between(0, 15);
      if (kind == 0) shape.src_stride[d] = 0;
      if (kind == 1) shape.src_stride[d] *= -1;
      if (kind == 2) shape.dst_stride[d] *= -1;
      if (kind == 3) shape.src_stride[d] = between(-100, 100);
    }
    return shape;
  }
};

std::vector<std::pair<int64_t, int64_t>> moves(const copy_shape& shape) {
  std::vector<std::pair<int64_t, int64_t>> all;
  each_byte(shape, [&](int64_t to, int64_t from) { all.emplace_back(to, from); });
  return all;
}

constexpr copy_shape whole{3, {2, 1, 3}, {192, 7, 64}, {192, 9, 64}, 64};
static_assert(coalesce(whole) == copy_shape{0, {}, {}, {}, 384});
constexpr copy_shape gather{3, {2, 5, 3}, {1920, 384, 128}, {960, 192, 64}, 64};
static_assert(coalesce(gather) == copy_shape{1, {30}, {128}, {64}, 64});
constexpr copy_shape one_side{2, {4, 3}, {1000, 64}, {192, 64}, 64};
static_assert(coalesce(one_side) == copy_shape{1, {4}, {1000}, {192}, 192});
constexpr copy_shape kept{2, {4, 3}, {1000, 128}, {384, 128}, 64};
static_assert(coalesce(kept) == kept);
static_assert(coalesce(copy_shape{2, {4, 0}, {1000, 128}, {384, 128}, 64}) == copy_shape{});
static_assert(coalesce(copy_shape{1, {4}, {8}, {8}, 0}) == copy_shape{});
static_assert(gather.total_bytes() == 1920 && copy_shape{}.total_bytes() == 0);

template <class Act>
std::string refused(Act&& act) {
  try {
    act();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "not refused";
}

}  // namespace

TEST_CASE("every run length of one dimension, at every path") {
  for (int64_t run = 1; run <= 300; ++run)
    for (const bool scatter : {false, true}) {
      copy_shape shape{1, {1 + 5000 / run}, {run + (scatter ? 0 : 13)}, {run + (scatter ? 13 : 0)}, run};
      check_all_paths(shape, run % 19, run % 5, static_cast<unsigned>(run));
    }
}

TEST_CASE("long runs, whatever their ends") {
  for (const int64_t run : {2047, 2048, 2049, 2063, 2064, 4095, 4096, 4097, 4160, 4175, 8191, 8192, 8193, 12345})
    for (int64_t pad = 0; pad < 18; pad += testing::under_sanitizer() ? 5 : 1) {
      check_all_paths({1, {3}, {run + 1}, {run + 16}, run}, pad, 17 - pad, static_cast<unsigned>(run));
      check_all_paths({2, {2, 5}, {6 * run, run + 3}, {11 * run, 2 * run - 1}, run}, pad, pad,
                      static_cast<unsigned>(run));
      check_all_paths({0, {}, {}, {}, run}, pad, 0, 3);
    }
}

TEST_CASE("four runs side by side, by lines or whole, whatever their ends and directions") {
  // runs of 1 KiB on go by lines where destinations differ by multiples of 16: with a head and a tail where they are 2
  // KiB or more
  for (const int64_t run : {1024, 1040, 2032, 2048, 2049, 2063, 4097, 10'001, 16'383, 16'384, 16'385})
    for (const int64_t count : {3, 4, 5, 9, 13})
      for (const int64_t pad : {0, 1, 8, 15, 16, 17}) {
        if (testing::under_sanitizer() && pad % 8 != 0) continue;
        const int64_t stride = (run + 15) / 16 * 16 + 32;
        check_all_paths({1, {count}, {run}, {stride}, run}, pad, 3, static_cast<unsigned>(run + count));
        check_all_paths({1, {count}, {-run - 5}, {-stride}, run}, pad, 0, static_cast<unsigned>(run));
      }
  // short runs in groups of as many as a page has room for
  for (const int64_t run : {64, 80, 128, 512, 1008})
    for (const int64_t count : {200, 256, 257, 300}) {
      const int64_t apart = (run + 63) / 64 * 64;
      check_all_paths({1, {count}, {2 * run}, {run}, run}, 0, 1, static_cast<unsigned>(run));
      check_all_paths({1, {count}, {run}, {2 * apart}, run}, 16, 0, static_cast<unsigned>(count));
      check_all_paths({1, {count}, {-3 * run}, {-apart}, run}, 0, 0, 7);
    }
}

TEST_CASE("random shapes") {
  shape_maker make{std::mt19937_64(testing::seed() + 7)};
  for (unsigned i = 0; i < 3000; ++i) {
    const copy_shape shape = make(make.between(1, 2) == 1 ? make.between(1, 40) : make.between(1, 200), 4, 5, false);
    check_all_paths(shape, make.between(0, 70), make.between(0, 20), i);
  }
}

TEST_CASE("random shapes of whole lines, at lines' starts and off them") {
  shape_maker make{std::mt19937_64(testing::seed() + 8)};
  for (unsigned i = 0; i < 300; ++i) {
    const copy_shape shape = make(64 * make.between(1, 80), 3, 4, true);
    // A vector's storage begins 16 bytes past a line or at one: some of these pads meet a line.
    check_all_paths(shape, 16 * make.between(0, 4), make.between(0, 20), i);
  }
}

TEST_CASE("eight dimensions, none of which merges") {
  copy_shape shape;
  shape.ndim = 8;
  shape.run_bytes = 3;
  int64_t dst = 4, src = 5;
  for (int d = 7; d >= 0; --d) {
    shape.extent[d] = 2 + d % 2;
    shape.dst_stride[d] = dst;
    shape.src_stride[d] = src;
    dst = dst * shape.extent[d] + 1;
    src = src * shape.extent[d] + 2;
  }
  CHECK(coalesce(shape) == shape);
  check_all_paths(shape, 5, 0, 1);
}

TEST_CASE("sizes about which the automatic path streams") {
  for (const int64_t run : {64, 192, 4096, 10'000}) {
    const int64_t count = reshard::stream_from_bytes / run + 1;
    check_all_paths({1, {count}, {2 * run}, {run}, run}, 16, 0, 5);
    check_all_paths({1, {count}, {run}, {run + 64}, run}, 48, 3, 6);
  }
  check_all_paths({0, {}, {}, {}, reshard::stream_from_bytes + 5}, 7, 3, 9);
}

TEST_CASE("which layouts stream") {
  using reshard::detail::fills_lines;
  CHECK(fills_lines(640, {1, {9}, {1}, {128}, 64}));
  CHECK_FALSE(fills_lines(656, {1, {9}, {1}, {128}, 64}));
  CHECK_FALSE(fills_lines(640, {1, {9}, {1}, {144}, 64}));
  CHECK_FALSE(fills_lines(640, {2, {9, 9}, {1, 1}, {2000, 128}, 64}));
  CHECK(fills_lines(656, {1, {9}, {1}, {80}, 80}));
  CHECK_FALSE(fills_lines(648, {1, {9}, {1}, {80}, 80}));
  CHECK_FALSE(fills_lines(640, {1, {9}, {1}, {100}, 100}));
  CHECK_FALSE(fills_lines(640, {1, {9}, {1}, {32}, 32}));
  CHECK(fills_lines(641, {1, {9}, {1}, {2049}, 2048}));
}

TEST_CASE("coalesce keeps the bytes and their order, and is done at once") {
  shape_maker make{std::mt19937_64(testing::seed() + 9)};
  int merged = 0;
  for (int i = 0; i < 4000; ++i) {
    const copy_shape shape = make(make.between(1, 12), 6, 3, false);
    const copy_shape less = coalesce(shape);
    REQUIRE(less.total_bytes() == shape.total_bytes());
    REQUIRE(moves(less) == moves(shape));
    REQUIRE(coalesce(less) == less);
    int wide = 0;
    for (int d = 0; d < shape.ndim; ++d) wide += shape.extent[d] > 1 ? 1 : 0;
    REQUIRE(less.ndim <= wide);
    merged += less.ndim < wide ? 1 : 0;
    for (int d = 0; d < less.ndim; ++d) {
      const bool last = d + 1 == less.ndim;
      const int64_t src = last ? less.run_bytes : less.extent[d + 1] * less.src_stride[d + 1];
      const int64_t dst = last ? less.run_bytes : less.extent[d + 1] * less.dst_stride[d + 1];
      REQUIRE(less.extent[d] > 1);
      REQUIRE_FALSE((less.src_stride[d] == src && less.dst_stride[d] == dst));
    }
    REQUIRE(std::all_of(less.extent + less.ndim, std::end(less.extent), [](int64_t e) { return e == 0; }));
  }
  CHECK_DRAWN(merged > 500);
}

TEST_CASE("an empty copy touches nothing") {
  for (const copy_path path : paths) {
    reshard::copy(nullptr, nullptr, {}, path);
    reshard::copy(nullptr, nullptr, {2, {3, 0}, {1, 1}, {1, 1}, 8}, path);
    reshard::copy(nullptr, nullptr, {1, {3}, {1}, {1}, 0}, path);
  }
}

TEST_CASE("refusals say which number of the shape") {
  const auto tried = [](const copy_shape& shape) { return refused([&] { reshard::copy(nullptr, nullptr, shape); }); };
  CHECK(tried({9, {}, {}, {}, 1}) == "reshard: a copy_shape of 9 dimensions; there may be 0 to 8");
  CHECK(tried({-1, {}, {}, {}, 1}) == "reshard: a copy_shape of -1 dimensions; there may be 0 to 8");
  CHECK(tried({0, {}, {}, {}, -3}) == "reshard: a copy_shape with runs of -3 bytes");
  CHECK(tried({2, {0, -2}, {1, 1}, {1, 1}, 4}) == "reshard: a copy_shape whose dimension 1 has the extent -2");
}

TEST_CASE("the bytes of a shape are its run times its extents") {
  CHECK(copy_shape{}.total_bytes() == 0);
  CHECK(copy_shape{.run_bytes = 7}.total_bytes() == 7);
  CHECK(copy_shape{.ndim = 1, .extent = {5, 9}, .run_bytes = 7}.total_bytes() == 35);
  CHECK(copy_shape{.ndim = 3, .extent = {5, 2, 3}, .run_bytes = 4}.total_bytes() == 120);
  CHECK(copy_shape{.ndim = 2, .extent = {5, 0}, .run_bytes = 4}.total_bytes() == 0);
}
