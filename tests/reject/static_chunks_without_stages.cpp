// SPDX-License-Identifier: Apache-2.0
// expect: reshard: vpp > 1 needs pp > 1
// expect: (Vpp = 2|vpp_has_stages\(2L?, 1L?\))
#include <reshard/model/presets.hpp>
#include <reshard/space/static_space.hpp>

using namespace reshard;
#ifdef ACCEPT
using named = config<pp<2>, vpp<2>>;
#else
using named = config<pp<1>, vpp<2>>;
#endif
static_assert(space_of<models::llama2_70b, named>.ranks() > 0);
