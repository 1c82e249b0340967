// SPDX-License-Identifier: Apache-2.0
// expect: no (viable conversion|matching)|could not convert|cannot convert|conversion from
#include <reshard/parallelism/config.hpp>
using namespace reshard;

// Degrees are named: a bare number says nothing.
#ifdef ACCEPT
const degrees d = config{tp{4}};
#else
const config<tp<>> c = 4;
#endif
