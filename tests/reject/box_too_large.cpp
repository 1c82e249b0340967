// SPDX-License-Identifier: Apache-2.0
// expect: does not fit 64 bits
// expect: 1099511627776, 1099511627776
#include <reshard/algebra/box.hpp>
using namespace reshard;

#ifdef ACCEPT
constexpr index_t elements = whole_box({1 << 20, 1 << 20}).volume();
#else
constexpr index_t elements = whole_box({1LL << 40, 1LL << 40}).volume();
#endif
