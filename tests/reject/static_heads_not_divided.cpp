// SPDX-License-Identifier: Apache-2.0
// expect: reshard: the attention heads do not divide by tp
// expect: (Degree = 3|divides\(3L?, 64L?\))
#include <reshard/model/presets.hpp>
#include <reshard/space/static_space.hpp>

using namespace reshard;
#ifdef ACCEPT
using named = config<tp<4>, pp<8>>;
#else
using named = config<tp<3>, pp<8>>;
#endif
static_assert(space_of<models::llama2_70b, named>.ranks() > 0);
