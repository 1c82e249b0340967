// SPDX-License-Identifier: Apache-2.0
// expect: reshard: of the query groups and tp, one must divide the other
// expect: (Tp = 16|groups_match\(12L?, 16L?\)|Groups = 12)
#include <reshard/model/presets.hpp>
#include <reshard/space/static_space.hpp>

using namespace reshard;
constexpr model odd = make_transformer(
    {.name = "odd", .layers = 2, .hidden = 96, .heads = 48, .groups = 12, .head_dim = 4, .ffn = 96, .vocabulary = 96});
#ifdef ACCEPT
using named = config<tp<12>>;
#else
using named = config<tp<16>>;
#endif
static_assert(space_of<odd, named>.ranks() > 0);
