// SPDX-License-Identifier: Apache-2.0
// expect: a degree of config<\.\.\.> is below the least legal one \(1; 0 for zero and bucket\)
#include <reshard/parallelism/config.hpp>
using namespace reshard;

#ifdef ACCEPT
constexpr degrees d = config<dp<1>, zero<0>>{};  // zero's least is 0
#else
constexpr degrees d = config<dp<0>>{};
#endif
