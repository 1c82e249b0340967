// SPDX-License-Identifier: Apache-2.0
// expect: a box has at least one dimension
#include <reshard/algebra/box.hpp>
using namespace reshard;

#ifdef ACCEPT
constexpr box<1> b{{{0, 3}}};
#else
constexpr box<0> b{};
#endif
static_assert(!b.empty());
