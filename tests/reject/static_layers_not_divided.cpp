// SPDX-License-Identifier: Apache-2.0
// expect: reshard: the layers do not divide over pp x vpp; split=spread takes any number, split=account counts two more
// expect: (Pp = 12|layers_split\(.*, 80L?, 12L?, 1L?\))
#include <reshard/model/presets.hpp>
#include <reshard/space/static_space.hpp>

using namespace reshard;
#ifdef ACCEPT
using named = config<tp<4>, pp<8>>;
#else
using named = config<tp<4>, pp<12>>;
#endif
static_assert(space_of<models::llama2_70b, named>.ranks() > 0);
