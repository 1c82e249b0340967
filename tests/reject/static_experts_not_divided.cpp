// SPDX-License-Identifier: Apache-2.0
// expect: reshard: the experts do not divide by ep
// expect: (Degree = 3|divides\(3L?, 128L?\))
#include <reshard/model/presets.hpp>
#include <reshard/space/static_space.hpp>

using namespace reshard;
#ifdef ACCEPT
using named = config<tp<4>, dp<2>, ep<2>>;
#else
using named = config<tp<4>, dp<3>, ep<3>>;
#endif
static_assert(space_of<models::qwen3_30b_a3b, named>.ranks() > 0);
