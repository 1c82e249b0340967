// SPDX-License-Identifier: Apache-2.0
// expect: reshard: the ranks of a stage, tp x cp x dp, do not divide by etp x ep
// expect: (Degree = 8|divides\(8L?, 12L?\))
#include <reshard/model/presets.hpp>
#include <reshard/space/static_space.hpp>

using namespace reshard;
#ifdef ACCEPT
using named = config<tp<4>, dp<2>, ep<8>>;
#else
using named = config<tp<4>, dp<3>, ep<8>>;
#endif
static_assert(space_of<models::qwen3_30b_a3b, named>.ranks() > 0);
