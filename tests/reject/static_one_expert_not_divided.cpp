// SPDX-License-Identifier: Apache-2.0
// expect: reshard: the experts do not divide by ep
// expect: (Degree = 2|divides\(2L?, 1L?\))
#include <reshard/model/transformer.hpp>
#include <reshard/space/static_space.hpp>

using namespace reshard;

// A single expert is a model with experts.
inline constexpr model one = make_transformer({.name = "one",
                                               .layers = 2,
                                               .hidden = 64,
                                               .heads = 4,
                                               .groups = 4,
                                               .head_dim = 16,
                                               .ffn = 64,
                                               .vocabulary = 128,
                                               .experts = 1,
                                               .expert_ffn = 64});
#ifdef ACCEPT
using named = config<dp<2>>;
#else
using named = config<dp<2>, ep<2>>;
#endif
static_assert(space_of<one, named>.ranks() > 0);
