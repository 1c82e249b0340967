// SPDX-License-Identifier: Apache-2.0
// Shapes of copies by hand: how many bytes they have, and in how few dimensions the same copy is told.
#include <doctest/doctest.h>

#include <cstdint>

#include <reshard/copy/detail/copy_shape.hpp>

#include "../support/refused.hpp"

using namespace reshard;

namespace {
constexpr std::int64_t huge = std::int64_t{1} << 40;

void check_fewest(const copy_shape& shape, const copy_shape& fewest) {
  CHECK(coalesce(shape) == fewest);
  CHECK(coalesce(fewest) == fewest);
}
}  // namespace

TEST_CASE("bytes are those of a run times every extent, of those dimensions that there are") {
  CHECK(copy_shape{.run_bytes = 7}.total_bytes() == 7);
  CHECK(copy_shape{2, {3, 5, 11}, {}, {}, 7}.total_bytes() == 105);
  CHECK(copy_shape{3, {3, 5, 11}, {}, {}, 7}.total_bytes() == 1155);
  CHECK(copy_shape{1, {0}, {}, {}, 7}.total_bytes() == 0);
  CHECK(copy_shape{}.total_bytes() == 0);
}

TEST_CASE("dimensions of one index go, whatever their strides") {
  check_fewest({3, {1, 4, 1}, {9, 30, 8}, {7, 50, 6}, 5}, {1, {4}, {30}, {50}, 5});
  check_fewest({2, {1, 1}, {9, 8}, {7, 6}, 5}, {.run_bytes = 5});
  check_fewest({.run_bytes = 5}, {.run_bytes = 5});
}

TEST_CASE("a dimension merges into the next where it goes on there on both sides") {
  check_fewest({2, {3, 4}, {40, 10}, {80, 20}, 5}, {1, {12}, {10}, {20}, 5});
  check_fewest({2, {3, 4}, {41, 10}, {80, 20}, 5}, {2, {3, 4}, {41, 10}, {80, 20}, 5});
  check_fewest({2, {3, 4}, {40, 10}, {81, 20}, 5}, {2, {3, 4}, {40, 10}, {81, 20}, 5});
  check_fewest({3, {2, 3, 4}, {120, 40, 10}, {240, 80, 20}, 5}, {1, {24}, {10}, {20}, 5});
  check_fewest({3, {2, 3, 4}, {130, 40, 10}, {240, 80, 20}, 5}, {2, {2, 12}, {130, 10}, {240, 20}, 5});
  check_fewest({3, {2, 3, 4}, {90, 30, 10}, {180, 60, 20}, 5}, {2, {6, 4}, {30, 10}, {60, 20}, 5});
  check_fewest({3, {2, 1, 4}, {40, 7, 10}, {80, 9, 20}, 5}, {1, {8}, {10}, {20}, 5});
}

TEST_CASE("runs that follow one another on both sides are one") {
  check_fewest({1, {4}, {5}, {5}, 5}, {.run_bytes = 20});
  check_fewest({1, {4}, {5}, {6}, 5}, {1, {4}, {5}, {6}, 5});
  check_fewest({1, {4}, {6}, {5}, 5}, {1, {4}, {6}, {5}, 5});
  check_fewest({2, {3, 4}, {30, 5}, {40, 5}, 5}, {1, {3}, {30}, {40}, 20});
  check_fewest({2, {3, 4}, {20, 5}, {20, 5}, 5}, {.run_bytes = 60});
  check_fewest({1, {4}, {-5}, {-5}, 5}, {1, {4}, {-5}, {-5}, 5});
}

TEST_CASE("a copy of nothing is none, whatever else it has") {
  check_fewest({1, {4}, {5}, {5}, 0}, {});
  check_fewest({3, {2, 0, 4}, {90, 30, 10}, {180, 60, 20}, 5}, {});
  check_fewest({2, {0, huge}, {huge, huge}, {huge, huge}, 5}, {});  // which nobody multiplies
  check_fewest({.run_bytes = 0}, {});
}

TEST_CASE("eight dimensions at most, and neither runs nor extents below nothing") {
  const auto of_dims = [](int ndim) { return copy_shape{.ndim = ndim, .run_bytes = 1}; };
  CHECK(coalesce(of_dims(8)) == copy_shape{});  // of extent 0 each
  copy_shape eight{.ndim = 8, .run_bytes = 1};
  for (int d = 0; d < 8; ++d) eight.extent[d] = 2, eight.src_stride[d] = 1000 - d, eight.dst_stride[d] = 500 - d;
  check_fewest(eight, eight);
  CHECK(testing::refused([&] { coalesce(of_dims(9)); }) ==
        "reshard: a copy_shape of 9 dimensions; there may be 0 to 8");
  CHECK_REFUSED(coalesce(of_dims(-1)), "a copy_shape of -1 dimensions");
  CHECK(testing::refused([] { coalesce({.run_bytes = -1}); }) == "reshard: a copy_shape with runs of -1 bytes");
  CHECK(testing::refused([] {
          coalesce({3, {2, 0, -1}, {}, {}, 5});
        }) == "reshard: a copy_shape whose dimension 2 has the extent -1");
}

TEST_CASE("what is more than a number holds is refused") {
  const auto says = [](const copy_shape& s) { return testing::refused([&] { coalesce(s); }); };
  CHECK(says({2, {2, huge}, {1, huge}, {1, 1}, 1}) != "accepted");
  CHECK(says({2, {2, huge}, {huge, 1}, {1, huge}, 1}) != "accepted");
  CHECK(says({2, {2, huge}, {1, 1}, {1, huge}, 1}) == "accepted");  // one side tells already
  CHECK(says({2, {huge, huge}, {0, 0}, {0, 0}, 1}) != "accepted");
  CHECK(says({1, {huge}, {huge}, {huge}, huge}) != "accepted");
  CHECK(says({1, {huge}, {huge}, {huge}, 1}) == "accepted");
}
