// SPDX-License-Identifier: Apache-2.0
// What somebody else might write first: two ranks' shares of one array, and what is common to them.
#include <cstdio>

#include <reshard/algebra/box.hpp>
#include <reshard/base/version.hpp>

int main() {
  constexpr reshard::box<2> before{{{0, 192}, {0, 768}}};
  constexpr reshard::box<2> after{{{128, 256}, {0, 768}}};
  static_assert(intersect(before, after).volume() == 64 * 768);
  std::printf("reshard %s: %lld elements stay\n", RESHARD_VERSION, static_cast<long long>(intersect(before, after).volume()));
}
