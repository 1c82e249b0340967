// SPDX-License-Identifier: Apache-2.0
// Zeros in a bound box: its elements become zero whatever their strides, and no byte beside them changes.
#include <doctest/doctest.h>

#include <cstddef>
#include <set>
#include <vector>

#include <reshard/memory/zero_box.hpp>

#include "../support/dice.hpp"

using namespace reshard;
using testing::dice;

TEST_CASE("elements become zero, all other bytes stay: dense rows, padded rows, columns first, one element") {
  dice random(2);
  int dense = 0, apart = 0;
  for (int n = 0; n < 500; ++n) {
    bound_box b;
    b.state = static_cast<int>(random.below(4));
    b.element_bytes = b.state == 0 ? 2 : 4;
    index_t extent[3];
    for (int i = 0; i < 3; ++i) {
      extent[i] = random.within(1, 5);
      const index_t begin = random.below(9);
      b.where.dim[i] = {begin, begin + extent[i]};
    }
    const int orders[3][3] = {{0, 1, 2}, {1, 2, 0}, {2, 1, 0}};  // slowest first
    const auto& order = orders[random.below(3)];
    index_t pitch = random.coin() ? 1 : 2;
    for (int i = 2; i >= 0; --i) {
      b.stride[order[i]] = pitch;
      pitch *= extent[order[i]] + random.below(2);
    }
    ++(b.stride[2] == 1 ? dense : apart);
    std::vector<std::byte> bytes(static_cast<std::size_t>(b.bytes_spanned() + 16), std::byte{0xa5});
    b.data = bytes.data() + 8;
    std::set<index_t> zeros;
    for (index_t i = 0; i < extent[0]; ++i)
      for (index_t j = 0; j < extent[1]; ++j)
        for (index_t k = 0; k < extent[2]; ++k)
          for (bytes_t at = 0; at < b.element_bytes; ++at)
            zeros.insert(8 + (i * b.stride[0] + j * b.stride[1] + k * b.stride[2]) * b.element_bytes + at);
    fill_with_zeros(b);
    bool right = true;
    for (std::size_t at = 0; at < bytes.size(); ++at)
      right = right && (bytes[at] == std::byte{0}) == zeros.contains(static_cast<index_t>(at));
    CHECK(right);
  }
  CHECK_DRAWN(dense > 50);
  CHECK_DRAWN(apart > 50);
}

TEST_CASE("columns that lie on one another are one element") {
  std::vector<std::byte> bytes(24, std::byte{0xa5});
  bound_box b{{1, {}, {{{0, 1}, {0, 2}, {0, 3}}}}, bytes.data(), {0, 2, 0}, 4};
  fill_with_zeros(b);
  for (std::size_t at = 0; at < bytes.size(); ++at)
    CHECK((bytes[at] == std::byte{0}) == (at < 4 || (at >= 8 && at < 12)));
}
