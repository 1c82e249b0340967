// SPDX-License-Identifier: Apache-2.0
// expect: a key is named twice in config<\.\.\.>
#include <reshard/parallelism/config.hpp>
using namespace reshard;

#ifdef ACCEPT
constexpr degrees d = config<tp<4>, pp<2>>{};
#else
constexpr degrees d = config<tp<4>, pp<2>, tp<2>>{};
#endif
