// SPDX-License-Identifier: Apache-2.0
// expect: Distribution
// expect: owners
#include <reshard/algebra/distribution.hpp>
using namespace reshard;

struct halves {
  constexpr index_t extent() const { return 10; }
  constexpr index_t parts() const { return 2; }
  template <typename Sink>
  constexpr void intervals(index_t p, Sink&& sink) const {
    sink(interval{5 * p, 5 * p + 5});
  }
#ifdef ACCEPT
  template <typename Sink>
  constexpr void owners(interval range, Sink&& sink) const {
    for (index_t p = range.begin / 5; 5 * p < range.end; ++p) sink(p, interval{5 * p, 5 * p + 5});
  }
#endif
};
static_assert(Distribution<halves>);
