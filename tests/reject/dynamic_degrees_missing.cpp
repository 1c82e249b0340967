// SPDX-License-Identifier: Apache-2.0
// expect: config<\.\.\.> takes exactly one number per dynamic degree, in the order of its list
#include <reshard/parallelism/config.hpp>
using namespace reshard;

#ifdef ACCEPT
const degrees d = config<tp<>, pp<4>, dp<>>{2, 8};
#else
const degrees d = config<tp<>, pp<4>, dp<>>{2};
#endif
